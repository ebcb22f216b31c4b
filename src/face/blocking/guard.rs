//! A lock that is held, for code without async.

use std::{
    fmt,
    time::{Duration, Instant},
};

use super::background::BackgroundThread;
use crate::{
    core::{protocol::access::Access, view::lock_state::LockState, vote::votes::Votes},
    face::{
        error::{ConfigError, ExtendError, LostError, ReleaseError},
        fence::FencingToken,
        guard,
    },
};

/// A lock that is held, as an async [`Guard`](crate::Guard).
///
/// The same holds for its guarantees and its limits. Dropping the guard posts a release and does
/// not block. It works on any thread, also in async code. The end of the program does not wait for
/// that release: see [the background thread](super#the-background-thread).
#[must_use = "dropping a guard releases its lock: bind it, as in `let _guard = ..`, and not to `_`"]
#[clippy::has_significant_drop]
pub struct Guard {
    guard: guard::Guard,
    thread: BackgroundThread,
}

impl Guard {
    pub(super) fn new(guard: guard::Guard, thread: BackgroundThread) -> Self {
        Self { guard, thread }
    }

    /// Returns the lock's name: see [`name`](crate::Guard::name).
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// Returns the names that the guard holds: see [`names`](crate::Guard::names).
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.guard.names()
    }

    /// Returns the fencing token of a fenced lock: see
    /// [`fencing_token`](crate::Guard::fencing_token).
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.guard.fencing_token()
    }

    /// Returns the fencing token for the resource that `name` protects: see
    /// [`fencing_token_of`](crate::Guard::fencing_token_of).
    pub fn fencing_token_of(&self, name: &str) -> Option<FencingToken> {
        self.guard.fencing_token_of(name)
    }

    /// Returns the number of rounds that it took to acquire the lock: see
    /// [`rounds`](crate::Guard::rounds).
    pub fn rounds(&self) -> u32 {
        self.guard.rounds()
    }

    /// Returns the number of guards that the owner has of this lock: see
    /// [`depth`](crate::Guard::depth).
    pub fn depth(&self) -> u32 {
        self.guard.depth()
    }

    /// Returns the slot of a permit of a semaphore: see [`slot`](crate::Guard::slot).
    pub fn slot(&self) -> Option<usize> {
        self.guard.slot()
    }

    /// Returns what this guard leaves to others: see [`access`](crate::Guard::access).
    pub fn access(&self) -> Access {
        self.guard.access()
    }

    /// Makes this guard of a writer the guard of a reader: see
    /// [`downgrade`](crate::Guard::downgrade). Does not block.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn downgrade(&self) -> Result<(), ConfigError> {
        self.guard.downgrade()
    }

    /// Returns the length of the validity when the lock was won or last extended.
    pub fn validity(&self) -> Duration {
        self.guard.validity()
    }

    /// Returns when the validity ends: see [`valid_until`](crate::Guard::valid_until).
    pub fn valid_until(&self) -> Instant {
        self.guard.valid_until()
    }

    /// Returns the rest of the validity. It is zero once the lock is lost.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Returns whether this guard still holds the lock. Once this is `false`, it stays `false`.
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// Returns the state of the lock: held, in doubt, or lost with the reason.
    pub fn state(&self) -> LockState {
        self.guard.state()
    }

    /// Checks that this guard still holds the lock. Call it between the steps of long work, because
    /// nothing else stops that work when the lock is lost.
    ///
    /// # Errors
    ///
    /// [`LostError`], with the reason, if the lock is lost.
    pub fn ensure_held(&self) -> Result<(), LostError> {
        self.guard.ensure_held()
    }

    /// Blocks until the lock is lost: see [`lost`](crate::Guard::lost).
    ///
    /// # Errors
    ///
    /// [`CannotBlock`](ConfigError::CannotBlock). This has no effect on the lock.
    pub fn lost(&self) -> Result<LostError, ConfigError> {
        self.thread.wait(self.guard.lost())
    }

    /// Blocks until the lock is lost, at most for `limit`. Returns `None` if the lock is held then.
    ///
    /// # Errors
    ///
    /// [`CannotBlock`](ConfigError::CannotBlock). This has no effect on the lock.
    pub fn lost_within(&self, limit: Duration) -> Result<Option<LostError>, ConfigError> {
        self.thread.wait_within(limit, self.guard.lost())
    }

    /// Stops the renewal: see [`stop_renewing`](crate::Guard::stop_renewing).
    pub fn stop_renewing(&self) {
        self.guard.stop_renewing();
    }

    /// Returns the vote of each master in the newest round: see [`votes`](crate::Guard::votes).
    pub fn votes(&self) -> Votes {
        self.guard.votes()
    }

    /// Blocks until every master has answered or timed out, and returns the
    /// [votes](Self::votes).
    ///
    /// # Errors
    ///
    /// [`CannotBlock`](ConfigError::CannotBlock). This has no effect on the lock.
    pub fn settled(&self) -> Result<Votes, ConfigError> {
        self.thread.wait(self.guard.settled())
    }

    /// Makes the lock valid for `ttl` from now: see [`extend`](crate::Guard::extend).
    ///
    /// # Errors
    ///
    /// The same, and [`CannotBlock`](ConfigError::CannotBlock). After `CannotBlock`, nothing was
    /// sent.
    pub fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.thread.wait(self.guard.extend(ttl))?
    }

    /// Releases the lock on all masters, and blocks until a majority has confirmed: see
    /// [`release`](crate::Guard::release).
    ///
    /// # Errors
    ///
    /// The same, and [`CannotBlock`](ConfigError::CannotBlock). After `CannotBlock`, the release is
    /// posted as if the guard had been dropped.
    pub fn release(self) -> Result<(), ReleaseError> {
        let Self { guard, thread } = self;
        thread.wait(guard.release())?
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
