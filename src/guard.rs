//! A lock that is held.

use std::{
    fmt,
    time::{Duration, Instant},
};

use crate::{
    core::{
        lock_state::{LockState, LostReason},
        round::Outcome,
        votes::Votes,
    },
    driver::claim::Level,
    error::{ExtendError, LostError, ReleaseError},
};

/// A lock that a majority of masters holds for this guard, until
/// [`valid_until`](Self::valid_until).
///
/// As long as the guard lives, the lock is renewed whenever two thirds of its TTL are left, up to
/// the limit of [`Lock::renewal`](crate::Lock::renewal). [`lost`](Self::lost) resolves if the lock
/// could not be renewed.
///
/// Bind the guard to a name: `let guard = ..` or `let _guard = ..` holds the lock to the end of the
/// scope. `let _ = ..` and `if lock.try_acquire().await.is_ok()` drop the guard, and release the
/// lock, before the work begins.
///
/// Dropping the guard posts a release to all masters, inside or outside a runtime, without blocking
/// and without spawning a task. To know the result, call [`release`](Self::release). To be sure
/// that the release has arrived, wait for [`Coordinator::close`](crate::Coordinator::close).
///
/// # Guarantees
///
/// While this guard [is valid](Self::is_valid), no other guard of this name is valid in any
/// process, except for guards of the same [owner](crate::Owner).
/// [`docs::guarantees`](crate::docs::guarantees) has the conditions.
///
/// The guards that an owner has of one reentrant or fair lock are levels of that lock. They share
/// its validity, renewal and loss: calling a method on one of them affects all of them. The lock is
/// released when the last of them is dropped.
///
/// # Not guaranteed
///
/// A holder that is paused between checking the guard and acting acts late: validity is a statement
/// about now. If an action must never happen twice, check it where it happens, for example with a
/// [fencing token](Self::fencing_token).
#[must_use = "dropping a guard releases its lock: bind it, as in `let _guard = ..`, and not to `_`"]
#[clippy::has_significant_drop]
pub struct Guard {
    level: Level,
}

impl Guard {
    pub(crate) fn new(level: Level) -> Self {
        Self { level }
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        self.level.name()
    }

    /// Returns the fencing token of a [fenced](crate::Lock::fenced) lock. `None` if the lock is not
    /// fenced.
    ///
    /// The token is below 2^53, and larger than that of every earlier guard of this lock. It stays
    /// the same when the lock is extended, or acquired again by its owner.
    pub fn fencing_token(&self) -> Option<u64> {
        self.level.fencing_token()
    }

    /// Returns the number of rounds that it took to acquire the lock: 1, unless a fencing token
    /// took more than one. For a fair lock, the rounds that the waiter made from its position in
    /// the queues count as well. For the other kinds, earlier attempts of a waiter do not count.
    pub fn rounds(&self) -> u32 {
        self.level.rounds()
    }

    /// Returns the number of guards that the owner has of this lock, including those that it is
    /// just acquiring. It is 1 for a mutex, and is counted in this process.
    pub fn depth(&self) -> u32 {
        self.level.depth()
    }

    /// Returns the length of the validity when the lock was won or last extended: the TTL minus the
    /// duration of the round minus the drift allowance.
    pub fn validity(&self) -> Duration {
        self.level.validity()
    }

    /// Returns when the validity ends, on the clock of [`Instant`].
    ///
    /// While the lock is valid, this is now plus [`remaining`](Self::remaining). Time during which
    /// the machine was suspended counts as time that has passed, and so does a forward step of its
    /// wall clock: both move this instant earlier. When the validity is over, this instant is in
    /// the past, but not before the lock was asked for.
    pub fn valid_until(&self) -> Instant {
        self.level.valid_until()
    }

    /// Returns the rest of the validity, which is zero when the validity is over.
    pub fn remaining(&self) -> Duration {
        self.level.remaining()
    }

    /// Returns whether this guard still holds the lock. Once this is `false`, it stays `false`.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns the state of the lock: held, in doubt, or lost with the reason.
    pub fn state(&self) -> LockState {
        self.level.state()
    }

    /// Checks that this guard still holds the lock.
    ///
    /// # Errors
    ///
    /// [`LostError`], with the reason, if the lock is lost.
    pub fn ensure_held(&self) -> Result<(), LostError> {
        match self.state() {
            LockState::Held | LockState::InDoubt => Ok(()),
            LockState::Lost(reason) => Err(self.lost_error(reason)),
        }
    }

