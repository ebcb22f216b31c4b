//! Commands on keys of any type.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::words::{is, matches, pattern_of, whole};
use crate::heart::{
    database::{Answer, Database, Error, SYNTAX, Words},
    effect::Effect,
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
    let of_type = match db.value(words[1]) {
        None => "none",
        Some(Value::Text(_)) => "string",
        Some(Value::Hash(_)) => "hash",
        Some(Value::Sorted(_)) => "zset",
    };
    Ok(Reply::Status(of_type.to_owned()))
}

pub(super) fn pttl(db: &mut Database, words: Words<'_>) -> Answer {
    Ok(Reply::Int(db.keys.pttl(words[1], db.micros)))
}

pub(super) fn ttl(db: &mut Database, words: Words<'_>) -> Answer {
    let left = db.keys.pttl(words[1], db.micros);
    Ok(Reply::Int(if left < 0 {
        left
    } else {
        left.saturating_add(500) / 1_000
    }))
}

pub(super) fn expire(db: &mut Database, words: Words<'_>) -> Answer {
    expire_in(db, words, 1_000)
}

pub(super) fn pexpire(db: &mut Database, words: Words<'_>) -> Answer {
    expire_in(db, words, 1)
}

/// Sets the TTL of a key. The TTL is given in units of `unit` milliseconds.
fn expire_in(db: &mut Database, words: Words<'_>, unit: i64) -> Answer {
    let now = i64::try_from(db.now()).unwrap_or(i64::MAX);
    let ttl = whole(words[2])?.checked_mul(unit);
    let expires = ttl.and_then(|ttl| now.checked_add(ttl)).ok_or_else(|| {
        let name = String::from_utf8_lossy(words[0]).to_lowercase();
        Error::from(format!("ERR invalid expire time in '{name}' command"))
    })?;
    let expires = u64::try_from(expires).unwrap_or(0);
    Ok(Reply::Int(db.set_expiry(words[1], expires).into()))
}

pub(super) fn keys(db: &mut Database, words: Words<'_>) -> Answer {
    let pattern = pattern_of(words[1])?;
    let names = db.keys.names(db.micros);
    Ok(Reply::bulks(names.filter(|name| matches(pattern, name))))
}

pub(super) fn dbsize(db: &mut Database, _words: Words<'_>) -> Answer {
    Ok(Reply::count(db.keys.names(db.micros).count()))
}

/// Looks at keys in the order of their hashes. The cursor is the next hash, so that keys which come
/// or go meanwhile do not move it.
pub(super) fn scan(db: &mut Database, words: Words<'_>) -> Answer {
    let cursor = str::from_utf8(words[1])
        .ok()
        .and_then(|text| text.parse().ok());
    let cursor: u64 = cursor.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut count) = (None, 10);
    for option in words[2..].chunks(2) {
        match option {
            [name, value] if is(name, "MATCH") => pattern = Some(pattern_of(value)?),
            [name, value] if is(name, "COUNT") => {
                let number = usize::try_from(whole(value)?).ok();
                count = number.filter(|number| *number > 0).ok_or(SYNTAX)?;
            }
            _ => return Err(SYNTAX),
        }
    }
    let hasher = BuildHasherDefault::<DefaultHasher>::new();
    let names = db.keys.names(db.micros);
    let names = names.map(|name| (hasher.hash_one(name) >> 32, name));
    let mut names: Vec<_> = names.filter(|(hash, _)| *hash >= cursor).collect();
    names.sort_unstable();
    // Keys with the same hash are on the same page.
    let last = names.get(count - 1).map_or(u64::MAX, |(hash, _)| *hash);
    let (page, rest) = names.split_at(names.partition_point(|(hash, _)| *hash <= last));
    let next = rest.first().map_or(0, |(hash, _)| *hash);
    let names = page.iter().map(|(_, name)| name);
    let matching = names.filter(|name| pattern.is_none_or(|pattern| matches(pattern, name)));
    Ok(Reply::Array(vec![
        Reply::bulk(next.to_string()),
        Reply::bulks(matching),
    ]))
}

pub(super) fn flushall(db: &mut Database, words: Words<'_>) -> Answer {
    flush(db, words, true)
}

pub(super) fn flushdb(db: &mut Database, words: Words<'_>) -> Answer {
    flush(db, words, false)
}

fn flush(db: &mut Database, words: Words<'_>, everywhere: bool) -> Answer {
    match words {
        [_] => {}
        [_, how] if is(how, "ASYNC") || is(how, "SYNC") => {}
        _ => return Err(SYNTAX),
    }
    db.keys.entries.clear();
    db.effects.push(Effect::Flushed { everywhere });
    Ok(Reply::ok())
}
