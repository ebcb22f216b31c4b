//! Keeps locks: one schedule for all guards of a coordinator.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    future::poll_fn,
    mem,
    pin::pin,
    sync::{Arc, Weak},
    task::{Poll, Waker},
    time::Instant,
};

use parking_lot::Mutex;

use crate::{
    core::round::Round,
    driver::{claim::Claim, clock, live_round::LiveRound},
};

/// When which hold is due. Renewals are posted to the masters' mailboxes, and those that are due at once share a
/// batch per master. Nobody waits for a single one; see [`UnderWay`] for when there are very many.
#[derive(Debug, Default)]
pub(crate) struct Renewer {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    due: BinaryHeap<Reverse<(Instant, u32, u32)>>,
    /// Where a hold that ends before it is due is forgotten at once; what is left of it in `due` is a
    /// few bytes.
    holds: Vec<Slot>,
    free: Vec<u32>,
    waker: Option<Waker>,
    is_closed: bool,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    hold: Option<Weak<Claim>>,
}

/// A hold's timer_key in the schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerKey {
    slot: u32,
    generation: u32,
}

impl Renewer {
    /// Has `hold` looked after at `due`, and then whenever it says.
    pub(crate) fn watch(&self, due: Instant, hold: Weak<Claim>) -> TimerKey {
        let mut state = self.state.lock();
        let slot = state.free.pop().unwrap_or_else(|| {
            state.holds.push(Slot {
                generation: 0,
                hold: None,
            });
            (state.holds.len() - 1) as u32
        });
        let generation = state.holds[slot as usize].generation;
        state.holds[slot as usize].hold = Some(hold);
        state.push(due, slot, generation);
        TimerKey { slot, generation }
    }

    pub(crate) fn forget(&self, timer_key: TimerKey) {
        self.state
            .lock()
            .forget(timer_key.slot, timer_key.generation);
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
        let mut under_way = UnderWay::default();
        while let Some(due) = self.next().await {
            let now = clock::now();
            if now < due {
                self.sleep_until(due).await;
                continue;
            }
            if let Some(batch) = self.renew_some(now) {
                under_way.push(batch).await;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Looks after some of the holds that are due at `now`.
    fn renew_some(&self, now: Instant) -> Option<Batch> {
        /// How many holds are looked after before others get to run.
        const BATCH: usize = 128;
        let mut last = None;
        let mut renewals = 0;
        for _ in 0..BATCH {
            let mut posted = None;
            if !self.renew_one(now, &mut posted) {
                break;
            }
            renewals += usize::from(posted.is_some());
            last = posted.or(last);
        }
        last.map(|last| Batch { last, renewals })
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
    fn renew_one(&self, now: Instant, posted: &mut Option<Arc<LiveRound>>) -> bool {
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
            let hold = state.holds[slot as usize]
                .hold
                .as_ref()
                .and_then(Weak::upgrade);
            (hold, slot, generation)
        };
        let next = hold.and_then(|hold| hold.renew(now, posted));
        let mut state = self.state.lock();
        match next {
            Some(at) if state.holds[slot as usize].generation == generation => {
                state.push(at, slot, generation);
            }
            Some(_) => {}
            None => state.forget(slot, generation),
        }
        true
    }
}

/// Renewals that were posted at once.
#[derive(Debug)]
struct Batch {
    last: Arc<LiveRound>,
    renewals: usize,
}

/// Batches that not all masters have answered yet, oldest first. More at once than the masters answer within the
/// node timeout would fail for nothing, and again when they are tried again.
///
/// A batch is decided, or settled, with its last round: masters answer in order. So one that hangs delays nobody
/// while a majority answers, unless very many are due; and then by a node timeout, until it counts as down.
#[derive(Debug, Default)]
struct UnderWay {
    batches: VecDeque<Batch>,
}

impl UnderWay {
    /// How many may be undecided.
    const MOST: usize = 384;
    /// How many of those that are decided may lack the answer of a slow master.
    const MOST_UNSETTLED: usize = 4 * Self::MOST;

    /// Adds a batch and waits until more may be posted.
    async fn push(&mut self, batch: Batch) {
        self.batches.push_back(batch);
        if let Some(round) = self.newest_but(Self::MOST) {
            round.decided().await;
        }
        if let Some(round) = self.newest_but(Self::MOST_UNSETTLED) {
            round.settled().await;
        }
        let is_over = |batch: &Batch| batch.last.read(Round::is_settled);
        while self.batches.front().is_some_and(is_over) {
            self.batches.pop_front();
        }
    }

    /// The newest round behind which `most` renewals were posted, or nearly so.
    fn newest_but(&self, most: usize) -> Option<&LiveRound> {
        let mut renewals = 0;
        let mut batches = self.batches.iter().rev();
        let batch = batches.find(|batch| {
            renewals += batch.renewals;
            renewals >= most
        });
        batch.map(|batch| &*batch.last)
    }
}

impl State {
    fn push(&mut self, due: Instant, slot: u32, generation: u32) {
        let is_next = self
            .due
            .peek()
            .is_none_or(|Reverse((first, ..))| due < *first);
        self.due.push(Reverse((due, slot, generation)));
        if is_next && let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn forget(&mut self, slot: u32, generation: u32) {
        if self.holds[slot as usize].generation == generation
            && self.holds[slot as usize].hold.is_some()
        {
            self.holds[slot as usize].generation = generation.wrapping_add(1);
            self.holds[slot as usize].hold = None;
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

    fn is_current(&self, slot: u32, generation: u32) -> bool {
        self.holds[slot as usize].generation == generation
            && self.holds[slot as usize].hold.is_some()
    }
}
