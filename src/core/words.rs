//! The words in which a [`Command`] goes to a server.

use super::{
    ballot::Ballot,
    command::{Action, Call, Command, NewKey, Probe, WakeScope},
    identity::{FairAttempt, Identity, OwnerAttempt, QueueOptions, whole_millis},
    lease::Ttl,
    name::{Kind, Token},
    script::Script,
};

use Word::{Bytes, Number};

/// The window for a new candidate, in microseconds.
const WINDOW: u64 = Ballot::WINDOW.as_micros() as u64;
/// No window. A key that is put back may have been won long ago.
const NO_WINDOW: u64 = 0;

impl Command {
    /// Calls `send` with the words for a server.
    pub(crate) fn call<T>(&self, send: impl FnOnce(Call<'_>) -> T) -> T {
        self.words().send(send)
    }

    fn words(&self) -> Words<'_> {
        match &self.action {
            Action::Acquire { identity, key } => match identity {
                Identity::Token(token) => self.take_mutex(token, key, WINDOW),
                Identity::Owner(owner) => self.take_owned(owner, key, WINDOW),
                Identity::Ticket(fair) => self.take_fair(fair, None, key),
            },
            Action::AcquireOrQueue { fair, queue, key } => self.take_fair(fair, Some(*queue), key),
            Action::Heal { identity, key } => match identity {
                Identity::Token(token) => self.take_mutex(token, key, NO_WINDOW),
                // The queue has no say while the lock is held.
                Identity::Owner(owner) | Identity::Ticket(FairAttempt { by: owner, .. }) => {
                    self.take_owned(owner, key, NO_WINDOW)
                }
            },
            Action::Extend {
                identity,
                ttl,
                depth,
            } => self.extend(identity, *ttl, *depth),
            Action::SetDepth {
                owner,
                depth,
                ballot,
            } => self
                .release_owned(owner, *depth, WakeScope::Nobody)
                .fenced(ballot.as_ref(), None),
            Action::Release {
                identity,
                wakes,
                ballot,
            } => self.release(identity, *wakes).fenced(ballot.as_ref(), None),
            Action::Yield {
                fair,
                waiter_timeout,
            } => {
                let mut words = self.fair(Script::FairYield, fair);
                words.add(Number(whole_millis(*waiter_timeout)));
                words
            }
            Action::Inspect => self.inspect(),
            Action::Probe(probe) => self.probe(probe),
        }
    }

    fn take_mutex<'a>(&'a self, token: &'a Token, key: &'a NewKey, window: u64) -> Words<'a> {
        let (token, ttl) = (Bytes(token.as_bytes()), Number(key.ttl.millis()));
        if key.ballot.is_none() {
            let name = text(self.resource.key());
            return Words::plain(&[text("SET"), name, token, text("NX"), text("PX"), ttl]);
        }
        let words = Words::script(Script::MutexAcquire, &[self.resource.key()], &[token, ttl]);
        words.fenced(key.ballot.as_ref(), Some(window))
    }

    fn take_owned<'a>(
        &'a self,
        owner: &'a OwnerAttempt,
        key: &'a NewKey,
        window: u64,
    ) -> Words<'a> {
        let words = self.owned(Script::ReentrantAcquire, owner, key.depth, key.ttl);
        words.fenced(key.ballot.as_ref(), Some(window))
    }

    fn take_fair<'a>(
        &'a self,
        fair: &'a FairAttempt,
        queue: Option<QueueOptions>,
        key: &'a NewKey,
    ) -> Words<'a> {
        let (timeout, window) = queue.map_or((0, 0), QueueOptions::in_words);
        let words = [
            text(&fair.by.owner),
            Number(fair.by.attempt),
            Number(key.depth.into()),
            Number(key.ttl.millis()),
            text(fair.ticket.as_str()),
            Number(timeout),
            Number(window),
        ];
        let words = Words::script(Script::FairAcquire, &self.fair_keys(), &words);
        words.fenced(key.ballot.as_ref(), Some(WINDOW))
    }

    fn extend<'a>(&'a self, identity: &'a Identity, ttl: Ttl, depth: u32) -> Words<'a> {
        match identity {
            Identity::Token(token) => {
                let words = [Bytes(token.as_bytes()), Number(ttl.millis())];
                Words::script(Script::MutexExtend, &[self.resource.key()], &words)
            }
            Identity::Owner(owner) | Identity::Ticket(FairAttempt { by: owner, .. }) => {
                self.owned(Script::ReentrantExtend, owner, depth, ttl)
            }
        }
    }

    fn release<'a>(&'a self, identity: &'a Identity, wakes: WakeScope) -> Words<'a> {
        match identity {
            Identity::Token(token) => {
                let words = [Bytes(token.as_bytes()), text(self.channel(wakes))];
                Words::script(Script::MutexRelease, &[self.resource.key()], &words)
            }
            Identity::Owner(owner) => self.release_owned(owner, 0, wakes),
            Identity::Ticket(fair) => self.fair(Script::FairRelease, fair),
        }
    }

    fn release_owned<'a>(
        &'a self,
        owner: &'a OwnerAttempt,
        depth: u32,
        wakes: WakeScope,
    ) -> Words<'a> {
        let words = [
            text(&owner.owner),
            Number(owner.attempt),
            Number(depth.into()),
            self.marker(),
            text(self.channel(wakes)),
            text(wakes.message()),
        ];
        Words::script(Script::ReentrantRelease, &[self.resource.key()], &words)
    }

    /// Returns the words of a script that keeps a reentrant or a fair lock.
    fn owned<'a>(
        &'a self,
        script: Script,
        owner: &'a OwnerAttempt,
        depth: u32,
        ttl: Ttl,
    ) -> Words<'a> {
        let words = [
            text(&owner.owner),
            Number(owner.attempt),
            Number(depth.into()),
            Number(ttl.millis()),
            self.marker(),
        ];
        Words::script(script, &[self.resource.key()], &words)
    }

    /// Returns the words of a script that takes a fair lock back.
    fn fair<'a>(&'a self, script: Script, fair: &'a FairAttempt) -> Words<'a> {
        let words = [
            text(&fair.by.owner),
            Number(fair.by.attempt),
            text(fair.ticket.as_str()),
        ];
        Words::script(script, &self.fair_keys(), &words)
    }

    fn inspect(&self) -> Words<'_> {
        let keys = [&**self.resource.key(), self.resource.queue()];
        // Only a fair lock has a queue, and not every user may name an empty key.
        let count = match self.resource.kind() {
            Kind::Fair => 2,
            Kind::Mutex | Kind::Reentrant => 1,
        };
        Words::script(Script::Inspect, &keys[..count], &[])
    }

    fn probe<'a>(&'a self, probe: &'a Probe) -> Words<'a> {
        match probe {
            // As arguments, because they may belong to several servers of a cluster.
            Probe::Facts { counter } => {
                let [key, queue, deadlines] = self.fair_keys();
                let names = [key, queue, deadlines, counter].map(text);
                Words::script(Script::Check, &[], &names)
            }
            Probe::Setting(name) => Words::plain(&[text("CONFIG"), text("GET"), text(name)]),
        }
    }

    fn fair_keys(&self) -> [&str; 3] {
        let resource = &self.resource;
        [resource.key(), resource.queue(), resource.deadlines()]
    }

    /// Returns the field of a lock's hash that tells the kind of the lock. Its value is the attempt
    /// that holds the lock.
    fn marker(&self) -> Word<'_> {
        text(match self.resource.kind() {
            Kind::Fair => "quorlock:fair",
            Kind::Mutex | Kind::Reentrant => "quorlock:reentrant",
        })
    }

    /// Returns the channel on which a release is published. It is empty if no one is woken.
    fn channel(&self, wakes: WakeScope) -> &str {
        match wakes {
            WakeScope::Nobody => "",
            WakeScope::ThisMaster | WakeScope::Everybody => self.resource.channel(),
        }
    }
}

