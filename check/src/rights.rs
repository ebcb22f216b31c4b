//! The rights that each kind of lock needs, and the findings about missing rights. A right is
//! missing if the check tried its command or key and was refused.

use quorlock::tools::ServerError;

use crate::{
    cure::is_forbidden,
    facts::Facts,
    report::Finding,
    table::{NO_KIND, NO_RELEASE, NO_SUCH_LOCK, NOT_IN_SCRIPTS},
};

/// The rights that a kind of lock needs on the masters. Commands are in capitals, and keys in small
/// letters, separated by spaces.
struct Rights {
    setting: &'static str,
    /// The commands and keys that acquire the lock. Empty if the lock also needs the rights of
    /// another row.
    ///
    /// If only rights of `needs` are missing, the user can acquire the lock, but cannot release or
    /// keep it.
    takes: &'static str,
    needs: &'static str,
}

const RIGHTS: [Rights; 6] = [
    Rights {
        setting: "rights for mutexes",
        takes: "SET",
        needs: "GET DEL PTTL PEXPIRE",
    },
    Rights {
        setting: "rights for reentrant locks",
        takes: "EXISTS HSET",
        needs: "HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE",
    },
    Rights {
        setting: "rights for fair locks",
        takes: "",
        needs: "EXISTS HSET TIME ZADD ZREM ZRANGE ZRANK ZSCORE queue deadlines",
    },
    Rights {
        setting: "rights for read-write locks",
        takes: "TIME EXISTS HSET writers deadlines readers",
        needs: "HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE ZADD ZREM ZRANGE ZSCORE ZLEXCOUNT",
    },
    Rights {
        setting: "rights for semaphores",
        takes: "TIME EXISTS HMGET HSET waiters deadlines",
        needs: "HLEN HGETALL HDEL DEL PTTL PEXPIRE ZADD ZREM ZRANGE ZSCORE ZLEXCOUNT",
    },
    Rights {
        setting: "rights for fencing tokens",
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

    fn can_be_taken(&self, facts: &Facts) -> bool {
        let mut rights = self.takes.split_whitespace();
        !self.takes.is_empty() && !rights.any(|right| is_without(facts, right))
    }
}

/// Returns whether the user lacks the right to a command or to a key.
pub(crate) fn is_without(facts: &Facts, right: &str) -> bool {
    match facts.denial(right) {
        // The user may have the right to the command, but not to the key of the example lock. The
        // user may still have the right to the keys of other locks.
        Some(ServerError::KeyDenied | ServerError::ChannelDenied) => {
            right.starts_with(char::is_lowercase)
        }
        Some(_) => true,
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

pub(crate) fn find(facts: &Facts) -> impl Iterator<Item = Finding> {
    RIGHTS.iter().filter_map(|rights| {
        let missing: Vec<_> = rights
            .all()
            .filter(|right| is_without(facts, right))
            .collect();
        let row = if rights.can_be_taken(facts) {
            NO_RELEASE
        } else if has_any_kind(facts) {
            NO_SUCH_LOCK
        } else {
            NO_KIND
        };
        let mut denials = missing.iter().filter_map(|right| facts.denial(right));
        let fix = match denials.any(is_forbidden) {
            true => NOT_IN_SCRIPTS.to_owned(),
            false => format!("ACL SETUSER <user> {}", rules(&missing)),
        };
        let finding = row
            .about(rights.setting)
            .with(format!("without {}", missing.join(", ")));
        (!missing.is_empty()).then(|| finding.fixed_by(fix))
    })
}

/// Returns the rules that give these rights.
fn rules(rights: &[&str]) -> String {
    let rules = rights
        .iter()
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
                assert!(is_tried, "{}: {right}", rights.setting);
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
