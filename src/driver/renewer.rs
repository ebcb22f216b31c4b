//! Renews locks. All guards of a coordinator share one task.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::select;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    clock,
    core::{
        protocol::name::LockId,
        time::tick::LeaseTick,
        vote::{quorum::Outcome, round::Round},
    },
    driver::{live_round::LiveRound, time},
};

/// A claim that can be renewed.
pub(crate) trait Renew: Send + Sync {
    /// Returns whether a guard has this lock now.
    fn holds(&self, lock_id: &LockId) -> bool;

    /// Renews the lock if its renewal is due. Returns the round of the renewal, if one was posted.
    /// Adds the claim to the renewer again if this method must be called again.
    fn renew(self: Arc<Self>) -> Option<Arc<LiveRound>>;
}

/// The time at which a claim is due, and a number that no other key has.
pub(crate) type TimerKey = (LeaseTick, u64);

/// Renews locks when their renewal is due. Renewals that are due at the same time are sent to each
/// master in one batch. The task waits for votes only if very many renewals are under way, see
/// [`Backlog`].
#[derive(Debug, Default)]
pub(crate) struct Renewer {
    state: Mutex<RenewerState>,
    /// Wakes the task before the end of its sleep. The task is a tokio task. So its waker runs no
    /// code of the program, and may be called while the state is locked.
    wakes: Notify,
}

#[derive(Debug, Default)]
struct RenewerState {
    timers: BTreeMap<TimerKey, Weak<dyn Renew>>,
    last_number: u64,
    /// The time until which the task sleeps. The claim that is due then may have been removed
    /// meanwhile. `None` if the task waits for a claim.
    sleeps_until: Option<LeaseTick>,
    is_closed: bool,
}

impl Renewer {
    /// Renews `claim` at `due`, once.
    pub(crate) fn add(&self, due: LeaseTick, claim: Weak<dyn Renew>) -> TimerKey {
        let mut state = self.state.lock();
        if state.sleeps_until.is_none_or(|until| due < until) {
            self.wakes.notify_one();
        }
        state.last_number += 1;
        let key = (due, state.last_number);
        state.timers.insert(key, claim);
        key
    }

    /// Returns whether there are so many claims that renewals which are due together would be late.
    pub(crate) fn is_crowded(&self) -> bool {
        const MANY: usize = 250;
        self.state.lock().timers.len() >= MANY
    }

    /// Returns whether one of the claims has this lock now. Returns `false` if there are too many
    /// claims to look through.
    pub(crate) fn holds(&self, lock_id: &LockId) -> bool {
        if self.is_crowded() {
            return false;
        }
        // The last reference to a claim must not be dropped while the state is locked.
        let claims: Vec<_> = self.state.lock().timers.values().cloned().collect();
        let mut claims = claims.iter().filter_map(Weak::upgrade);
        claims.any(|claim| claim.holds(lock_id))
    }

    /// Cancels the renewal of the claim with this `key`, unless it has begun.
    pub(crate) fn remove(&self, key: TimerKey) {
        self.state.lock().timers.remove(&key);
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.wakes.notify_one();
    }

