//! A set of timers, each of which has a value.

use std::{cmp::Reverse, collections::BinaryHeap, mem, time::Instant};

/// A set of timers. Removing a timer frees its value at once. A few bytes of the timer may stay in
/// the heap until the timer would have been due.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    due: BinaryHeap<Reverse<(Instant, TimerKey)>>,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The key of a timer. The key is not used again after the timer was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    slot: u32,
    generation: u32,
}

impl<T: Clone> Schedule<T> {
    /// Adds a timer for `value`.
    pub(crate) fn insert(&mut self, due: Instant, value: T) -> TimerKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.value = Some(value);
        let key = TimerKey {
            slot,
            generation: entry.generation,
        };
        self.due.push(Reverse((due, key)));
        key
    }

    /// Removes a timer, unless it was removed before.
    pub(crate) fn remove(&mut self, key: TimerKey) {
        if self.is_current(key) {
            let slot = &mut self.slots[key.slot as usize];
            slot.generation = slot.generation.wrapping_add(1);
            slot.value = None;
            self.free.push(key.slot);
        }
        // Removed timers must not fill the heap when many locks are held for a short time.
        if self.due.len() > 64 + 4 * self.len() {
            let mut due = mem::take(&mut self.due).into_vec();
            due.retain(|Reverse((_, key))| self.is_current(*key));
            self.due = due.into();
        }
    }

    /// Returns the number of timers.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns when the next timer is due.
    pub(crate) fn next_due(&mut self) -> Option<Instant> {
        while let Some(Reverse((due, key))) = self.due.peek() {
            if self.is_current(*key) {
                return Some(*due);
            }
            self.due.pop();
        }
        None
    }

    /// Stops the timer that is due first if it is due at `now`. Returns its key and its value. The
    /// caller must then [`restart`](Self::restart) or [`remove`](Self::remove) the timer.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(TimerKey, T)> {
        self.next_due().filter(|due| *due <= now)?;
        let Reverse((_, key)) = self.due.pop()?;
        Some((key, self.slots[key.slot as usize].value.clone()?))
    }

    /// Starts a timer again, unless it was removed meanwhile.
    pub(crate) fn restart(&mut self, key: TimerKey, due: Instant) {
        if self.is_current(key) {
            self.due.push(Reverse((due, key)));
        }
    }

    fn is_current(&self, key: TimerKey) -> bool {
        let slot = &self.slots[key.slot as usize];
        slot.generation == key.generation && slot.value.is_some()
    }
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            due: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}
