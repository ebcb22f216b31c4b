//! Locks that outlive their process.

use std::{sync::Arc, time::Duration};

use futures::future::try_join_all;

use super::{coordinator::Coordinator, fence::FencingToken, groups::Groups, guard::Guard};
use crate::{
    core::{
        config_error::ConfigError,
        error::{AcquireError, ExtendError},
        protocol::detached::Detached,
        reason::Reason,
        vote::Slot,
    },
    driver::{
        claim::{ClaimHandle, Level},
        context::Context,
    },
};

/// The lock was not detached. Its guard holds it as before, perhaps with a longer TTL, and releases
/// it when this error is dropped.
#[derive(Debug, thiserror::Error)]
#[error("could not detach {:?}: {error}", .guard.name())]
#[non_exhaustive]
pub struct DetachError {
    /// The guard.
    pub guard: Guard,
    /// The reason:
    ///
    /// - [`Config`](ExtendError::Config) of a TTL that [cannot be used](ConfigError::OutOfRange),
    ///   such as one above [`max_ttl`](crate::Builder::max_ttl): repair the program or its settings.
    ///   Nothing was sent.
    /// - [`Config`](ExtendError::Config) that is [`Undetachable`](ConfigError::Undetachable): drop
    ///   the owner's other guards of this lock, or wait for the end of its
    ///   [minimum hold](crate::Lock::min_hold), and detach the guard again.
    /// - [`NoQuorum`](ExtendError::NoQuorum): detach the guard again after a pause, while it is
    ///   valid.
    /// - [`Lost`](ExtendError::Lost): stop the work, and drop the guard.
    pub error: ExtendError,
}

impl Guard {
    /// Extends the lock to `ttl`, ends this guard without a release, and returns what another
    /// process needs to [attach](Coordinator::attach) the lock. Until then, nothing renews the
    /// lock: it ends when `ttl` has passed, or with its present validity if that is longer. `ttl`
    /// may be at most the [longest TTL](crate::Builder::max_ttl), because masters that restart keep
    /// others away for that time only.
    ///
    /// Use this for work that one process begins and another one finishes, such as a job in a
    /// queue. A guard of another type, such as a fenced one, is turned into a `Guard` first:
    /// `Guard::from(guard)`. The lock keeps its [tokens](Detached::tokens).
    ///
    /// # Not guaranteed
    ///
    /// **Attach a lock once.** If two processes attach it, and one of them releases it, a third one
    /// may acquire it while the other guard is valid for up to a TTL, and these two have the same
    /// fencing token. So let the queue deliver a job to one worker at a time, or attach under a
    /// lock on the job, which must be held as long: `job.run(guard.run(work))` ends the work with
    /// the loss of either. [Abandon](Self::abandon_on_drop) the guard of a job that fails: otherwise,
    /// its drop would release the lock, perhaps while another process has attached it.
    ///
    /// Masters that restart without their data count as new to programs that start after that. If no
    /// other process runs meanwhile, such a program may get the lock, unless all programs use
    /// [`Strict`](crate::Quarantine::Strict).
    ///
    /// An [owner](crate::Owner) whose lock was detached cannot acquire that name again, for good:
    /// its attempt would take the detached lock over.
    ///
    /// # Errors
    ///
    /// The [`DetachError`] has the guard, which holds the lock as before, and the reason:
    /// [`Undetachable`](ConfigError::Undetachable) if the owner has other guards of this lock or
    /// its [minimum hold](crate::Lock::min_hold) is not over, or an error of
    /// [`extend`](Self::extend).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock, like dropping the guard.
    pub async fn detach(self, ttl: Duration) -> Result<Detached, DetachError> {
        match self.detached(ttl).await {
            Ok(detached) => Ok(detached),
            Err(error) => Err(DetachError { guard: self, error }),
        }
    }

    /// Lets the lock stay on the masters when this guard is dropped, until its TTL has passed. Only
    /// [`release`](Self::release) still releases it. If the lock was [detached](Self::detach) before,
    /// it can be attached again until then.
    ///
    /// Use this for the guard of an attached lock. If its job fails, panics or is dropped, or if the
    /// lock was lost, another process may attach the lock next, and a release would take it away.
    ///
    /// If the owner has other guards of this lock, or its [minimum hold](crate::Lock::min_hold) is
    /// not over, the guard is dropped as usual. Otherwise, its owner cannot acquire that name again,
    /// as after [`detach`](Self::detach).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// let message = guard.detach(Duration::from_secs(60)).await?;
    /// let guard = locks.attach(&message).await?.abandon_on_drop();
    /// drop(guard); // the job has failed
    /// locks.attach(&message).await?.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use = "a guard that is dropped holds nothing"]
    pub fn abandon_on_drop(self) -> Self {
        self.levels().for_each(Level::abandon_on_drop);
        self
    }
}

