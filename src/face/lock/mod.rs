//! A named lock that can be acquired.

use std::{fmt, iter, marker::PhantomData, sync::Arc, time::Duration};

use super::guard::{AnyGuard, Guard, Key};
use crate::{
    core::{
        config_error::ConfigError,
        error::AcquireError,
        kind::{Access, LockKind},
        protocol::name::LockId,
        reason::Reason,
        time::lease::{Renewal, Ttl},
    },
    driver::{
        acquire,
        claim::{ask::LockRequest, owned_lock::LockOwner},
        context::Context,
    },
};

mod inspect;
mod settings;
mod several;
pub(crate) mod shared;

/// A named lock on all masters of a [`Coordinator`](crate::Coordinator), of one
/// [kind](crate::LockKind).
///
/// `G` is the type of its guards. Those of a mutex, a reentrant and a fair lock have the type
/// [`Guard`]. All other types deref to it and can be turned into it:
/// [`PermitGuard`](crate::PermitGuard), [`ReadGuard`](crate::ReadGuard),
/// [`WriteGuard`](crate::WriteGuard), [`MultiGuard`](crate::MultiGuard) of several names, and
/// [`FencedGuard`](crate::FencedGuard) of a [fenced](Self::fenced) lock. A function that takes
/// `&Guard` takes a reference to a variable of each of these types.
///
/// A lock is cheap to make and to clone. It holds nothing until it is acquired. Two acquisitions of
/// one `Lock` exclude each other, like those of two programs, unless an [owner](Self::owner) was
/// given.
///
/// If its owner holds the lock already, acquiring it again takes one round, like an
/// [extension](Guard::extend). If that round fails, the owner's other guards stay as valid as they
/// were.
///
/// # Names and TTLs that cannot be used
///
/// [`Coordinator::mutex`](crate::Coordinator::mutex), [`ttl`](Self::ttl) and the like return a
/// lock, and not a `Result`. Each call that would use a bad name or TTL fails with
/// [`Config`](Reason::Config) and sends nothing. Acquiring a lock can fail for other reasons,
/// too, so all errors of a lock come from one place.
///
/// # Cancel safety
///
/// These futures do not borrow the lock. The future of [`try_acquire`](Self::try_acquire),
/// [`acquire_within`](Self::acquire_within) or
/// [`acquire`](Self::acquire) may be dropped at any point. The drop posts a release of everything
/// that was sent by then. A master that cannot be reached gets the release later, if it can be
/// reached before the TTL has passed.
///
/// # Futures that are not polled
///
/// Poll every future of a `Lock` to its end, or drop it. A future that is kept and not polled holds
/// up other tasks for a while. This happens, for example, with `select!` on `&mut future` when
/// another branch completes first. The effects are:
///
/// - Waiters for one name in one coordinator take turns. If the waiter whose turn it is was not
///   polled when it should wake up, the next waiter takes the turn about 2 s later.
/// - Tasks of one [owner](Owner) make their attempts one after the other. While an unpolled future
///   is in the middle of an attempt, [`try_acquire`](Self::try_acquire) and
///   [`acquire_within`](Self::acquire_within) of the same owner and name wait only for a limited
///   time, and then report [`OwnerBusy`](Reason::OwnerBusy). [`acquire`](Self::acquire) goes
///   on waiting.
/// - An attempt of the unpolled future may win. Then the lock is held until its TTL has passed,
///   without a renewal.
///
/// In a loop with `select!`, create the future before the loop and poll it in every iteration. If
/// the loop does not poll the future, drop it.
#[must_use = "a lock is not held until it is acquired"]
pub struct Lock<G = Guard> {
    draft: Draft,
    guard: PhantomData<fn() -> G>,
}

/// What the calls of a lock ask for. The name and the TTL may be unusable.
#[derive(Clone)]
struct Draft {
    context: Arc<Context>,
    lock_id: Result<LockId, ConfigError>,
    /// The first mistake in anything but the name and the TTL.
    refused: Option<ConfigError>,
    /// The locks of the other names, if this lock has several names.
    others: Vec<(Arc<Context>, LockId)>,
    ttl: Result<Ttl, ConfigError>,
    /// `None` if each call has an owner of its own, and for a mutex, which has no owner.
    owner: Option<Owner>,
    access: Access,
    is_fenced: bool,
    renewal: Renewal,
    min_hold: Duration,
}

