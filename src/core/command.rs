//! The one table: what each verb of each kind of lock sends to a master, and what the reply means.

use std::{borrow::Cow, time::Duration};

use super::{
    ballot::Ballot,
    identity::{Identity, QueueOptions, Ticket},
    lease::Ttl,
    name::{Resource, Token},
    quorum::{Failure, Refusal, Vote},
    report,
    script::Script,
};

/// What is asked of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Acquire,
    Extend,
    /// Puts back what a master lost, while the lock is held.
    Heal,
    Inspect,
    Release,
    /// Gives back what a minority granted, and keeps the place in the queue.
    Yield,
}

impl Verb {
    /// Whether this asks for a vote that must not come from a master that forgot locks.
    pub(crate) fn quarantine_applies(self) -> bool {
        matches!(self, Self::Acquire | Self::Extend | Self::Heal)
    }

    /// Whether this leaves something on a master that was not there.
    #[cfg(feature = "redis")]
    pub(crate) fn takes(self) -> bool {
        matches!(self, Self::Acquire | Self::Heal)
    }

    /// Whether `vote` counts towards the majority that this verb needs.
    pub(crate) fn is_done(self, vote: &Vote) -> bool {
        match (self, vote) {
            (_, Vote::Grant) => true,
            (_, Vote::Fail(_)) => false,
            // Whoever's the key is now, it is not ours: released.
            (Self::Release | Self::Yield, Vote::Refuse(_)) => true,
            (Self::Acquire | Self::Extend | Self::Heal | Self::Inspect, Vote::Refuse(_)) => false,
        }
    }
}

/// How a command goes to a server: a plain one word by word, or a script with its keys and arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call<'a> {
    Plain(&'a [&'a [u8]]),
    Script {
        script: Script,
        keys: &'a [&'a [u8]],
        arguments: &'a [&'a [u8]],
    },
}

/// What a master replied, as far as any verb needs to tell replies apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// An error reply, whole, without the leading `-`.
    Error(&'a str),
    Int(i64),
    Nil,
    Ok,
    Text(Cow<'a, str>),
    /// Something that no command of ours is answered with.
    Other,
}

/// One thing to do on one master, atomically there.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) verb: Verb,
    pub(crate) resource: Resource,
    pub(crate) identity: Identity,
    /// How long the key lives; of no meaning to what gives it up.
    pub(crate) ttl: Ttl,
    /// How many levels the owner holds after this; of no meaning to a mutex.
    pub(crate) depth: u32,
    /// Whom a release wakes.
    pub(crate) wakes: WakeScope,
    /// Of the acquisition of a fair lock: how to be queued, if at all.
    pub(crate) patience: Option<QueueOptions>,
    /// Of a fenced lock.
    pub(crate) ballot: Option<Ballot>,
}

/// Whom a release wakes, where it deletes the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeScope {
    Nobody,
    /// Those who wait for this master, as Redisson's waiters do: the key was part of a lost round.
    ThisMaster,
    Everybody,
}

impl WakeScope {
    /// The message for [`WakeScope::ThisMaster`]. Redisson reads a message as a number, so this is the
    /// same as `0` to it. This crate reads it as text, and tells the two apart.
    pub(crate) const THIS_MASTER: &str = "00";

    /// What is published.
    fn message(self) -> &'static str {
        match self {
            Self::ThisMaster => Self::THIS_MASTER,
            Self::Nobody | Self::Everybody => "0",
        }
    }
}

/// The field of a hash that tells the kind of lock, and the attempt that holds it.
const REENTRANT: &[u8] = b"quorlock:reentrant";
const FAIR: &[u8] = b"quorlock:fair";

