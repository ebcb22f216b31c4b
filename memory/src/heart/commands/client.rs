//! The subcommands of `CLIENT`.

use super::{
    connection::{client, name_of},
    words::{arity, is, unknown_subcommand, whole},
};
use crate::heart::{
    connections::Tracking,
    database::{Answer, Database, Run, SYNTAX, Words},
    reply::Reply,
};

/// The subcommands, each with the number of words that follow. A negative number stands for the
/// least number of words.
const SUBCOMMANDS: [(&str, i32, Run); 8] = [
    ("CACHING", 1, caching),
    ("GETNAME", 0, getname),
    ("ID", 0, |db, _| Ok(Reply::count(db.caller as usize))),
    ("KILL", -1, kill),
    ("LIST", 0, list),
    ("SETINFO", 2, |_, _| Ok(Reply::ok())),
    ("SETNAME", 1, setname),
    ("TRACKING", -1, tracking),
];

pub(super) fn run(db: &mut Database, words: Words<'_>) -> Answer {
    let found = SUBCOMMANDS.iter().find(|(name, ..)| is(words[1], name));
    let Some((name, count, run)) = found else {
        return Err(unknown_subcommand("CLIENT", words[1]));
    };
    let (given, least) = (words.len() - 2, count.unsigned_abs() as usize);
    if given < least || *count >= 0 && given > least {
        return Err(arity(&format!("client|{name}")));
    }
    run(db, &words[2..])
}

fn caching(db: &mut Database, words: Words<'_>) -> Answer {
    let client = client(db)?;
    if !matches!(client.tracking, Tracking::Next | Tracking::OnRequest) {
        return Err(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode \
                    with OPTIN or OPTOUT mode enabled"
                .into(),
        );
    }
    if !is(words[0], "YES") {
        return Err(SYNTAX);
    }
    client.tracking = Tracking::Next;
    Ok(Reply::ok())
}

fn getname(db: &mut Database, _words: Words<'_>) -> Answer {
    match &client(db)?.name {
        name if name.is_empty() => Ok(Reply::Nil),
        name => Ok(Reply::bulk(name)),
    }
}

fn setname(db: &mut Database, words: Words<'_>) -> Answer {
    client(db)?.name = name_of(words[0])?;
    Ok(Reply::ok())
}

fn list(db: &mut Database, _words: Words<'_>) -> Answer {
    let connections = &db.connections;
    let lines = connections.numbers().map(|one| connections.describe(one));
    Ok(Reply::Verbatim(lines.collect()))
}

fn tracking(db: &mut Database, words: Words<'_>) -> Answer {
    let options = &words[1..];
    if !options.iter().all(|option| is(option, "OPTIN")) {
        return Err("ERR a server in memory tracks keys with OPTIN, or all".into());
    }
    let tracking = match (is(words[0], "ON"), is(words[0], "OFF")) {
        (true, _) if options.is_empty() => Tracking::All,
        (true, _) => Tracking::OnRequest,
        (_, true) => Tracking::Off,
        _ => return Err(SYNTAX),
    };
    client(db)?.tracking = tracking;
    db.connections.untrack(db.caller);
    Ok(Reply::ok())
}

/// Closes the connection with the given `ID`.
fn kill(db: &mut Database, words: Words<'_>) -> Answer {
    let [id, victim] = words else {
        return Err(SYNTAX);
    };
    if !is(id, "ID") {
        return Err(SYNTAX);
    }
    let victim = whole(victim)
        .ok()
        .and_then(|victim| u64::try_from(victim).ok())
        .filter(|victim| *victim > 0);
    let victim = victim.ok_or("ERR client-id should be greater than 0")?;
    if !db.connections.is_open(victim) {
        return Ok(Reply::Int(0));
    }
    match victim == db.caller {
        true => client(db)?.is_ending = true,
        false => db.connections.cut(victim),
    }
    Ok(Reply::Int(1))
}
