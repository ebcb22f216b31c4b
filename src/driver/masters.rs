//! The masters of a coordinator. One task serves all masters.

use std::{
    future::poll_fn,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use crate::{
    clock,
    core::{
        hash::rank,
        vote::{MasterSet, Quorum},
    },
    machine::session::Session,
    master::{Shared, Supervisor},
};

impl Shared {
    pub(crate) fn quorum(&self) -> &Quorum {
        &self.roster.quorum
    }

    /// Returns the longest response timeout of the masters that were dialled. If none was dialled,
    /// returns the shortest response timeout that a master can have.
    pub(crate) fn longest_timeout(&self) -> Duration {
        let longest = self.lock(|machine| {
            let timeouts = machine.sessions.iter().map(Session::response_timeout);
            timeouts.flatten().max()
        });
        longest.unwrap_or_else(|| self.config.response_timeout.least())
    }

    /// Returns the time in which a majority of every set votes: the response timeout that a
    /// majority does not exceed. If no majority is connected, returns the longest response timeout.
    pub(crate) fn majority_timeout(&self) -> Duration {
        let least = self.lock(|machine| {
            let timeout = |master: usize| {
                let session = &machine.sessions[master];
                session
                    .response_timeout()
                    .filter(|_| session.health.is_connected())
            };
            self.quorum().least_of_every(timeout)
        });
        least.unwrap_or_else(|| self.longest_timeout())
    }

    fn those(&self, are_so: impl Fn(&Session) -> bool) -> MasterSet {
        self.lock(|machine| machine.those(are_so))
    }

    /// Returns whether a majority of every set of masters is connected.
    pub(crate) fn has_quorum(&self) -> bool {
        let connected = self.those(|session| session.health.is_connected());
        self.quorum().has_majority_of_every_set(connected)
    }

    /// Returns the masters that are connected and report changes of keys.
    pub(crate) fn reporting(&self) -> MasterSet {
        self.those(|session| session.reports_changes)
    }

    pub(crate) fn able(&self) -> MasterSet {
        let now = clock::monotonic();
        self.those(|session| session.health.at(now).can_vote())
    }

    /// Returns the masters that have no vote, because they may have forgotten locks.
    pub(crate) fn quarantined(&self) -> MasterSet {
        let now = clock::monotonic();
        self.those(|session| session.health.quarantine_left(now).is_some())
    }

    /// Returns whether a majority of every set of masters is out of quarantine.
    pub(crate) fn has_voters(&self) -> bool {
        let voters = MasterSet::ALL - self.quarantined();
        self.quorum().has_majority_of_every_set(voters)
    }

    /// Returns the agreed master of the lock `key`, chosen from the masters in `among`. All clients
    /// that choose from the same masters get the same one, and ask it before the others.
    pub(crate) fn agreed(&self, key: &str, among: MasterSet) -> Option<usize> {
        let rank = |master: &usize| rank(key, &self.roster.masters[*master]);
        among.iter().min_by_key(rank)
    }
}

/// Runs the supervisors of all masters until they end. If one panics, all of them end.
///
/// A request wakes all supervisors, so one task for all of them costs less than a task for each.
///
/// While a master has many commands to answer, the task gives way twice before each step. So the
/// callers that can run post their requests first, and these requests are sent in one write.
/// Without this, on the multi-thread runtime, the task would run before callers that were woken
/// earlier, and each request would be sent in a separate write.
pub(crate) async fn supervise(supervisors: Vec<Supervisor>, is_busy: impl Fn() -> bool) {
    let ready = Arc::new(Ready {
        masters: AtomicU64::new(u64::MAX),
        task: OnceLock::new(),
    });
    let mut supervisors: Vec<_> = (0u32..)
        .zip(supervisors)
        .map(|(master, supervisor)| {
            let (ready, master) = (ready.clone(), 1 << master);
            let waker = Waker::from(Arc::new(WakeOne { ready, master }));
            (Some(supervisor), waker)
        })
        .collect();
    let (mut gave_way, mut first) = (0, 0);
    poll_fn(|cx| {
        ready.task.get_or_init(|| cx.waker().clone());
        if gave_way < 2 && is_busy() {
            gave_way += 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        gave_way = 0;
        let masters = ready.masters.swap(0, Ordering::AcqRel);
        // Tokio limits the work of a task in one poll. Each poll begins with another master, so
        // masters that send a lot cannot use up the limit every time.
        first = (first + 1) % supervisors.len().max(1);
        for master in (first..supervisors.len()).chain(0..first) {
            if masters >> master & 1 == 1 {
                let (supervisor, waker) = &mut supervisors[master];
                let cx = &mut Context::from_waker(waker);
                supervisor.take_if(|running| running.as_mut().poll(cx).is_ready());
            }
        }
        match supervisors.iter().any(|(running, _)| running.is_some()) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    })
    .await;
}

struct Ready {
    /// One bit for each master. The task has been woken if at least one bit is set.
    masters: AtomicU64,
    /// The waker of the task. Tokio gives a task the same waker in every poll.
    task: OnceLock<Waker>,
}

/// Wakes the task for the supervisor of one master.
struct WakeOne {
    ready: Arc<Ready>,
    master: u64,
}

impl Wake for WakeOne {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let before = self.ready.masters.fetch_or(self.master, Ordering::AcqRel);
        if before == 0
            && let Some(task) = self.ready.task.get()
        {
            task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        pin::{Pin, pin},
        sync::atomic::AtomicUsize,
    };

    use super::*;

    /// Counts how often the task was woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The polls of one supervisor, and the waker of the last poll.
    type Polls = Arc<parking_lot::Mutex<(usize, Option<Waker>)>>;

    /// Returns a supervisor that counts its polls and ends with the poll number `last`.
    fn supervisor(polls: &Polls, last: usize) -> Supervisor {
        let polls = polls.clone();
        Box::pin(poll_fn(move |cx| {
            let mut state = polls.lock();
            *state = (state.0 + 1, Some(cx.waker().clone()));
            if state.0 < last {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        }))
    }

    struct Task<'a> {
        future: Pin<&'a mut dyn Future<Output = ()>>,
        wakes: Arc<Wakes>,
    }

    impl Task<'_> {
        fn poll(&mut self) -> Poll<()> {
            let waker = Waker::from(self.wakes.clone());
            self.future.as_mut().poll(&mut Context::from_waker(&waker))
        }

        fn wakes(&self) -> usize {
            self.wakes.0.load(Ordering::Relaxed)
        }
    }

    fn wake(polls: &Polls) {
        let waker = polls.lock().1.clone();
        waker.unwrap().wake();
    }

    #[test]
    fn only_supervisors_that_were_woken_are_polled() {
        let polls = [Polls::default(), Polls::default(), Polls::default()];
        let count = || [0, 1, 2].map(|master| polls[master].lock().0);
        let supervisors = [0, 1, 2].map(|master| supervisor(&polls[master], 3));
        let future = pin!(supervise(supervisors.into(), || false));
        let mut task = Task {
            future,
            wakes: Arc::default(),
        };
        assert_eq!(task.poll(), Poll::Pending);
        assert_eq!((count(), task.wakes()), ([1, 1, 1], 0));
        wake(&polls[2]);
        wake(&polls[2]);
        wake(&polls[0]);
        assert_eq!((count(), task.wakes()), ([1, 1, 1], 1));
        assert_eq!(task.poll(), Poll::Pending);
        assert_eq!(count(), [2, 1, 2]);
        wake(&polls[0]);
        wake(&polls[2]);
        assert_eq!(task.poll(), Poll::Pending);
        wake(&polls[0]); // a supervisor that has ended
        assert_eq!(task.poll(), Poll::Pending);
        assert_eq!(count(), [3, 1, 3]);
        wake(&polls[1]);
        assert_eq!(task.poll(), Poll::Pending);
        wake(&polls[1]);
        assert_eq!(task.poll(), Poll::Ready(()));
        assert_eq!((count(), task.wakes()), ([3, 3, 3], 5));
    }

    #[test]
    fn while_a_master_is_busy_the_task_gives_way_twice_before_each_step() {
        let polls = Polls::default();
        let is_busy = Cell::new(true);
        let supervisors = vec![supervisor(&polls, 3)];
        let future = pin!(supervise(supervisors, || is_busy.get()));
        let mut task = Task {
            future,
            wakes: Arc::default(),
        };
        for step in 0..2 {
            for way in 1..=2 {
                assert_eq!(task.poll(), Poll::Pending);
                assert_eq!((polls.lock().0, task.wakes()), (step, 3 * step + way));
            }
            assert_eq!(task.poll(), Poll::Pending);
            assert_eq!((polls.lock().0, task.wakes()), (step + 1, 3 * step + 2));
            wake(&polls);
        }
        is_busy.set(false);
        assert_eq!(task.poll(), Poll::Ready(()));
    }
}
