//! Commands on scripts.

use super::words::{arity, is, unknown_subcommand, whole};
use crate::heart::{
    database::{Answer, Database, Run, Words},
    lua,
    reply::Reply,
    script::Script,
};

pub(super) fn eval(db: &mut Database, words: Words<'_>, call: Run) -> Answer {
    let script = Script::new(words[1]);
    let reply = run(db, &script, words, call)?;
    db.scripts.insert(script.hash().to_owned(), script);
    Ok(reply)
}

pub(super) fn evalsha(db: &mut Database, words: Words<'_>, call: Run) -> Answer {
    let hash = String::from_utf8_lossy(words[1]).to_ascii_lowercase();
    let script = db.scripts.get(&hash).cloned();
    let script = script.ok_or("NOSCRIPT No matching script. Please use EVAL.")?;
    run(db, &script, words, call)
}

fn run(db: &mut Database, script: &Script, words: Words<'_>, call: Run) -> Answer {
    let count = whole(words[2])?;
    let keys = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    if keys > words.len() - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    Ok(lua::run(db, script, (&words[3..], keys), call))
}

pub(super) fn script(db: &mut Database, words: Words<'_>) -> Answer {
    match words {
        [_, load, text] if is(load, "LOAD") => {
            let script = Script::new(text);
            lua::check(&script)?;
            let hash = script.hash().to_owned();
            db.scripts.insert(hash.clone(), script);
            Ok(Reply::bulk(hash))
        }
        [_, exists, hashes @ ..] if is(exists, "EXISTS") && !hashes.is_empty() => {
            let known = hashes.iter().map(|hash| {
                let hash = String::from_utf8_lossy(hash).to_lowercase();
                Reply::Int(db.scripts.contains_key(&hash).into())
            });
            Ok(Reply::Array(known.collect()))
        }
        [_, flush, how @ ..] if is(flush, "FLUSH") => {
            let is_known = |how: &&[u8]| is(how, "ASYNC") || is(how, "SYNC");
            if how.len() > 1 || !how.iter().all(is_known) {
                return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
            }
            db.scripts.clear();
            Ok(Reply::ok())
        }
        [_, exists] if is(exists, "EXISTS") => Err(arity("script|exists")),
        [_, load, ..] if is(load, "LOAD") => Err(arity("script|load")),
        _ => Err(unknown_subcommand("SCRIPT", words[1])),
    }
}
