//! Commands on strings.

use super::words::{is, whole};
use crate::heart::{
    database::{Answer, Database, SYNTAX, Words},
    keyspace::Value,
    reply::Reply,
};

pub(super) fn get(db: &mut Database, words: Words<'_>) -> Answer {
    Ok(db.text(words[1])?.map_or(Reply::Nil, Reply::bulk))
}

pub(super) fn mget(db: &mut Database, words: Words<'_>) -> Answer {
    let texts = words[1..].iter().map(|key| match db.value(key) {
        Some(Value::Text(text)) => Reply::bulk(text),
        _ => Reply::Nil,
    });
    Ok(Reply::Array(texts.collect()))
}

pub(super) fn set(db: &mut Database, words: Words<'_>) -> Answer {
    let (key, mut options) = (words[1], &words[3..]);
    let (mut expires, mut must_exist, mut gets, mut keeps) = (None, None, false, false);
    while let [option, rest @ ..] = options {
        options = rest;
        let unit = if is(option, "EX") { 1_000 } else { 1 };
        match rest {
            [ttl, rest @ ..] if (unit > 1 || is(option, "PX")) && expires.is_none() => {
                expires = Some(expiry(db, words[0], (ttl, unit))?);
                options = rest;
            }
            _ if is(option, "KEEPTTL") => keeps = true,
            _ if is(option, "GET") => gets = true,
            _ if is(option, "NX") && must_exist != Some(true) => must_exist = Some(false),
            _ if is(option, "XX") && must_exist != Some(false) => must_exist = Some(true),
            _ => return Err(SYNTAX),
        }
    }
    if keeps && expires.is_some() {
        return Err(SYNTAX);
    }
    let old = if gets {
        get(db, &words[..2])?
    } else {
        Reply::ok()
    };
    let is_refused = must_exist.is_some_and(|must| must != db.value(key).is_some());
    if is_refused {
        return Ok(if gets { old } else { Reply::Nil });
    }
    let kept = db.expires(key).flatten().filter(|_| keeps);
    db.put(key, Value::Text(words[2].to_vec()), expires.or(kept));
    Ok(old)
}

/// Returns the millisecond in which a key expires. The TTL is given in units of `unit`
/// milliseconds. `name` is the name of the command.
fn expiry(db: &Database, name: &[u8], (ttl, unit): (&[u8], u64)) -> Answer<u64> {
    let ttl = u64::try_from(whole(ttl)?).ok().filter(|ttl| *ttl > 0);
    let ttl = ttl.and_then(|ttl| ttl.checked_mul(unit));
    let expires = ttl.and_then(|ttl| db.now().checked_add(ttl));
    let expires = expires.filter(|expires| i64::try_from(*expires).is_ok());
    expires.ok_or_else(|| {
        let name = String::from_utf8_lossy(name).to_lowercase();
        format!("ERR invalid expire time in '{name}' command").into()
    })
}

pub(super) fn setex(db: &mut Database, words: Words<'_>) -> Answer {
    let expires = expiry(db, words[0], (words[2], 1_000))?;
    db.put(words[1], Value::Text(words[3].to_vec()), Some(expires));
    Ok(Reply::ok())
}

pub(super) fn setnx(db: &mut Database, words: Words<'_>) -> Answer {
    let is_new = db.value(words[1]).is_none();
    if is_new {
        db.put(words[1], Value::Text(words[2].to_vec()), None);
    }
    Ok(Reply::Int(is_new.into()))
}

pub(super) fn incr(db: &mut Database, words: Words<'_>) -> Answer {
    add(db, words[1], 1)
}

pub(super) fn incrby(db: &mut Database, words: Words<'_>) -> Answer {
    add(db, words[1], whole(words[2])?)
}

pub(super) fn decr(db: &mut Database, words: Words<'_>) -> Answer {
    add(db, words[1], -1)
}

fn add(db: &mut Database, key: &[u8], by: i64) -> Answer {
    let number = db.text(key)?.map_or(Ok(0), whole)?;
    let overflow = "ERR increment or decrement would overflow";
    let sum = number.checked_add(by).ok_or(overflow)?;
    let expires = db.expires(key).flatten();
    db.put(key, Value::Text(sum.to_string().into_bytes()), expires);
    Ok(Reply::Int(sum))
}

/// Deletes a key that has a given value.
pub(super) fn delex(db: &mut Database, words: Words<'_>) -> Answer {
    if !is(words[2], "IFEQ") {
        return Err("ERR Invalid condition".into());
    }
    let found = db.text(words[1]);
    let is_met = found == Ok(Some(words[3]));
    found.map_err(|_| "ERR Key should be of string type if conditions are specified")?;
    Ok(Reply::Int((is_met && db.remove(words[1])).into()))
}

/// Deletes a key that has a given value.
pub(super) fn delifeq(db: &mut Database, words: Words<'_>) -> Answer {
    let is_met = db.text(words[1])? == Some(words[2]);
    Ok(Reply::Int((is_met && db.remove(words[1])).into()))
}
