//! A lock that is held, for code without async.

use std::time::Duration;

use super::background::Blocking;
use crate::{
    core::{
        error::{BlockingError, ExtendError, LostError, ReleaseError},
        vote::votes::Votes,
    },
    face::guard,
};

/// A lock that is held, as an async [`Guard`](crate::Guard).
///
/// The same holds for its guarantees and its limits. Dropping the guard posts a release and does
/// not block. It works on any thread, also in async code. The end of the program does not wait for
/// that release: see [the background thread](super#the-background-thread).
pub type Guard = Blocking<guard::Guard>;

impl Blocking<guard::Guard> {
    /// Blocks until the lock is lost: see [`lost`](crate::Guard::lost).
    ///
    /// # Errors
    ///
    /// [`BlockingError`]. This has no effect on the lock.
    pub fn lost(&self) -> Result<LostError, BlockingError> {
        self.thread.wait(self.inner.lost())
    }

    /// Blocks until the lock is lost, at most for `limit`. Returns `None` if the lock is held then.
    ///
    /// # Errors
    ///
    /// [`BlockingError`]. This has no effect on the lock.
    pub fn lost_within(&self, limit: Duration) -> Result<Option<LostError>, BlockingError> {
        self.thread.wait_within(limit, self.inner.lost())
    }

    /// Blocks until every master has answered or timed out, and returns the
    /// [votes](crate::Guard::votes).
    ///
    /// # Errors
    ///
    /// [`BlockingError`]. This has no effect on the lock.
    pub fn settled(&self) -> Result<Votes, BlockingError> {
        self.thread.wait(self.inner.settled())
    }

    /// Makes the lock valid for `ttl` from now: see [`extend`](crate::Guard::extend).
    ///
    /// # Errors
    ///
    /// The same, and [`BlockingError`]. After the latter, nothing was
    /// sent.
    pub fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.thread.wait(self.inner.extend(ttl))?
    }

    /// Releases the lock on all masters, and blocks until a majority has confirmed: see
    /// [`release`](crate::Guard::release).
    ///
    /// # Errors
    ///
    /// The same, and [`BlockingError`]. After the latter, the release is
    /// posted as if the guard had been dropped.
    pub fn release(self) -> Result<(), ReleaseError> {
        let Self { inner, thread } = self;
        thread.wait(inner.release())?
    }
}