impl Lock {
    pub(crate) fn new(context: Arc<Context>, kind: LockKind, name: &str) -> Self {
        Self::of(Draft {
            lock_id: context.config.key_template.lock_id(kind, name.into()),
            refused: None,
            others: Vec::new(),
            owner: None,
            access: Access::Exclusive,
            is_fenced: false,
            ttl: Ok(context.config.ttl),
            renewal: context.config.renewal,
            min_hold: Duration::ZERO,
            context,
        })
    }
}

impl<G: AnyGuard> Lock<G> {
    /// Tries to acquire the lock now, without waiting for other holders.
    ///
    /// If you call this method in a loop, pause for 10 to 200 ms between attempts, because a
    /// request to a master that is known to be down fails in microseconds.
    /// [`acquire`](Self::acquire) and [`acquire_within`](Self::acquire_within) pause by themselves.
    ///
    /// # Duration
    ///
    /// An attempt takes one round trip to the slowest master of the fastest majority, and at most
    /// one response timeout. After a failure it takes at most one more response timeout to find out
    /// the reason. A fenced lock may take two more round trips, of at most one response timeout
    /// each. If the votes on a semaphore are split, a second attempt follows. Each of the two
    /// attempts may ask one master before the others. Together, the two attempts take at most six
    /// response timeouts, or ten if the semaphore is fenced. All these times may double while a
    /// master does not keep up with the commands of this coordinator.
    ///
    /// If another task of the same owner is making an attempt, this call first waits until that
    /// attempt ends, for at most three response timeouts, or five if the lock is fenced. Until
    /// every master has been dialled once, each of these times may be longer by at most the connect
    /// timeout.
    ///
    /// # Errors
    ///
    /// The [reason](AcquireError::reason) in the error says why. If another holder has the lock,
    /// other waiters come first, or the vote was split, [`is_busy`](AcquireError::is_busy) is true.
    ///
    /// [`OtherKind`](Reason::OtherKind) is detected only while the name is held. After a holder that
    /// shared the lock has died, this error may be reported for
    /// [longer](crate::docs::guarantees#one-name-one-kind).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases whatever the attempt has acquired: see
    /// [`Lock`](Self#cancel-safety).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster, Reason};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let lock = locks.mutex("orders/42");
    /// let guard = lock.try_acquire().await?;
    /// let refused = lock.try_acquire().await.unwrap_err();
    /// assert!(refused.is_busy());
    /// assert!(matches!(refused.reason(), Reason::Held { remaining: Some(_), .. }));
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub fn try_acquire(&self) -> impl Future<Output = Result<G, AcquireError>> + Send + use<G> {
        let requests = self.draft.requests();
        async { give(requests?.try_acquire().await?) }
    }

