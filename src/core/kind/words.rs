//! The words of a [`Command`] for a server.

use super::{
    command::{Action, Call, Command, NewKey},
    identity::{FairAttempt, Identity, OwnerAttempt, QueueOptions, whole_millis},
    name::{Kind, Token, TokenRoom},
    script::Script,
};
use crate::core::{
    ballot::Ballot,
    time::lease::{CLOCK_WINDOW, Ttl},
};

use Word::{Bytes, Number};

/// The window for a new candidate, in microseconds.
const WINDOW: Option<u64> = Some(CLOCK_WINDOW.as_micros() as u64);
/// The window for a key that is put back. Its candidate may have been accepted long ago, so any
/// distance is allowed.
const NO_WINDOW: Option<u64> = Some(0);

impl Command {
    /// Calls `send` with the words of this command.
    pub(crate) fn call<T>(&self, send: impl FnOnce(Call<'_>) -> T) -> T {
        self.words().send(send)
    }

    /// Returns the key and the token, if this command only has to delete the key if it holds the
    /// token. This is so for the release of a mutex that was won and is not fenced.
    #[cfg(feature = "redis")]
    pub(crate) fn comparison(&self) -> Option<(&[u8], &Token)> {
        match &self.action {
            Action::Release {
                by: Identity::Token(token),
                ballot: None,
                was_won: true,
                ..
            } if !self.watch => Some((self.resource.key().as_bytes(), token)),
            _ => None,
        }
    }

    fn words(&self) -> Words<'_> {
        match &self.action {
            Action::Acquire { by, key } => match by {
                Identity::Ticket(fair) => self.take_fair(fair, None, key),
                _ => self.take(by, key, WINDOW),
            },
            Action::AcquireOrQueue { by, queue, key } => self.take_fair(by, Some(*queue), key),
            // A heal ignores the queue, because the lock is held.
            Action::Heal { by, key } => self.take(by, key, NO_WINDOW),
            Action::Extend { by, ttl, depth } => {
                let scripts = [Script::MutexExtend, Script::ReentrantExtend];
                self.keep(by, scripts, *ttl, *depth)
            }
            Action::SetDepth { by, depth, ballot } => {
                let words = self.release_owned(by, *depth);
                words.fenced(ballot.as_ref(), None)
            }
            Action::Release { by, ballot, .. } => self.release(by).fenced(ballot.as_ref(), None),
            Action::Yield { by, timeout } => {
                let words = [text(by.ticket.as_str()), Number(whole_millis(*timeout))];
                self.owned(Script::FairYield, &by.owner, &words)
            }
            Action::Break { channel, holders } => {
                self.script(Script::Break, &[text(channel), text(holders)])
            }
            Action::Inspect => self.script(Script::Inspect, &[]),
            Action::Probe => self.set(text("probe"), Number(1)),
        }
    }

