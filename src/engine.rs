//! Drives all masters: one question to each, one outcome.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{
    clock,
    config::Config,
    core::{
        command::Command,
        lease::Ttl,
        name::Resource,
        retry::Backoff,
        round::{Outcome, Round},
        votes::Votes,
    },
    error::AcquireError,
    hold::{Held, Hold},
    live_round::LiveRound,
    master::{Ask, CountVotes, Mailbox, Supervisor},
    waiting::{Waiter, Waiting},
    watchdog::Watchdog,
};

/// How long a waiter that is told of releases relies on that: others may release without a word.
const POLL: Backoff = Backoff::between(Duration::from_millis(500), Duration::from_millis(1_500));

/// What all locks of one coordinator share. Its supervisors end when the last handle on it is gone and
/// all that was posted is delivered.
#[derive(Debug)]
pub(crate) struct Engine {
    config: Config,
    addresses: Arc<[Arc<str>]>,
    mailboxes: Box<[Arc<Mailbox>]>,
    deliveries: Arc<Deliveries>,
    watchdog: Arc<Watchdog>,
    waiting: Waiting,
    closed: AtomicBool,
}

impl Engine {
    pub(crate) fn start(
        config: Config,
        masters: Vec<(Arc<Mailbox>, Supervisor)>,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let (mailboxes, supervisors): (Vec<_>, Vec<_>) = masters.into_iter().unzip();
        for supervisor in supervisors {
            runtime.spawn(supervisor);
        }
        let watchdog = Arc::<Watchdog>::default();
        runtime.spawn(watchdog.clone().run());
        Self {
            config,
            addresses: mailboxes
                .iter()
                .map(|mailbox| mailbox.address().clone())
                .collect(),
            mailboxes: mailboxes.into(),
            deliveries: Arc::default(),
            watchdog,
            waiting: Waiting::default(),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// How many masters there are.
    pub(crate) fn size(&self) -> usize {
        self.mailboxes.len()
    }

    pub(crate) fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    pub(crate) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    pub(crate) fn addresses(&self) -> &[Arc<str>] {
        &self.addresses
    }

    pub(crate) fn votes(&self, round: &LiveRound) -> Votes {
        Votes::new(self.addresses.clone(), round.votes())
    }

    pub(crate) fn ask<C: CountVotes>(
        &self,
        command: Command,
        start: Instant,
        counter: C,
    ) -> Arc<Ask<C>> {
        self.ask_with_tellers(command, 0, start, counter)
    }

    /// A question that wakes those who wait only on `tellers`, a bit each.
    pub(crate) fn ask_with_tellers<C: CountVotes>(
        &self,
        command: Command,
        tellers: u64,
        start: Instant,
        counter: C,
    ) -> Arc<Ask<C>> {
        let start = clock::to_monotonic(start);
        let deadline = start.checked_add(self.config.node_timeout).unwrap_or(start);
        Arc::new(Ask::new(command, tellers, deadline, counter))
    }

    /// Puts a question to every master.
    pub(crate) fn post<C: CountVotes + 'static>(&self, ask: &Arc<Ask<C>>) {
        self.post_to(u64::MAX, ask);
    }

    /// Puts a question to `masters`, a bit each. Neither blocks nor spawns, so it may be done from `Drop`.
    pub(crate) fn post_to<C: CountVotes + 'static>(&self, masters: u64, ask: &Arc<Ask<C>>) {
        for mailbox in &self.mailboxes {
            if masters >> mailbox.master() & 1 == 1 {
                mailbox.post(ask.clone());
            }
        }
    }

    /// Up to two masters, a bit each, that can tell waiters of a release: they are connected. Two, as one may
    /// have just died; not all, as telling makes a release cost a master a quarter more.
    pub(crate) fn tellers(&self, spread: u8) -> u64 {
        let size = self.size();
        (0..size)
            .map(|step| (usize::from(spread) + step) % size)
            .filter(|master| self.mailboxes[*master].is_serving())
            .take(2)
            .fold(0, |tellers, master| tellers | 1 << master)
    }

    pub(crate) fn each_mailbox(&self, mut visit: impl FnMut(&Mailbox)) {
        self.mailboxes.iter().for_each(|mailbox| visit(mailbox));
    }

