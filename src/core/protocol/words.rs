//! The words of a [`Command`] for a server.

use std::iter;

use super::{
    command::{Action, Command, Holding},
    identity::{Identity, QueueOptions, Ticket, whole_millis},
};
use crate::core::{
    kind::{
        Access,
        companion::{CHANNEL, Companion, FENCE},
        rights::Rights,
        script::Script,
    },
    time::lease::CLOCK_WINDOW,
    vote::{Slot, Verb},
};

/// A part of a command: no word, one word or several words.
#[derive(Clone, Copy)]
pub(in crate::core) enum Word {
    /// For a lock with readers and writers: whether the caller reads or writes.
    Access,
    /// For a fenced lock: the candidate, and then the [`CLOCK_WINDOW`] if the command takes the
    /// lock, or 0 if it puts the lock back. The last key of the script is the key of the counter.
    /// For any other lock: nothing.
    Ballot,
    /// The token, or the owner and the number of its attempt.
    By,
    /// The channel of Redisson.
    Channel,
    Depth,
    /// The holders to remove.
    Holders,
    /// The key of the lock.
    Key,
    /// The number of permits of a semaphore.
    Permits,
    /// The waiter timeout, and then the [`CLOCK_WINDOW`], or 0 if masters do not check the ticket.
    /// For an attempt that does not wait, both are 0, or are left out if nothing follows. For a
    /// command that puts the lock back, the waiter timeout is -1: such a command ignores all
    /// waiters.
    Queue,
    /// The slot that another master has granted to the caller, or 0 for any slot.
    Slot,
    Text(&'static str),
    Ticket,
    /// The waiter timeout.
    Timeout,
    /// The TTL. It is 0 for the release of a level, which prolongs nothing.
    Ttl,
}

/// The words of a command. No memory is allocated to build or send them.
pub(crate) struct Words<'a> {
    command: &'a Command,
    /// `None` for a plain command, which has arguments only.
    pub(crate) script: Option<&'static Script>,
    /// The keys after the key of the lock.
    companions: &'static [&'static Companion],
    arguments: &'static [Word],
}

impl<'a> Words<'a> {
    pub(in crate::core) fn new(
        command: &'a Command,
        script: Option<&'static Script>,
        companions: &'static [&'static Companion],
        arguments: &'static [Word],
    ) -> Self {
        Self {
            command,
            script,
            companions,
            arguments,
        }
    }

    /// Returns the number of keys of a script, and the keys.
    pub(crate) fn script_keys(&self) -> (usize, impl Iterator<Item = &str>) {
        let lock_id = &self.command.lock_id;
        let companions = self.companions.iter();
        let companions = companions.map(|companion| lock_id.companion(companion));
        let mut arguments = self.arguments.iter();
        let has_ballot = arguments.any(|word| matches!(word, Word::Ballot));
        let ballot = self.command.ballot().filter(|_| has_ballot);
        let counter = ballot.map(|ballot| &*ballot.counter);
        let is_tried = self.command.tries.is_some_and(Rights::is_fenced);
        let counter = counter.or_else(|| is_tried.then(|| lock_id.companion(&FENCE)));
        let keys = iter::once(&**lock_id.key()).chain(companions);
        let count = 1 + self.companions.len() + usize::from(counter.is_some());
        (count, keys.chain(counter))
    }

    pub(crate) fn argument_count(&self) -> usize {
        if self.script.is_none() {
            return self.arguments.len(); // each word of a plain command is one argument
        }
        let mut count = 0;
        self.arguments(|_| count += 1);
        count
    }

    /// Calls `each` with every argument in turn.
    pub(crate) fn arguments(&self, mut each: impl FnMut(&[u8])) {
        for word in self.arguments {
            self.argument(*word, &mut each);
        }
    }

    fn argument(&self, word: Word, mut each: impl FnMut(&[u8])) {
        let command = self.command;
        let mut number = |number| each(decimal(number, &mut [0; 20]));
        match (word, &command.action) {
            (Word::Text(text), _) => each(text.as_bytes()),
            (Word::Key, _) => each(command.lock_id.key().as_bytes()),
            (Word::Channel, _) => each(command.lock_id.companion(&CHANNEL).as_bytes()),
            (Word::Permits, _) => number(command.lock_id.permits().into()),
            (Word::Holders, Action::Break(holders)) => each(holders.as_bytes()),
            (
                Word::Ttl,
                Action::Acquire(_, ttl, _) | Action::Extend(_, ttl) | Action::Heal(_, ttl),
            ) => number(ttl.millis()),
            (Word::Ttl, Action::Release { .. }) => number(0),
            (Word::Queue, Action::Heal(..)) => {
                each(b"-1");
                each(b"0");
            }
            (Word::Queue, Action::Acquire(_, _, None)) if !command.is_fenced() => {}
            (Word::Queue, Action::Acquire(_, _, queue)) => {
                let queue = queue.map_or([0, 0], QueueOptions::in_words);
                queue.into_iter().for_each(number);
            }
            (Word::Timeout, Action::Yield(_, timeout)) => number(whole_millis(*timeout)),
            // No row of the table has a word that its command lacks. So there is a holding.
            (word, _) => {
                if let Some(holding) = command.holding() {
                    self.of_holding(word, holding, each);
                }
            }
        }
    }

    fn of_holding(&self, word: Word, holding: &Holding, mut each: impl FnMut(&[u8])) {
        let mut number = |number| each(decimal(number, &mut [0; 20]));
        match (word, &holding.by, &holding.ballot) {
            (Word::Access, ..) => each(match holding.access {
                Access::Exclusive => b"write",
                Access::Shared => b"read",
            }),
            (Word::Depth, ..) => number(holding.depth.into()),
            (Word::Slot, ..) => number(holding.slot.map_or(0, Slot::number).into()),
            (Word::By, Identity::Token(token), _) => each(token.bytes(&mut None)),
            (Word::By, Identity::Owner(by), _) => {
                each(by.owner.as_bytes());
                each(decimal(by.attempt, &mut [0; 20]));
            }
            (Word::Ticket, by, _) => each(by.ticket().map_or("", Ticket::as_str).as_bytes()),
            (Word::Ballot, _, Some(ballot)) => {
                number(ballot.candidate);
                match self.command.verb() {
                    Verb::Acquire => number(CLOCK_WINDOW.as_micros() as u64),
                    // The candidate may have been accepted long ago, so masters do not compare it
                    // with their clocks.
                    Verb::Heal => number(0),
                    _ => {}
                }
            }
            _ => {}
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

    #[test]
    fn decimal_table() {
        for number in [0, 1, 9, 10, 1_000_000_007, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
