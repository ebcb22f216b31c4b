//! The meaning of a master's reply.

use std::time::Duration;

use super::command::{Command, Reply};
use crate::core::vote::{Failure, Refusal, Slot, SlotVote, Verb, Vote, held_report::HeldReport};

impl Command {
    /// Returns the vote that `reply` means.
    #[inline]
    pub(crate) fn vote(&self, reply: &Reply<'_>) -> SlotVote {
        match (self.verb(), reply) {
            // Nearly all replies are these.
            (Verb::Extend | Verb::Release, Reply::Int(1)) => SlotVote::GRANT,
            (Verb::Acquire, Reply::Ok) if self.is_set() => SlotVote::GRANT,
            _ => self.unusual_vote(reply),
        }
    }

    fn unusual_vote(&self, reply: &Reply<'_>) -> SlotVote {
        if let Reply::Int(slot) = reply
            && self.is_acquisition()
            && self.lock_id.kind().spec().has_slots
        {
            let slot = u16::try_from(*slot).ok().and_then(Slot::new);
            // A slot above the permits makes no sense. If the other masters were asked for such a
            // slot, they would grant it.
            let slot = slot.filter(|slot| slot.number() <= self.lock_id.permits());
            let vote = slot.map_or_else(Vote::nonsense, |_| Vote::Grant);
            return SlotVote::new(vote, slot);
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
            (_, Reply::Error(text)) => return Vote::Fail(Failure::Rejected((&**text).into())),
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
            let owners = owner(words.next()?);
            Refusal::Held(HeldReport::owned(remaining, owners, depth, position))
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
        kind::Kind,
        protocol::command::fixture::{command, fenced},
        vote::Verb,
    };

    #[test]
    fn fenced_vote_table() {
        use Verb::{Acquire, Extend, Heal, Release};
        let held = |left: Option<u64>| Vote::Refuse(Refusal::held(left.map(Duration::from_millis)));
        let stale = |counter| Vote::Refuse(Refusal::Stale { counter });
        let skewed = |micros| {
            let clock = Duration::from_micros(micros);
            Vote::Refuse(Refusal::Skewed { clock })
        };
        for (verb, reply, vote) in [
            (Acquire, Reply::Int(1), Vote::Grant),
            (Heal, Reply::Int(1), Vote::Grant),
            (Acquire, Reply::Ok, Vote::nonsense()), // this is the reply to SET
            (Acquire, Reply::Int(0), Vote::nonsense()),
            (Acquire, Reply::Int(-250), held(Some(250))),
            (Acquire, Reply::Nil, held(None)),
            (
                Acquire,
                Reply::Text("stale 1770000000000001".into()),
                stale(1_770_000_000_000_001),
            ),
            (Heal, Reply::Text("stale 5".into()), stale(5)),
            (
                Acquire,
                Reply::Text("stale 1.77e+15".into()),
                Vote::nonsense(),
            ),
            (Acquire, Reply::Text("stale".into()), Vote::nonsense()),
            (Acquire, Reply::Text("stale -1".into()), Vote::nonsense()),
            (
                Acquire,
                Reply::Text("skew 1500000".into()),
                skewed(1_500_000),
            ),
            (Acquire, Reply::Text("skew".into()), Vote::nonsense()),
            (Extend, Reply::Int(0), Vote::Refuse(Refusal::Gone)),
            (Release, Reply::Int(0), Vote::Refuse(Refusal::Gone)),
            (Release, Reply::Int(-250), held(Some(250))),
            (Extend, Reply::Text("kind".into()), Vote::nonsense()),
            (Release, Reply::Text("kind".into()), Vote::nonsense()),
        ] {
            assert_eq!(
                fenced(Kind::Mutex, verb, 1).vote(&reply).into_vote(),
                vote,
                "{verb:?} {reply:?}"
            );
        }
        for kind in [Kind::Reentrant, Kind::Fair] {
            let vote = |text: &'static str| {
                fenced(kind, Acquire, 1)
                    .vote(&Reply::Text(text.into()))
                    .into_vote()
            };
            assert_eq!(vote("stale 5"), stale(5));
            assert_eq!(vote("skew 5"), skewed(5));
        }
        // A lock that is not fenced has no candidate, so this reply makes no sense.
        let text = Reply::Text("stale 5".into());
        assert_eq!(
            command(Kind::Mutex, Acquire, 1).vote(&text).into_vote(),
            Vote::nonsense()
        );
    }

