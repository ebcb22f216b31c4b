//! The words of a [`Command`] for a server.

use std::{iter, num::NonZeroU16};

use smallvec::SmallVec;

use super::{
    access::Access,
    command::{Command, Holding},
    companion::{CHANNEL, Companion},
    identity::{Identity, QueueOptions, Ticket},
    name::Token,
    script::{self, Script},
};
use crate::core::time::lease::{CLOCK_WINDOW, Ttl};
use crate::core::vote::verb::Verb;

use Word::{Bytes, Number};

/// The words of a command. No memory is allocated to build or send them if they are few.
pub(crate) struct Words<'a> {
    command: &'a Command,
    /// `None` for a plain command, which has arguments only.
    pub(crate) script: Option<&'static Script>,
    /// The keys after the key of the lock.
    companions: &'static [&'static Companion],
    /// The key of the counter, which comes last.
    counter: Option<&'a str>,
    arguments: SmallVec<[Word<'a>; 9]>,
}

impl<'a> Words<'a> {
    /// Begins the words of a script with the key of the lock, and with the token, or the owner and
    /// the number of its attempt.
    pub(in crate::core) fn of(script: &'static Script, command: &'a Command) -> Self {
        let words = Self::none(command, Some(script));
        let by = command.by();
        if let Some(token) = by.and_then(Identity::token) {
            return words.add(Word::Token(token));
        }
        match by.and_then(Identity::owner) {
            Some(owner) => words.text(&owner.owner).number(owner.attempt),
            None => words,
        }
    }

    /// Returns the words of a SET that writes the token if there is no key.
    pub(in crate::core) fn set(command: &'a Command, ttl: Ttl) -> Self {
        let token = command.by().and_then(Identity::token);
        let words = Self::none(command, None).text("SET");
        let words = words.text(command.lock_id.key());
        let words = words.add(token.map_or(Bytes(&[]), Word::Token));
        words.text("NX").text("PX").ttl(ttl)
    }

    pub(in crate::core) fn break_held(command: &'a Command, holders: &'a str) -> Self {
        let words = Self::of(&script::BREAK, command);
        words
            .text(command.lock_id.companion(&CHANNEL))
            .text(holders)
    }

    pub(in crate::core) fn inspect(command: &'a Command) -> Self {
        Self::of(&script::INSPECT, command)
    }

    pub(in crate::core) fn probe(command: &'a Command) -> Self {
        let words = Self::none(command, None).text("SET");
        let words = words.text(command.lock_id.key()).text("probe");
        words.text("NX").text("PX").number(1)
    }

    fn none(command: &'a Command, script: Option<&'static Script>) -> Self {
        Self {
            command,
            script,
            companions: &[],
            counter: None,
            arguments: SmallVec::new(),
        }
    }

    /// Sets the keys after the key of the lock.
    pub(in crate::core) fn keys(mut self, companions: &'static [&'static Companion]) -> Self {
        self.companions = companions;
        self
    }

    fn add(mut self, argument: Word<'a>) -> Self {
        self.arguments.push(argument);
        self
    }

    pub(in crate::core) fn text(self, text: &'a str) -> Self {
        self.add(Bytes(text.as_bytes()))
    }

    pub(in crate::core) fn number(self, number: u64) -> Self {
        self.add(Number(number))
    }

    pub(in crate::core) fn ttl(self, ttl: Ttl) -> Self {
        self.number(ttl.millis())
    }

    pub(in crate::core) fn depth(self, holding: &Holding) -> Self {
        self.number(holding.depth.into())
    }

    /// Adds what the caller does with a lock that has readers and writers.
    pub(in crate::core) fn access(self, holding: &Holding) -> Self {
        self.text(match holding.access {
            Access::Exclusive => "write",
            Access::Shared => "read",
        })
    }

    /// Adds the number of permits of a semaphore.
    pub(in crate::core) fn permits(self) -> Self {
        let permits = self.command.lock_id.permits();
        self.number(permits.into())
    }

    /// Adds the slot that another master has granted to the caller, or 0 for any slot.
    pub(in crate::core) fn slot(self, holding: &Holding) -> Self {
        self.number(holding.slot.map_or(0, NonZeroU16::get).into())
    }

    /// Adds the ticket of a waiter.
    pub(in crate::core) fn ticket(self) -> Self {
        let ticket = self.command.by().and_then(Identity::ticket);
        self.text(ticket.map_or("", Ticket::as_str))
    }

    /// Adds the waiter timeout and the window of the ticket. Both are 0 for an attempt that does
    /// not wait, and are left out if nothing follows them.
    pub(in crate::core) fn queue(self, queue: Option<QueueOptions>) -> Self {
        if queue.is_none() && !self.command.is_fenced() {
            return self;
        }
        let [timeout, window] = queue.map_or([0, 0], QueueOptions::in_words);
        self.number(timeout).number(window)
    }

    /// Adds what the script needs for a fenced lock: the key of the counter, the candidate and, if
    /// the script takes the lock, the window. Adds nothing if the lock is not fenced.
    pub(in crate::core) fn ballot(mut self) -> Self {
        let Some(ballot) = self.command.ballot() else {
            return self;
        };
        let verb = self.command.verb();
        self.counter = Some(&ballot.counter);
        let words = self.number(ballot.candidate);
        match verb {
            Verb::Acquire => words.number(CLOCK_WINDOW.as_micros() as u64),
            // The candidate may have been accepted long ago, so any distance is allowed.
            Verb::Heal => words.number(0),
            Verb::Break
            | Verb::Extend
            | Verb::Inspect
            | Verb::Probe
            | Verb::Release
            | Verb::Yield => words,
        }
    }

    /// Returns the keys of a script, and their number.
    pub(crate) fn script_keys(&self) -> (usize, impl Iterator<Item = &str>) {
        let lock_id = &self.command.lock_id;
        let companions = self.companions.iter();
        let companions = companions.map(|companion| lock_id.companion(companion));
        let keys = iter::once(&**lock_id.key()).chain(companions);
        let count = 1 + self.companions.len() + usize::from(self.counter.is_some());
        (count, keys.chain(self.counter))
    }

    pub(crate) fn argument_count(&self) -> usize {
        self.arguments.len()
    }

    /// Calls `each` with every argument in turn.
    pub(crate) fn arguments(&self, mut each: impl FnMut(&[u8])) {
        for word in &self.arguments {
            match word {
                Bytes(bytes) => each(bytes),
                Number(number) => each(decimal(*number, &mut [0; 20])),
                Word::Token(token) => each(token.bytes(&mut None)),
            }
        }
    }
}

/// A word of a command.
#[derive(Clone, Copy)]
enum Word<'a> {
    Bytes(&'a [u8]),
    Number(u64),
    Token(&'a Token),
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
    use crate::core::protocol::{command::fixture, kind::Kind};

    #[test]
    fn a_script_may_have_any_number_of_arguments() {
        let command = fixture::command(Kind::Reentrant, Verb::Acquire, 1);
        for most in [1, 9, 10, 40] {
            let words = (1..=most).fold(Words::none(&command, None), Words::number);
            let mut sent = Vec::new();
            words.arguments(|word| sent.push(word.to_vec()));
            let expected: Vec<_> = (1..=most).map(|at| at.to_string().into_bytes()).collect();
            assert_eq!((words.argument_count(), sent), (expected.len(), expected));
        }
    }

    #[test]
    fn decimal_table() {
        for number in [0, 1, 9, 10, 1_000_000_007, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