impl Detached {
    /// Returns the TTL for which the locks were detached.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns each name with its fencing token. Returns nothing if the locks are not fenced.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, FencingToken)> {
        self.locks.iter().filter_map(|lock| {
            let token = lock.holding.candidate?;
            Some((&*lock.name, FencingToken::from(token)))
        })
    }

    /// Returns the slot of a permit: see [`PermitGuard::slot`](crate::PermitGuard::slot). `None`
    /// for any other lock.
    pub fn slot(&self) -> Option<usize> {
        self.locks.first()?.holding.slot.map(Slot::shown)
    }
}

impl Coordinator {
    /// Attaches a lock that was [detached](Guard::detach), perhaps by another process: all masters
    /// are asked to extend it. Returns a guard, which renews the lock with the TTL for which it was
    /// detached. The limit of renewal is that of [`Builder::renewal`](crate::Builder::renewal) in
    /// this program, not that of [`Lock::renewal`](crate::Lock::renewal) in the other. The lock is
    /// renewed, and a loss such as a break noticed, once in a third of that TTL. To notice sooner,
    /// call [`Guard::extend`] with a short TTL every few seconds: it shortens nothing.
    ///
    /// The masters go on to show the lock under the client name of the program that acquired it, which
    /// may have ended.
    ///
    /// An extension never creates a key. So if a majority confirms, the lock was held all along,
    /// and no one else has held it since it was detached.
    ///
    /// # Errors
    ///
    /// - [`Gone`](Reason::Gone): a majority of masters do not have the lock any more, because it
    ///   has expired, or was released, broken or forgotten. Of several names, one is gone, and the
    ///   others stay until the TTL has passed, or until
    ///   [`break_held`](Coordinator::break_held).
    /// - [`Config`](Reason::Config): the lock belongs to [other masters, another key template or
    ///   another database](ConfigError::ForeignDetached), or its TTL is above
    ///   [`max_ttl`](crate::Builder::max_ttl). Nothing was sent.
    /// - [`NoQuorum`](Reason::NoQuorum), and all other reasons that
    ///   [are unavailable](AcquireError::is_unavailable): try again. The call has released nothing.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases nothing. The lock can be attached again. It ends when the TTL
    /// has passed.
    pub async fn attach(&self, detached: &Detached) -> Result<Guard, AcquireError> {
        attach(|_| self.context.clone(), detached).await
    }
}

impl Groups {
    /// Attaches a lock that was detached: see [`Coordinator::attach`].
    ///
    /// # Errors
    ///
    /// See [`Coordinator::attach`].
    pub async fn attach(&self, detached: &Detached) -> Result<Guard, AcquireError> {
        attach(|name| self.of(name).context.clone(), detached).await
    }
}

/// Attaches all locks, or none: a claim without a guard releases nothing when it is dropped.
async fn attach(
    context_of: impl Fn(&str) -> Arc<Context>,
    detached: &Detached,
) -> Result<Guard, AcquireError> {
    let claims = detached.locks.iter().map(|lock| async {
        let context = context_of(&lock.name);
        let mistake =
            |error: ConfigError| AcquireError::mistake(lock.name.clone(), Reason::Config(error));
        let config = &context.config;
        if lock.place != config.place {
            let name = lock.name.to_string();
            return Err(mistake(ConfigError::ForeignDetached { name }));
        }
        let lock_id = config.key_template.lock_id(lock.kind, lock.name.clone());
        let lock_id = lock_id.map_err(mistake)?.with_permits(lock.permits);
        let ttl = config.ttl(detached.ttl).map_err(mistake)?;
        let (access, renewal) = (lock.holding.access, context.config.renewal);
        let claim = ClaimHandle::attach(context, lock_id, ttl, lock.holding.clone()).await?;
        Ok((claim, access, renewal))
    });
    let claims = try_join_all(claims).await?.into_iter();
    let levels = claims.map(|(claim, access, renewal)| claim.into_level(access, renewal));
    Ok(Guard::of_all(levels.collect()))
}
