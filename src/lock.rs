//! A named lock, to be acquired.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    core::{lease::Ttl, name::Resource},
    engine::Engine,
    error::{AcquireError, ConfigError},
    guard::Guard,
};

/// A named lock on all masters of a [`Coordinator`](crate::Coordinator). Cheap to make and to clone;
/// holds nothing until it is acquired.
///
/// # Cancel safety
///
/// All ways to acquire are alike in what a dropped future leaves: nothing. Whatever was sent by then is
/// followed by a release on all masters, which is posted when the future is dropped; a master that cannot
/// be reached is owed it until the TTL has passed.
#[derive(Clone)]
#[must_use = "a lock is not held until it is acquired"]
pub struct Lock {
    engine: Arc<Engine>,
    resource: Result<Resource, ConfigError>,
    ttl: Result<Ttl, ConfigError>,
}

impl Lock {
    pub(crate) fn new(engine: Arc<Engine>, name: Arc<str>) -> Self {
        Self {
            resource: engine.config().key_template.resource(name),
            ttl: Ok(engine.config().ttl),
            engine,
        }
    }

    /// How long the lock lives if nobody extends or releases it, instead of the coordinator's
    /// [ttl](crate::Builder::ttl). A TTL that cannot be used is reported when the lock is acquired.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self {
            ttl: self.engine.config().ttl(ttl),
            ..self
        }
    }

    /// Asks all masters once. Takes one round trip to the slowest of the fastest majority; at most the
    /// node timeout, and as long again to say why not.
    ///
    /// # Errors
    ///
    /// [`Contended`](AcquireError::Contended) when another holds it or the vote was split,
    /// [`NoQuorum`](AcquireError::NoQuorum) when too many masters failed,
    /// [`TooSlow`](AcquireError::TooSlow) when no validity was left.
    /// [`Config`](AcquireError::Config) and [`Closed`](AcquireError::Closed) before anything is sent.
    ///
    /// # Cancel safety
    ///
    /// Leaves nothing: see [`Lock`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{AcquireError, Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let lock = locks.mutex("orders/42");
    /// let guard = lock.try_acquire().await?;
    /// let refused = lock.try_acquire().await.unwrap_err();
    /// assert!(matches!(refused, AcquireError::Contended { remaining: Some(_), .. }));
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Guard, AcquireError> {
        let (resource, ttl) = self.checked()?;
        Ok(Guard::new(self.engine.try_acquire(resource, ttl).await?))
    }

    /// Tries until `patience` is over, with random delays, and a last time then.
    ///
    /// # Errors
    ///
    /// [`Deadline`](AcquireError::Deadline), with how the last attempt failed.
    /// [`Config`](AcquireError::Config) and [`Closed`](AcquireError::Closed) at once.
    ///
    /// # Cancel safety
    ///
    /// Leaves nothing: see [`Lock`].
    pub async fn acquire_within(&self, patience: Duration) -> Result<Guard, AcquireError> {
        self.acquire_until(Some(patience)).await
    }

    /// Tries until the lock is held, with random delays; also while too few masters are up.
    ///
    /// # Errors
    ///
    /// [`Config`](AcquireError::Config) and [`Closed`](AcquireError::Closed), at once.
    ///
    /// # Cancel safety
    ///
    /// Leaves nothing: see [`Lock`].
    pub async fn acquire(&self) -> Result<Guard, AcquireError> {
        self.acquire_until(None).await
    }

    async fn acquire_until(&self, patience: Option<Duration>) -> Result<Guard, AcquireError> {
        let (resource, ttl) = self.checked()?;
        let held = self.engine.acquire(resource, ttl, patience).await?;
        Ok(Guard::new(held))
    }

    fn checked(&self) -> Result<(&Resource, Ttl), ConfigError> {
        let resource = self.resource.as_ref().map_err(Clone::clone)?;
        Ok((resource, self.ttl.clone()?))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("resource", &self.resource)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}
