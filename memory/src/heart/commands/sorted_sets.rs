//! Commands on sorted sets.

use super::{is, whole};
use crate::heart::{
    database::{Answer, Database, Error, SYNTAX, Words},
    keyspace::Score,
    reply::Reply,
};

pub(super) fn zadd(db: &mut Database, words: Words<'_>) -> Answer {
    let is_option = |word: &&&[u8]| {
        ["NX", "XX", "GT", "LT", "CH"]
            .iter()
            .any(|one| is(word, one))
    };
    let count = words[2..].iter().take_while(is_option).count();
    let (options, pairs) = words[2..].split_at(count);
    let has = |name: &str| options.iter().any(|option| is(option, name));
    if pairs.is_empty() || pairs.len() % 2 == 1 {
        return Err(SYNTAX);
    }
    if has("NX") && (has("XX") || has("GT") || has("LT")) || has("GT") && has("LT") {
        let error = if has("XX") {
            "ERR XX and NX options at the same time are not compatible"
        } else {
            "ERR GT, LT, and/or NX options at the same time are not compatible"
        };
        return Err(error.into());
    }
    let scores = pairs.chunks_exact(2).map(|pair| score(pair[0]));
    let scores = scores.collect::<Answer<Vec<_>>>()?;
    let members = db.sorted_mut(words[1])?;
    let (mut added, mut updated) = (0, 0);
    for (score, pair) in scores.into_iter().zip(pairs.chunks_exact(2)) {
        match members.get_mut(pair[1]) {
            None if has("XX") => {}
            None => {
                members.insert(pair[1].to_vec(), score);
                added += 1;
            }
            Some(old) => {
                let is_kept = has("NX") || has("GT") && score <= *old;
                if !(is_kept || has("LT") && score >= *old || score == *old) {
                    *old = score;
                    updated += 1;
                }
            }
        }
    }
    db.changed(words[1], added + updated > 0);
    Ok(Reply::Int(if has("CH") { added + updated } else { added }))
}

pub(super) fn zincrby(db: &mut Database, words: Words<'_>) -> Answer {
    let by = score(words[2])?.get();
    let old = db
        .sorted(words[1])?
        .get(words[3])
        .map_or(0.0, |old| old.get());
    let nan = "ERR resulting score is not a number (NaN)";
    let sum = Score::new(old + by).ok_or(nan)?;
    db.sorted_mut(words[1])?.insert(words[3].to_vec(), sum);
    db.changed(words[1], true);
    Ok(Reply::Double(sum.get()))
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
    let has = |name: &str| words[4..].iter().any(|option| is(option, name));
    let is_known = |word: &&[u8]| is(word, "WITHSCORES") || is(word, "REV");
    if !words[4..].iter().all(is_known) {
        return Err(SYNTAX);
    }
    let (first, last) = (whole(words[2])?, whole(words[3])?);
    let mut members = ordered(db, words[1])?;
    if has("REV") {
        members.reverse();
    }
    let count = members.len() as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(count) } else { at };
    let first = usize::try_from(place(first)).unwrap_or(0);
    let end = usize::try_from(place(last).saturating_add(1)).unwrap_or(0);
    let range = members
        .get(first..end.min(members.len()))
        .unwrap_or_default();
    Ok(shown(range, has("WITHSCORES")))
}

pub(super) fn zcount(db: &mut Database, words: Words<'_>) -> Answer {
    Ok(Reply::count(between(db, words)?.len()))
}

pub(super) fn zrangebyscore(db: &mut Database, words: Words<'_>) -> Answer {
    let has_scores = match words[4..] {
        [] => false,
        [option] if is(option, "WITHSCORES") => true,
        _ => return Err(SYNTAX),
    };
    Ok(shown(&between(db, words)?, has_scores))
}

pub(super) fn zremrangebyscore(db: &mut Database, words: Words<'_>) -> Answer {
    let gone = between(db, words)?.into_iter();
    let gone: Vec<_> = gone.map(|(member, _)| member.to_vec()).collect();
    if !gone.is_empty() {
        let members = db.sorted_mut(words[1])?;
        members.retain(|member, _| !gone.contains(member));
        db.changed(words[1], true);
    }
    Ok(Reply::count(gone.len()))
}

/// Counts the members in a range of strings. All members should have the same score.
pub(super) fn zlexcount(db: &mut Database, words: Words<'_>) -> Answer {
    /// Returns the limit, and whether it belongs to the range.
    fn limit(word: &[u8]) -> Answer<(&[u8], bool)> {
        match word {
            b"-" | b"+" => Ok((word, false)),
            [b'(', limit @ ..] => Ok((limit, false)),
            [b'[', limit @ ..] => Ok((limit, true)),
            _ => Err("ERR min or max not valid string range item".into()),
        }
    }
    let ((min, min_counts), (max, max_counts)) = (limit(words[2])?, limit(words[3])?);
    let is_after = |member: &[u8]| match words[2] {
        b"-" => true,
        b"+" => false,
        _ => member > min || min_counts && member == min,
    };
    let is_before = |member: &[u8]| match words[3] {
        b"-" => false,
        b"+" => true,
        _ => member < max || max_counts && member == max,
    };
    let members = db.sorted(words[1])?.keys();
    let members = members.filter(|member| is_after(member) && is_before(member));
    Ok(Reply::count(members.count()))
}

type Members<'a> = Vec<(&'a [u8], Score)>;

/// Returns all members, ordered by score and then as strings.
fn ordered<'a>(db: &'a Database, key: &[u8]) -> Answer<Members<'a>> {
    let members = db.sorted(key)?.iter();
    let mut members: Members<'_> = members.map(|(member, score)| (&**member, *score)).collect();
    members.sort_by_key(|(_, score)| *score);
    Ok(members)
}

/// Returns the members whose scores are in the range that words 2 and 3 say.
fn between<'a>(db: &'a Database, words: Words<'_>) -> Answer<Members<'a>> {
    let limit = |word: &[u8]| {
        let limit = word.strip_prefix(b"(");
        let number = score(limit.unwrap_or(word));
        let number = number.map_err(|_| Error::from("ERR min or max is not a float"))?;
        Ok::<_, Error>((number, limit.is_none()))
    };
    let ((min, min_counts), (max, max_counts)) = (limit(words[2])?, limit(words[3])?);
    let mut members = ordered(db, words[1])?;
    members.retain(|(_, score)| {
        (*score > min || min_counts && *score == min)
            && (*score < max || max_counts && *score == max)
    });
    Ok(members)
}

/// Returns members, with their scores if that is asked for.
fn shown(members: &[(&[u8], Score)], has_scores: bool) -> Reply {
    let members = members.iter();
    match has_scores {
        true => Reply::Pairs(
            members
                .map(|(member, score)| (Reply::bulk(member), Reply::Double(score.get())))
                .collect(),
        ),
        false => Reply::bulks(members.map(|(member, _)| member)),
    }
}

fn score(word: &[u8]) -> Answer<Score> {
    let number = str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    let score = number.and_then(Score::new);
    score.ok_or_else(|| "ERR value is not a valid float".into())
}
