//! The words of a [`Command`] for a server.

use super::{
    command::{Call, Command, Verb},
    identity::{Identity, QueueOptions, Ticket, whole_millis},
    name::{Token, TokenRoom},
    script::{self, Script},
};
use crate::core::time::lease::{CLOCK_WINDOW, Ttl};

use Word::{Bytes, Number};

/// The words of a command. No memory is allocated to build or send them.
pub(crate) struct Words<'a> {
    command: &'a Command,
    /// `None` for a plain command, which has arguments only.
    script: Option<&'static Script>,
    keys: [&'a [u8]; MOST_KEYS],
    key_count: usize,
    arguments: [Word<'a>; MOST_ARGUMENTS],
    argument_count: usize,
}

/// The largest numbers of keys and of arguments of a script.
const MOST_KEYS: usize = 4;
const MOST_ARGUMENTS: usize = 9;

impl<'a> Words<'a> {
    /// Begins the words of a script with the key of the lock, and with the token, or the owner and
    /// the number of its attempt.
    pub(super) fn of(script: &'static Script, command: &'a Command) -> Self {
        let words = Self::none(command, Some(script));
        let words = words.key(command.resource.key());
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
    pub(super) fn set(command: &'a Command) -> Self {
        let token = command.by().and_then(Identity::token);
        let words = Self::none(command, None).text("SET");
        let words = words.text(command.resource.key());
        let words = words.add(token.map_or(Bytes(&[]), Word::Token));
        words.text("NX").text("PX").ttl()
    }

    pub(super) fn break_held(command: &'a Command) -> Self {
        let holders = command.holders.as_deref().unwrap_or_default();
        let words = Self::of(&script::BREAK, command);
        words.text(command.resource.channel()).text(holders)
    }

    pub(super) fn inspect(command: &'a Command) -> Self {
        Self::of(&script::INSPECT, command)
    }

    pub(super) fn probe(command: &'a Command) -> Self {
        let words = Self::none(command, None).text("SET");
        let words = words.text(command.resource.key()).text("probe");
        words.text("NX").text("PX").number(1)
    }

    fn none(command: &'a Command, script: Option<&'static Script>) -> Self {
        Self {
            command,
            script,
            keys: [&[]; MOST_KEYS],
            key_count: 0,
            arguments: [Bytes(&[]); MOST_ARGUMENTS],
            argument_count: 0,
        }
    }

    pub(super) fn key(mut self, key: &'a str) -> Self {
        self.keys[self.key_count] = key.as_bytes();
        self.key_count += 1;
        self
    }

    /// Adds the key of the queue.
    pub(super) fn queue(self) -> Self {
        let queue = self.command.resource.queue();
        self.key(queue)
    }

    /// Adds the key of the deadlines.
    pub(super) fn deadlines(self) -> Self {
        let deadlines = self.command.resource.deadlines();
        self.key(deadlines)
    }

    fn add(mut self, argument: Word<'a>) -> Self {
        self.arguments[self.argument_count] = argument;
        self.argument_count += 1;
        self
    }

    pub(super) fn text(self, text: &'a str) -> Self {
        self.add(Bytes(text.as_bytes()))
    }

    pub(super) fn number(self, number: u64) -> Self {
        self.add(Number(number))
    }

    pub(super) fn ttl(self) -> Self {
        let ttl = self.command.ttl.map_or(0, Ttl::millis);
        self.number(ttl)
    }

    pub(super) fn depth(self) -> Self {
        let depth = self.command.depth();
        self.number(depth.into())
    }

    /// Adds the ticket of a waiter.
    pub(super) fn ticket(self) -> Self {
        let ticket = self.command.by().and_then(Identity::ticket);
        self.text(ticket.map_or("", Ticket::as_str))
    }

    /// Adds the waiter timeout, and the window for the time in the ticket. Both are 0 for an
    /// attempt that does not wait.
    pub(super) fn waiting(self) -> Self {
        let [timeout, window] = self.command.queue.map_or([0, 0], QueueOptions::in_words);
        self.number(timeout).number(window)
    }

    pub(super) fn waiter_timeout(self) -> Self {
        let timeout = self.command.queue.map(|queue| queue.waiter_timeout);
        self.number(timeout.map_or(0, whole_millis))
    }

    /// Adds what the script needs for a fenced lock: the key of the counter, the candidate and, if
    /// the script takes the lock, the window. Adds nothing if the lock is not fenced.
    pub(super) fn ballot(self) -> Self {
        let Some(ballot) = self.command.ballot() else {
            return self;
        };
        let verb = self.command.verb;
        let words = self.key(&ballot.counter).number(ballot.candidate);
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

    pub(super) fn send<T>(&self, send: impl FnOnce(Call<'_>) -> T) -> T {
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

/// A word of a command.
#[derive(Clone, Copy)]
enum Word<'a> {
    Bytes(&'a [u8]),
    Number(u64),
    /// A command has at most one token.
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

    #[test]
    fn decimal_table() {
        for number in [0, 1, 9, 10, 1_000_000_007, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