    /// Renews claims when they are due, until [`close`](Self::close) is called.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut backlog = Backlog {
            batches: VecDeque::new(),
            undecided: Backlog::FEW,
        };
        while let Some(due) = self.next_due().await {
            let now = clock::now();
            if now < due {
                self.sleep_until(due).await;
                continue;
            }
            if let Some(batch) = self.renew_some(now, backlog.undecided / 3) {
                backlog.push(batch, now.since(due)).await;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until there is a claim. Returns the instant at which the next claim is due, or `None`
    /// if the renewer is closed.
    async fn next_due(&self) -> Option<LeaseTick> {
        loop {
            {
                let mut state = self.state.lock();
                if state.is_closed {
                    return None;
                }
                let first = state.timers.first_key_value();
                state.sleeps_until = first.map(|(&(due, _), _)| due);
                if state.sleeps_until.is_some() {
                    return state.sleeps_until;
                }
            }
            self.wakes.notified().await;
        }
    }

    /// Sleeps until `due`. If there are many claims, sleeps a little longer, so that more renewals
    /// share a batch. Returns early if a claim that is due earlier is added, or if the renewer is
    /// closed.
    async fn sleep_until(&self, due: LeaseTick) {
        let longer = Duration::from_millis(if self.is_crowded() { 5 } else { 0 });
        let sleep = pin!(time::sleep_until(due + longer));
        select(pin!(self.wakes.notified()), sleep).await;
    }

    /// Renews up to `most` of the claims that are due at `now`. The caller then lets other tasks
    /// run.
    fn renew_some(&self, now: LeaseTick, most: usize) -> Option<Batch> {
        let mut batch: Option<Batch> = None;
        for _ in 0..most {
            let Some(claim) = self.pop_due(now) else {
                break;
            };
            let posted = claim.upgrade().and_then(|claim| claim.renew());
            if let Some(last) = posted {
                let renewals = batch.map_or(0, |batch| batch.renewals) + 1;
                batch = Some(Batch { last, renewals });
            }
        }
        batch
    }

    fn pop_due(&self, now: LeaseTick) -> Option<Weak<dyn Renew>> {
        let mut state = self.state.lock();
        let first = state.timers.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
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
/// timeout. Further renewals would time out, and would be posted again.
///
/// If the masters are far away or this process gets little processor time, the limit may be too low
/// to renew all locks in time. So while renewals are late, the limit doubles each time that the
/// masters have confirmed as many renewals as the limit allows.
///
/// Masters answer in order. So a batch is decided when its last round is decided, and settled when
/// its last round is settled. While a majority answers, a master that hangs delays renewals only if
/// very many are due. The delay is one node timeout. After that, the master counts as down.
#[derive(Debug)]
struct Backlog {
    batches: VecDeque<Batch>,
    /// The number of renewals that may be undecided.
    undecided: usize,
}

impl Backlog {
    /// The number of renewals that may be undecided while none is late.
    const FEW: usize = 384;
    const MOST: usize = 16 * Self::FEW;
    const LATE: Duration = Duration::from_millis(500);

    /// Adds a batch, and waits until more renewals may be posted. `late` is the delay of the first
    /// renewal in the batch.
    async fn push(&mut self, batch: Batch, late: Duration) {
        self.batches.push_back(batch);
        let outcome = match self.newest_before(self.undecided) {
            Some(round) => round.decided().await,
            None => Outcome::Pending,
        };
        // A slow master may be further behind than the masters that decide.
        if let Some(round) = self.newest_before(4 * self.undecided) {
            round.settled().await;
        }
        match outcome {
            _ if late < Self::LATE => self.undecided = Self::FEW,
            Outcome::Pending => return, // too few renewals to show what the masters can do
            Outcome::Won if self.undecided < Self::MOST => {
                self.undecided *= 2;
                return self.batches.clear(); // only later batches show if the masters can do more
            }
            Outcome::Won => {}
            Outcome::NoMajority | Outcome::TooLate => self.undecided = Self::FEW,
        }
        let is_over = |batch: &Batch| batch.last.read(Round::is_settled);
        while self.batches.front().is_some_and(is_over) {
            self.batches.pop_front();
        }
    }

    /// Adds up the renewals of the batches, newest first, until the sum reaches `renewals`. Returns
    /// the last round of the batch that was added last, or `None` if all batches together have
    /// fewer renewals.
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
        task::{Context, Wake, Waker},
    };

    use super::*;
    use crate::{Coordinator, MemoryMaster};

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[derive(Default)]
    struct Idle {
        calls: AtomicUsize,
    }

    impl Renew for Idle {
        fn holds(&self, _: &LockId) -> bool {
            false
        }

        fn renew(self: Arc<Self>) -> Option<Arc<LiveRound>> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            None
        }
    }

    /// On the multi-thread runtime, a needless wake-up can cost a switch to another thread.
    #[tokio::test(start_paused = true)]
    async fn only_a_claim_that_is_due_before_the_task_wakes_up_wakes_it() {
        let claim: Arc<dyn Renew> = Arc::<Idle>::default();
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

    #[test]
    fn claims_that_are_due_at_the_same_time_are_all_renewed() {
        let renewer = Renewer::default();
        let claims = [(); 2].map(|()| Arc::<Idle>::default());
        let due = clock::now();
        for claim in &claims {
            renewer.add(due, Arc::downgrade(claim) as Weak<dyn Renew>);
        }
        assert!(renewer.renew_some(due, 3).is_none());
        assert_eq!(
            claims.map(|claim| claim.calls.load(Ordering::Relaxed)),
            [1; 2]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_begins_again_while_it_is_due_has_one_timer() {
        let masters = [(); 3].map(|()| MemoryMaster::new());
        let locks = Coordinator::new(&masters).unwrap();
        let lock = locks.reentrant("r", &locks.owner());
        let guard = lock.acquire().await.unwrap();
        let renewer = &locks.context().renewer;
        let timers = || renewer.state.lock().timers.len();
        renewer.close(); // this test does the work of the task
        time::sleep_until(clock::now() + locks.ttl() / 2).await;
        let claim = renewer.pop_due(clock::now()).unwrap().upgrade().unwrap();
        assert_eq!(timers(), 0);
        guard.stop_renewing();
        let again = lock.acquire().await.unwrap();
        assert_eq!(timers(), 1);
        claim.renew();
        assert_eq!(timers(), 1);
        drop((guard, again));
        assert_eq!(timers(), 0);
    }
}