    #[test]
    fn owned_vote_table() {
        use Verb::{Acquire, Break, Extend, Inspect, Release, Yield};
        let held = |remaining: Option<u64>, owner: &str, depth, position| {
            let remaining = remaining.map(Duration::from_millis);
            let report = HeldReport::owned(remaining, owner.to_owned(), depth, position);
            Vote::Refuse(Refusal::Held(report))
        };
        for (verb, reply, vote) in [
            (Acquire, Reply::Int(1), Vote::Grant),
            (Acquire, Reply::Int(0), Vote::nonsense()),
            (Acquire, Reply::Ok, Vote::nonsense()),
            (Acquire, Reply::Nil, Vote::nonsense()),
            (
                Acquire,
                Reply::Text("held 250 2 3 u:2".into()),
                held(Some(250), "u:2", 2, Some(3)),
            ),
            (
                Acquire,
                Reply::Text("held -1 1 0 an owner".into()),
                held(None, "an owner", 1, None),
            ),
            (
                Acquire,
                Reply::Text("held 0 1 0 u:2".into()), // in its last millisecond
                held(Some(1), "u:2", 1, None),
            ),
            (Acquire, Reply::Text("held 250 2".into()), Vote::nonsense()),
            (
                Acquire,
                Reply::Text("kind".into()),
                Vote::Refuse(Refusal::OtherKind),
            ),
            (
                Acquire,
                Reply::Text("queued 2".into()),
                Vote::Refuse(Refusal::Queued { position: Some(2) }),
            ),
            (
                Acquire,
                Reply::Text("skew 1500000".into()),
                Vote::Refuse(Refusal::Skewed {
                    clock: Duration::from_millis(1_500),
                }),
            ),
            (Acquire, Reply::Text("".into()), Vote::nonsense()),
            (Extend, Reply::Int(1), Vote::Grant),
            (Extend, Reply::Int(0), Vote::Refuse(Refusal::Gone)),
            (Extend, Reply::Int(-5), Vote::nonsense()),
            (Release, Reply::Int(0), Vote::Refuse(Refusal::Gone)),
            (Yield, Reply::Int(0), Vote::Refuse(Refusal::Gone)),
            // Only a reply that the script of a release can give counts as an answer to the
            // release.
            (Release, Reply::Text("queued 2".into()), Vote::nonsense()),
            (Release, Reply::Text("stale 5".into()), Vote::nonsense()),
            (Release, Reply::Text("skew 5".into()), Vote::nonsense()),
            (Release, Reply::Nil, Vote::nonsense()),
            (Yield, Reply::Text("kind".into()), Vote::nonsense()),
            (
                Yield,
                Reply::Text("held 1 1 0 u:2".into()),
                Vote::nonsense(),
            ),
            (
                Break,
                Reply::Text("held 1 1 0 u:2".into()),
                Vote::nonsense(),
            ),
            (Extend, Reply::Text("queued 2".into()), Vote::nonsense()),
            (Acquire, Reply::Text("stale 5".into()), Vote::nonsense()),
            (Inspect, Reply::Text("free 0 0 ".into()), Vote::Grant),
            (Inspect, Reply::Int(1), Vote::nonsense()),
            (Break, Reply::Int(1), Vote::Grant),
            (Break, Reply::Int(0), Vote::Refuse(Refusal::Gone)),
            (
                Break,
                Reply::Int(-250),
                Vote::Refuse(Refusal::held(Some(Duration::from_millis(250)))),
            ),
            (Break, Reply::Nil, Vote::Refuse(Refusal::held(None))),
            (
                Break,
                Reply::Text("kind".into()),
                Vote::Refuse(Refusal::OtherKind),
            ),
        ] {
            let counted = command(Kind::Fair, verb, 1).vote(&reply).into_vote();
            assert_eq!(counted, vote, "{verb:?} {reply:?}");
        }
        // The commands of a mutex that is not fenced never get a text.
        assert_eq!(
            command(Kind::Mutex, Acquire, 1)
                .vote(&Reply::Text("kind".into()))
                .into_vote(),
            Vote::nonsense()
        );
    }

