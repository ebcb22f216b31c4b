//! A named lock that can be acquired.

use std::{fmt, future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use crate::{
    core::{
        inspection::Inspection,
        lease::Ttl,
        name::{Kind, Resource},
        renewal::Renewal,
    },
    driver::{
        claim::{Level, LockRequest},
        denied::NotAcquired,
        engine::Engine,
    },
    error::{AcquireError, ConfigError, InspectError, RunError},
    guard::Guard,
    owner::Owner,
};

/// A named lock on all masters of a [`Coordinator`](crate::Coordinator), of one
/// [kind](crate::Kind).
///
/// A lock is cheap to make and to clone. It holds nothing until it is acquired.
///
/// If the [owner](Owner) of a reentrant or fair lock holds it already, acquiring it again takes one
/// round, like an [extension](Guard::extend). If that round fails, the owner's other guards are as
/// valid as they were.
///
/// # Cancel safety
///
/// Dropping the future of [`try_acquire`](Self::try_acquire),
/// [`acquire_within`](Self::acquire_within) or [`acquire`](Self::acquire) leaves nothing behind, at
/// any point. The drop posts a release to all masters for everything that was sent by then. A
/// master that cannot be reached is owed the release until the TTL has passed.
///
/// # Futures that are not polled
///
/// Poll a future of this type to its end, or drop it. A future that is neither polled nor dropped,
/// for example the loser of a `select!` on `&mut future`, keeps its turn for a while:
///
/// - Waiters for one name in one coordinator take turns. A waiter that has not been polled for
///   about 2 s longer than it meant to sleep is passed over, and the next one goes on.
/// - Tasks of one [owner](Owner) make their attempts one after the other. While an unpolled future
///   is in the middle of an attempt, [`try_acquire`](Self::try_acquire) and
///   [`acquire_within`](Self::acquire_within) of the same owner and name return in time, with
///   [`OwnerBusy`](AcquireError::OwnerBusy), and [`acquire`](Self::acquire) waits.
/// - An attempt that was under way may have won. Then the lock is held, but not renewed, until its
///   TTL has passed.
///
/// In a loop around `select!`, create the future before the loop and poll it in every iteration, or
/// drop it.
#[derive(Clone)]
#[must_use = "a lock is not held until it is acquired"]
pub struct Lock {
    engine: Arc<Engine>,
    resource: Result<Resource, ConfigError>,
    ttl: Result<Ttl, ConfigError>,
    /// `None` for a mutex.
    owner: Option<Owner>,
    is_fenced: bool,
    renewal: Renewal,
}

impl Lock {
    pub(crate) fn new(engine: Arc<Engine>, kind: Kind, name: &str, owner: Option<&Owner>) -> Self {
        let foreign = owner.filter(|owner| !engine.knows(&owner.0));
        Self {
            resource: match foreign {
                None => engine.config().key_template.resource(kind, name.into()),
                Some(owner) => Err(ConfigError::ForeignOwner {
                    owner: owner.id().to_owned(),
                }),
            },
            owner: owner.cloned(),
            is_fenced: false,
            ttl: Ok(engine.config().ttl),
            renewal: engine.config().renewal,
            engine,
        }
    }

    /// Sets how long the lock lives on the masters unless it is extended or released. A TTL that
    /// cannot be used is reported when the lock is acquired.
    ///
    /// Replaces the coordinator's [TTL](crate::Builder::ttl) for this lock.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self {
            ttl: self.engine.config().ttl(ttl),
            ..self
        }
    }

    /// Sets how long the lock is renewed while its guard lives. If an owner acquires the lock
    /// again, the limit counts from that round, and the later of the two ends applies.
    ///
    /// Replaces the coordinator's [setting](crate::Builder::renewal) for this lock.
    pub fn renewal(self, renewal: Renewal) -> Self {
        Self { renewal, ..self }
    }

    /// Makes every guard carry a [fencing token](Guard::fencing_token): a number that is larger
    /// than that of every earlier guard of this lock.
    ///
    /// The holder passes the token to whatever it writes to, which refuses a token that is smaller
    /// than the largest one it has seen: see [`Fence`](crate::Fence). This stops a holder that acts
    /// late, which no lock can do.
    ///
    /// A token costs no extra round as long as the clock of this process is within one second of
    /// the masters' clocks. Otherwise it costs a second round, and once a third. A fenced mutex
    /// costs the masters a script instead of a `SET`. All clients that use the name must ask for a
    /// token.
    pub fn fenced(self) -> Self {
        Self {
            is_fenced: true,
            ..self
        }
    }

    /// Makes one attempt to acquire the lock, without waiting for other holders.
    ///
    /// To try in a loop, pause between attempts (for 10 to 200 ms): masters that are known to be
    /// down fail in microseconds. [`acquire`](Self::acquire) and
    /// [`acquire_within`](Self::acquire_within) do so.
    ///
    /// # Duration
    ///
    /// An attempt takes one round trip to the slowest master of the fastest majority, and at most
    /// one node timeout. After a failure it takes at most one more node timeout to find out the
    /// reason. Both may take twice as long while a master does not keep up with what this
    /// coordinator sends. In addition, the first attempt of a coordinator waits for its first
    /// connections, for at most the connect timeout. If another task of the same owner is making an
    /// attempt, this one first waits for it, for at most two node timeouts.
    ///
    /// # Errors
    ///
    /// - [`Contended`](AcquireError::Contended): another holder has the lock, other waiters of a
    ///   fair lock come first, or the vote was split.
    /// - [`NoQuorum`](AcquireError::NoQuorum): too many masters failed.
    /// - [`Quarantined`](AcquireError::Quarantined): too many masters have no vote for a while,
    ///   because they may have forgotten locks.
    /// - [`TooSlow`](AcquireError::TooSlow): a majority granted, but no validity was left.
    /// - [`OtherKind`](AcquireError::OtherKind): the name is held as another kind of lock. This is
    ///   detected only while it is held.
    /// - [`OwnerBusy`](AcquireError::OwnerBusy): another task of the same owner has been in the
    ///   middle of an attempt for two node timeouts.
    /// - [`Config`](AcquireError::Config) and [`Closed`](AcquireError::Closed): nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases whatever the attempt has acquired: see
    /// [`Lock`](Self#cancel-safety).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{AcquireError, Contention, Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let lock = locks.mutex("orders/42");
    /// let guard = lock.try_acquire().await?;
    /// let refused = lock.try_acquire().await.unwrap_err();
    /// assert!(matches!(
    ///     refused,
    ///     AcquireError::Contended { reason: Contention::Held { remaining: Some(_) }, .. }
    /// ));
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Guard, AcquireError> {
        let request = self.request()?;
        let acquired = self.engine.try_acquire(&request).await;
        self.guard(acquired, &request)
    }

    /// Waits for the lock. If it is not acquired when `limit` has passed, makes one last attempt.
    ///
    /// See [`acquire`](Self::acquire) for how it waits.
    ///
    /// # Duration
    ///
    /// It returns at the latest about four node timeouts after `limit`: the attempt that is under
    /// way when the time is up, and the last attempt, may take two node timeouts each. A fenced
    /// lock may take two more, and first connections may take the connect timeout. All of this may
    /// take twice as long while a master does not keep up.
    ///
    /// Tasks of one owner make their attempts one after the other. A task whose turn has not come
    /// two node timeouts after `limit` makes no last attempt.
    ///
    /// # Errors
    ///
    /// - [`Deadline`](AcquireError::Deadline), with the error of the last attempt.
    /// - [`Config`](AcquireError::Config), [`OtherKind`](AcquireError::OtherKind) and
    ///   [`Closed`](AcquireError::Closed), without waiting for `limit`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases whatever the attempt has acquired, and removes the waiter from
    /// the wait queue of this coordinator and from a fair lock's queues on the masters. A new call
    /// starts at the end. See [`Lock`](Self#cancel-safety).
    pub async fn acquire_within(&self, limit: Duration) -> Result<Guard, AcquireError> {
        self.acquire_until(Some(limit)).await
    }

    /// Waits until the lock is acquired, also while too few masters are up or too many are
    /// quarantined.
    ///
    /// Waiters of one coordinator are served in the order in which they came, and one of them at a
    /// time contends on the masters. That waiter makes an attempt when a message reports a release,
    /// when the TTLs on a majority of masters have passed, and about once a second
    /// ([`poll_interval`](crate::Builder::poll_interval)), because not every release is reported.
    ///
    /// Waiters of a fair lock are in a queue on every master, and are served in the order in which
    /// they came across all processes. A waiter makes an attempt when the masters call it, and
    /// about once a second to keep its position.
    ///
    /// Tasks of one [owner](Owner) wait for each other's attempts, but not for each other's guards:
    /// when one of them gets the lock, all of them have it.
    ///
    /// # Errors
    ///
    /// [`Config`](AcquireError::Config), [`OtherKind`](AcquireError::OtherKind) and
    /// [`Closed`](AcquireError::Closed). Any other failure is followed by another attempt.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases whatever the attempt has acquired, and removes the waiter from
    /// the wait queue of this coordinator and from a fair lock's queues on the masters. A new call
    /// starts at the end. See [`Lock`](Self#cancel-safety).
    pub async fn acquire(&self) -> Result<Guard, AcquireError> {
        self.acquire_until(None).await
    }

    async fn acquire_until(&self, limit: Option<Duration>) -> Result<Guard, AcquireError> {
        let request = self.request()?;
        let acquired = self.engine.acquire(&request, limit).await;
        self.guard(acquired, &request)
    }

    fn guard(
        &self,
        acquired: Result<Level, NotAcquired>,
        request: &LockRequest,
    ) -> Result<Guard, AcquireError> {
        let masters = self.engine.masters();
        let level = acquired.map_err(|error| AcquireError::from_driver(error, request, masters))?;
        level.start_renewing(self.renewal);
        Ok(Guard::new(level))
    }

    /// Acquires the lock as [`acquire`](Self::acquire) does, runs `body`, and releases the lock. If
    /// the lock is lost, `body` is dropped where it waits.
    ///
    /// # Errors
    ///
    /// - [`Acquire`](RunError::Acquire): the lock was not acquired, see [`acquire`](Self::acquire).
    /// - [`Body`](RunError::Body): the body returned this error, even if the lock was lost by then.
    /// - [`Lost`](RunError::Lost): the lock was lost before the body had returned a value.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body where it waits, and releases the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let sum = locks
    ///     .mutex("orders/42")
    ///     .run(async |guard| {
    ///         guard.ensure_held()?;
    ///         Ok::<_, Box<dyn std::error::Error + Send + Sync>>(40 + 2)
    ///     })
    ///     .await?;
    /// assert_eq!(sum, 42);
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E>(
        &self,
        body: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        let guard = self.acquire().await?;
        let outcome = {
            let mut body = pin!(body(&guard));
            let mut lost = pin!(guard.lost());
            poll_fn(|cx| {
                // The body is polled first, because its result takes precedence over the loss.
                if let Poll::Ready(done) = body.as_mut().poll(cx) {
                    return Poll::Ready(done.map_err(RunError::Body));
                }
                lost.as_mut().poll(cx).map(|lost| Err(RunError::Lost(lost)))
            })
            .await
        };
        if outcome.is_ok() {
            guard.ensure_held()?;
        }
        // A release that is not confirmed is owed to the masters. The body has done its work, so
        // its result counts.
        let _ = guard.release().await;
        outcome
    }

    /// Asks all masters who holds the lock, how many times and for how long, and who waits for it.
    ///
    /// Changes nothing on the masters. The answer may be out of date when it arrives. The holder is
    /// reported whatever the kind of this lock is, the queue only if it is a fair lock. Waits for
    /// all masters, for at most the node timeout.
    ///
    /// # Errors
    ///
    /// - [`NoQuorum`](InspectError::NoQuorum): fewer than a majority answered in time.
    /// - [`Config`](InspectError::Config): the name cannot be used. Nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the masters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, Kind, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let owner = locks.owner();
    /// let lock = locks.reentrant("orders/42", &owner);
    /// let guard = lock.acquire().await?;
    /// let holder = lock.inspect().await?.holder.expect("it is held");
    /// assert_eq!(holder.kind, Some(Kind::Reentrant));
    /// assert_eq!(holder.owner.as_deref(), Some(owner.id()));
    /// assert_eq!(holder.depth, 1);
    ///
    /// guard.release().await?;
    /// assert!(!lock.is_held().await?);
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self) -> Result<Inspection, InspectError> {
        let resource = self.resource.as_ref().map_err(Clone::clone)?;
        let inspected = self.engine.inspect(resource).await;
        let masters = self.engine.masters();
        inspected.map_err(|error| InspectError::from_driver(&error, resource, masters))
    }

    /// Returns whether the lock is held: no other client could acquire it now, because too few
    /// masters are free.
    ///
    /// This is also the case while several owners hold the lock on different masters. Clients that
    /// contend do so for a moment. A `RedissonRedLock` always does so, because it has another owner
    /// on every master. See [`inspect`](Self::inspect).
    ///
    /// # Errors
    ///
    /// See [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the masters.
    pub async fn is_held(&self) -> Result<bool, InspectError> {
        Ok(self.inspect().await?.is_held())
    }

    fn request(&self) -> Result<LockRequest, ConfigError> {
        let resource = self.resource.clone()?;
        Ok(LockRequest {
            counter: self.is_fenced.then(|| resource.counter()),
            resource,
            ttl: self.ttl.clone()?,
            owner: self.owner.as_ref().map(|owner| owner.0.clone()),
        })
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("resource", &self.resource)
            .field("ttl", &self.ttl)
            .field("owner", &self.owner)
            .field("is_fenced", &self.is_fenced)
            .field("renewal", &self.renewal)
            .finish_non_exhaustive()
    }
}
