//! The rights that each kind of lock needs, and the findings about missing rights. A right is
//! missing if the check tried its command or key and was refused.

use std::collections::BTreeSet;

use quorlock::tools::ServerError;

use crate::{
    cure::is_forbidden,
    facts::Facts,
    report::Finding,
    table::{NO_KIND, NO_MUTEX, NO_RELEASE, NO_SUCH_LOCK, NOT_IN_SCRIPTS, Row},
};

/// The rights that a kind of lock needs on the masters. Commands are in capitals, and keys in small
/// letters, separated by spaces.
struct Rights {
    locks: &'static str,
    /// The commands and keys that acquire the lock. Empty for tokens, which need a lock.
    ///
    /// If only rights of `needs` are missing, the user can acquire the lock, but cannot release or
    /// keep it.
    takes: &'static str,
    needs: &'static str,
}

const MUTEXES: &str = "mutexes";

const RIGHTS: [Rights; 6] = [
    Rights {
        locks: MUTEXES,
        takes: "SET",
        needs: "GET DEL PTTL PEXPIRE",
    },
    Rights {
        locks: "reentrant locks",
        takes: "EXISTS HSET",
        needs: "HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE",
    },
    Rights {
        locks: "fair locks",
        takes: "EXISTS HSET ZADD queue deadlines",
        needs: "HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE TIME ZREM ZRANGE ZRANK ZSCORE",
    },
    Rights {
        locks: "read-write locks",
        takes: "TIME EXISTS HSET writers deadlines readers",
        needs: "HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE ZADD ZREM ZRANGE ZSCORE ZLEXCOUNT",
    },
    Rights {
        locks: "semaphores",
        takes: "TIME EXISTS HMGET HSET waiters deadlines",
        needs: "HLEN HGETALL HDEL DEL PTTL PEXPIRE ZADD ZREM ZRANGE ZSCORE ZLEXCOUNT",
    },
    Rights {
        locks: "fencing tokens",
        takes: "",
        needs: "GET SET TIME fence",
    },
];

impl Rights {
    fn all(&self) -> impl Iterator<Item = &'static str> {
        self.takes
            .split_whitespace()
            .chain(self.needs.split_whitespace())
    }

    /// Returns the row of the finding about this kind, if a right is missing.
    fn row(&self, facts: &Facts) -> Row {
        if self.can_be_taken(facts) {
            NO_RELEASE
        } else if self.locks != MUTEXES {
            NO_SUCH_LOCK
        } else if has_any_kind(facts) {
            NO_MUTEX
        } else {
            NO_KIND
        }
    }

    fn can_be_taken(&self, facts: &Facts) -> bool {
        let mut rights = self.takes.split_whitespace();
        !self.takes.is_empty() && !rights.any(|right| is_without(facts, right))
    }
}

/// Returns whether the user lacks the right to a command or to a key.
pub(crate) fn is_without(facts: &Facts, right: &str) -> bool {
    let is_key = right.starts_with(char::is_lowercase);
    match facts.denial(right) {
        // The user may have the right to the command, but not to the key of the example lock. The
        // user may still have the right to the keys of other locks.
        Some(ServerError::KeyDenied | ServerError::ChannelDenied) => is_key,
        // The command that tries a key has a finding of its own.
        Some(_) => !is_key,
        None => false,
    }
}

fn has_any_kind(facts: &Facts) -> bool {
    RIGHTS.iter().any(|rights| rights.can_be_taken(facts))
}

/// Returns whether the master can grant at least one kind of lock now.
pub(crate) fn may_lock(facts: &Facts) -> bool {
    facts.write_error().is_none() && facts.elsewhere().is_none() && has_any_kind(facts)
}

/// Returns the findings about missing rights, one for all kinds of locks with the same severity. A
/// kind that lacks nothing else than the kinds of a worse finding is part of that finding.
pub(crate) fn find(facts: &Facts) -> impl Iterator<Item = Finding> {
    let lacking = RIGHTS.iter().map(|rights| Lack {
        row: rights.row(facts),
        missing: rights
            .all()
            .filter(|right| is_without(facts, right))
            .collect(),
        locks: vec![rights.locks],
    });
    let mut lacking: Vec<_> = lacking.filter(|lack| !lack.missing.is_empty()).collect();
    let mut findings = Vec::new();
    for row in [NO_KIND, NO_RELEASE, NO_MUTEX, NO_SUCH_LOCK] {
        let of_row = lacking.iter().filter(|lack| lack.row == row);
        let missing: BTreeSet<_> = of_row
            .flat_map(|lack| lack.missing.iter().copied())
            .collect();
        let (found, rest) = lacking.into_iter().partition::<Vec<_>, _>(|lack| {
            lack.missing.iter().all(|right| missing.contains(right))
        });
        lacking = rest;
        if !found.is_empty() {
            findings.push(finding(row, found, facts));
        }
    }
    findings.into_iter()
}

/// The rights that some kinds of locks lack.
struct Lack {
    row: Row,
    missing: BTreeSet<&'static str>,
    locks: Vec<&'static str>,
}

fn finding(row: Row, lacking: Vec<Lack>, facts: &Facts) -> Finding {
    let mut same = Vec::<Lack>::new();
    for lack in lacking {
        match same.iter_mut().find(|one| one.missing == lack.missing) {
            Some(one) => one.locks.extend(lack.locks),
            None => same.push(lack),
        }
    }
    let each = same.iter();
    let each = each.map(|Lack { missing, locks, .. }| {
        format!("no {} without {}", locks.join(", "), words(missing))
    });
    let value = each.collect::<Vec<_>>().join("; ");
    let all = same.iter().flat_map(|lack| lack.missing.iter().copied());
    let all: BTreeSet<_> = all.collect();
    let mut denials = all.iter().filter_map(|right| facts.denial(right));
    let fix = match denials.any(is_forbidden) {
        true => NOT_IN_SCRIPTS.to_owned(),
        false => format!("ACL SETUSER <user> {}", rules(all)),
    };
    row.with(value).fixed_by(fix)
}

fn words(words: &BTreeSet<&str>) -> String {
    Vec::from_iter(words.iter().copied()).join(", ")
}

/// Returns the rules that give these rights.
fn rules<'a>(rights: impl IntoIterator<Item = &'a str>) -> String {
    let rules = rights
        .into_iter()
        .map(|right| match right.starts_with(char::is_lowercase) {
            true => format!("~quorlock:{right}:*"),
            false => format!("+{}", right.to_lowercase()),
        });
    rules.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise, the check would not notice that a right is missing, or that a key has no right.
    #[test]
    fn the_check_tries_all_rights_and_each_key_is_a_right() {
        let script = include_str!("../lua/check.lua");
        let keys = quorlock::tools::example_keys("{name}").unwrap();
        let is_key = |right: &str| keys.iter().any(|key| key.purpose == right);
        for rights in RIGHTS {
            for right in rights.all() {
                let is_tried = is_key(right) || script.contains(&format!("'{right}'"));
                assert!(is_tried, "{}: {right}", rights.locks);
            }
        }
        let mut purposes = keys.iter().map(|key| key.purpose).skip(1);
        let is_right = |purpose: &str| {
            RIGHTS
                .iter()
                .any(|rights| rights.all().any(|one| one == purpose))
        };
        assert!(purposes.all(is_right));
    }
}
