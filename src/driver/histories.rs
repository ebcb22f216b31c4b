//! What a coordinator remembers of locks.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::core::{hash::hash, protocol::name::LockId, wait::history::History};

/// The histories of locks of all kinds, by the hash of the lock's key. An entry stays when no one
/// waits for its lock any more.
#[derive(Debug, Default)]
pub(crate) struct Histories(Mutex<HashMap<u64, History>>);

impl Histories {
    /// The largest number of histories. Then all are forgotten, and a waiter may give way too late,
    /// or waste a round trip.
    const MOST: usize = 4_096;

    /// Reads or changes the history of the lock.
    pub(crate) fn visit<T>(&self, lock_id: &LockId, visit: impl FnOnce(&mut History) -> T) -> T {
        let (hash, mut histories) = (hash(lock_id.key().bytes()), self.0.lock());
        if histories.len() >= Self::MOST && !histories.contains_key(&hash) {
            histories.clear();
        }
        visit(histories.entry(hash).or_default())
    }
}
