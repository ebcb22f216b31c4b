//! A named lock, to be acquired.

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

/// A named lock on all masters of a [`Coordinator`](crate::Coordinator), of one [kind](crate::Kind). Cheap to
/// make and to clone; holds nothing until it is acquired.
///
/// A reentrant or fair lock that its [owner](Owner) holds already is acquired again by one round, like an
/// [extension](Guard::extend). When that fails, its other guards are as valid as they were.
///
/// # Cancel safety
///
/// All ways to acquire are alike in what a dropped future leaves: nothing. Whatever was sent by then is
/// followed by a release on all masters, which is posted when the future is dropped; a master that cannot
/// be reached is owed it until the TTL has passed.
///
/// # Futures that are not polled
///
/// Poll a future of this type to its end, or drop it. One that is neither, such as the loser of a
/// `select!` on `&mut future`, keeps its place:
///
/// - The waiters for one name in one coordinator take turns. One that has not been polled for about
///   2 s longer than it meant to sleep is passed over, and the next one goes on.
/// - Tasks of one [owner](Owner) make their attempts one after the other. While an unpolled future
///   is in the middle of an attempt, [`try_acquire`](Self::try_acquire) and
///   [`acquire_within`](Self::acquire_within) of the same owner and name return in time, with
///   [`OwnerBusy`](AcquireError::OwnerBusy), and [`acquire`](Self::acquire) waits.
/// - An attempt that was under way may have won. Then the lock is held, and not renewed, until its
///   TTL has passed.
///
/// In a loop around `select!`, make the future before the loop and poll it in every round, or drop
/// it.
#[derive(Clone)]
#[must_use = "a lock is not held until it is acquired"]
pub struct Lock {
    engine: Arc<Engine>,
    resource: Result<Resource, ConfigError>,
    ttl: Result<Ttl, ConfigError>,
    /// Of a mutex there is none.
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

    /// Sets how long the lock is renewed while its guard lives. An owner that acquires the lock again
    /// gets the longer of the two limits, counted from that round.
    ///
    /// Replaces the coordinator's [setting](crate::Builder::renewal) for this lock.
    pub fn renewal(self, renewal: Renewal) -> Self {
        Self { renewal, ..self }
    }

    /// Has every guard come with a [fencing token](Guard::fencing_token): a number that is larger than that of
    /// every guard of this lock before it. Whatever the holder writes to takes it along, and refuses a
    /// smaller one than it has seen: see [`Fence`](crate::Fence). That stops a holder that acts late, which no lock
    /// can.
    ///
    /// Takes one round as without, as long as this process' clock is within a second of the masters'; else a second
    /// one, and once a third. A mutex then costs the masters a script in place of a `SET`. All who use the name must ask
    /// for it.
    pub fn fenced(self) -> Self {
        Self {
            is_fenced: true,
            ..self
        }
    }

    /// Asks all masters once. Takes one round trip to the slowest of the fastest majority; at most
    /// the node timeout, and as long again to say why not; twice that while a master does not keep
    /// up with what this coordinator sends it. The first attempt of a coordinator also waits for
    /// its first connections, for the connect timeout at most. Waits before that while another task
    /// of the same owner makes an attempt, for two node timeouts at most.
    ///
    /// Whoever calls it in a loop pauses in between (10 to 200 ms), as masters that are known to be down fail in
    /// microseconds; [`acquire`](Self::acquire) and [`acquire_within`](Self::acquire_within) do.
    ///
    /// # Errors
    ///
    /// [`Contended`](AcquireError::Contended) when another holds it or the vote was split,
    /// [`NoQuorum`](AcquireError::NoQuorum) when too many masters failed,
    /// [`Quarantined`](AcquireError::Quarantined) when too many have no vote for a while, as they
    /// may have forgotten locks, [`TooSlow`](AcquireError::TooSlow) when no validity was left,
    /// [`OtherKind`](AcquireError::OtherKind) when the name is held as another kind of lock, which
    /// is found only while it is held, [`OwnerBusy`](AcquireError::OwnerBusy) when another task of
    /// the same owner has been in the middle of an attempt for two node timeouts.
    /// [`Config`](AcquireError::Config) and [`Closed`](AcquireError::Closed) before anything is
    /// sent.
    ///
    /// # Cancel safety
    ///
    /// Leaves nothing: see [`Lock`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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