    /// Waits for the lock for `limit`, and then tries once more: it may return about four response
    /// timeouts after `limit`, or a little later, as said below.
    ///
    /// The wait is the same as in [`acquire`](Self::acquire).
    ///
    /// # Duration
    ///
    /// An attempt may be under way when `limit` has passed. That attempt and the last one may each
    /// take two response timeouts, or four if the lock is fenced. For a semaphore, each may take one
    /// response timeout more. So this method returns at most about four response timeouts after `limit`, or
    /// later if the lock is fenced or a semaphore. The first connections may take the connect
    /// timeout in addition. All these times may double while a master does not keep up with the
    /// commands of this coordinator. [Several names](crate::Coordinator::multi_mutex) may take one
    /// attempt more: if the last attempt at one name wins, the remaining names are tried once.
    ///
    /// Tasks of one owner make their attempts one after the other. If the turn of a task has not
    /// come three response timeouts after `limit`, the task makes no last attempt. For a fenced lock,
    /// that time is five response timeouts. Until every master has been dialled once, that time is
    /// longer by the connect timeout. If the turn comes just before the end of that time, the last
    /// attempt still begins.
    ///
    /// # Errors
    ///
    /// The [reason](AcquireError::reason) why the last attempt failed. After
    /// [`Closed`](Reason::Closed) and after a mistake, such as [`Config`](Reason::Config),
    /// [`Denied`](Reason::Denied) or [`OtherKind`](Reason::OtherKind), the call does not wait for
    /// `limit`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases whatever the attempt has acquired. The drop also removes the
    /// waiter from the wait queue of this coordinator, and from the lock's queues on the masters. A
    /// new call starts at the end of the queues. See [`Lock`](Self#cancel-safety).
    pub fn acquire_within(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<G, AcquireError>> + Send + use<G> {
        self.wait(Some(limit))
    }

    /// Waits until the lock is acquired. The wait goes on while too few masters are up or too many
    /// are quarantined.
    ///
    /// Waiters of one coordinator are served in the order in which they came. Only one of them at a
    /// time makes attempts on the masters. This waiter makes an attempt when masters report that
    /// the lock has changed, and when the TTLs on a majority of masters have passed. It also makes
    /// an attempt about once a second ([`poll_interval`](crate::Builder::poll_interval)).
    ///
    /// A lock with queues is a fair or a read-write lock, or a semaphore. Its waiters are in a
    /// queue on every master. They are served in the order in which they came, across all
    /// processes. A waiter makes an attempt when masters tell it that it is next, and about once a
    /// second to keep its position.
    ///
    /// Tasks of one [owner](Owner) wait for each other's attempts, but not for each other's guards.
    /// When one of these tasks gets the lock, the others acquire it, too.
    ///
    /// # Errors
    ///
    /// [`Closed`](Reason::Closed), and mistakes such as [`Config`](Reason::Config),
    /// [`Denied`](Reason::Denied) and [`OtherKind`](Reason::OtherKind). After any other failure, the
    /// wait goes on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases whatever the attempt has acquired. The drop also removes the
    /// waiter from the wait queue of this coordinator, and from the lock's queues on the masters. A
    /// new call starts at the end of the queues. See [`Lock`](Self#cancel-safety).
    pub fn acquire(&self) -> impl Future<Output = Result<G, AcquireError>> + Send + use<G> {
        self.wait(None)
    }

    fn wait(
        &self,
        limit: Option<Duration>,
    ) -> impl Future<Output = Result<G, AcquireError>> + Send + use<G> {
        let requests = self.draft.requests();
        async move { give(requests?.acquire(limit).await?) }
    }
}

impl<G> Lock<G> {
    /// Returns this lock as one whose guards have the type [`Guard`].
    #[doc(hidden)]
    pub fn plain(self) -> Lock {
        Lock::of(self.draft)
    }

    /// Returns this lock as one that is refused with `error`, unless it is refused already.
    pub(super) fn refused(mut self, error: ConfigError) -> Self {
        self.draft.refused.get_or_insert(error);
        self
    }

    fn of(draft: Draft) -> Self {
        Self {
            draft,
            guard: PhantomData,
        }
    }
}

impl<G> Clone for Lock<G> {
    fn clone(&self) -> Self {
        Self::of(self.draft.clone())
    }
}

impl Draft {
    fn requests(&self) -> Result<Requests, AcquireError> {
        let first = self.request().map_err(|reason| {
            let name = self.lock_id.as_ref().map(|lock_id| lock_id.name().clone());
            AcquireError::mistake(name.unwrap_or_default(), reason)
        })?;
        if self.others.is_empty() {
            return Ok(Requests::One(first));
        }
        let others = self.others.iter().map(|(context, lock_id)| LockRequest {
            context: context.clone(),
            lock_id: lock_id.clone(),
            ..first.clone()
        });
        Ok(Requests::All(
            iter::once(first.clone()).chain(others).collect(),
        ))
    }

    fn lock_id(&self) -> Result<&LockId, ConfigError> {
        let lock_id = self.lock_id.as_ref().map_err(Clone::clone)?;
        self.refused.clone().map_or(Ok(lock_id), Err)
    }

