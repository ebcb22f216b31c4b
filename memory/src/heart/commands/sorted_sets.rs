//! Commands on sorted sets.

use std::cmp::Ordering;

use super::words::{is, whole};
use crate::heart::{
    database::{Answer, Database, SYNTAX, Words},
    keyspace::Score,
    reply::Reply,
};

pub(super) fn zadd(db: &mut Database, words: Words<'_>) -> Answer {
    if words.len() % 2 == 1 {
        return Err(SYNTAX);
    }
    let pairs = words[2..].chunks_exact(2);
    let pairs = pairs.map(|pair| Ok((pair[1].to_vec(), score(pair[0])?)));
    let pairs = pairs.collect::<Answer<Vec<_>>>()?;
    let members = db.sorted_mut(words[1])?;
    let before = members.len();
    let mut has_changed = false;
    for (member, score) in pairs {
        has_changed |= members.insert(member, score) != Some(score);
    }
    let added = members.len() - before;
    db.changed(words[1], has_changed);
    Ok(Reply::count(added))
}

pub(super) fn zrem(db: &mut Database, words: Words<'_>) -> Answer {
    let is_there = |word: &&&[u8]| {
        db.sorted(words[1])
            .is_ok_and(|all| all.contains_key(**word))
    };
    if words[2..].iter().filter(is_there).count() == 0 {
        return db.sorted(words[1]).map(|_| Reply::Int(0));
    }
    let members = db.sorted_mut(words[1])?;
    let removed = words[2..]
        .iter()
        .filter(|member| members.remove(**member).is_some());
    let removed = removed.count();
    db.changed(words[1], true);
    Ok(Reply::count(removed))
}

pub(super) fn zcard(db: &mut Database, words: Words<'_>) -> Answer {
    Ok(Reply::count(db.sorted(words[1])?.len()))
}

pub(super) fn zscore(db: &mut Database, words: Words<'_>) -> Answer {
    let score = db.sorted(words[1])?.get(words[2]);
    Ok(score.map_or(Reply::Nil, |score| Reply::Double(score.get())))
}

pub(super) fn zrank(db: &mut Database, words: Words<'_>) -> Answer {
    let members = ordered(db, words[1])?;
    let rank = members.iter().position(|(member, _)| *member == words[2]);
    Ok(rank.map_or(Reply::Nil, Reply::count))
}

pub(super) fn zrange(db: &mut Database, words: Words<'_>) -> Answer {
    let has_scores = match words[4..] {
        [] => false,
        [option] if is(option, "WITHSCORES") => true,
        _ => return Err(SYNTAX),
    };
    let (first, last) = (whole(words[2])?, whole(words[3])?);
    let members = ordered(db, words[1])?;
    let count = members.len() as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(count) } else { at };
    let first = usize::try_from(place(first)).unwrap_or(0);
    let end = usize::try_from(place(last).saturating_add(1)).unwrap_or(0);
    let range = members
        .get(first..end.min(members.len()))
        .unwrap_or_default();
    if !has_scores {
        return Ok(Reply::bulks(range.iter().map(|(member, _)| member)));
    }
    let pairs = range.iter();
    let pairs = pairs.map(|(member, score)| (Reply::bulk(member), Reply::Double(score.get())));
    Ok(Reply::Pairs(pairs.collect()))
}

/// Counts the members in a range of strings. All members should have the same score.
pub(super) fn zlexcount(db: &mut Database, words: Words<'_>) -> Answer {
    /// Returns whether a member is below, at or above a limit.
    fn place(member: &[u8], limit: &[u8]) -> Answer<Ordering> {
        match limit {
            b"-" => Ok(Ordering::Greater),
            b"+" => Ok(Ordering::Less),
            [b'(' | b'[', text @ ..] => Ok(member.cmp(text)),
            _ => Err("ERR min or max not valid string range item".into()),
        }
    }
    let (min, max) = (words[2], words[3]);
    place(b"", min)?;
    place(b"", max)?;
    let is_in = |member: &&Vec<u8>| {
        let [from_min, from_max] = [min, max].map(|limit| place(member, limit));
        (from_min == Ok(Ordering::Greater) || from_min.is_ok_and(Ordering::is_eq) && min[0] == b'[')
            && (from_max == Ok(Ordering::Less)
                || from_max.is_ok_and(Ordering::is_eq) && max[0] == b'[')
    };
    Ok(Reply::count(
        db.sorted(words[1])?.keys().filter(is_in).count(),
    ))
}

/// Returns all members, ordered by score and then as strings.
fn ordered<'a>(db: &'a Database, key: &[u8]) -> Answer<Vec<(&'a [u8], Score)>> {
    let members = db.sorted(key)?.iter();
    let mut members: Vec<_> = members.map(|(member, score)| (&**member, *score)).collect();
    members.sort_by_key(|(_, score)| *score);
    Ok(members)
}

fn score(word: &[u8]) -> Answer<Score> {
    let number = str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    let score = number.and_then(Score::new);
    score.ok_or_else(|| "ERR value is not a valid float".into())
}
