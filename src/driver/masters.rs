//! The masters of a coordinator. Requests are posted here, and one task serves all masters.

use std::{
    future::poll_fn,
    mem,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use super::live_round::LiveRound;
use crate::{
    clock,
    core::{
        hash::rank,
        protocol::command::Command,
        time::tick::Tick,
        view::health::MasterHealth,
        vote::{
            Failure, MasterSet, Vote, lists::Roster, quorum::Quorum, round::Round, votes::Votes,
        },
    },
    master::{HealthBoard, Listener, Mailbox, Request, Supervisor, Topic, VoteCounter},
};

/// The masters of a coordinator.
#[derive(Debug)]
pub(crate) struct Masters {
    roster: Arc<Roster>,
    mailboxes: Box<[Arc<Mailbox>]>,
    pub(crate) health: HealthBoard,
}

impl Masters {
    pub(crate) fn new(
        roster: Arc<Roster>,
        supervised: &[(Arc<Mailbox>, Supervisor)],
        health: HealthBoard,
    ) -> Self {
        let mailboxes = supervised.iter().map(|(mailbox, _)| mailbox.clone());
        Self {
            roster,
            mailboxes: mailboxes.collect(),
            health,
        }
    }

    pub(crate) fn quorum(&self) -> &Quorum {
        &self.roster.quorum
    }

    /// Returns the number of masters.
    pub(crate) fn count(&self) -> usize {
        self.mailboxes.len()
    }

    pub(crate) fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Returns the longest node timeout of the masters that were dialled, or `None` if none was
    /// dialled.
    pub(crate) fn longest_timeout(&self) -> Option<Duration> {
        let timeouts = self.mailboxes.iter().map(|mailbox| mailbox.node_timeout());
        timeouts.flatten().max()
    }

    /// Returns the time in which a majority of every set votes: the node timeout that a majority
    /// does not exceed. If no majority is connected, returns the longest node timeout.
    pub(crate) fn majority_timeout(&self) -> Option<Duration> {
        let timeout = |master: usize| {
            let mailbox = &self.mailboxes[master];
            let timeout = mailbox.node_timeout();
            timeout.filter(|_| mailbox.is_serving())
        };
        let least = self.quorum().least_of_every(timeout);
        least.or_else(|| self.longest_timeout())
    }

    /// Returns the masters whose first dials are not over. Each of them may take as long as the
    /// connect timeout to vote. Each of the other masters takes at most its node timeout.
    pub(crate) fn undialled(&self) -> MasterSet {
        self.those(|mailbox| mailbox.node_timeout().is_none())
    }

    fn those(&self, are_so: impl Fn(&Mailbox) -> bool) -> MasterSet {
        let mailboxes = self.mailboxes.iter();
        let those = mailboxes.filter(|mailbox| are_so(mailbox));
        those.map(|mailbox| mailbox.master()).collect()
    }

    pub(crate) fn votes(&self, round: &LiveRound) -> Votes {
        let verb = round.read(Round::verb);
        Votes::new(self.roster.clone(), round.votes(), verb)
    }

    /// Posts `command` to every master.
    pub(crate) fn post<C: VoteCounter + 'static>(&self, command: Command, votes_to: C) {
        drop(self.post_locked(MasterSet::ALL, command, votes_to, clock::monotonic()));
    }

    /// Posts `command` to some masters, for a caller that holds a mutex. The caller must unlock the
    /// mutex before it drops the returned value. This method neither blocks nor spawns a task, so
    /// `Drop` may call it.
    pub(crate) fn post_locked<C: VoteCounter + 'static>(
        &self,
        masters: MasterSet,
        command: Command,
        votes_to: C,
        now: Tick,
    ) -> Posted<'_> {
        let request = Arc::new(Request::new(command, now, votes_to));
        let mailboxes = self.mailboxes.iter();
        let mailboxes = mailboxes.filter(|mailbox| masters.contains(mailbox.master()));
        let failed = mailboxes.filter_map(|mailbox| {
            let failure = mailbox.post(request.clone())?;
            Some((&**mailbox, failure))
        });
        Posted {
            failed: failed.collect(),
            request,
        }
    }

    /// Notes that nothing will be posted any more. The supervisors deliver everything that was
    /// posted, and end.
    pub(crate) fn abandon(&self) {
        for mailbox in &self.mailboxes {
            mailbox.abandon();
        }
    }

    /// Returns whether a majority of every set of masters is connected.
    pub(crate) fn has_quorum(&self) -> bool {
        let connected = self.those(Mailbox::is_serving);
        self.quorum().has_majority_of_every_set(connected)
    }

    /// Returns the masters that are connected and report changes of keys.
    pub(crate) fn reporting(&self) -> MasterSet {
        self.those(Mailbox::reports_changes)
    }

    /// Returns the masters that can vote.
    pub(crate) fn able(&self) -> MasterSet {
        self.with_health(MasterHealth::can_vote)
    }

    /// Returns the masters that have no vote, because they may have forgotten locks.
    pub(crate) fn quarantined(&self) -> MasterSet {
        self.with_health(|health| health.quarantine.is_some())
    }

    /// Returns whether a majority of every set of masters is out of quarantine.
    pub(crate) fn has_voters(&self) -> bool {
        let voters = MasterSet::ALL - self.quarantined();
        self.quorum().has_majority_of_every_set(voters)
    }

    fn with_health(&self, is_so: impl Fn(&MasterHealth) -> bool) -> MasterSet {
        let health = self.health.read();
        let those = health
            .iter()
            .enumerate()
            .filter(|(_, health)| is_so(health));
        those.map(|(master, _)| master).collect()
    }

    /// Returns the agreed master of the lock `key`, chosen from the masters in `among`. All clients
    /// that choose from the same masters get the same one, and ask it before the others.
    pub(crate) fn agreed(&self, key: &str, among: MasterSet) -> Option<usize> {
        let rank = |master: &usize| rank(key, self.mailboxes[*master].address());
        among.iter().min_by_key(rank)
    }

    /// From now on, passes news about `topic` from all masters to `listener`.
    pub(crate) fn listen(&self, topic: &Topic, listener: &Weak<dyn Listener>) {
        for mailbox in &self.mailboxes {
            mailbox.listen(topic, listener.clone());
        }
    }

    pub(crate) fn ignore(&self, topic: &Topic, listener: &Weak<dyn Listener>) {
        for mailbox in &self.mailboxes {
            mailbox.ignore(topic, listener);
        }
    }

    /// Wakes all listeners, as if every master had news for them.
    pub(crate) fn wake_all(&self) {
        for mailbox in &self.mailboxes {
            mailbox.tell_all(|_| true);
        }
    }
}

