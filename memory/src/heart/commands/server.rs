//! Commands about the server, and messages.

use std::sync::Arc;

use super::words::{arity, is, matches, pattern_of, unknown_subcommand};
use crate::heart::{
    database::{Answer, Database, Words},
    effect::Effect,
    reply::Reply,
};

pub(super) fn config(db: &mut Database, words: Words<'_>) -> Answer {
    match words {
        [_, get, patterns @ ..] if is(get, "GET") && !patterns.is_empty() => {
            let patterns = patterns.iter().map(|word| pattern_of(word));
            let patterns: Vec<_> = patterns.collect::<Answer<_>>()?;
            let asks = |name: &String| {
                let mut patterns = patterns.iter();
                patterns.any(|pattern| matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
            };
            let settings = db.about.settings.iter();
            Ok(Reply::map(settings.filter(|(name, _)| asks(name))))
        }
        [_, set, pairs @ ..] if is(set, "SET") && pairs.len() >= 2 && pairs.len() % 2 == 0 => {
            let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
            let pairs = pairs.chunks_exact(2);
            let pairs = pairs.map(|pair| (text(pair[0]).to_lowercase(), text(pair[1])));
            let pairs: Vec<_> = pairs.collect();
            let is_unknown = |(name, _): &&(String, String)| !db.about.settings.contains_key(name);
            if let Some((name, _)) = pairs.iter().find(is_unknown) {
                let error = "ERR Unknown option or number of arguments for CONFIG SET";
                return Err(format!("{error} - '{name}'").into());
            }
            Arc::make_mut(&mut db.about).settings.extend(pairs);
            Ok(Reply::ok())
        }
        [_, get, ..] if is(get, "GET") => Err(arity("config|get")),
        [_, set, ..] if is(set, "SET") => Err(arity("config|set")),
        _ => Err(unknown_subcommand("CONFIG", words[1])),
    }
}

pub(super) fn echo(_db: &mut Database, words: Words<'_>) -> Answer {
    Ok(Reply::bulk(words[1]))
}

pub(super) fn ping(_db: &mut Database, words: Words<'_>) -> Answer {
    match words {
        [_] => Ok(Reply::Status("PONG".to_owned())),
        [_, text] => Ok(Reply::bulk(text)),
        _ => Err(arity("ping")),
    }
}

pub(super) fn info(db: &mut Database, _words: Words<'_>) -> Answer {
    Ok(Reply::Verbatim(db.about.info()))
}

pub(super) fn time(db: &mut Database, _words: Words<'_>) -> Answer {
    let parts = [db.micros / 1_000_000, db.micros % 1_000_000];
    Ok(Reply::bulks(parts.map(|part| part.to_string())))
}

pub(super) fn publish(db: &mut Database, words: Words<'_>) -> Answer {
    let message = Effect::Published(words[1].to_vec(), words[2].to_vec());
    db.effects.push(message);
    Ok(Reply::count(db.connections.listeners(words[1])))
}
