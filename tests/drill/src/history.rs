//! The history of an episode: who asked for which lock, and who held it when.

use std::collections::{BTreeMap, HashMap};

use crate::clock::Nanos;
use crate::fleet::{Client, Log};
use crate::locks::LockNumber;
use crate::note::Note;
use crate::spans::Span;

/// A call that acquires, extends or releases a lock.
#[derive(Clone, Debug)]
pub struct Call {
    pub client: Client,
    pub lock: LockNumber,
    pub from: Nanos,
    /// The time at which the call returned. `None` if its client was killed before that.
    pub to: Option<Nanos>,
    pub due: Nanos,
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
    /// The end of the minimum hold, counted from the start of the round. 0 if there is none.
    pub hold_until: Nanos,
    /// Set if the release confirmed that the masters keep the lock until `hold_until`.
    pub is_kept: bool,
    pub token: Option<u64>,
    /// Set if others may read at the same time.
    pub reads: bool,
    /// The slot of a permit of a semaphore.
    pub slot: Option<usize>,
    pub owner: String,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    pub calls: Vec<Call>,
    /// Sorted by the time of the grant.
    pub tenures: Vec<Tenure>,
    /// The name of the last error of each acquisition that failed.
    pub failures: Vec<String>,
    /// The times at which clients got locks that no one else uses.
    pub probes: Vec<(Client, Nanos)>,
}

/// The owner of a lock under which a command runs. The command does not know more.
pub const COMMAND: &str = "-";

impl Tenure {
    pub fn is_command(&self) -> bool {
        self.owner == COMMAND
    }

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
        asked: &mut HashMap<(Client, u64), (usize, u64, bool)>,
        held: &mut HashMap<(Client, u64), usize>,
    ) {
        match *note {
            Note::Ready => {}
            Note::Probed { at } => self.probes.push((client, at)),
            Note::Asked {
                op,
                at: from,
                lock,
                came,
                due,
                reads,
            } => {
                asked.insert((client, op), (self.calls.len(), came, reads));
                self.calls.push(Call {
                    client,
                    lock,
                    from,
                    to: None,
                    due,
                });
            }
            // A command line that fails may have run its command before.
            Note::Failed { op, .. } if held.contains_key(&(client, op)) => {}
            Note::Failed { op, at, ref why } => {
                if let Some(&(call, ..)) = asked.get(&(client, op)) {
                    self.calls[call].to = Some(at);
                    self.failures.push(why.clone());
                }
            }
            Note::Got {
                op,
                at,
                lock,
                asked: began,
                valid_until,
                hold_until,
                token,
                slot,
                ref owner,
            } => {
                if let Some(&(call, came, reads)) = asked.get(&(client, op)) {
                    self.calls[call].to = Some(at);
                    held.insert((client, op), self.tenures.len());
                    self.tenures.push(Tenure {
                        client,
                        lock,
                        came,
                        called: self.calls[call].from,
                        asked: began,
                        granted: at,
                        until: valid_until,
                        hold_until,
                        is_kept: false,
                        token,
                        reads,
                        slot,
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
            Note::Extended { op, from, at, due } => {
                self.returned(held.get(&(client, op)), from, at, due);
            }
            Note::Freed {
                op,
                at,
                due,
                is_kept,
            } => {
                if let Some(&tenure) = held.get(&(client, op)) {
                    self.tenures[tenure].is_kept = is_kept;
                    self.returned(Some(&tenure), self.tenures[tenure].until, at, due);
                }
            }
        }
    }

    /// Adds a call under a tenure.
    fn returned(&mut self, tenure: Option<&usize>, from: Nanos, at: Nanos, due: Nanos) {
        let call = tenure.map(|tenure| Call {
            client: self.tenures[*tenure].client,
            lock: self.tenures[*tenure].lock,
            from,
            to: Some(at),
            due,
        });
        self.calls.extend(call);
    }

    pub fn of_lock(&self, lock: LockNumber) -> Vec<&Tenure> {
        self.tenures
            .iter()
            .filter(|tenure| tenure.lock == lock)
            .collect()
    }

    /// Returns the tenures of the lock, those of each slot apart.
    pub fn by_slot(&self, lock: LockNumber) -> impl Iterator<Item = Vec<&Tenure>> {
        let mut slots: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for tenure in self.of_lock(lock) {
            slots.entry(tenure.slot).or_default().push(tenure);
        }
        slots.into_values()
    }
}

#[cfg(test)]
pub mod fixture {
    use super::*;

    pub const CLIENT: Client = Client { place: 0, life: 0 };

    /// Returns a tenure with no token if `token` is 0.
    pub fn tenure(lock: usize, asked: Nanos, granted: Nanos, until: Nanos, token: u64) -> Tenure {
        Tenure {
            client: CLIENT,
            lock: LockNumber(lock),
            came: asked,
            called: asked,
            asked,
            granted,
            until,
            hold_until: 0,
            is_kept: false,
            token: Some(token).filter(|token| *token > 0),
            reads: false,
            slot: None,
            owner: format!("id:{granted}"),
        }
    }
}