/// A word of a command.
#[derive(Clone, Copy)]
enum Word<'a> {
    Bytes(&'a [u8]),
    Number(u64),
}

fn text(text: &str) -> Word<'_> {
    Bytes(text.as_bytes())
}

/// The largest numbers of keys and of arguments of a script.
const MOST_KEYS: usize = 4;
const MOST_ARGUMENTS: usize = 9;

/// The words of a command. They take no memory of their own.
struct Words<'a> {
    /// `None` for a plain command, which has arguments only.
    script: Option<Script>,
    keys: [&'a [u8]; MOST_KEYS],
    key_count: usize,
    arguments: [Word<'a>; MOST_ARGUMENTS],
    argument_count: usize,
}

impl<'a> Words<'a> {
    fn plain(arguments: &[Word<'a>]) -> Self {
        let mut words = Self {
            script: None,
            keys: [&[]; MOST_KEYS],
            key_count: 0,
            arguments: [Number(0); MOST_ARGUMENTS],
            argument_count: arguments.len(),
        };
        words.arguments[..arguments.len()].copy_from_slice(arguments);
        words
    }

    fn script(script: Script, keys: &[&'a str], arguments: &[Word<'a>]) -> Self {
        let mut words = Self::plain(arguments);
        words.script = Some(script);
        keys.iter().for_each(|key| words.add_key(key));
        words
    }

    fn add_key(&mut self, key: &'a str) {
        self.keys[self.key_count] = key.as_bytes();
        self.key_count += 1;
    }

    fn add(&mut self, argument: Word<'a>) {
        self.arguments[self.argument_count] = argument;
        self.argument_count += 1;
    }

    /// Adds what a script gets in addition when the lock is fenced.
    fn fenced(mut self, ballot: Option<&'a Ballot>, window: Option<u64>) -> Self {
        if let Some(ballot) = ballot {
            self.script = self.script.map(Script::fenced);
            self.add_key(&ballot.counter);
            self.add(Number(ballot.candidate));
            window
                .into_iter()
                .for_each(|window| self.add(Number(window)));
        }
        self
    }

    fn send<T>(&self, send: impl FnOnce(Call<'_>) -> T) -> T {
        let mut digits = [[0; 20]; MOST_ARGUMENTS];
        let mut arguments = [&[][..]; MOST_ARGUMENTS];
        let arguments = &mut arguments[..self.argument_count];
        for ((argument, digits), word) in arguments.iter_mut().zip(&mut digits).zip(self.arguments)
        {
            *argument = match word {
                Bytes(bytes) => bytes,
                Number(number) => decimal(number, digits),
            };
        }
        match self.script {
            None => send(Call::Plain(arguments)),
            Some(script) => send(Call::Script {
                script,
                keys: &self.keys[..self.key_count],
                arguments,
            }),
        }
    }
}

/// Writes `number` in decimal into `digits`. Returns the part of `digits` that was used.
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
    use super::*;
    use crate::core::command::{
        Verb,
        fixture::{command, fenced},
    };

    fn words(command: &Command) -> String {
        command.call(|call| match call {
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
                words(&command(kind, verb, depth)),
                expected,
                "{kind} {verb:?}"
            );
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
    fn decimal_table() {
        for number in [0, 1, 9, 10, 1_000_000_007, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
