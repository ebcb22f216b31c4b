//! The task that runs the supervisors of all masters.

use std::{
    future::poll_fn,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use crate::master::{Mailbox, Supervisor};

/// Runs the supervisors of all masters until they end. If one panics, all of them end.
///
/// A request wakes all supervisors, so one task for all of them costs less than a task for each.
///
/// While the masters have many commands to answer, the task gives way once before each step. The
/// callers that can run then post their requests first, and the requests leave in one write. On the
/// multi-thread runtime, a task that is woken would otherwise run before the callers that were
/// woken earlier, and each request would leave in a write of its own.
pub(crate) async fn run(masters: Vec<(Arc<Mailbox>, Supervisor)>) {
    let ready = Arc::new(Ready {
        masters: AtomicU64::new(u64::MAX),
        task: OnceLock::new(),
    });
    let (mailboxes, supervisors): (Vec<_>, Vec<_>) = masters.into_iter().unzip();
    let mut supervisors: Vec<_> = (0u32..)
        .zip(supervisors)
        .map(|(master, supervisor)| (Some(supervisor), ready.waker(master)))
        .collect();
    let (mut gave_way, mut first) = (false, 0);
    poll_fn(|cx| {
        ready.task.get_or_init(|| cx.waker().clone());
        gave_way = !gave_way && mailboxes.iter().any(|mailbox| mailbox.is_busy());
        if gave_way {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let masters = ready.masters.swap(0, Ordering::AcqRel);
        // Tokio limits the work of a task in one poll. Each poll begins with another master, so
        // masters that send a lot cannot use up the limit every time.
        first = (first + 1) % supervisors.len().max(1);
        for master in (first..supervisors.len()).chain(0..first) {
            if masters >> master & 1 == 1 {
                let (supervisor, waker) = &mut supervisors[master];
                poll(supervisor, waker);
            }
        }
        if supervisors
            .iter()
            .all(|(supervisor, _)| supervisor.is_none())
        {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// Polls a supervisor, and drops it once it has ended.
fn poll(supervisor: &mut Option<Supervisor>, waker: &Waker) {
    let Some(running) = supervisor else {
        return;
    };
    let polled = running.as_mut().poll(&mut Context::from_waker(waker));
    if polled.is_ready() {
        *supervisor = None;
    }
}

/// The supervisors that must be polled.
#[derive(Debug)]
struct Ready {
    /// One bit for each master. The task has been woken if any bit is set.
    masters: AtomicU64,
    /// The waker of the task. Tokio gives a task the same waker in every poll.
    task: OnceLock<Waker>,
}

impl Ready {
    fn waker(self: &Arc<Self>, master: u32) -> Waker {
        Waker::from(Arc::new(WakeOne {
            ready: self.clone(),
            master: 1 << master,
        }))
    }
}

/// Wakes the task for the supervisor of one master.
#[derive(Debug)]
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
        pin::{Pin, pin},
        sync::atomic::AtomicUsize,
    };

    use super::*;
    use crate::{core::vote::lists::Membership, master::MasterObserver};

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

    fn with_mailboxes<const N: usize>(
        supervisors: [Supervisor; N],
    ) -> Vec<(Arc<Mailbox>, Supervisor)> {
        let masters = supervisors.into_iter().enumerate();
        let mailbox = |master| {
            Mailbox::new(
                master,
                MasterObserver::new(None, "".into(), Membership::Stays),
            )
        };
        masters
            .map(|(master, supervisor)| (Arc::new(mailbox(master)), supervisor))
            .collect()
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
        let future = pin!(run(with_mailboxes(supervisors)));
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
    fn while_a_master_is_busy_the_task_gives_way_once_before_each_step() {
        let polls = Polls::default();
        let masters = with_mailboxes([supervisor(&polls, 3)]);
        let mailbox = masters[0].0.clone();
        let future = pin!(run(masters));
        let mut task = Task {
            future,
            wakes: Arc::default(),
        };
        mailbox.set_busy(true);
        for step in 0..2 {
            assert_eq!(task.poll(), Poll::Pending);
            assert_eq!((polls.lock().0, task.wakes()), (step, 2 * step + 1));
            assert_eq!(task.poll(), Poll::Pending);
            assert_eq!((polls.lock().0, task.wakes()), (step + 1, 2 * step + 1));
            wake(&polls);
        }
        mailbox.set_busy(false);
        assert_eq!(task.poll(), Poll::Ready(()));
    }
}
