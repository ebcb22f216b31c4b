//! The commands of clients, as masters get them.

use std::time::Duration;

use quorlock_memory::heart::{Keyspace, Reply as Answered, Script};

use super::{Cast, Masters, START};
use crate::core::{
    kind::Access,
    protocol::{
        command::{Action, Command, Holding, Reply, fixture},
        identity::{Identity, OwnerAttempt, QueueOptions, Ticket},
        name::Token,
    },
    vote::{Refusal, Slot, Verb, Vote},
};

/// A command of a client, and the options that the models need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::explore) struct Call {
    pub(in crate::explore) verb: Verb,
    pub(in crate::explore) client: u8,
    pub(in crate::explore) attempt: u8,
    pub(in crate::explore) reads: bool,
    /// The time in the ticket.
    pub(in crate::explore) ticket: u8,
    /// An acquisition joins the queue.
    pub(in crate::explore) queues: bool,
    /// The number of slots, as the client knows it.
    pub(in crate::explore) permits: u8,
    /// The slot that the client wants. 0 for any.
    pub(in crate::explore) slot: u8,
    /// The candidate of a fenced lock, in microseconds from the start. 0 for a lock without one.
    pub(in crate::explore) candidate: u32,
}

impl Call {
    /// Returns a command without any option.
    pub(in crate::explore) fn new(verb: Verb, client: usize, attempt: u8) -> Self {
        Self {
            verb,
            client: client as u8,
            attempt,
            reads: false,
            ticket: 0,
            queues: false,
            permits: 1,
            slot: 0,
            candidate: 0,
        }
    }
}

impl Masters {
    /// Executes a command on the keys of a master. Returns the vote.
    pub(super) fn execute(&self, keyspace: &mut Keyspace, call: Call, micros: u64) -> Cast {
        let command = self.command(call);
        let words = command.words();
        let mut arguments = Vec::new();
        words.arguments(|word| arguments.push(str::from_utf8(word).unwrap().to_owned()));
        let ran = match words.script {
            None => keyspace.run(&arguments, micros),
            Some(script) => {
                let keys: Vec<_> = words.script_keys().1.map(str::to_owned).collect();
                let script = self.script(script.name, script.text());
                keyspace.eval(&script, &keys, &arguments, micros)
            }
        };
        let reply = match &ran.reply {
            Answered::Bulk(text) => Reply::Text(str::from_utf8(text).unwrap().into()),
            Answered::Error(error) => Reply::Error(error.as_str().into()),
            Answered::Int(number) => Reply::Int(*number),
            Answered::Nil => Reply::Nil,
            Answered::Status(text) if text == "OK" => Reply::Ok,
            _ => Reply::Other,
        };
        let vote = command.vote(&reply);
        match vote.vote() {
            Vote::Grant => Cast::Granted(vote.slot.map_or(0, Slot::number) as u8),
            Vote::Refuse(Refusal::Stale { counter }) => Cast::Stale((counter - START) as u32),
            Vote::Refuse(Refusal::Skewed { .. }) => Cast::Skewed,
            Vote::Refuse(_) => Cast::Refused,
            Vote::Fail(failure) => panic!("{call:?} in {keyspace:?}: {failure}"),
        }
    }

    fn identity(&self, call: Call) -> Identity {
        if !self.kind.has_owner() {
            return Identity::Token(Token::new([call.client; 20], None));
        }
        let has_queue = self.kind.has_queue();
        Identity::Owner(OwnerAttempt {
            owner: owner(call.client).into(),
            attempt: call.attempt.into(),
            ticket: has_queue.then(|| ticket(call.ticket, call.client)),
        })
    }

    fn command(&self, call: Call) -> Command {
        let lock = self.lock_id(call.permits);
        let by = self.identity(call);
        let is_over = matches!(call.verb, Verb::Release | Verb::Yield);
        let holding = Holding {
            by,
            depth: u32::from(!is_over),
            access: if call.reads {
                Access::Shared
            } else {
                Access::Exclusive
            },
            slot: Slot::new(call.slot.into()),
            candidate: (call.candidate > 0).then(|| START + u64::from(call.candidate)),
        };
        let silent_waiter_timeout = Duration::from_secs(3);
        let queue = QueueOptions {
            silent_waiter_timeout,
            is_fresh: false,
        };
        let action = match call.verb {
            Verb::Acquire => Action::Acquire(holding, fixture::ttl(), call.queues.then_some(queue)),
            Verb::Break => {
                let digest = Script::new(owner(call.client));
                Action::Break(format!("{} {}\n", self.kind.as_str(), digest.hash()).into())
            }
            Verb::Extend => Action::Extend(holding, fixture::ttl()),
            Verb::Heal => Action::Heal(holding, fixture::ttl()),
            Verb::Inspect => Action::Inspect,
            Verb::Probe => Action::Probe,
            Verb::Release => Action::Release {
                holding,
                was_won: true,
            },
            Verb::Yield => Action::Yield(holding, silent_waiter_timeout),
        };
        Command {
            // So that a mutex is taken by a script.
            watch: true,
            ..Command::new(&lock, action)
        }
    }
}

pub(super) fn owner(client: u8) -> String {
    char::from(b'a' + client).to_string()
}

pub(super) fn ticket(number: u8, client: u8) -> Ticket {
    Ticket::new(START + u64::from(number), &owner(client))
}
