//! The history of an episode: who asked for which lock, and who held it when.

use std::collections::HashMap;

use crate::client::start_of_round;
use crate::clock::Nanos;
use crate::fleet::{Client, Log};
use crate::locks::LockNumber;
use crate::note::Note;
use crate::spans::Span;

/// A call that acquires or releases a lock.
#[derive(Clone, Debug)]
pub struct Call {
    pub client: Client,
    pub lock: LockNumber,
    pub from: Nanos,
    /// The time at which the call returned. `None` if its client was killed before that.
    pub to: Option<Nanos>,
    pub due: Nanos,
    pub is_release: bool,
}

/// The time for which a client held a lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenure {
    pub client: Client,
    pub lock: LockNumber,
    /// The wall clock time at which the client began to ask, in microseconds.
    pub came: u64,
    /// The time at which the client began to ask.
    pub called: Nanos,
    /// The start of the round that won the lock.
    pub asked: Nanos,
    pub granted: Nanos,
    /// The end of the validity, or of the tenure if that was earlier. If the client was killed, it
    /// is the end of the validity that the client knew of when it got the lock.
    pub until: Nanos,
    pub token: Option<u64>,
    pub owner: String,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    pub calls: Vec<Call>,
    /// Sorted by the time of the grant.
    pub tenures: Vec<Tenure>,
    pub failures: Vec<Failure>,
}

/// An acquisition that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub lock: LockNumber,
    pub at: Nanos,
    /// The name of the error of the last attempt.
    pub why: String,
}

impl Tenure {
    /// Returns the time for which the holder was valid. It is empty if the holder got the lock too
    /// late.
    pub fn validity(&self) -> Span {
        Span::new(self.granted, self.until.max(self.granted))
    }
}

impl History {
    pub fn of(log: &Log) -> Self {
        let mut history = Self::default();
        let mut asked = HashMap::new();
        let mut held = HashMap::new();
        for (client, note) in log {
            history.add(*client, note, &mut asked, &mut held);
        }
        history.tenures.sort_by_key(|tenure| tenure.granted);
        history
    }

    /// Adds a note. `asked` has the acquisitions that each client has asked for, and `held` has the
    /// tenures of its operations.
    fn add(
        &mut self,
        client: Client,
        note: &Note,
        asked: &mut HashMap<(Client, u64), (usize, u64)>,
        held: &mut HashMap<(Client, u64), usize>,
    ) {
        match *note {
            Note::Ready => {}
            Note::Asked {
                op,
                at,
                lock,
                came,
                due,
            } => {
                asked.insert((client, op), (self.calls.len(), came));
                self.calls.push(Call {
                    client,
                    lock,
                    from: at,
                    to: None,
                    due,
                    is_release: false,
                });
            }
            Note::Failed { op, at, ref why } => {
                if let Some((call, _)) = asked.get(&(client, op)) {
                    self.calls[*call].to = Some(at);
                    self.failures.push(Failure {
                        lock: self.calls[*call].lock,
                        at,
                        why: why.clone(),
                    });
                }
            }
            Note::Got {
                op,
                at,
                valid_until,
                token,
                ref owner,
            } => {
                if let Some(&(call, came)) = asked.get(&(client, op)) {
                    self.calls[call].to = Some(at);
                    held.insert((client, op), self.tenures.len());
                    self.tenures.push(Tenure {
                        client,
                        lock: self.calls[call].lock,
                        came,
                        called: self.calls[call].from,
                        asked: start_of_round(valid_until),
                        granted: at,
                        until: valid_until,
                        token,
                        owner: owner.clone(),
                    });
                }
            }
            Note::Ended {
                op,
                at,
                valid_until,
            } => {
                if let Some(tenure) = held.get(&(client, op)) {
                    self.tenures[*tenure].until = at.min(valid_until);
                }
            }
            Note::Freed { op, at, due } => {
                if let Some(tenure) = held.get(&(client, op)) {
                    let Tenure {
                        lock, until: from, ..
                    } = self.tenures[*tenure];
                    let call = Call {
                        client,
                        lock,
                        from,
                        to: Some(at),
                        due,
                        is_release: true,
                    };
                    self.calls.push(call);
                }
            }
        }
    }

    pub fn of_lock(&self, lock: LockNumber) -> Vec<&Tenure> {
        self.tenures
            .iter()
            .filter(|tenure| tenure.lock == lock)
            .collect()
    }

    /// Returns the calls that acquire the lock.
    pub fn acquisitions(&self, lock: LockNumber) -> impl Iterator<Item = &Call> {
        let acquires = move |call: &&Call| call.lock == lock && !call.is_release;
        self.calls.iter().filter(acquires)
    }
}
