//! Drives all masters: one question to each, one outcome.

use std::{
    fmt::Write as _,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    core::config::Config,
    core::{chances::Chances, command::Command, master_set::MasterSet, votes::Votes},
    driver::clock,
    driver::fair_waiters::FairWaiters,
    driver::live_round::LiveRound,
    driver::local_waiters::LocalWaiters,
    driver::renewer::Renewer,
    driver::{owned_lock::LockOwner, select::first_of},
    master::{CountVotes, Mailbox, Request, Supervisor},
    user_code::shielded,
};

/// What all locks of one coordinator share. Its supervisors end when the last handle on it is gone and
/// all that was posted is delivered.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) config: Config,
    pub(super) addresses: Arc<[Arc<str>]>,
    pub(super) mailboxes: Box<[Arc<Mailbox>]>,
    pending_releases: Arc<PendingReleases>,
    renewer: Arc<Renewer>,
    pub(super) waiting: LocalWaiters,
    pub(super) turns: FairWaiters,
    /// What this process is called on the masters.
    process: Arc<str>,
    /// How many owners it has had.
    owners: AtomicU64,
    /// The newest number that was drawn for a ticket or a fencing token.
    pub(super) last_timestamp: AtomicU64,
    /// Whether those who wait for locks can win.
    pub(super) chances: Mutex<Chances>,
    /// By how many microseconds the masters' clocks are ahead of ours.
    pub(super) clock_offset: AtomicI64,
    pub(super) closed: AtomicBool,
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
        let renewer = Arc::<Renewer>::default();
        let process: Arc<str> = uuid(clock::random()).into();
        runtime.spawn(renewer.clone().run());
        Self {
            config,
            addresses: mailboxes
                .iter()
                .map(|mailbox| mailbox.address().clone())
                .collect(),
            mailboxes: mailboxes.into(),
            pending_releases: Arc::new(PendingReleases::new()),
            renewer,
            waiting: LocalWaiters::default(),
            turns: FairWaiters::new(&process),
            process,
            owners: AtomicU64::new(0),
            last_timestamp: AtomicU64::new(0),
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

    pub(crate) fn renewer(&self) -> &Renewer {
        &self.renewer
    }

    pub(crate) fn waiting(&self) -> &LocalWaiters {
        &self.waiting
    }

    pub(crate) fn turns(&self) -> &FairWaiters {
        &self.turns
    }

    /// A new owner of this process.
    pub(crate) fn owner(&self) -> LockOwner<super::claim::Claim> {
        let number = self.owners.fetch_add(1, Ordering::Relaxed) + 1;
        LockOwner::new(&self.process, number)
    }

    /// Whether `owner` was made here, so that what it holds is counted here.
    pub(crate) fn knows(&self, owner: &LockOwner<super::claim::Claim>) -> bool {
        owner.id().starts_with(&*self.process)
    }

    pub(crate) fn addresses(&self) -> &[Arc<str>] {
        &self.addresses
    }

    pub(crate) fn votes(&self, round: &LiveRound) -> Votes {
        Votes::new(self.addresses.clone(), round.votes())
    }

    pub(crate) fn ask<C: CountVotes>(&self, command: Command, counter: C) -> Arc<Request<C>> {
        self.request_with_publishers(command, MasterSet::NONE, counter)
    }

    /// A question that wakes those who wait only on `publishers`, a bit each.
    pub(crate) fn request_with_publishers<C: CountVotes>(
        &self,
        command: Command,
        publishers: MasterSet,
        counter: C,
    ) -> Arc<Request<C>> {
        Arc::new(Request::new(
            command,
            publishers,
            clock::monotonic(),
            counter,
        ))
    }

    /// Puts a question to every master.
    pub(crate) fn post<C: CountVotes + 'static>(&self, ask: &Arc<Request<C>>) {
        self.post_to(MasterSet::ALL, ask);
    }

    /// Puts a question to `masters`, a bit each. Neither blocks nor spawns, so it may be done from `Drop`.
    pub(crate) fn post_to<C: CountVotes + 'static>(
        &self,
        masters: MasterSet,
        ask: &Arc<Request<C>>,
    ) {
        for mailbox in &self.mailboxes {
            if masters.contains(mailbox.master()) {
                mailbox.post(ask.clone());
            }
        }
    }

    /// Up to two masters, a bit each, that can tell waiters of a release: they are connected. Two, as one may
    /// have just died; not all, as telling makes a release cost a master a quarter more.
    pub(crate) fn publishers(&self, spread: u8) -> MasterSet {
        let size = self.size();
        (0..size)
            .map(|step| (usize::from(spread) + step) % size)
            .filter(|master| self.mailboxes[*master].is_serving())
            .take(2)
            .collect()
    }

    /// Whether a majority of masters are connected.
    pub(super) fn is_connected(&self) -> bool {
        let masters = 0..self.size();
        let connected = masters.filter(|master| self.mailboxes[*master].is_serving());
        connected.collect::<MasterSet>().is_majority_of(self.size())
    }

    pub(crate) fn each_mailbox(&self, mut visit: impl FnMut(&Mailbox)) {
        self.mailboxes.iter().for_each(|mailbox| visit(mailbox));
    }

    /// A release that has not reached all its masters until the returned value is dropped. What it
    /// would delete has expired at `keys_until`, on the monotonic clock.
    pub(crate) fn pending_release(&self, keys_until: Instant) -> PendingRelease {
        let until = self.pending_releases.micros(keys_until);
        self.pending_releases
            .until
            .fetch_max(until, Ordering::AcqRel);
        self.pending_releases.count.fetch_add(1, Ordering::AcqRel);
        PendingRelease(self.pending_releases.clone())
    }

    /// Refuses new acquisitions and waits until nothing is undelivered, or has expired by itself.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.waiting.wake_all();
        self.turns.wake_all();
        loop {
            let mut done = pin!(self.pending_releases.done.notified());
            done.as_mut().enable(); // first register, then look
            let now = clock::monotonic();
            let until = self.pending_releases.until.load(Ordering::Acquire);
            let left = until.saturating_sub(self.pending_releases.micros(now));
            if self.pending_releases.count.load(Ordering::Acquire) == 0 || left == 0 {
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

impl Drop for Engine {
    fn drop(&mut self) {
        for mailbox in &self.mailboxes {
            mailbox.abandon();
        }
        self.renewer.close();
    }
}

/// The releases that have not reached all the masters that they are owed to.
#[derive(Debug)]
struct PendingReleases {
    count: AtomicUsize,
    /// When the last key that any of them would delete has expired, in microseconds after the
    /// origin.
    until: AtomicU64,
    origin: Instant,
    done: Notify,
}

impl PendingReleases {
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
pub(crate) struct PendingRelease(Arc<PendingReleases>);

impl Drop for PendingRelease {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            shielded(|| self.0.done.notify_waiters());
        }
    }
}