    fn take<'a>(&'a self, by: &'a Identity, key: &'a NewKey, window: Option<u64>) -> Words<'a> {
        if let (Identity::Token(token), None) = (by, &key.ballot) {
            let (token, ttl) = (Word::Token(token), Number(key.ttl.millis()));
            if self.watch {
                return self.script(Script::MutexAcquireWatched, &[token, ttl]);
            }
            return self.set(token, ttl);
        }
        let scripts = [Script::MutexAcquire, Script::ReentrantAcquire];
        let words = self.keep(by, scripts, key.ttl, key.depth);
        words.fenced(key.ballot.as_ref(), window)
    }

    fn set<'a>(&'a self, value: Word<'a>, ttl: Word<'a>) -> Words<'a> {
        let name = text(self.resource.key());
        Words::plain(&[text("SET"), name, value, text("NX"), text("PX"), ttl])
    }

    /// Returns the words of a script that sets the TTL, and also the depth if the lock has one.
    /// `scripts` holds the script for a mutex, then the script for the other kinds.
    fn keep<'a>(
        &'a self,
        by: &'a Identity,
        scripts: [Script; 2],
        ttl: Ttl,
        depth: u32,
    ) -> Words<'a> {
        let ttl = Number(ttl.millis());
        match by {
            Identity::Token(token) => self.script(scripts[0], &[Word::Token(token), ttl]),
            Identity::Owner(owner) | Identity::Ticket(FairAttempt { owner, .. }) => self.owned(
                scripts[1],
                owner,
                &[Number(depth.into()), ttl, self.marker()],
            ),
        }
    }

    fn take_fair<'a>(
        &'a self,
        by: &'a FairAttempt,
        queue: Option<QueueOptions>,
        key: &'a NewKey,
    ) -> Words<'a> {
        let (depth, ttl) = (Number(key.depth.into()), Number(key.ttl.millis()));
        let [timeout, window] = queue.map_or([0, 0], QueueOptions::in_words).map(Number);
        let words = [depth, ttl, text(by.ticket.as_str()), timeout, window];
        let words = self.owned(Script::FairAcquire, &by.owner, &words);
        words.fenced(key.ballot.as_ref(), WINDOW)
    }

    fn release<'a>(&'a self, by: &'a Identity) -> Words<'a> {
        match by {
            Identity::Token(token) => self.script(Script::MutexRelease, &[Word::Token(token)]),
            Identity::Owner(owner) => self.release_owned(owner, 0),
            Identity::Ticket(fair) => {
                let ticket = text(fair.ticket.as_str());
                self.owned(Script::FairRelease, &fair.owner, &[ticket])
            }
        }
    }

    fn release_owned<'a>(&'a self, owner: &'a OwnerAttempt, depth: u32) -> Words<'a> {
        let channel = text(self.resource.channel());
        let words = [Number(depth.into()), self.marker(), channel];
        self.owned(Script::ReentrantRelease, owner, &words)
    }

    fn owned<'a>(
        &'a self,
        script: Script,
        owner: &'a OwnerAttempt,
        arguments: &[Word<'a>],
    ) -> Words<'a> {
        let mut words = self.script(script, &[text(&owner.owner), Number(owner.attempt)]);
        arguments.iter().for_each(|word| words.add(*word));
        words
    }

    fn script<'a>(&'a self, script: Script, arguments: &[Word<'a>]) -> Words<'a> {
        let resource = &self.resource;
        let mut words = Words::plain(arguments);
        words.script = Some(script);
        words.add_key(resource.key());
        match script {
            Script::FairAcquire | Script::FairRelease | Script::FairYield => {
                words.add_key(resource.queue());
                words.add_key(resource.deadlines());
            }
            // Only a fair lock has a queue. For other kinds, the key of the queue is empty, and the
            // user may lack the right to an empty key.
            Script::Inspect if resource.kind() == Kind::Fair => words.add_key(resource.queue()),
            Script::Break if resource.kind() == Kind::Fair => {
                words.add_key(resource.queue());
                words.add_key(resource.deadlines());
            }
            _ => {}
        }
        words
    }

    /// Returns the field of a lock's hash that names the kind of the lock. The value of the field
    /// is the number of the attempt that holds the lock.
    fn marker(&self) -> Word<'static> {
        text(match self.resource.kind() {
            Kind::Fair => "quorlock:fair",
            Kind::Mutex | Kind::Reentrant => "quorlock:reentrant",
        })
    }
}

/// A word of a command.
#[derive(Clone, Copy)]
enum Word<'a> {
    Bytes(&'a [u8]),
    Number(u64),
    /// A command has at most one token.
    Token(&'a Token),
}

fn text(text: &str) -> Word<'_> {
    Bytes(text.as_bytes())
}

/// The largest numbers of keys and of arguments of a script.
const MOST_KEYS: usize = 4;
const MOST_ARGUMENTS: usize = 9;

