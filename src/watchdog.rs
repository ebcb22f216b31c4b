//! Keeps locks: one schedule for all guards of a coordinator.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    future::poll_fn,
    mem,
    pin::pin,
    sync::{Arc, Weak},
    task::{Poll, Waker},
    time::Instant,
};

use parking_lot::Mutex;

use crate::{clock, hold::Hold};

/// When which hold is due. Renewals are posted to the masters' mailboxes and waited for by nobody, so a
/// master that hangs delays no other's, and all that are due at once share one batch per master.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    due: BinaryHeap<Reverse<(Instant, usize, u32)>>,
    /// Where a hold that ends before it is due is forgotten at once; what is left of it in `due` is a
    /// few bytes.
    holds: Vec<Slot>,
    free: Vec<usize>,
    waker: Option<Waker>,
    is_closed: bool,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    hold: Option<Weak<Hold>>,
}

/// A hold's place in the schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    slot: usize,
    generation: u32,
}

impl Watchdog {
    /// Has `hold` looked after at `due`, and then whenever it says.
    pub(crate) fn watch(&self, due: Instant, hold: Weak<Hold>) -> Place {
        let mut state = self.state.lock();
        let slot = state.free.pop().unwrap_or_else(|| {
            state.holds.push(Slot {
                generation: 0,
                hold: None,
            });
            state.holds.len() - 1
        });
        let generation = state.holds[slot].generation;
        state.holds[slot].hold = Some(hold);
        state.push(due, slot, generation);
        Place { slot, generation }
    }

    pub(crate) fn forget(&self, place: Place) {
        self.state.lock().forget(place.slot, place.generation);
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Looks after all holds until the coordinator is gone.
    pub(crate) async fn run(self: Arc<Self>) {
        /// How many holds are looked after before others get to run.
        const BATCH: usize = 256;
        while let Some(due) = self.next().await {
            let now = clock::now();
            if now < due {
                self.sleep_until(due).await;
                continue;
            }
            for _ in 0..BATCH {
                if !self.renew_one(now) {
                    break;
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// When the next hold is due, once there is one; `None` when closed.
    async fn next(&self) -> Option<Instant> {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            state.drop_forgotten();
            match state.due.peek() {
                _ if state.is_closed => Poll::Ready(None),
                Some(Reverse((due, ..))) => Poll::Ready(Some(*due)),
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Sleeps until `due`, or something is due earlier.
    async fn sleep_until(&self, due: Instant) {
        let mut sleep = pin!(clock::sleep_until(due));
        poll_fn(|cx| {
            {
                let mut state = self.state.lock();
                let earlier = state.due.peek().is_some_and(|Reverse((at, ..))| *at < due);
                if state.is_closed || earlier {
                    return Poll::Ready(());
                }
                state.waker = Some(cx.waker().clone());
            }
            sleep.as_mut().poll(cx)
        })
        .await;
    }

    /// Looks after the hold that has been due longest. Whether there was one.
    fn renew_one(&self, now: Instant) -> bool {
        let (hold, slot, generation) = {
            let mut state = self.state.lock();
            state.drop_forgotten();
            match state.due.peek() {
                Some(Reverse((due, ..))) if *due <= now => {}
                _ => return false,
            }
            let Some(Reverse((_, slot, generation))) = state.due.pop() else {
                return false;
            };
            let hold = state.holds[slot].hold.as_ref().and_then(Weak::upgrade);
            (hold, slot, generation)
        };
        let next = hold.and_then(|hold| hold.renew(now));
        let mut state = self.state.lock();
        match next {
            Some(at) if state.holds[slot].generation == generation => {
                state.push(at, slot, generation);
            }
            Some(_) => {}
            None => state.forget(slot, generation),
        }
        true
    }
}

impl State {
    fn push(&mut self, due: Instant, slot: usize, generation: u32) {
        let is_next = self
            .due
            .peek()
            .is_none_or(|Reverse((first, ..))| due < *first);
        self.due.push(Reverse((due, slot, generation)));
        if is_next && let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn forget(&mut self, slot: usize, generation: u32) {
        if self.holds[slot].generation == generation && self.holds[slot].hold.is_some() {
            self.holds[slot].generation = generation.wrapping_add(1);
            self.holds[slot].hold = None;
            self.free.push(slot);
        }
        // Much locking and little holding: what was forgotten must not outgrow what is there.
        if self.due.len() > 64 + 4 * (self.holds.len() - self.free.len()) {
            let due = mem::take(&mut self.due).into_vec();
            self.due = due
                .into_iter()
                .filter(|Reverse((_, slot, generation))| self.is_current(*slot, *generation))
                .collect();
        }
    }

    fn drop_forgotten(&mut self) {
        while let Some(Reverse((_, slot, generation))) = self.due.peek()
            && !self.is_current(*slot, *generation)
        {
            self.due.pop();
        }
    }

    fn is_current(&self, slot: usize, generation: u32) -> bool {
        self.holds[slot].generation == generation && self.holds[slot].hold.is_some()
    }
}