#[cfg(test)]
impl Masters {
    /// Returns the number of listeners to all masters.
    pub(crate) fn listeners(&self) -> usize {
        let mailboxes = self.mailboxes.iter();
        mailboxes.map(|mailbox| mailbox.listeners()).sum()
    }
}

/// A request that was posted, and the masters at which it failed at once. Dropping this value casts
/// the votes of these masters, and may drop the request. Both may run code of the program.
#[must_use = "dropping it casts votes, and the caller may have to unlock a mutex before"]
pub(crate) struct Posted<'a> {
    failed: Vec<(&'a Mailbox, Failure)>,
    request: Arc<Request>,
}

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        for (mailbox, failure) in mem::take(&mut self.failed) {
            mailbox.cast(&*self.request, Vote::Fail(failure), clock::monotonic());
        }
    }
}

/// Runs the supervisors of all masters until they end. If one panics, all of them end.
///
/// A request wakes all supervisors, so one task for all of them costs less than a task for each.
///
/// While a master has many commands to answer, the task gives way once before each step. So the
/// callers that can run post their requests first, and these requests are sent in one write.
/// Without this, on the multi-thread runtime, the task would run before callers that were woken
/// earlier, and each request would be sent in a separate write.
pub(crate) async fn supervise(masters: Vec<(Arc<Mailbox>, Supervisor)>) {
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
    /// One bit for each master. The task has been woken if at least one bit is set.
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
        let future = pin!(supervise(with_mailboxes(supervisors)));
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
        let future = pin!(supervise(masters));
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
