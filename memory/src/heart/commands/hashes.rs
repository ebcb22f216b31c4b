//! Commands on hashes.

use super::words::arity;
use crate::heart::{
    database::{Answer, Database, Words},
    reply::Reply,
};

pub(super) fn hget(db: &mut Database, words: Words<'_>) -> Answer {
    let value = db.hash(words[1])?.get(words[2]);
    Ok(value.map_or(Reply::Nil, Reply::bulk))
}

pub(super) fn hmget(db: &mut Database, words: Words<'_>) -> Answer {
    let hash = db.hash(words[1])?;
    let values = words[2..].iter();
    let values = values.map(|field| hash.get(*field).map_or(Reply::Nil, Reply::bulk));
    Ok(Reply::Array(values.collect()))
}

pub(super) fn hgetall(db: &mut Database, words: Words<'_>) -> Answer {
    Ok(Reply::map(db.hash(words[1])?))
}

pub(super) fn hlen(db: &mut Database, words: Words<'_>) -> Answer {
    Ok(Reply::count(db.hash(words[1])?.len()))
}

pub(super) fn hexists(db: &mut Database, words: Words<'_>) -> Answer {
    Ok(Reply::Int(db.hash(words[1])?.contains_key(words[2]).into()))
}

pub(super) fn hset(db: &mut Database, words: Words<'_>) -> Answer {
    if words.len() % 2 == 1 {
        return Err(arity("hset"));
    }
    let hash = db.hash_mut(words[1])?;
    let before = hash.len();
    let pairs = words[2..].chunks_exact(2);
    hash.extend(pairs.map(|pair| (pair[0].to_vec(), pair[1].to_vec())));
    let added = hash.len() - before;
    db.changed(words[1], true);
    Ok(Reply::count(added))
}

pub(super) fn hdel(db: &mut Database, words: Words<'_>) -> Answer {
    let gone = db.hash(words[1])?;
    let gone = words[2..].iter().filter(|field| gone.contains_key(**field));
    if gone.count() == 0 {
        return Ok(Reply::Int(0));
    }
    let hash = db.hash_mut(words[1])?;
    let removed = words[2..]
        .iter()
        .filter(|field| hash.remove(**field).is_some());
    let removed = removed.count();
    db.changed(words[1], true);
    Ok(Reply::count(removed))
}