    /// Waits for the lock until `limit` is over, and tries a last time then.
    ///
    /// See [`acquire`](Self::acquire) for how it waits. Returns about four node timeouts after
    /// `limit` at the latest: an attempt that is under way when the time is over, and the last one,
    /// may take two each. A fenced lock may take two more, first connections the connect timeout,
    /// and all of it twice as long while a master does not keep up. Tasks of one owner make their
    /// attempts one after the other. One whose turn has not come two node timeouts after `limit`
    /// makes no last attempt.
    ///
    /// # Errors
    ///
    /// [`Deadline`](AcquireError::Deadline), with how the last attempt failed.
    /// [`Config`](AcquireError::Config), [`OtherKind`](AcquireError::OtherKind) and
    /// [`Closed`](AcquireError::Closed) at once.
    ///
    /// # Cancel safety
    ///
    /// Leaves nothing, and gives up the place in the line: see [`Lock`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<Guard, AcquireError> {
        self.acquire_until(Some(limit)).await
    }

    /// Waits until the lock is held; also while too few masters are up, or too many have no vote for a while.
    ///
    /// Waiters of one coordinator are served in the order in which they came, and one of them at a
    /// time contends on the masters. It tries when it is told of a release, when the TTLs on a
    /// majority of masters have passed, and about once a second
    /// ([`poll_interval`](crate::Builder::poll_interval)), as not every release is told of.
    ///
    /// Waiters of a fair lock stand in a queue on every master, and are served in the order in which they came,
    /// whatever their process. They ask when the masters call them, and about once a second to keep their place.
    ///
    /// Tasks of one [owner](Owner) wait for one another's attempts, and not for one another's guards: when one of
    /// them gets the lock, all have it.
    ///
    /// # Errors
    ///
    /// [`Config`](AcquireError::Config), [`OtherKind`](AcquireError::OtherKind) and
    /// [`Closed`](AcquireError::Closed), at once.
    ///
    /// # Cancel safety
    ///
    /// Leaves nothing, and gives up the place in the line: see [`Lock`].
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

    /// Acquires the lock, runs `body` under it and releases it. When the lock is lost, `body` is dropped
    /// where it waits.
    ///
    /// # Errors
    ///
    /// [`Body`](RunError::Body) with the body's own error, also when the lock was lost by then;
    /// [`Lost`](RunError::Lost) when it was lost before the body had ended well;
    /// [`Acquire`](RunError::Acquire) as [`acquire`](Self::acquire) does.
    ///
    /// # Cancel safety
    ///
    /// Drops the body where it waits, and releases the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let sum = locks
    ///     .mutex("orders/42")
    ///     .run(async |lease| {
    ///         lease.ensure_held()?;
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
                // The body first: what it has to say goes before the loss.
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
        // Whatever becomes of it, the masters are owed it, and the body has done its work.
        let _ = guard.release().await;
        outcome
    }

    /// Asks all masters who holds the lock, how often and for how long still, and who waits for a fair one.
    /// Changes nothing, and says nothing of who will hold it a moment later. Waits for all masters, for the node
    /// timeout at most. Says of any kind who holds it, whatever this lock's is; who waits only for a fair one.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`](InspectError::NoQuorum) when fewer than a majority answered within the node timeout.
    ///
    /// # Cancel safety
    ///
    /// Only looks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, Kind, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let owner = locks.owner();
    /// let lock = locks.reentrant("orders/42", &owner);
    /// let guard = lock.acquire().await?;
    /// let held = lock.inspect().await?.holder.expect("it is held");
    /// assert_eq!((held.kind, held.owner.as_deref()), (Some(Kind::Reentrant), Some(owner.id())));
    /// assert_eq!(held.depth, 1);
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

    /// Returns whether the lock is held: nobody else could acquire it now, as too few masters are
    /// free. This is also so while several hold a part of it, as rivals do for a moment, and
    /// Redisson's `RedissonRedLock` always. See [`inspect`](Self::inspect).
    ///
    /// # Errors
    ///
    /// As [`inspect`](Self::inspect).
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
