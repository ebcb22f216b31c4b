//! Assembles the driver of a coordinator from its parts.

use std::{
    fmt::Write as _,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{sync::watch, task::AbortHandle};

use super::{
    acquire::{
        self,
        deadline::Deadline,
        observed::{observed, observed_all},
        several::{self, Part},
    },
    claim::{level::Level, owned_lock::LockOwner, request::LockRequest},
    context::Context,
    masters::Masters,
    query::{
        inspect::{self, PendingInspection},
        ready::ready,
    },
    renewer::Renewer,
    supervisors,
    time::{clock, timers::Timers},
};
#[cfg(test)]
use crate::sim::Process;
use crate::{
    core::{
        config::Config,
        error::{AcquireError, InspectError},
        protocol::{client_name::ClientName, name::LockId},
        view::inspection::Inspection,
        vote::{roster::Roster, votes::Votes},
    },
    master::{HealthBoard, Mailbox, Supervisor},
    user_code::shielded,
};

/// The driver of a coordinator.
#[derive(Debug)]
pub(crate) struct Engine {
    context: Arc<Context>,
    pub(crate) owners: Arc<Owners>,
}

/// Creates the owners of a coordinator.
#[derive(Debug)]
pub(crate) struct Owners {
    /// The name of the coordinator on the masters: a random UUID.
    process: String,
    /// The number of owners that were created so far.
    count: AtomicU64,
    client: Option<ClientName>,
}

impl Owners {
    pub(crate) fn new(client: Option<ClientName>) -> Self {
        Self {
            process: uuid(clock::random()),
            count: AtomicU64::new(0),
            client,
        }
    }

    pub(crate) fn create(&self) -> LockOwner {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        LockOwner::new(&self.process, number, self.client.as_ref())
    }

    /// Returns whether `owner` was created here. All claims of an owner at one name belong to one
    /// coordinator.
    pub(crate) fn have(&self, owner: &LockOwner) -> bool {
        owner.id().starts_with(&*self.process)
    }
}

impl Engine {
    /// Starts the background tasks on `runtime`. The tasks end after the last coordinator, lock and
    /// guard are dropped. Before a supervisor ends, it delivers everything that was posted to it.
    pub(crate) fn start(
        config: Config,
        owners: Arc<Owners>,
        roster: Arc<Roster>,
        masters: Vec<(Arc<Mailbox>, Supervisor)>,
        health: HealthBoard,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let mailboxes = masters.iter().map(|(mailbox, _)| mailbox.clone()).collect();
        let renewer = Arc::<Renewer>::default();
        let (supervisors, renewing) = (supervisors::run(masters), renewer.clone().run());
        #[cfg(test)]
        let (supervisors, renewing) = (Process::adopt(supervisors), Process::adopt(renewing));
        let (ends_with_supervisors, alive) = watch::channel(());
        let timers_end = TimersEnd(Some(ends_with_supervisors));
        let task = runtime.spawn(async move {
            let _end = timers_end; // after the supervisors
            supervisors.await;
        });
        let end = EndOnPanic(task.abort_handle());
        runtime.spawn(async move {
            let _end = end;
            renewing.await;
        });
        let timers = Timers::new(runtime, alive);
        let masters = Masters::new(roster, mailboxes, health);
        Self {
            context: Arc::new(Context::new(config, masters, timers, renewer)),
            owners,
        }
    }

    #[cfg(test)]
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn masters(&self) -> &Masters {
        &self.context.masters
    }

    pub(crate) fn config(&self) -> &Config {
        &self.context.config
    }

    /// Makes one attempt.
    pub(crate) async fn try_acquire(&self, request: &LockRequest) -> Result<Level, AcquireError> {
        let call = pin!(acquire::try_acquire(&self.context, request));
        let acquired = observed(&self.context, request, call).await;
        acquired.inspect(|level| level.claim.hold(request))
    }

    /// Waits until the lock is acquired. If there is a `limit`, the last attempt begins when that
    /// time has passed.
    pub(crate) async fn acquire(
        &self,
        request: &LockRequest,
        limit: Option<Duration>,
    ) -> Result<Level, AcquireError> {
        let _waiter = self.context.observer.count_waiter(&request.lock_id);
        let call = pin!(acquire::acquire(&self.context, request, limit));
        let acquired = observed(&self.context, request, call).await;
        acquired.inspect(|level| level.claim.hold(request))
    }

    /// Returns one of the requests of a call for several locks.
    pub(crate) fn part(&self, request: LockRequest) -> Part {
        Part {
            context: self.context.clone(),
            request,
        }
    }

    /// Asks all masters who holds the lock and who waits for it.
    pub(crate) fn inquire(&self, lock_id: &LockId) -> Arc<PendingInspection> {
        inspect::inquire(&self.context, lock_id)
    }

    /// Waits for the answers to `pending`.
    pub(crate) async fn inspect(
        &self,
        pending: &PendingInspection,
    ) -> Result<Inspection, InspectError> {
        inspect::inspect(&self.context, pending).await
    }

    /// Deletes the lock on every master where one of the holders of `inspection` still has it.
    pub(crate) async fn break_held(&self, inspection: &Inspection) -> Votes {
        inspect::break_held(&self.context, inspection).await
    }

    /// Waits until the masters that can vote are enough, at most for `limit`. Returns the last
    /// answer of each master, or `None` if the coordinator is closed.
    pub(crate) async fn ready(
        &self,
        is_enough: fn(&Votes) -> bool,
        limit: Duration,
    ) -> Option<Votes> {
        ready(&self.context, is_enough, Deadline::new(Some(limit))).await
    }

    /// Refuses new acquisitions.
    pub(crate) fn close(&self) {
        self.context.close();
    }

    /// Waits until all releases are delivered, or until the keys that these releases delete have
    /// expired.
    pub(crate) async fn delivered(&self) {
        let timers = &self.context.timers;
        self.context.pending_releases.delivered(timers).await;
    }
}

/// Ends the timers when it is dropped.
struct TimersEnd(Option<watch::Sender<()>>);

impl Drop for TimersEnd {
    /// Wakes all that sleep. A panic may be unwinding the task already, and their wakers are code
    /// of the program.
    fn drop(&mut self) {
        shielded(|| drop(self.0.take()));
    }
}

/// Ends the supervisors if the renewer panics. It calls code of the program, which may panic.
/// Without supervisors, the coordinator is closed.
struct EndOnPanic(AbortHandle);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.abort();
        }
    }
}