impl Command {
    /// Hands `send` the words for a server.
    pub(crate) fn request<T>(&self, send: impl FnOnce(Call<'_>) -> T) -> T {
        match (&self.identity, self.verb) {
            (_, Verb::Inspect) | (Identity::Nobody, _) => {
                // Only a fair lock has a queue, and an empty key is one that not everybody may name.
                let keys = [self.resource.key(), self.resource.queue()].map(str::as_bytes);
                let count = 1 + usize::from(!keys[1].is_empty());
                self.script(Script::Inspect, &keys[..count], &[], send)
            }
            (Identity::Token(token), verb) => self.mutex(verb, token, send),
            (Identity::Owner { owner, attempt }, verb) => {
                self.owned(verb, owner, *attempt, REENTRANT, send)
            }
            (
                Identity::Ticket {
                    owner,
                    attempt,
                    ticket,
                },
                verb,
            ) => match verb {
                // Whoever waits has no say while the lock is held.
                Verb::Extend | Verb::Heal => self.owned(verb, owner, *attempt, FAIR, send),
                Verb::Release if self.depth > 0 => self.owned(verb, owner, *attempt, FAIR, send),
                _ => self.fair(verb, owner, *attempt, ticket, send),
            },
        }
    }

    fn mutex<T>(&self, verb: Verb, token: &Token, send: impl FnOnce(Call<'_>) -> T) -> T {
        let (key, token) = (self.resource.key().as_bytes(), token.as_bytes());
        let mut digits = [0; 20];
        let ttl = decimal(self.ttl.millis(), &mut digits);
        match verb {
            Verb::Acquire | Verb::Heal if self.ballot.is_some() => {
                self.script(Script::MutexAcquire, &[key], &[token, ttl], send)
            }
            Verb::Acquire | Verb::Heal => {
                send(Call::Plain(&[b"SET", key, token, b"NX", b"PX", ttl]))
            }
            Verb::Extend => self.script(Script::MutexExtend, &[key], &[token, ttl], send),
            Verb::Inspect | Verb::Release | Verb::Yield => {
                let channel = self.wake_channel().as_bytes();
                self.script(Script::MutexRelease, &[key], &[token, channel], send)
            }
        }
    }

    fn owned<T>(
        &self,
        verb: Verb,
        owner: &str,
        attempt: u64,
        marker: &[u8],
        send: impl FnOnce(Call<'_>) -> T,
    ) -> T {
        let mut digits = [[0; 20]; 3];
        let [ttl, number, depth] = &mut digits;
        let ttl = decimal(self.ttl.millis(), ttl);
        let attempt = decimal(attempt, number);
        let depth = decimal(self.depth.into(), depth);
        let channel = self.wake_channel().as_bytes();
        let message = self.wakes.message().as_bytes();
        let owner = owner.as_bytes();
        let (script, arguments): (_, &[&[u8]]) = match verb {
            Verb::Acquire | Verb::Heal => (
                Script::ReentrantAcquire,
                &[owner, attempt, depth, ttl, marker],
            ),
            Verb::Extend => (
                Script::ReentrantExtend,
                &[owner, attempt, depth, ttl, marker],
            ),
            Verb::Inspect | Verb::Release | Verb::Yield => (
                Script::ReentrantRelease,
                &[owner, attempt, depth, marker, channel, message],
            ),
        };
        self.script(script, &[self.resource.key().as_bytes()], arguments, send)
    }

    fn fair<T>(
        &self,
        verb: Verb,
        owner: &str,
        attempt: u64,
        ticket: &Ticket,
        send: impl FnOnce(Call<'_>) -> T,
    ) -> T {
        let mut digits = [[0; 20]; 5];
        let [ttl, number, depth, patience, window] = &mut digits;
        let ttl = decimal(self.ttl.millis(), ttl);
        let attempt = decimal(attempt, number);
        let depth = decimal(self.depth.into(), depth);
        let (millis, micros) = self.patience.map_or((0, 0), QueueOptions::in_words);
        let (patience, window) = (decimal(millis, patience), decimal(micros, window));
        let (owner, ticket) = (owner.as_bytes(), ticket.as_str().as_bytes());
        let (script, arguments): (_, &[&[u8]]) = match verb {
            Verb::Acquire | Verb::Extend | Verb::Heal => (
                Script::FairAcquire,
                &[owner, attempt, depth, ttl, ticket, patience, window],
            ),
            Verb::Yield => (Script::FairYield, &[owner, attempt, ticket, patience]),
            Verb::Inspect | Verb::Release => (Script::FairRelease, &[owner, attempt, ticket]),
        };
        let keys = [
            self.resource.key(),
            self.resource.queue(),
            self.resource.deadlines(),
        ];
        self.script(script, &keys.map(str::as_bytes), arguments, send)
    }

    /// A script, with what goes behind its keys and arguments when the lock is fenced.
    fn script<T>(
        &self,
        script: Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        send: impl FnOnce(Call<'_>) -> T,
    ) -> T {
        let fenced = self.ballot.as_ref().zip(script.fenced());
        let Some((ballot, (script, has_window))) = fenced else {
            return send(Call::Script {
                script,
                keys,
                arguments,
            });
        };
        let window = match self.verb {
            Verb::Heal => 0,
            _ => Ballot::WINDOW.as_micros() as u64,
        };
        let mut digits = [[0; 20]; 2];
        let [candidate, micros] = &mut digits;
        let tail = [
            decimal(ballot.candidate, candidate),
            decimal(window, micros),
        ];
        let (mut all_keys, mut all) = ([&[][..]; 4], [&[][..]; 9]);
        all_keys[..keys.len()].copy_from_slice(keys);
        all_keys[keys.len()] = ballot.counter.as_bytes();
        all[..arguments.len()].copy_from_slice(arguments);
        all[arguments.len()..][..2].copy_from_slice(&tail);
        send(Call::Script {
            script,
            keys: &all_keys[..=keys.len()],
            arguments: &all[..arguments.len() + 1 + usize::from(has_window)],
        })
    }

    /// Whether this gives back what `other` takes.
    #[cfg(feature = "redis")]
    pub(crate) fn undoes(&self, other: &Self) -> bool {
        matches!(self.verb, Verb::Release | Verb::Yield)
            && self.resource == other.resource
            && self.identity == other.identity
    }

    /// Where a release is made known, or nothing.
    pub(crate) fn wake_channel(&self) -> &str {
        match self.wakes {
            WakeScope::Nobody => "",
            WakeScope::ThisMaster | WakeScope::Everybody => self.resource.channel(),
        }
    }

    /// What a reply says about the lock. An error reply is no answer, whatever it says, but for
    /// WRONGTYPE: a lock of another kind is held under the name, and that is knowledge.
    pub(crate) fn vote(&self, reply: &Reply<'_>) -> Vote {
        let held = |remaining| Vote::Refuse(Refusal::held(remaining));
        let is_mutex = matches!(self.identity, Identity::Token(_));
        let is_plain = is_mutex && self.ballot.is_none();
        match (self.verb, reply) {
            (_, Reply::Error(text)) if is_wrong_type(text) => Vote::Refuse(Refusal::OtherKind),
            (_, Reply::Error(text)) => Vote::Fail(Failure::Rejected((*text).into())),
            (Verb::Inspect, Reply::Text(_)) => Vote::Grant,
            (Verb::Inspect, _) => nonsense(),
            (Verb::Acquire | Verb::Heal, Reply::Ok) if is_plain => Vote::Grant,
            (Verb::Acquire | Verb::Heal, Reply::Int(_)) if is_plain => nonsense(),
            (_, Reply::Nil) if is_mutex => held(None),
            (_, Reply::Int(1)) => Vote::Grant,
            (Verb::Extend | Verb::Release | Verb::Yield, Reply::Int(0)) => {
                Vote::Refuse(Refusal::Gone)
            }
            (_, Reply::Int(left)) if is_mutex && *left < 0 => {
                held(Some(Duration::from_millis(left.unsigned_abs())))
            }
            (_, Reply::Text(text)) if !is_mutex || self.ballot.is_some() => {
                report::refusal(text).map_or_else(nonsense, Vote::Refuse)
            }
            _ => nonsense(),
        }
    }
}

fn nonsense() -> Vote {
    Vote::Fail(Failure::Rejected("a reply that makes no sense".into()))
}

/// Redis 6 wraps the errors of a script, so that the word is not always the first one.
fn is_wrong_type(error: &str) -> bool {
    error.starts_with("WRONGTYPE")
        || (error.starts_with("ERR Error running script") && error.contains(": WRONGTYPE "))
}

/// `number` in decimal, in the buffer it is given.
pub(crate) fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::{
        lease::Drift,
        name::{KeyTemplate, Kind},
    };

    fn command(verb: Verb) -> Command {
        of_kind(Kind::Mutex, verb, 1)
    }

    fn of_kind(kind: Kind, verb: Verb, depth: u32) -> Command {
        let (owner, attempt) = (Arc::from("u:1"), 7);
        Command {
            verb,
            resource: KeyTemplate::parse("{name}")
                .unwrap()
                .resource(kind, "r".into())
                .unwrap(),
            identity: match kind {
                Kind::Mutex => Identity::Token(Token::new([0; 20])),
                Kind::Reentrant => Identity::Owner { owner, attempt },
                Kind::Fair => Identity::Ticket {
                    ticket: Ticket::new(5, &owner),
                    owner,
                    attempt,
                },
            },
            ttl: Ttl::parse(
                Duration::from_secs(10),
                Duration::ZERO,
                Drift::from_ppm(0).unwrap(),
            )
            .unwrap(),
            depth,
            wakes: WakeScope::Everybody,
            patience: (kind == Kind::Fair).then_some(QueueOptions {
                patience: Duration::from_secs(3),
                is_fresh: true,
            }),
            ballot: None,
        }
    }

    fn words(command: &Command) -> String {
        command.request(|request| match request {
            Call::Plain(words) => String::from_utf8(words.join(&b' ')).unwrap(),
            Call::Script {
                script,
                keys,
                arguments,
            } => {
                let rest = [keys, arguments].concat().join(&b' ');
                format!("{script:?} {}", String::from_utf8(rest).unwrap())
            }
        })
    }

    #[test]
    fn request_table() {
        use Kind::{Fair, Mutex, Reentrant};
        use Verb::{Acquire, Extend, Heal, Inspect, Release, Yield};
        let token = "0".repeat(40);
        let queue = "r quorlock:queue:{r} quorlock:deadlines:{r}";
        let ticket = "0000000000000005:u:1";
        for (kind, verb, depth, expected) in [
            (Mutex, Acquire, 1, format!("SET r {token} NX PX 10000")),
            (Mutex, Heal, 1, format!("SET r {token} NX PX 10000")),
            (Mutex, Extend, 1, format!("MutexExtend r {token} 10000")),
            (
                Mutex,
                Release,
                0,
                format!("MutexRelease r {token} quorlock:wake:{{r}}"),
            ),
            (Mutex, Inspect, 0, "Inspect r".into()),
            (
                Reentrant,
                Acquire,
                1,
                "ReentrantAcquire r u:1 7 1 10000 quorlock:reentrant".into(),
            ),
            (
                Reentrant,
                Heal,
                2,
                "ReentrantAcquire r u:1 7 2 10000 quorlock:reentrant".into(),
            ),
            (
                Reentrant,
                Extend,
                3,
                "ReentrantExtend r u:1 7 3 10000 quorlock:reentrant".into(),
            ),
            (
                Reentrant,
                Release,
                0,
                "ReentrantRelease r u:1 7 0 quorlock:reentrant redisson_lock__channel:{r} 0".into(),
            ),
            (
                Fair,
                Acquire,
                1,
                format!("FairAcquire {queue} u:1 7 1 10000 {ticket} 3000 1000000"),
            ),
            (
                Fair,
                Heal,
                2,
                "ReentrantAcquire r u:1 7 2 10000 quorlock:fair".into(),
            ),
            (
                Fair,
                Extend,
                2,
                "ReentrantExtend r u:1 7 2 10000 quorlock:fair".into(),
            ),
            (
                Fair,
                Release,
                1,
                "ReentrantRelease r u:1 7 1 quorlock:fair  0".into(),
            ),
            (
                Fair,
                Release,
                0,
                format!("FairRelease {queue} u:1 7 {ticket}"),
            ),
            (
                Fair,
                Yield,
                0,
                format!("FairYield {queue} u:1 7 {ticket} 3000"),
            ),
            (Fair, Inspect, 0, "Inspect r quorlock:queue:{r}".into()),
        ] {
            assert_eq!(
                words(&of_kind(kind, verb, depth)),
                expected,
                "{kind} {verb:?}"
            );
        }
    }

    fn fenced(kind: Kind, verb: Verb, depth: u32) -> Command {
        let command = of_kind(kind, verb, depth);
        let counter = command.resource.counter();
        let candidate = 1_770_000_000_000_001; // more digits than Lua would print
        Command {
            ballot: Some(Ballot { counter, candidate }),
            ..command
        }
    }

    #[test]
    fn fenced_request_table() {
        use Kind::{Fair, Mutex, Reentrant};
        use Verb::{Acquire, Extend, Heal, Inspect, Release, Yield};
        let token = "0".repeat(40);
        let queue = "r quorlock:queue:{r} quorlock:deadlines:{r}";
        let ticket = "0000000000000005:u:1";
        let (counter, candidate) = ("quorlock:fence:{r}", "1770000000000001");
        for (kind, verb, depth, expected) in [
            (
                Mutex,
                Acquire,
                1,
                format!("MutexAcquire r {counter} {token} 10000 {candidate} 1000000"),
            ),
            // What is put back may have been won long ago.
            (
                Mutex,
                Heal,
                1,
                format!("MutexAcquire r {counter} {token} 10000 {candidate} 0"),
            ),
            (Mutex, Extend, 1, format!("MutexExtend r {token} 10000")),
            (
                Mutex,
                Release,
                0,
                format!("MutexReleaseFenced r {counter} {token} quorlock:wake:{{r}} {candidate}"),
            ),
            (Mutex, Inspect, 0, "Inspect r".into()),
            (
                Reentrant,
                Acquire,
                1,
                format!(
                    "ReentrantAcquire r {counter} u:1 7 1 10000 quorlock:reentrant {candidate} 1000000"
                ),
            ),
            (
                Reentrant,
                Heal,
                2,
                format!(
                    "ReentrantAcquire r {counter} u:1 7 2 10000 quorlock:reentrant {candidate} 0"
                ),
            ),
            (
                Reentrant,
                Extend,
                3,
                "ReentrantExtend r u:1 7 3 10000 quorlock:reentrant".into(),
            ),
            (
                Reentrant,
                Release,
                0,
                format!(
                    "ReentrantReleaseFenced r {counter} u:1 7 0 quorlock:reentrant redisson_lock__channel:{{r}} 0 {candidate}"
                ),
            ),
            (
                Fair,
                Acquire,
                1,
                format!(
                    "FairAcquire {queue} {counter} u:1 7 1 10000 {ticket} 3000 1000000 {candidate} 1000000"
                ),
            ),
            (
                Fair,
                Heal,
                2,
                format!("ReentrantAcquire r {counter} u:1 7 2 10000 quorlock:fair {candidate} 0"),
            ),
            (
                Fair,
                Extend,
                2,
                "ReentrantExtend r u:1 7 2 10000 quorlock:fair".into(),
            ),
            (
                Fair,
                Release,
                1,
                format!("ReentrantReleaseFenced r {counter} u:1 7 1 quorlock:fair  0 {candidate}"),
            ),
            (
                Fair,
                Release,
                0,
                format!("FairReleaseFenced {queue} {counter} u:1 7 {ticket} {candidate}"),
            ),
            (
                Fair,
                Yield,
                0,
                format!("FairYield {queue} u:1 7 {ticket} 3000"),
            ),
        ] {
            assert_eq!(
                words(&fenced(kind, verb, depth)),
                expected,
                "{kind} {verb:?}"
            );
        }
    }

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
            (Acquire, Reply::Ok, nonsense()), // that is SET's
            (Acquire, Reply::Int(0), nonsense()),
            (Acquire, Reply::Int(-250), held(Some(250))),
            (Acquire, Reply::Nil, held(None)),
            (
                Acquire,
                Reply::Text("stale 1770000000000001".into()),
                stale(1_770_000_000_000_001),
            ),
            (Heal, Reply::Text("stale 5".into()), stale(5)),
            (Acquire, Reply::Text("stale 1.77e+15".into()), nonsense()),
            (Acquire, Reply::Text("stale".into()), nonsense()),
            (Acquire, Reply::Text("stale -1".into()), nonsense()),
            (
                Acquire,
                Reply::Text("skew 1500000".into()),
                skewed(1_500_000),
            ),
            (Acquire, Reply::Text("skew".into()), nonsense()),
            (Extend, Reply::Int(0), Vote::Refuse(Refusal::Gone)),
            (Release, Reply::Int(0), Vote::Refuse(Refusal::Gone)),
            (Release, Reply::Int(-250), held(Some(250))),
        ] {
            assert_eq!(
                fenced(Kind::Mutex, verb, 1).vote(&reply),
                vote,
                "{verb:?} {reply:?}"
            );
        }
        for kind in [Kind::Reentrant, Kind::Fair] {
            let said =
                |text: &'static str| fenced(kind, Acquire, 1).vote(&Reply::Text(text.into()));
            assert_eq!(said("stale 5"), stale(5));
            assert_eq!(said("skew 5"), skewed(5));
        }
        // Who offered nothing is told nothing of that.
        let text = Reply::Text("stale 5".into());
        assert_eq!(command(Acquire).vote(&text), nonsense());
    }

    #[test]
    fn owned_vote_table() {
        use Verb::{Acquire, Extend, Inspect, Release, Yield};
        let holder = |owner: &str, depth, place| {
            Some(Arc::new(crate::core::quorum::Holder {
                owner: owner.into(),
                depth,
                place,
            }))
        };
        let held = |remaining: Option<u64>, holder| {
            Vote::Refuse(Refusal::Held {
                remaining: remaining.map(Duration::from_millis),
                holder,
            })
        };
        for (verb, reply, vote) in [
            (Acquire, Reply::Int(1), Vote::Grant),
            (Acquire, Reply::Int(0), nonsense()),
            (Acquire, Reply::Ok, nonsense()),
            (Acquire, Reply::Nil, nonsense()),
            (
                Acquire,
                Reply::Text("held 250 2 3 u:2".into()),
                held(Some(250), holder("u:2", 2, Some(3))),
            ),
            (
                Acquire,
                Reply::Text("held -1 1 0 an owner".into()),
                held(None, holder("an owner", 1, None)),
            ),
            (
                Acquire,
                Reply::Text("held 0 1 0 u:2".into()), // in its last millisecond
                held(Some(1), holder("u:2", 1, None)),
            ),
            (Acquire, Reply::Text("held 250 2".into()), nonsense()),
            (
                Acquire,
                Reply::Text("kind".into()),
                Vote::Refuse(Refusal::OtherKind),
            ),
            (
                Acquire,
                Reply::Text("queued 2".into()),
                Vote::Refuse(Refusal::Queued { place: Some(2) }),
            ),
            (
                Acquire,
                Reply::Text("skew 1500000".into()),
                Vote::Refuse(Refusal::Skewed {
                    clock: Duration::from_millis(1_500),
                }),
            ),
            (Acquire, Reply::Text("".into()), nonsense()),
            (Extend, Reply::Int(1), Vote::Grant),
            (Extend, Reply::Int(0), Vote::Refuse(Refusal::Gone)),
            (Extend, Reply::Int(-5), nonsense()),
            (Release, Reply::Int(0), Vote::Refuse(Refusal::Gone)),
            (Yield, Reply::Int(0), Vote::Refuse(Refusal::Gone)),
            (Inspect, Reply::Text("free 0 0 ".into()), Vote::Grant),
            (Inspect, Reply::Int(1), nonsense()),
        ] {
            let said = of_kind(Kind::Fair, verb, 1).vote(&reply);
            assert_eq!(said, vote, "{verb:?} {reply:?}");
        }
        // A token is all that a mutex says.
        assert_eq!(
            command(Acquire).vote(&Reply::Text("kind".into())),
            nonsense()
        );
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
            (Acquire, Reply::Int(1), nonsense()),
            (
                Acquire,
                Reply::Error("OOM command not allowed"),
                rejected("OOM command not allowed"),
            ),
            (
                Acquire,
                Reply::Error("WRONGTYPE Operation"),
                Vote::Refuse(Refusal::OtherKind),
            ),
            (Extend, Reply::Int(1), Vote::Grant),
            (Extend, Reply::Int(0), gone()),
            (Extend, Reply::Int(-250), held(Some(250))),
            (Extend, Reply::Int(2), nonsense()),
            (Extend, Reply::Nil, held(None)),
            (Extend, Reply::Ok, nonsense()),
            (Release, Reply::Int(1), Vote::Grant),
            (Release, Reply::Int(0), gone()),
            (Release, Reply::Int(i64::MIN), held(Some(1 << 63))),
            (Release, Reply::Nil, held(None)),
            (
                Release,
                Reply::Error(
                    "ERR Error running script (call to f_1): @user_script:13: WRONGTYPE Op",
                ),
                Vote::Refuse(Refusal::OtherKind),
            ),
            (
                Release,
                Reply::Error("ERR no WRONGTYPE"),
                rejected("ERR no WRONGTYPE"),
            ),
            (Release, Reply::Error("READONLY"), rejected("READONLY")),
            (Release, Reply::Other, nonsense()),
        ] {
            assert_eq!(command(verb).vote(&reply), vote, "{verb:?} {reply:?}");
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
                    command(verb).vote(&Reply::Error(text)),
                    Vote::Fail(Failure::Rejected(_))
                ));
            }
        }
    }

    #[test]
    fn decimal_table() {
        for number in [0, 1, 9, 10, 1_000_000_007, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