    /// One round.
    pub(crate) async fn try_acquire(
        self: &Arc<Self>,
        resource: &Resource,
        ttl: Ttl,
    ) -> Result<Held, AcquireError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(AcquireError::Closed);
        }
        let held = Held::new(Hold::ask(self, resource, ttl));
        match held.decided().await {
            Outcome::Won => Ok(held),
            outcome => Err(self.give_up(&held, outcome).await),
        }
    }

    /// Rounds until one is won, when it is this waiter's turn in this process and whenever a release is
    /// likely. With `patience`, the last one begins when it is over.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        resource: &Resource,
        ttl: Ttl,
        patience: Option<Duration>,
    ) -> Result<Held, AcquireError> {
        let start = clock::now();
        // A patience that no clock can hold is none.
        let deadline = patience.and_then(|patience| start.checked_add(patience));
        let waiter = self.waiting.join(self, resource);
        let _turn = waiter.turn(deadline).await;
        let mut attempts = 0u32;
        let mut is_told = false;
        loop {
            let is_last = deadline.is_some_and(|deadline| deadline <= clock::now());
            waiter.attempt();
            let error = match self.try_acquire(resource, ttl).await {
                Ok(held) => return Ok(held),
                Err(error) => error,
            };
            if matches!(error, AcquireError::Closed | AcquireError::Config(_)) {
                return Err(error);
            }
            if is_last {
                return Err(AcquireError::Deadline {
                    waited: clock::now().saturating_duration_since(start),
                    attempts: attempts.saturating_add(1),
                    last: Box::new(error),
                });
            }
            is_told = self
                .wait(&waiter, &error, attempts, is_told, deadline)
                .await;
            attempts = attempts.saturating_add(1);
        }
    }

    /// Waits until another attempt is worth it. Whether that is because of a release that was heard of; the
    /// attempt that failed with `error` `was_told` so.
    async fn wait(
        &self,
        waiter: &Waiter<'_>,
        error: &AcquireError,
        attempts: u32,
        was_told: bool,
        deadline: Option<Instant>,
    ) -> bool {
        let now = clock::now();
        let not_later = |at: Instant| deadline.map_or(at, |deadline| deadline.min(at));
        let delay = self.config.retry.delay(attempts, clock::random_u64());
        let AcquireError::Contended { remaining, .. } = error else {
            clock::sleep_until(not_later(now + delay)).await;
            return false;
        };
        if remaining.is_some_and(|remaining| remaining.is_zero()) {
            // A split vote: who comes back at once meets the same rivals.
            clock::sleep_until(not_later(now + delay)).await;
            return false;
        }
        let patience = not_later(now + self.config.node_timeout);
        if waiter.listen(patience).await {
            return false;
        }
        // However often others release and take it again, and whatever they publish: not a hot loop.
        if attempts > 2 {
            clock::sleep_until(not_later(now + self.config.retry.least())).await;
        }
        let poll = if was_told {
            // Somebody else was first, or the release has not reached a majority yet.
            self.config.retry.delay(0, clock::random_u64())
        } else if waiter.can_be_told() {
            POLL.delay(u32::MAX, clock::random_u64())
        } else {
            delay
        };
        // A key lives to the end of the millisecond in which it expires.
        let expiry = remaining.map(|remaining| remaining + Duration::from_millis(2));
        let patience = now + expiry.map_or(poll, |expiry| expiry.min(poll));
        waiter.released(not_later(patience)).await
    }

    /// Takes back what a round that was not won may have left, and says why it was not.
    ///
    /// The answers to the release come anyway, and say for how long others hold the lock.
    async fn give_up(&self, held: &Held, outcome: Outcome) -> AcquireError {
        let (elapsed, ttl) = held.elapsed();
        let release = held.release();
        let acquisition = held.newest_round();
        if outcome == Outcome::Lost && !acquisition.read(Round::lacks_masters) {
            release.decided().await;
        } else {
            // For a full table. Masters that are down have failed already.
            release.settled().await;
        }
        let name = held.name().clone();
        let votes = self.votes(&acquisition);
        if outcome == Outcome::TooLate {
            AcquireError::TooSlow {
                name,
                elapsed,
                ttl,
                votes,
            }
        } else if acquisition.read(Round::lacks_masters) {
            AcquireError::NoQuorum { name, votes }
        } else {
            AcquireError::Contended {
                name,
                remaining: release.read(Round::free_in),
                votes,
            }
        }
    }

    /// A release that has not reached all its masters until the returned value is dropped.
    pub(crate) fn undelivered(&self) -> Undelivered {
        self.deliveries.count.fetch_add(1, Ordering::AcqRel);
        Undelivered(self.deliveries.clone())
    }

    /// Refuses new acquisitions and waits until nothing is undelivered.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.waiting.wake_all();
        loop {
            let mut done = pin!(self.deliveries.done.notified());
            done.as_mut().enable(); // first register, then look
            if self.deliveries.count.load(Ordering::Acquire) == 0 {
                return;
            }
            done.await;
        }
    }
}

/// Waits for the first of two futures.
pub(crate) async fn first_of(
    mut first: Pin<&mut impl Future<Output = ()>>,
    mut second: Pin<&mut impl Future<Output = ()>>,
) {
    poll_fn(|cx| match first.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => second.as_mut().poll(cx),
    })
    .await;
}

impl Drop for Engine {
    fn drop(&mut self) {
        for mailbox in &self.mailboxes {
            mailbox.abandon();
        }
        self.watchdog.close();
    }
}

/// How many releases have not reached all the masters that they are owed to.
#[derive(Debug, Default)]
struct Deliveries {
    count: AtomicUsize,
    done: Notify,
}

/// One of them. Travels with the release, so it ends when the last master lets go of that.
#[derive(Debug)]
pub(crate) struct Undelivered(Arc<Deliveries>);

impl Drop for Undelivered {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.done.notify_waiters();
        }
    }
}