    /// Waits until the lock is lost. Use it in a `select!` with the work.
    ///
    /// A lock is lost when its validity ends, which a timer detects without any master. It is lost
    /// earlier if a renewal or an extension hears from a majority of masters that the guard does
    /// not hold the lock. Masters do not report this by themselves, so such a loss is noticed with
    /// the next renewal. That comes when two thirds of the TTL are left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the lock.
    pub async fn lost(&self) -> LostError {
        let reason = self.level.lost().await;
        self.lost_error(reason)
    }

    /// Stops the renewal, so that the lock ends with its present validity unless it is
    /// [extended](Self::extend).
    ///
    /// This applies to all guards that the owner has of this lock, until the owner acquires the
    /// lock again.
    pub fn stop_renewing(&self) {
        self.level.stop_renewing();
    }

    fn lost_error(&self, reason: LostReason) -> LostError {
        LostError {
            name: self.level.name().clone(),
            reason,
            votes: self.votes(),
        }
    }

    /// Returns what each master answered in the round that won the lock, or in the last extension
    /// or renewal. Masters that were slower than the majority may not have answered yet. Their
    /// votes show here as soon as they answer.
    pub fn votes(&self) -> Votes {
        self.level.votes(&self.level.newest_round())
    }

    /// Waits until every master has answered or timed out, for at most the node timeout, and
    /// returns the [votes](Self::votes).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the lock.
    pub async fn settled(&self) -> Votes {
        self.level.newest_round().settled().await;
        self.votes()
    }

    /// Makes the lock valid for `ttl` from now, minus the round trip and the drift allowance.
    ///
    /// An extension never shortens the lock: a `ttl` that ends before the present validity changes
    /// nothing. An extension counts only if a majority confirms while the guard is still valid.
    /// Masters that lost the key, for example by a restart, get it back after a majority has
    /// confirmed, and count as granted in [`votes`](Self::votes) from then on.
    ///
    /// The lock is still renewed, with its own TTL, once two thirds of that TTL are left. The limit
    /// of its renewal does not start again.
    ///
    /// # Errors
    ///
    /// After every error except `Lost` and `Expired` the guard is as valid as before. No key was
    /// created, deleted or shortened. Masters that confirmed keep the key for the new TTL, which
    /// does not make the guard valid for longer.
    ///
    /// - [`NoQuorum`](ExtendError::NoQuorum): too few masters confirmed. Try again after a pause:
    ///   masters that are known to be down fail in microseconds.
    /// - [`Lost`](ExtendError::Lost): a majority says that the guard does not hold the lock,
    ///   whatever the clock says. Stop the work.
    /// - [`Expired`](ExtendError::Expired): the validity has ended. Stop the work.
    /// - [`TooSlow`](ExtendError::TooSlow): a majority confirmed too late. Stop the work if the
    ///   guard [is not valid](Self::is_valid).
    /// - [`Config`](ExtendError::Config): `ttl` cannot be used. Nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the extension, which counts if a majority confirms.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let guard = locks.mutex("orders/42").ttl(Duration::from_secs(5)).acquire().await?;
    /// guard.extend(Duration::from_secs(60)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(58));
    /// # Ok(()) }
    /// ```
    pub async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        let extended = self.level.extend(ttl).await;
        extended.map_err(|error| ExtendError::from_driver(error, &self.level))
    }

    /// Releases the lock on all masters, and waits until a majority has confirmed.
    ///
    /// A lock that was gone already counts as released. To find out whether the lock was held to
    /// the end of the work, call [`ensure_held`](Self::ensure_held) first. If the owner has other
    /// guards of this lock, this releases one level, and the lock stays held.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`](ReleaseError::NoQuorum): fewer than a majority confirmed within the node
    /// timeout. The other masters get the release as soon as they can be reached, until the TTL has
    /// passed. If only one level was released, they learn of it with the next extension or release.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the release.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let release = self.level.release();
        match release.decided().await {
            Outcome::Won => Ok(()),
            Outcome::Lost | Outcome::Pending | Outcome::TooLate => {
                // The error should have every vote. Masters that are down have failed already.
                release.settled().await;
                Err(ReleaseError::NoQuorum {
                    name: self.level.name().clone(),
                    votes: self.level.votes(&release),
                })
            }
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name())
            .field("remaining", &self.remaining())
            .field("votes", &self.votes())
            .finish()
    }
}