/// Makes one attempt at several mutexes at once.
pub(crate) async fn try_acquire_all(parts: &[Part]) -> Result<Vec<Level>, AcquireError> {
    let call = pin!(several::try_acquire_all(parts));
    let acquired = observed_all(parts, call).await;
    acquired.inspect(|levels| hold_all(levels, parts))
}

/// Waits until several mutexes are acquired, as [`acquire`](Engine::acquire) does for one lock.
pub(crate) async fn acquire_all(
    parts: &[Part],
    limit: Option<Duration>,
) -> Result<Vec<Level>, AcquireError> {
    let first = parts.first();
    let _waiter = first.map(|part| part.context.observer.count_waiter(&part.request.lock_id));
    let call = pin!(several::acquire_all(parts, limit));
    let acquired = observed_all(parts, call).await;
    acquired.inspect(|levels| hold_all(levels, parts))
}

/// Begins the holds of locks that were acquired together.
fn hold_all(levels: &[Level], parts: &[Part]) {
    for (level, part) in levels.iter().zip(parts) {
        level.claim.hold(&part.request);
    }
}

/// Returns a random UUID from the random `bytes`.
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40; // version 4
    bytes[8] = bytes[8] & 0x3f | 0x80; // the variant of RFC 9562
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}"); // writing to a string never fails
    }
    text
}