/// The words of a command. No memory is allocated to build or send them.
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
            arguments: [Bytes(&[]); MOST_ARGUMENTS],
            argument_count: arguments.len(),
        };
        words.arguments[..arguments.len()].copy_from_slice(arguments);
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

    /// Adds the key and the arguments that a script needs for a fenced lock. Does nothing without a
    /// ballot.
    fn fenced(mut self, ballot: Option<&'a Ballot>, window: Option<u64>) -> Self {
        if let Some(ballot) = ballot {
            self.script = self.script.map(Script::fenced);
            self.add_key(&ballot.counter);
            self.add(Number(ballot.candidate));
            if let Some(window) = window {
                self.add(Number(window));
            }
        }
        self
    }

    fn send<T>(&self, send: impl FnOnce(Call<'_>) -> T) -> T {
        let mut digits = [[0; 20]; MOST_ARGUMENTS];
        let mut digits = digits.iter_mut();
        let mut room = TokenRoom::None;
        let mut room = Some(&mut room);
        let arguments = self.arguments.map(|word| match word {
            Bytes(bytes) => bytes,
            Number(number) => digits
                .next()
                .map_or(&[][..], |digits| decimal(number, digits)),
            Word::Token(token) => room.take().map_or(&[][..], |room| token.bytes(room)),
        });
        let arguments = &arguments[..self.argument_count];
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
    use crate::core::kind::{
        client_name::ClientName,
        command::{
            Verb,
            fixture::{VERBS, command, fenced},
        },
    };

    fn words(command: &Command) -> String {
        command.call(|call| match call {
            Call::Plain(words) => String::from_utf8(words.join(&b' ')).unwrap(),
            Call::Script {
                script,
                keys,
                arguments,
            } => {
                let texts = |words: &[&[u8]]| {
                    let words = words.iter().map(|word| String::from_utf8(word.to_vec()));
                    words.collect::<Result<Vec<_>, _>>().unwrap()
                };
                let (keys, arguments) = (texts(keys), texts(arguments));
                format!("{} {keys:?} {arguments:?}", name(script))
            }
        })
    }

    /// Returns the file of a script, without what it is put together with.
    fn name(script: Script) -> &'static str {
        match script {
            Script::MutexAcquire => "mutex/acquire",
            Script::MutexAcquireWatched => "mutex/acquire_watched",
            Script::MutexExtend => "mutex/extend",
            Script::MutexRelease => "mutex/release",
            Script::MutexReleaseFenced => "mutex/release_fenced",
            Script::ReentrantAcquire => "reentrant/acquire",
            Script::ReentrantExtend => "reentrant/extend",
            Script::ReentrantRelease => "reentrant/release",
            Script::ReentrantReleaseFenced => "reentrant/release_fenced",
            Script::FairAcquire => "fair/acquire",
            Script::FairRelease => "fair/release",
            Script::FairReleaseFenced => "fair/release_fenced",
            Script::FairYield => "fair/yield",
            Script::Inspect => "shared/inspect",
            Script::Break => "shared/break",
        }
    }

    /// The file lists the words for a server. A change there is a change of what earlier versions
    /// of this crate and the masters understand.
    #[test]
    fn the_words_of_all_commands_are_those_of_the_list() {
        const CASES: [(u32, bool, bool); 6] = [
            (0, false, false),
            (0, false, true),
            (0, true, false),
            (0, true, true),
            (2, false, false),
            (2, true, false),
        ];
        let mut lines = String::new();
        for kind in [Kind::Mutex, Kind::Reentrant, Kind::Fair] {
            for verb in VERBS {
                if verb == Verb::Yield && kind != Kind::Fair {
                    continue; // only a waiter in a queue yields
                }
                for (depth, is_fenced, watch) in CASES {
                    let of = if is_fenced { fenced } else { command };
                    let mut command = of(kind, verb, depth);
                    command.watch = watch;
                    let shown = [(is_fenced, ", fenced"), (watch, ", watched")];
                    let shown = shown.map(|(is_so, what)| if is_so { what } else { "" });
                    let (words, [is_fenced, watch]) = (words(&command), shown);
                    let line =
                        format!("{kind}, {verb:?}, depth {depth}{is_fenced}{watch}: {words}\n");
                    lines.push_str(&line);
                }
            }
        }
        let list = include_str!("../../../tests/golden/words.txt");
        for (line, listed) in lines.lines().zip(list.lines()) {
            assert_eq!(line, listed);
        }
        assert_eq!(lines, list, "some words are missing");
    }

    #[test]
    fn a_token_with_a_client_name_is_one_word() {
        let client = ClientName::parse("web-3/812".to_owned()).unwrap();
        let token = format!("{}@web-3/812", "0".repeat(40));
        for (verb, expected) in [
            (Verb::Acquire, format!("SET r {token} NX PX 10000")),
            (
                Verb::Extend,
                format!("mutex/extend [\"r\"] [\"{token}\", \"10000\"]"),
            ),
            (
                Verb::Release,
                format!("mutex/release [\"r\"] [\"{token}\"]"),
            ),
        ] {
            let mut named = command(Kind::Mutex, verb, 0);
            if let Action::Acquire { by, .. }
            | Action::Extend { by, .. }
            | Action::Release { by, .. } = &mut named.action
            {
                *by = Identity::Token(Token::new([0; 20], Some(&client)));
            }
            assert_eq!(words(&named), expected, "{verb:?}");
        }
    }

    #[test]
    fn an_attempt_at_a_fair_lock_that_does_not_wait_has_no_waiter_timeout() {
        let mut attempt = command(Kind::Fair, Verb::Heal, 1);
        if let Action::Heal { by, key } = attempt.action {
            attempt.action = Action::Acquire { by, key };
        }
        let expected = "fair/acquire [\"r\", \"quorlock:queue:{r}\", \"quorlock:deadlines:{r}\"] \
            [\"u:1\", \"7\", \"1\", \"10000\", \"0000000000000005:u:1\", \"0\", \"0\"]";
        assert_eq!(words(&attempt), expected);
    }

    #[cfg(feature = "redis")]
    #[test]
    fn only_a_mutex_that_was_won_is_released_by_a_comparison() {
        let mut release = command(Kind::Mutex, Verb::Release, 0);
        let token = Token::new([0; 20], None);
        assert_eq!(release.comparison(), Some((&b"r"[..], &token)));
        if let Action::Release { was_won, .. } = &mut release.action {
            *was_won = false;
        }
        let mut watched = command(Kind::Mutex, Verb::Release, 0);
        watched.watch = true;
        for command in [
            release,
            watched,
            command(Kind::Mutex, Verb::Acquire, 1),
            command(Kind::Mutex, Verb::Extend, 1),
            fenced(Kind::Mutex, Verb::Release, 0),
            command(Kind::Reentrant, Verb::Release, 0),
            command(Kind::Fair, Verb::Release, 0),
        ] {
            assert_eq!(command.comparison(), None, "{command:?}");
        }
    }

    #[test]
    fn decimal_table() {
        for number in [0, 1, 9, 10, 1_000_000_007, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
