//! Renews locks. All guards of a coordinator share one schedule and one task.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::pin,
    sync::{Arc, Weak},
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    clock,
    live_round::LiveRound,
    schedule::{Schedule, TimerKey},
};
use crate::core::round::Round;

/// A claim that can be renewed.
pub(crate) trait Renew: Send + Sync {
    /// Renews the lock if its renewal is due at `now`. Returns when to call this method again, or
    /// `None` if it need not be called again. Also returns the round of the renewal, if a renewal
    /// was posted.
    fn renew(self: Arc<Self>, now: Instant) -> (Option<Instant>, Option<Arc<LiveRound>>);
}

/// Renews locks when their renewal is due. Renewals that are due at the same time share a batch per
/// master. The task waits for votes only if very many renewals are under way, see [`Backlog`].
#[derive(Default)]
pub(crate) struct Renewer {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    schedule: Schedule<Weak<dyn Renew>>,
    waker: Option<Waker>,
    /// The time until which the task sleeps, even if no claim is left that is due by then. `None`
    /// if the task waits for a claim.
    sleeps_until: Option<Instant>,
    is_closed: bool,
}

impl Renewer {
    /// Renews `claim` at `due`, and then at the instants that [`Renew::renew`] returns.
    pub(crate) fn add(&self, due: Instant, claim: Weak<dyn Renew>) -> TimerKey {
        let mut state = self.state.lock();
        if state.sleeps_until.is_none_or(|until| due < until) {
            state.wake();
        }
        state.schedule.insert(due, claim)
    }

    /// Returns whether there are so many claims that renewals which are due together would be late.
    pub(crate) fn is_crowded(&self) -> bool {
        const MANY: usize = 250;
        self.state.lock().schedule.len() >= MANY
    }

    pub(crate) fn remove(&self, key: TimerKey) {
        self.state.lock().schedule.remove(key);
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.wake();
    }

    /// Renews claims when they are due, until [`close`](Self::close) is called.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut backlog = Backlog::default();
        while let Some(due) = self.next_due().await {
            let now = clock::now();
            if now < due {
                self.sleep_until(due).await;
                continue;
            }
            if let Some(batch) = self.renew_some(now) {
                backlog.push(batch).await;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until there is a claim. Returns the instant at which the next claim is due, or `None`
    /// if the renewer is closed.
    async fn next_due(&self) -> Option<Instant> {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.is_closed {
                return Poll::Ready(None);
            }
            state.sleeps_until = state.schedule.next_due();
            if state.sleeps_until.is_none() {
                state.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(state.sleeps_until)
        })
        .await
    }

    /// Sleeps until `due`, or a little longer if there are many claims, so that more renewals share
    /// a batch. Returns early if a claim that is due earlier is added, or if the renewer is closed.
    async fn sleep_until(&self, due: Instant) {
        let longer = Duration::from_millis(if self.is_crowded() { 5 } else { 0 });
        let mut sleep = pin!(clock::sleep_until(due + longer));
        poll_fn(|cx| {
            {
                let mut state = self.state.lock();
                let next = state.schedule.next_due();
                if state.is_closed || next.is_some_and(|next| next < due) {
                    return Poll::Ready(());
                }
                state.waker = Some(cx.waker().clone());
            }
            sleep.as_mut().poll(cx)
        })
        .await;
    }

    /// Renews up to `BATCH` of the claims that are due at `now`.
    fn renew_some(&self, now: Instant) -> Option<Batch> {
        /// The number of claims that are renewed before other tasks can run.
        const BATCH: usize = 128;
        let mut batch: Option<Batch> = None;
        for _ in 0..BATCH {
            let Some((key, claim)) = self.state.lock().schedule.pop_due(now) else {
                break;
            };
            let claim = claim.upgrade();
            let (next, posted) = claim.map_or((None, None), |claim| claim.renew(now));
            if let Some(last) = posted {
                let renewals = batch.map_or(0, |batch| batch.renewals) + 1;
                batch = Some(Batch { last, renewals });
            }
            let schedule = &mut self.state.lock().schedule;
            match next {
                Some(at) => schedule.restart(key, at),
                None => schedule.remove(key),
            }
        }
        batch
    }
}

impl std::fmt::Debug for Renewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewer").finish_non_exhaustive()
    }
}

impl State {
    /// Wakes the task of the renewer. It is a tokio task, so its waker runs no code of the program
    /// and may be called while the state is locked.
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Renewals that were posted together.
#[derive(Debug)]
struct Batch {
    last: Arc<LiveRound>,
    renewals: usize,
}

/// The batches that some masters have not answered yet, oldest first. The backlog limits the number
/// of renewals under way. Masters can answer only a limited number of renewals within the node
/// timeout. Any further renewals would time out, and would be posted again.
///
/// Masters answer in order. So a batch is decided when its last round is decided, and settled when
/// its last round is settled. While a majority answers, a master that hangs delays renewals only if
/// very many are due. The delay is one node timeout. After that, the master counts as down.
#[derive(Debug, Default)]
struct Backlog {
    batches: VecDeque<Batch>,
}

impl Backlog {
    /// The number of renewals that may be undecided.
    const UNDECIDED: usize = 384;
    /// The number of renewals that may lack the answer of a slow master.
    const UNSETTLED: usize = 4 * Self::UNDECIDED;

    /// Adds a batch and waits until more renewals may be posted.
    async fn push(&mut self, batch: Batch) {
        self.batches.push_back(batch);
        if let Some(round) = self.newest_before(Self::UNDECIDED) {
            round.decided().await;
        }
        if let Some(round) = self.newest_before(Self::UNSETTLED) {
            round.settled().await;
        }
        let is_over = |batch: &Batch| batch.last.read(Round::is_settled);
        while self.batches.front().is_some_and(is_over) {
            self.batches.pop_front();
        }
    }

    /// Counts the renewals of the batches, newest batch first. Returns the last round of the batch
    /// with which the count reaches `renewals`. Returns `None` if the whole backlog has fewer.
    fn newest_before(&self, renewals: usize) -> Option<&LiveRound> {
        let mut posted = 0;
        let mut batches = self.batches.iter().rev();
        let batch = batches.find(|batch| {
            posted += batch.renewals;
            posted >= renewals
        });
        batch.map(|batch| &*batch.last)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::{Context, Wake},
    };

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Idle;

    impl Renew for Idle {
        fn renew(self: Arc<Self>, _now: Instant) -> (Option<Instant>, Option<Arc<LiveRound>>) {
            (None, None)
        }
    }

    /// On the multi-thread runtime, a needless wake-up can cost a switch to another thread.
    #[tokio::test(start_paused = true)]
    async fn only_a_claim_that_is_due_before_the_task_wakes_up_wakes_it() {
        let claim: Arc<dyn Renew> = Arc::new(Idle);
        let renewer = Arc::<Renewer>::default();
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(wakes.clone());
        let mut run = pin!(renewer.clone().run());
        let mut poll = || run.as_mut().poll(&mut Context::from_waker(&waker));
        let start = clock::now();
        let add = |seconds| {
            let due = start + Duration::from_secs(seconds);
            let key = renewer.add(due, Arc::downgrade(&claim));
            (key, wakes.0.load(Ordering::Relaxed))
        };
        assert!(poll().is_pending());
        let (first, woken) = add(10);
        assert_eq!(woken, 1);
        assert!(poll().is_pending());
        renewer.remove(first);
        assert_eq!(add(11).1, 1);
        assert_eq!(add(9).1, 2);
        assert!(poll().is_pending());
        assert_eq!(add(10).1, 2);
    }
}
