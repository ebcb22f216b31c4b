//! The meaning of a master's reply.

use std::time::Duration;

use super::{Command, Reply};
use crate::core::vote::{CastVote, Failure, Refusal, Slot, Verb, Vote};

impl Command {
    pub(crate) fn vote(&self, reply: &Reply<'_>) -> CastVote {
        if let Reply::Int(slot) = reply
            && self.is_acquisition()
            && self.lock_id.kind().spec().has_slots
        {
            let slot = u16::try_from(*slot).ok().and_then(Slot::new);
            // A slot above the permits makes no sense. If the other masters were asked for such a
            // slot, they would grant it.
            let slot = slot.filter(|slot| slot.number() <= self.lock_id.permits());
            let vote = slot.map_or_else(Vote::nonsense, |_| Vote::Grant);
            return CastVote::of(vote, slot);
        }
        self.vote_without_slot(reply).into()
    }

    /// Returns the vote that `reply` means. An error reply is a failure, with one exception:
    /// WRONGTYPE means that a lock of another kind is held under the name.
    fn vote_without_slot(&self, reply: &Reply<'_>) -> Vote {
        let refusal = match (self.verb(), reply) {
            // If the key exists already, even with another type, the master can vote nevertheless:
            // a server that refuses writes does so before it looks for the key.
            (Verb::Probe, Reply::Int(_) | Reply::Nil) => return Vote::Grant,
            (Verb::Probe, Reply::Error(text)) if is_wrong_type(text) => return Vote::Grant,
            (_, Reply::Error(text)) if is_wrong_type(text) => {
                return Vote::Refuse(Refusal::OtherKind);
            }
            (_, Reply::Error(text)) => return Vote::Fail(Failure::ErrorReply((&**text).into())),
            (Verb::Inspect, Reply::Text(_)) => return Vote::Grant,
            (Verb::Inspect | Verb::Probe, _) => None,
            (_, Reply::Nil) => Some(Refusal::held(None)),
            (_, Reply::Ok) if self.is_set() => return Vote::Grant,
            _ if self.is_set() => None,
            (_, Reply::Int(1)) => return Vote::Grant,
            (_, Reply::Int(0)) => Some(Refusal::Gone),
            (_, Reply::Int(left)) if *left < 0 => {
                let left = Duration::from_millis(left.unsigned_abs());
                Some(Refusal::held(Some(left)))
            }
            (_, Reply::Text(text)) => refusal(text),
            (_, Reply::Int(_) | Reply::Ok | Reply::Other) => None,
        };
        let refusal = refusal.filter(|refusal| self.can_be_refused(refusal));
        refusal.map_or_else(Vote::nonsense, Vote::Refuse)
    }
}

/// Returns whether an error is WRONGTYPE. Redis 6 wraps the errors of a script, so this word may
/// come later in the text. `DELEX` returns another text.
fn is_wrong_type(error: &str) -> bool {
    error.starts_with("WRONGTYPE")
        || error.starts_with("ERR Key should be of string type ")
        || (error.starts_with("ERR Error running script") && error.contains(": WRONGTYPE "))
}

/// Reads the refusal of a script. `lua/README.md` describes the format. Returns `None` if the text
/// makes no sense.
fn refusal(text: &str) -> Option<Refusal> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    Some(match word {
        "held" => {
            let mut words = rest.splitn(4, ' ');
            let remaining = millis(words.next()?)?;
            let depth = words.next()?.parse().ok()?;
            let position = position(words.next()?)?;
            Refusal::held_by(&owner(words.next()?), remaining, depth, position)
        }
        "queued" => Refusal::Queued {
            position: position(rest)?,
        },
        "kind" => Refusal::OtherKind,
        "stale" => Refusal::Stale {
            counter: rest.parse().ok()?,
        },
        "skew" => Refusal::Skewed {
            clock: Duration::from_micros(rest.parse().ok()?),
        },
        _ => return None,
    })
}

/// Reads the ID of an owner, or lines with the IDs of several owners. Keeps only the start of a
/// long text, because errors show the text for each master. No ID of this crate is too long.
pub(in crate::core) fn owner(text: &str) -> String {
    text.chars().take(256).collect()
}

