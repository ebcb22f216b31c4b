//! Commands on strings.

use super::{arity, is, whole};
use crate::heart::{
    database::{Answer, Database, Error, SYNTAX, Words},
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

pub(super) fn strlen(db: &mut Database, words: Words<'_>) -> Answer {
    Ok(Reply::count(db.text(words[1])?.map_or(0, <[u8]>::len)))
}

pub(super) fn set(db: &mut Database, words: Words<'_>) -> Answer {
    let (key, mut options) = (words[1], words[3..].iter());
    let (mut expires, mut must_exist, mut gets, mut keeps) = (None, None, false, false);
    while let Some(option) = options.next() {
        let names = ["EX", "PX", "EXAT", "PXAT"];
        if let Some(form) = names.iter().position(|name| is(option, name)) {
            let number = options.next().filter(|_| expires.is_none() && !keeps);
            let number = whole(number.ok_or(SYNTAX)?)?;
            expires = Some(expiry(db, number, form % 2 == 0, form < 2, "set")?);
        } else if is(option, "KEEPTTL") && expires.is_none() {
            keeps = true;
        } else if is(option, "GET") {
            gets = true;
        } else if is(option, "NX") && must_exist.is_none() {
            must_exist = Some(false);
        } else if is(option, "XX") && must_exist.is_none() {
            must_exist = Some(true);
        } else {
            return Err(SYNTAX);
        }
    }
    let old = if gets {
        db.text(key)?.map(Reply::bulk)
    } else {
        None
    };
    let refused = must_exist.is_some_and(|must| must != db.value(key).is_some());
    if !refused {
        let kept = db.expires(key).flatten().filter(|_| keeps);
        db.put(key, Value::Text(words[2].to_vec()), expires.or(kept));
    }
    match gets {
        true => Ok(old.unwrap_or(Reply::Nil)),
        false if refused => Ok(Reply::Nil),
        false => Ok(Reply::ok()),
    }
}

/// Returns the millisecond in which a key expires that is written with a TTL, or with a time.
fn expiry(db: &Database, number: i64, in_seconds: bool, is_ttl: bool, by: &str) -> Answer<u64> {
    let invalid = || Error::from(format!("ERR invalid expire time in '{by}' command"));
    let number = u64::try_from(number).ok().filter(|number| *number > 0);
    let millis = number.and_then(|number| number.checked_mul(if in_seconds { 1_000 } else { 1 }));
    let start = if is_ttl { db.now() } else { 0 };
    let expires = millis.and_then(|millis| start.checked_add(millis));
    expires.ok_or_else(invalid)
}

pub(super) fn setex(db: &mut Database, words: Words<'_>) -> Answer {
    let expires = expiry(db, whole(words[2])?, true, true, "setex")?;
    db.put(words[1], Value::Text(words[3].to_vec()), Some(expires));
    Ok(Reply::ok())
}

pub(super) fn psetex(db: &mut Database, words: Words<'_>) -> Answer {
    let expires = expiry(db, whole(words[2])?, false, true, "psetex")?;
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

pub(super) fn mset(db: &mut Database, words: Words<'_>) -> Answer {
    if words.len().is_multiple_of(2) {
        return Err(arity("mset"));
    }
    for pair in words[1..].chunks_exact(2) {
        db.put(pair[0], Value::Text(pair[1].to_vec()), None);
    }
    Ok(Reply::ok())
}

pub(super) fn append(db: &mut Database, words: Words<'_>) -> Answer {
    let mut text = db.text(words[1])?.unwrap_or_default().to_vec();
    text.extend_from_slice(words[2]);
    let length = text.len();
    let expires = db.expires(words[1]).flatten();
    db.put(words[1], Value::Text(text), expires);
    Ok(Reply::count(length))
}

pub(super) fn getdel(db: &mut Database, words: Words<'_>) -> Answer {
    let reply = get(db, words)?;
    db.remove(words[1]);
    Ok(reply)
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

pub(super) fn decrby(db: &mut Database, words: Words<'_>) -> Answer {
    let by = whole(words[2])?.checked_neg();
    add(db, words[1], by.ok_or("ERR decrement would overflow")?)
}

fn add(db: &mut Database, key: &[u8], by: i64) -> Answer {
    let number = db.text(key)?.map_or(Ok(0), whole)?;
    let overflow = "ERR increment or decrement would overflow";
    let sum = number.checked_add(by).ok_or(overflow)?;
    let expires = db.expires(key).flatten();
    db.put(key, Value::Text(sum.to_string().into_bytes()), expires);
    Ok(Reply::Int(sum))
}

/// Deletes a key with a condition on its value.
pub(super) fn delex(db: &mut Database, words: Words<'_>) -> Answer {
    let wanted = match words {
        [_, _] => return Ok(Reply::Int(db.remove(words[1]).into())),
        [_, _, option, value] if is(option, "IFEQ") => Ok(*value),
        [_, _, option, value] if is(option, "IFNE") => Err(*value),
        [_, _, _] => return Err(arity("delex")),
        _ => return Err("ERR Invalid condition".into()),
    };
    let is_met = match db.text(words[1]) {
        Ok(None) => false,
        Ok(Some(text)) => wanted.map_or_else(|other| text != other, |value| text == value),
        Err(_) => {
            return Err("ERR Key should be of string type if conditions are specified".into());
        }
    };
    Ok(Reply::Int((is_met && db.remove(words[1])).into()))
}

/// Deletes a key that has a given value.
pub(super) fn delifeq(db: &mut Database, words: Words<'_>) -> Answer {
    let is_met = db.text(words[1])? == Some(words[2]);
    Ok(Reply::Int((is_met && db.remove(words[1])).into()))
}
