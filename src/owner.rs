//! Who holds reentrant and fair locks.

use std::{
    collections::HashMap,
    fmt,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::{
    clock,
    core::{
        claim::{Claim, Ticket},
        name::Resource,
    },
    engine::first_of,
    hold::Hold,
    shield::shielded,
};

/// Who holds a reentrant or a fair lock: whoever has this handle or a clone of it, on any thread, in any task.
///
/// Made by [`Coordinator::owner`](crate::Coordinator::owner), cheaply: one for each job, not one for a service.
/// A lock that an owner holds can be acquired by it again, and by nobody else. How often it did is counted here, in this
/// process: an owner is for one coordinator and its clones.
///
/// Tasks that share an owner do not exclude each other. Dropping the handle gives nothing up: guards do.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use quorlock::{Coordinator, MemoryMaster};
/// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
/// let (mine, yours) = (locks.owner(), locks.owner());
/// let outer = locks.reentrant("orders/42", &mine).acquire().await?;
/// let inner = locks.reentrant("orders/42", &mine).acquire().await?;
/// assert!(locks.reentrant("orders/42", &yours).try_acquire().await.is_err());
/// drop(outer); // in any order: the last one gives the lock up
/// assert!(inner.is_valid());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Owner(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    /// How many attempts there have been, in all.
    attempts: AtomicU64,
    /// What is held or tried for.
    tenures: Mutex<HashMap<Resource, Weak<Tenure>>>,
}

impl Owner {
    /// Number `number` of the process that is called `process`.
    pub(crate) fn new(process: &str, number: u64) -> Self {
        Self(Arc::new(Inner {
            name: format!("{process}:{number}").into(),
            attempts: AtomicU64::new(0),
            tenures: Mutex::default(),
        }))
    }

    /// What the owner is called on the masters: a UUID for the coordinator, `:` and a number, as Redisson
    /// writes it.
    pub fn id(&self) -> &str {
        &self.0.name
    }

    /// A new attempt, with a number that is larger than that of any before; with a ticket, at a fair lock.
    pub(crate) fn claim(&self, ticket: Option<Ticket>) -> Claim {
        let owner = self.0.name.clone();
        let attempt = self.0.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        match ticket {
            None => Claim::Owner { owner, attempt },
            Some(ticket) => Claim::Ticket {
                owner,
                attempt,
                ticket,
            },
        }
    }

    /// What this owner has of `resource`.
    pub(crate) fn tenure(&self, resource: &Resource) -> Arc<Tenure> {
        let mut tenures = self.0.tenures.lock();
        if let Some(tenure) = tenures.get(resource).and_then(Weak::upgrade) {
            return tenure;
        }
        let tenure = Arc::new(Tenure {
            owner: self.clone(),
            resource: resource.clone(),
            gate: Semaphore::new(1),
            hold: Mutex::default(),
            is_won: Notify::new(),
        });
        tenures.insert(resource.clone(), Arc::downgrade(&tenure));
        tenure
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.0.name).finish()
    }
}

/// What one owner has of one lock: its attempts, one after the other, and what they won.
pub(crate) struct Tenure {
    owner: Owner,
    resource: Resource,
    /// Two attempts of one owner would take what they are granted from one another.
    gate: Semaphore,
    hold: Mutex<Weak<Hold>>,
    is_won: Notify,
}

impl Tenure {
    /// The turn to make an attempt, if it comes until `end`. To be kept until the attempt is won or
    /// what takes it back is posted. The task that has it may have stopped polling, so only an
    /// `end` makes this return.
    pub(crate) async fn turn(&self, end: Option<Instant>) -> Option<SemaphorePermit<'_>> {
        let turn = async { self.gate.acquire().await.ok() };
        let Some(end) = end else {
            return turn.await;
        };
        let mut mine = None;
        {
            let turn = pin!(async { mine = turn.await });
            first_of(turn, pin!(clock::sleep_until(end))).await;
        }
        mine
    }

    /// What the owner holds, if anything.
    pub(crate) fn held(&self) -> Option<Arc<Hold>> {
        let hold = self.hold.lock().upgrade();
        hold.filter(|hold| hold.can_be_entered())
    }

    pub(crate) fn won(&self, hold: &Arc<Hold>) {
        *self.hold.lock() = Arc::downgrade(hold);
        shielded(|| self.is_won.notify_waiters());
    }

    /// Waits until the owner holds the lock.
    pub(crate) async fn until_held(&self) {
        loop {
            let mut is_won = pin!(self.is_won.notified());
            is_won.as_mut().enable(); // first register, then look
            if self.held().is_some() {
                return;
            }
            is_won.await;
        }
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        let mut tenures = self.owner.0.tenures.lock();
        let is_gone = |tenure: &Weak<Self>| tenure.strong_count() == 0;
        if tenures.get(&self.resource).is_some_and(is_gone) {
            tenures.remove(&self.resource);
        }
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("owner", &self.owner)
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}
