//! Drives all masters: one question to each, one outcome.

mod acquire;
mod aside;
mod bid;
mod inspect;
mod limit;
mod queue;

use std::{
    fmt::Write as _,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    clock,
    config::Config,
    core::{aside::Chances, command::Command, quorum::is_majority, votes::Votes},
    live_round::LiveRound,
    master::{Ask, CountVotes, Mailbox, Supervisor},
    owner::Owner,
    shield::shielded,
    turns::Turns,
    waiting::Waiting,
    watchdog::Watchdog,
};

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
    turns: Turns,
    /// What this process is called on the masters.
    process: Arc<str>,
    /// How many owners it has had.
    owners: AtomicU64,
    /// The newest number that was drawn for a ticket or a fencing token.
    last_drawn: AtomicU64,
    /// Whether those who wait for locks can win.
    chances: Mutex<Chances>,
    /// By how many microseconds the masters' clocks are ahead of ours.
    clock_offset: AtomicI64,
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
        let process: Arc<str> = uuid(clock::random()).into();
        runtime.spawn(watchdog.clone().run());
        Self {
            config,
            addresses: mailboxes
                .iter()
                .map(|mailbox| mailbox.address().clone())
                .collect(),
            mailboxes: mailboxes.into(),
            deliveries: Arc::new(Deliveries::new()),
            watchdog,
            waiting: Waiting::default(),
            turns: Turns::new(&process),
            process,
            owners: AtomicU64::new(0),
            last_drawn: AtomicU64::new(0),
            chances: Mutex::default(),
            clock_offset: AtomicI64::new(0),
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

    /// Returns the longest time that any master that was dialled may take to answer.
    pub(crate) fn node_timeout(&self) -> Duration {
        let timeouts = self.mailboxes.iter().map(|mailbox| mailbox.node_timeout());
        let longest = timeouts.flatten().max();
        longest.unwrap_or_else(|| self.config.node_timeout.least())
    }

    pub(crate) fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    pub(crate) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// A new owner of this process.
    pub(crate) fn owner(&self) -> Owner {
        let number = self.owners.fetch_add(1, Ordering::Relaxed) + 1;
        Owner::new(&self.process, number)
    }

    /// Whether `owner` was made here, so that what it holds is counted here.
    pub(crate) fn knows(&self, owner: &Owner) -> bool {
        owner.id().starts_with(&*self.process)
    }

    pub(crate) fn addresses(&self) -> &[Arc<str>] {
        &self.addresses
    }

    pub(crate) fn votes(&self, round: &LiveRound) -> Votes {
        Votes::new(self.addresses.clone(), round.votes())
    }

    pub(crate) fn ask<C: CountVotes>(&self, command: Command, counter: C) -> Arc<Ask<C>> {
        self.ask_with_tellers(command, 0, counter)
    }

    /// A question that wakes those who wait only on `tellers`, a bit each.
    pub(crate) fn ask_with_tellers<C: CountVotes>(
        &self,
        command: Command,
        tellers: u64,
        counter: C,
    ) -> Arc<Ask<C>> {
        Arc::new(Ask::new(command, tellers, clock::monotonic(), counter))
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

    /// Whether a majority of masters are connected.
    fn is_connected(&self) -> bool {
        let masters = 0..self.size();
        let connected = masters.filter(|master| self.mailboxes[*master].is_serving());
        is_majority(
            connected.fold(0, |masters, master| masters | 1 << master),
            self.size(),
        )
    }

    pub(crate) fn each_mailbox(&self, mut visit: impl FnMut(&Mailbox)) {
        self.mailboxes.iter().for_each(|mailbox| visit(mailbox));
    }

    /// A release that has not reached all its masters until the returned value is dropped. What it
    /// would delete has expired at `keys_until`, on the monotonic clock.
    pub(crate) fn undelivered(&self, keys_until: Instant) -> Undelivered {
        let until = self.deliveries.micros(keys_until);
        self.deliveries.until.fetch_max(until, Ordering::AcqRel);
        self.deliveries.count.fetch_add(1, Ordering::AcqRel);
        Undelivered(self.deliveries.clone())
    }

    /// Refuses new acquisitions and waits until nothing is undelivered, or has expired by itself.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.waiting.wake_all();
        self.turns.wake_all();
        loop {
            let mut done = pin!(self.deliveries.done.notified());
            done.as_mut().enable(); // first register, then look
            let now = clock::monotonic();
            let until = self.deliveries.until.load(Ordering::Acquire);
            let left = until.saturating_sub(self.deliveries.micros(now));
            if self.deliveries.count.load(Ordering::Acquire) == 0 || left == 0 {
                return;
            }
            let expiry = tokio::time::sleep(Duration::from_micros(left));
            first_of(done, pin!(expiry)).await;
        }
    }
}

/// The random UUID that `bytes` make.
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40; // version 4
    bytes[8] = bytes[8] & 0x3f | 0x80; // and its variant
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}"); // a string takes everything
    }
    text
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

/// The releases that have not reached all the masters that they are owed to.
#[derive(Debug)]
struct Deliveries {
    count: AtomicUsize,
    /// When the last key that any of them would delete has expired, in microseconds after the
    /// origin.
    until: AtomicU64,
    origin: Instant,
    done: Notify,
}

impl Deliveries {
    fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            until: AtomicU64::new(0),
            origin: clock::monotonic(),
            done: Notify::new(),
        }
    }

    /// `at` in microseconds after the origin, rounded up.
    fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.origin).as_micros();
        u64::try_from(since).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// One of them. Travels with the release, so it ends when the last master lets go of that.
#[derive(Debug)]
pub(crate) struct Undelivered(Arc<Deliveries>);

impl Drop for Undelivered {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            shielded(|| self.0.done.notify_waiters());
        }
    }
}