    fn request(&self) -> Result<LockRequest, Reason> {
        let lock_id = self.lock_id()?.clone();
        if self.min_hold > Ttl::MOST {
            let range = format!("at most {:?}", Ttl::MOST);
            return Err(ConfigError::time("minimum hold", self.min_hold, range).into());
        }
        Ok(LockRequest {
            context: self.context.clone(),
            owner: self.owner_of_call(lock_id.kind()),
            is_fenced: self.is_fenced,
            lock_id,
            ttl: self.ttl.clone()?,
            access: self.access,
            renewal: self.renewal,
            min_hold: self.min_hold,
        })
    }

    /// Returns the owner of a call: the one that was given, or a new one. `None` for a mutex.
    fn owner_of_call(&self, kind: LockKind) -> Option<Arc<LockOwner>> {
        let given = self.owner.as_ref().map(|owner| owner.0.clone());
        let new = || Arc::new(LockOwner::new(self.context.owners.new_id()));
        given.or_else(|| kind.has_owner().then(new))
    }
}

/// What a call asks for, one request for each name.
enum Requests {
    One(LockRequest),
    All(Vec<LockRequest>),
}

impl Requests {
    async fn try_acquire(&self) -> Result<Guard, AcquireError> {
        Ok(match self {
            Self::One(request) => Guard::new(acquire::try_acquire(request).await?, Vec::new()),
            Self::All(requests) => {
                Guard::of_all(acquire::several::try_acquire_all(requests).await?)
            }
        })
    }

    async fn acquire(&self, limit: Option<Duration>) -> Result<Guard, AcquireError> {
        Ok(match self {
            Self::One(request) => Guard::new(acquire::acquire(request, limit).await?, Vec::new()),
            Self::All(requests) => {
                Guard::of_all(acquire::several::acquire_all(requests, limit).await?)
            }
        })
    }
}

/// Returns `guard` as a guard of the lock's type.
fn give<G: AnyGuard>(guard: Guard) -> Result<G, AcquireError> {
    let not_fenced = |guard: Guard| AcquireError::mistake(guard.name().into(), Reason::NotFenced);
    G::from_guard(guard, Key(())).map_err(not_fenced)
}

impl<G> fmt::Debug for Lock<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let draft = &self.draft;
        let mut shown = f.debug_struct("Lock");
        match &draft.lock_id {
            Ok(lock_id) => shown
                .field("name", lock_id.name())
                .field("kind", &lock_id.kind()),
            Err(error) => shown.field("error", error),
        };
        match &draft.ttl {
            Ok(ttl) => shown.field("ttl", &ttl.duration()),
            Err(error) => shown.field("ttl", error),
        };
        shown
            .field("owner", &draft.owner)
            .field("access", &draft.access)
            .field("is_fenced", &draft.is_fenced)
            .field("renewal", &draft.renewal)
            .field("min_hold", &draft.min_hold)
            .finish_non_exhaustive()
    }
}

/// An identity that holds reentrant locks, and fair and read-write locks that were given this
/// [owner](Lock::owner). All tasks that have this handle or a clone of it share the identity, on
/// any thread.
///
/// [`Coordinator::new_owner`](crate::Coordinator::new_owner) makes an owner at little cost. Make one owner
/// for each task, not one for the whole service, because tasks that share an owner do not exclude
/// each other. A task may use its owner again and again.
///
/// An owner that holds a lock can acquire it again. All other owners must wait. This process counts
/// the acquisitions, so an owner works only with the coordinator that made it and with clones of
/// that coordinator, or with all coordinators of the [`Groups`](crate::Groups) that made it.
/// Dropping the owner releases no lock. Dropping the guards releases the locks.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use quorlock::{Coordinator, MemoryMaster};
/// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
/// let (mine, yours) = (locks.new_owner(), locks.new_owner());
/// let outer = locks.reentrant("orders/42", &mine).acquire().await?;
/// let inner = locks.reentrant("orders/42", &mine).acquire().await?;
/// assert!(locks.reentrant("orders/42", &yours).try_acquire().await.is_err());
/// drop(outer); // in any order: dropping the last guard releases the lock
/// assert!(inner.is_valid());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Owner(pub(crate) Arc<LockOwner>);

impl Owner {
    /// Returns the ID of this owner on the masters, in Redisson's format: the coordinator's UUID,
    /// `:` and a number. If the coordinator has a [client name](crate::Builder::client_name), `@`
    /// and this name follow.
    pub fn id(&self) -> &str {
        self.0.id()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
