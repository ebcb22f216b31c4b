//! Commands on keys of any type.

use super::{is, matches, whole};
use crate::heart::{
    database::{Answer, Database, Effect, Error, SYNTAX, Words},
    keyspace::Value,
    reply::Reply,
};

pub(super) fn del(db: &mut Database, words: Words<'_>) -> Answer {
    let removed = words[1..].iter().filter(|key| db.remove(key));
    Ok(Reply::count(removed.count()))
}

pub(super) fn exists(db: &mut Database, words: Words<'_>) -> Answer {
    let found = words[1..].iter().filter(|key| db.value(key).is_some());
    Ok(Reply::count(found.count()))
}

pub(super) fn type_(db: &mut Database, words: Words<'_>) -> Answer {
    Ok(Reply::Status(type_of(db.value(words[1])).to_owned()))
}

fn type_of(value: Option<&Value>) -> &'static str {
    match value {
        None => "none",
        Some(Value::Text(_)) => "string",
        Some(Value::Hash(_)) => "hash",
        Some(Value::Sorted(_)) => "zset",
    }
}

pub(super) fn pttl(db: &mut Database, words: Words<'_>) -> Answer {
    Ok(Reply::Int(db.keys.pttl(words[1], db.micros)))
}

pub(super) fn ttl(db: &mut Database, words: Words<'_>) -> Answer {
    let left = db.keys.pttl(words[1], db.micros);
    Ok(Reply::Int(if left < 0 {
        left
    } else {
        (left + 500) / 1_000
    }))
}

pub(super) fn persist(db: &mut Database, words: Words<'_>) -> Answer {
    let has_ttl = db.expires(words[1]).flatten().is_some();
    Ok(Reply::Int(
        (has_ttl && db.set_expiry(words[1], None)).into(),
    ))
}

pub(super) fn expire(db: &mut Database, words: Words<'_>) -> Answer {
    expire_at(db, words, 1_000, true)
}

pub(super) fn expireat(db: &mut Database, words: Words<'_>) -> Answer {
    expire_at(db, words, 1_000, false)
}

pub(super) fn pexpire(db: &mut Database, words: Words<'_>) -> Answer {
    expire_at(db, words, 1, true)
}

pub(super) fn pexpireat(db: &mut Database, words: Words<'_>) -> Answer {
    expire_at(db, words, 1, false)
}

/// Sets when a key expires, given in a unit of this many milliseconds.
fn expire_at(db: &mut Database, words: Words<'_>, unit: i64, is_ttl: bool) -> Answer {
    let start = if is_ttl {
        i64::try_from(db.now()).unwrap_or(i64::MAX)
    } else {
        0
    };
    let millis = whole(words[2])?.checked_mul(unit);
    let by = || String::from_utf8_lossy(words[0]).to_lowercase();
    let expires = millis
        .and_then(|millis| millis.checked_add(start))
        .ok_or_else(|| Error::from(format!("ERR invalid expire time in '{}' command", by())))?;
    let expires = u64::try_from(expires).unwrap_or(0);
    let Some(old) = db.expires(words[1]) else {
        return Ok(Reply::Int(0));
    };
    let is_set = match words[3..] {
        [] => true,
        [option] if is(option, "NX") => old.is_none(),
        [option] if is(option, "XX") => old.is_some(),
        [option] if is(option, "GT") => old.is_some_and(|old| expires > old),
        [option] if is(option, "LT") => old.is_none_or(|old| expires < old),
        [option, ..] => {
            let option = String::from_utf8_lossy(option);
            return Err(format!("ERR Unsupported option {option}").into());
        }
    };
    Ok(Reply::Int(
        (is_set && db.set_expiry(words[1], Some(expires))).into(),
    ))
}

pub(super) fn keys(db: &mut Database, words: Words<'_>) -> Answer {
    let names = db.keys.names(db.micros);
    Ok(Reply::bulks(names.filter(|name| matches(words[1], name))))
}

pub(super) fn dbsize(db: &mut Database, _words: Words<'_>) -> Answer {
    Ok(Reply::count(db.keys.names(db.micros).count()))
}

/// The cursor is the number of keys that were looked at.
pub(super) fn scan(db: &mut Database, words: Words<'_>) -> Answer {
    let cursor = str::from_utf8(words[1])
        .ok()
        .and_then(|text| text.parse().ok());
    let cursor: usize = cursor.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut of_type, mut count) = (None, None, 10);
    for option in words[2..].chunks(2) {
        match option {
            [name, value] if is(name, "MATCH") => pattern = Some(*value),
            [name, value] if is(name, "TYPE") => of_type = Some(*value),
            [name, value] if is(name, "COUNT") => {
                let number = usize::try_from(whole(value)?).ok();
                count = number.filter(|number| *number > 0).ok_or(SYNTAX)?;
            }
            _ => return Err(SYNTAX),
        }
    }
    let names: Vec<_> = db
        .keys
        .names(db.micros)
        .skip(cursor)
        .take(count + 1)
        .collect();
    let next = if names.len() > count {
        cursor + count
    } else {
        0
    };
    let page = names.into_iter().take(count);
    let page = page.filter(|name| pattern.is_none_or(|pattern| matches(pattern, name)));
    let page = page.filter(|name| of_type.is_none_or(|it| is(it, type_of(db.value(name)))));
    Ok(Reply::Array(vec![
        Reply::bulk(next.to_string()),
        Reply::bulks(page),
    ]))
}

pub(super) fn flushall(db: &mut Database, _words: Words<'_>) -> Answer {
    flush(db, Effect::FlushedAll)
}

pub(super) fn flushdb(db: &mut Database, _words: Words<'_>) -> Answer {
    flush(db, Effect::Flushed)
}

fn flush(db: &mut Database, effect: Effect) -> Answer {
    db.keys.entries.clear();
    db.effects.push(effect);
    Ok(Reply::ok())
}