    #[test]
    fn only_the_start_of_a_long_owner_is_kept() {
        let text = format!("held 250 1 0 {}", "é".repeat(100_000));
        let vote = command(Kind::Fair, Verb::Acquire, 1)
            .vote(&Reply::Text(text.into()))
            .into_vote();
        assert!(vote.to_string().len() < 600, "{vote}");
    }

    #[test]
    fn vote_table() {
        use Verb::{Acquire, Extend, Release};
        let held = |remaining: Option<u64>| {
            Vote::Refuse(Refusal::held(remaining.map(Duration::from_millis)))
        };
        let gone = || Vote::Refuse(Refusal::Gone);
        let rejected = |text: &str| Vote::Fail(Failure::Rejected(text.into()));
        for (verb, reply, vote) in [
            (Acquire, Reply::Ok, Vote::Grant),
            (Acquire, Reply::Nil, held(None)),
            (Acquire, Reply::Int(1), Vote::nonsense()),
            (
                Acquire,
                Reply::Error("OOM command not allowed".into()),
                rejected("OOM command not allowed"),
            ),
            (
                Acquire,
                Reply::Error("WRONGTYPE Operation".into()),
                Vote::Refuse(Refusal::OtherKind),
            ),
            (Extend, Reply::Int(1), Vote::Grant),
            (Extend, Reply::Int(0), gone()),
            (Extend, Reply::Int(-250), held(Some(250))),
            (Extend, Reply::Int(2), Vote::nonsense()),
            (Extend, Reply::Nil, held(None)),
            (Extend, Reply::Ok, Vote::nonsense()),
            (Release, Reply::Int(1), Vote::Grant),
            (Release, Reply::Int(0), gone()),
            (Release, Reply::Int(i64::MIN), held(Some(1 << 63))),
            (Release, Reply::Nil, held(None)),
            (
                Release,
                Reply::Error(
                    "ERR Error running script (call to f_1): @user_script:13: WRONGTYPE Op".into(),
                ),
                Vote::Refuse(Refusal::OtherKind),
            ),
            (
                Release,
                Reply::Error("ERR Key should be of string type if conditions are specified".into()),
                Vote::Refuse(Refusal::OtherKind),
            ),
            (
                Release,
                Reply::Error("ERR no WRONGTYPE".into()),
                rejected("ERR no WRONGTYPE"),
            ),
            (
                Release,
                Reply::Error("ERR not of a script: WRONGTYPE Op".into()),
                rejected("ERR not of a script: WRONGTYPE Op"),
            ),
            (
                Release,
                Reply::Error("ERR Error running script (call to f_1): @user_script:13: OOM".into()),
                rejected("ERR Error running script (call to f_1): @user_script:13: OOM"),
            ),
            (
                Release,
                Reply::Error("READONLY".into()),
                rejected("READONLY"),
            ),
            (Release, Reply::Other, Vote::nonsense()),
        ] {
            assert_eq!(
                command(Kind::Mutex, verb, 1).vote(&reply).into_vote(),
                vote,
                "{verb:?} {reply:?}"
            );
        }
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
                    command(Kind::Mutex, verb, 1)
                        .vote(&Reply::Error(text.into()))
                        .into_vote(),
                    Vote::Fail(Failure::Rejected(_))
                ));
            }
        }
    }
}
