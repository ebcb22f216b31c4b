//! Commands about the connection that sends them.

use super::words::{is, whole};
use crate::heart::{
    connections::Connection,
    database::{Answer, Database, Error, SYNTAX, Words},
    reply::Reply,
};

/// Returns the connection of the caller.
pub(super) fn client(db: &mut Database) -> Answer<&mut Connection> {
    let client = db.client();
    client.ok_or_else(|| "ERR this command needs a connection".into())
}

pub(super) fn hello(db: &mut Database, words: Words<'_>) -> Answer {
    let mut is_resp3 = client(db)?.is_resp3;
    if let Some(version) = words.get(1) {
        is_resp3 = match whole(version) {
            Ok(2) => false,
            Ok(3) => true,
            Ok(_) => return Err("NOPROTO unsupported protocol version".into()),
            Err(_) => {
                return Err("ERR Protocol version is not an integer or out of range".into());
            }
        };
    }
    let name = hello_options(db, words)?;
    if !client(db)?.is_logged_in {
        let how = "otherwise the HELLO <proto> AUTH <user> <pass> option can be used to \
                   authenticate the client and select the RESP protocol version at the same time";
        let error = "NOAUTH HELLO must be called with the client already authenticated";
        return Err(format!("{error}, {how}").into());
    }
    let (number, version) = (db.caller as usize, db.about.number());
    let client = client(db)?;
    client.is_resp3 = is_resp3;
    client.name = name.unwrap_or_else(|| client.name.clone());
    let entries = [
        ("server", Reply::bulk("redis")),
        ("version", Reply::bulk(version)),
        ("proto", Reply::Int(if is_resp3 { 3 } else { 2 })),
        ("id", Reply::count(number)),
        ("mode", Reply::bulk("standalone")),
        ("role", Reply::bulk("master")),
        ("modules", Reply::Array(Vec::new())),
    ];
    let entries = entries.map(|(name, value)| (Reply::bulk(name), value));
    Ok(Reply::Map(entries.to_vec()))
}

/// Logs in as the options of `HELLO` say. Returns the name that they give.
fn hello_options(db: &mut Database, words: Words<'_>) -> Answer<Option<String>> {
    let (mut options, mut name) = (words.get(2..).unwrap_or_default(), None);
    loop {
        options = match options {
            [] => return Ok(name),
            [option, user, password, rest @ ..] if is(option, "AUTH") => {
                log_in(db, user, password)?;
                rest
            }
            [option, named, rest @ ..] if is(option, "SETNAME") => {
                name = Some(name_of(named)?);
                rest
            }
            [option, ..] => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
            }
        };
    }
}

pub(super) fn auth(db: &mut Database, words: Words<'_>) -> Answer {
    match words {
        [_, password] if db.connections.login.is_some() => log_in(db, b"default", password)?,
        [_, _] => {
            return Err(
                "ERR AUTH <password> called without any password configured for the \
                        default user. Are you sure your configuration is correct?"
                    .into(),
            );
        }
        [_, user, password] => log_in(db, user, password)?,
        _ => return Err(SYNTAX),
    }
    Ok(Reply::ok())
}

fn log_in(db: &mut Database, user: &[u8], password: &[u8]) -> Answer<()> {
    let is_right = match &db.connections.login {
        Some((name, secret)) => (name.as_bytes(), secret.as_bytes()) == (user, password),
        None => user == b"default",
    };
    if !is_right {
        return Err("WRONGPASS invalid username-password pair or user is disabled.".into());
    }
    client(db)?.is_logged_in = true;
    Ok(())
}

pub(super) fn select(db: &mut Database, words: Words<'_>) -> Answer {
    let index = u32::try_from(whole(words[1])?).ok();
    let index = index.filter(|index| *index < 16);
    client(db)?.database = index.ok_or("ERR DB index is out of range")?;
    Ok(Reply::ok())
}

pub(super) fn quit(db: &mut Database, _words: Words<'_>) -> Answer {
    client(db)?.is_ending = true;
    Ok(Reply::ok())
}

pub(super) fn subscribe(db: &mut Database, words: Words<'_>) -> Answer {
    listen(db, &words[1..], "subscribe")
}

pub(super) fn unsubscribe(db: &mut Database, words: Words<'_>) -> Answer {
    let all = db.connections.channels_of(db.caller);
    let all: Vec<_> = all.iter().map(Vec::as_slice).collect();
    listen(
        db,
        if words.len() == 1 { &all } else { &words[1..] },
        "unsubscribe",
    )
}

/// Begins or ends subscriptions. The last confirmation is the reply.
fn listen(db: &mut Database, channels: Words<'_>, what: &str) -> Answer {
    client(db)?;
    let confirmation = |channel: Reply, count: usize| {
        Reply::Push(vec![Reply::bulk(what), channel, Reply::count(count)])
    };
    let Some((last, others)) = channels.split_last() else {
        return Ok(confirmation(Reply::Nil, 0));
    };
    let begins = what == "subscribe";
    for channel in others {
        let count = db.connections.listen(db.caller, channel, begins);
        let confirmed = confirmation(Reply::bulk(channel), count);
        db.connections.send(db.caller, &confirmed);
    }
    let count = db.connections.listen(db.caller, last, begins);
    Ok(confirmation(Reply::bulk(last), count))
}

pub(super) fn name_of(name: &[u8]) -> Answer<String> {
    if !name.iter().all(u8::is_ascii_graphic) {
        let error = "ERR Client names cannot contain spaces, newlines or special characters.";
        return Err(Error::from(error));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}