/// Reads a TTL in milliseconds. -1 means that there is no TTL.
fn millis(text: &str) -> Option<Option<Duration>> {
    let left: i64 = text.parse().ok()?;
    // A key lives to the end of its last millisecond, so 0 counts as 1.
    let left = u64::try_from(left).ok().map(|left| left.max(1));
    Some(left.map(Duration::from_millis))
}

/// Reads a position in a queue. 0 means that the caller is not queued.
fn position(text: &str) -> Option<Option<u64>> {
    let position = text.parse().ok()?;
    Some((position > 0).then_some(position))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        kind::LockKind,
        protocol::command::fixture::{command, fenced},
        vote::Verb,
    };

    #[test]
    fn replies_mean_what_the_table_says() {
        use Verb::{Acquire, Break, Extend, Heal, Inspect, Release, Yield};
        let lines = include_str!("../../../tests/tables/replies.txt").lines();
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (asked, answer) = line.split_once(": ").unwrap();
            let (reply, expected) = answer.split_once(" | ").unwrap();
            let mut words = asked.rsplit(' ');
            let verb = words.next().unwrap();
            let verbs = [Acquire, Break, Extend, Heal, Inspect, Release, Yield];
            let is_it = |of: &Verb| format!("{of:?}").eq_ignore_ascii_case(verb);
            let verb = verbs.into_iter().find(is_it).unwrap();
            let kind = LockKind::of_word(words.next().unwrap()).unwrap();
            let command = match words.next() {
                Some(_) => fenced(kind, verb, 1),
                None => command(kind, verb, 1),
            };
            let vote = command.vote(&read(reply)).into_vote();
            assert_eq!(vote, meant(expected), "{line}");
        }
    }

    fn read(text: &str) -> Reply<'_> {
        match text {
            "OK" => Reply::Ok,
            "nil" => Reply::Nil,
            "other" => Reply::Other,
            _ => match (text.parse(), text.strip_prefix('-')) {
                (Ok(number), _) => Reply::Int(number),
                (_, Some(error)) => Reply::Error(error.into()),
                _ => Reply::Text(text.trim_matches('"').into()),
            },
        }
    }

    fn meant(text: &str) -> Vote {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let left = |text: &str| text.parse().ok().map(Duration::from_millis);
        Vote::Refuse(match word {
            "granted" => return Vote::Grant,
            "nonsense" => return Vote::nonsense(),
            "rejected" => return Vote::Fail(Failure::ErrorReply(rest.into())),
            "gone" => Refusal::Gone,
            "held" => Refusal::held(left(rest)),
            "kind" => Refusal::OtherKind,
            "owned" => {
                let words: Vec<_> = rest.splitn(4, ' ').collect();
                let depth = words[1].parse().unwrap();
                let position = words[2].parse().ok();
                Refusal::held_by(words[3], left(words[0]), depth, position)
            }
            "queued" => Refusal::Queued {
                position: rest.parse().ok(),
            },
            "skewed" => Refusal::Skewed {
                clock: Duration::from_micros(rest.parse().unwrap()),
            },
            "stale" => Refusal::Stale {
                counter: rest.parse().unwrap(),
            },
            other => panic!("no vote is written {other}"),
        })
    }

    #[test]
    fn only_the_start_of_a_long_owner_is_kept() {
        let text = format!("held 250 1 0 {}", "é".repeat(100_000));
        let vote = command(LockKind::Fair, Verb::Acquire, 1)
            .vote(&Reply::Text(text.into()))
            .into_vote();
        assert!(vote.to_string().len() < 600, "{vote}");
    }

    #[test]
    fn an_error_is_never_a_refusal() {
        for text in [
            "OOM",
            "BUSY",
            "LOADING",
            "READONLY",
            "MISCONF",
            "NOREPLICAS",
            "NOAUTH",
            "NOPERM",
            "MASTERDOWN",
            "TRYAGAIN",
            "CLUSTERDOWN",
            "ERR",
            "",
        ] {
            for verb in [Verb::Acquire, Verb::Extend, Verb::Release] {
                assert!(matches!(
                    command(LockKind::Mutex, verb, 1)
                        .vote(&Reply::Error(text.into()))
                        .into_vote(),
                    Vote::Fail(Failure::ErrorReply(_))
                ));
            }
        }
    }
}
