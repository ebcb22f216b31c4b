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

/// A lock that a majority of masters hold for us, until [`valid_until`](Self::valid_until).
///
/// It is renewed at a third of its validity for as long as the guard lives, up to the [max
/// hold](crate::Builder::renewal), unless the lock was given a [TTL of its own](crate::Lock::ttl) or is
/// [unrenewed](crate::Lock::renewal). [`lost`](Self::lost) tells when that was in vain.
///
/// Bind it to a name, `let guard = ..` or `let _guard = ..`: the lock is held to the end of that. `let _ = ..` and
/// `if lock.try_acquire().await.is_ok()` drop the guard, and the lock with it, before the work begins.
///
/// Dropping it posts a release to all masters, without blocking and without a task of its own, inside a
/// runtime or not. To know what came of it, call [`release`](Self::release); to be sure that it arrived,
/// wait for [`Coordinator::close`](crate::Coordinator::close).
///
/// # Guarantees
///
/// While [`is_valid`](Self::is_valid), no other guard of this name is, here or anywhere, but for those of the
/// same [owner](crate::Owner), within the bounds of [`docs::guarantees`](crate::docs::guarantees).
///
/// The guards that an owner has of one reentrant or fair lock are levels of it. They share validity, renewal and
/// loss: what one of them is told or asked for is for all. The lock is given up with the last of them.
///
/// # Not guaranteed
///
/// A holder that is paused between looking and acting acts late: validity is a promise about now. What
/// must not happen twice needs a check where it happens.
#[must_use = "dropping a guard releases its lock: bind it, as in `let _guard = ..`, and not to `_`"]
#[clippy::has_significant_drop]
pub struct Guard {
    held: Level,
}

impl Guard {
    pub(crate) fn new(held: Level) -> Self {
        Self { held }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.held.name()
    }

    /// The fencing token, of a [fenced](crate::Lock::fenced) lock: below 2^53, and larger than that of every guard of
    /// this lock before it. Extending the lock and acquiring it again as its owner keep it.
    pub fn fencing_token(&self) -> Option<u64> {
        self.held.fencing_token()
    }

    /// How many rounds of questions it took to acquire the lock: 1, unless its waiter was refused in between, or a
    /// fencing token took more than one.
    pub fn rounds(&self) -> u32 {
        self.held.rounds()
    }

    /// How many guards the owner has of this lock, those included that it is just acquiring; 1 for a mutex.
    /// Counted in this process.
    pub fn depth(&self) -> u32 {
        self.held.depth()
    }

    /// What was left of the TTL when the lock was won or last extended: TTL minus what the round took
    /// minus the drift allowance.
    pub fn validity(&self) -> Duration {
        self.held.validity()
    }

    /// When validity ends, on the clock of [`Instant`].
    ///
    /// While the lock is valid this is now plus what [remains](Self::remaining). Time that the
    /// machine was suspended for counts as time that has passed, and so does a step forward of its
    /// wall clock: both move this earlier. Once the validity is over, this lies in the past, and
    /// never before the lock was asked for.
    pub fn valid_until(&self) -> Instant {
        self.held.valid_until()
    }

    /// What is left of the validity; zero when it is over.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Whether the lock is still ours. Once false, it stays false.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How the lock stands: held, in doubt, or lost and why.
    pub fn state(&self) -> LockState {
        self.held.state()
    }

    /// Checks that the lock is still ours.
    ///
    /// # Errors
    ///
    /// [`LostError`] with the reason when it is not.
    pub fn ensure_held(&self) -> Result<(), LostError> {
        match self.state() {
            LockState::Held | LockState::InDoubt => Ok(()),
            LockState::Lost(reason) => Err(self.lost_error(reason)),
        }
    }

    /// Waits until the lock is lost: when its validity ends, by a timer that needs no master, or earlier, when a
    /// renewal or an extension hears from a majority of masters that it is not ours. Masters tell nobody unasked: of
    /// a lock that is renewed that takes a third of its validity at most, and a round trip. Meant to be selected
    /// against the work.
    ///
    /// # Cancel safety
    ///
    /// Only looks.
    pub async fn lost(&self) -> LostError {
        let reason = self.held.lost().await;
        self.lost_error(reason)
    }

    /// Lets the lock end with its present validity, unless it is [extended](Self::extend) by hand. For all guards
    /// of an owner, until it acquires the lock again.
    pub fn stop_renewing(&self) {
        self.held.stop_renewing();
    }

    fn lost_error(&self, reason: LostReason) -> LostError {
        LostError {
            name: self.held.name().clone(),
            reason,
            votes: self.votes(),
        }
    }

    /// What the masters said in the round that won the lock, or in the last extension or renewal. Masters that were
    /// slower than the majority may not have answered yet; their votes show here when they have.
    pub fn votes(&self) -> Votes {
        self.held.votes(&self.held.newest_round())
    }

    /// Waits until all masters have answered or were given up on, for the node timeout at most, and
    /// returns what they said.
    ///
    /// # Cancel safety
    ///
    /// Only looks.
    pub async fn settled(&self) -> Votes {
        self.held.newest_round().settled().await;
        self.votes()
    }

    /// Makes the lock valid for `ttl` from now, less the round trip and the drift allowance.
    ///
    /// Never shortens: a `ttl` that ends before the present one changes nothing. Counts only when a majority
    /// confirms while the guard is still valid. Masters that lost the key, say by a restart, get it
    /// back once a majority has confirmed; they are in [`votes`](Self::votes) then.
    ///
    /// # Errors
    ///
    /// After every error but `Lost` and `Expired` the guard is as valid as before; no key was created, deleted or
    /// shortened by any. Masters that confirmed hold the lock for the new TTL, which gives the guard nothing.
    ///
    /// - [`NoQuorum`](ExtendError::NoQuorum): too few masters confirmed. Try again after a pause: masters that are
    ///   known to be down fail in microseconds.
    /// - [`Lost`](ExtendError::Lost): a majority has said that the lock is not ours, whatever the clock says. Stop.
    /// - [`Expired`](ExtendError::Expired): the validity was over. Stop.
    /// - [`TooSlow`](ExtendError::TooSlow): a majority confirmed, too late for the guard. Stop when it is not
    ///   [valid](Self::is_valid).
    /// - [`Config`](ExtendError::Config): the `ttl` cannot be used. Nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// The extension goes on, and counts if a majority confirms.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let guard = locks.mutex("orders/42").ttl(Duration::from_secs(5)).acquire().await?;
    /// guard.extend(Duration::from_secs(60)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(58));
    /// # Ok(()) }
    /// ```
    pub async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        let extended = self.held.extend(ttl).await;
        extended.map_err(|error| ExtendError::from_driver(error, &self.held))
    }

    /// Gives the lock up on all masters, and waits until a majority has confirmed. That it was gone already
    /// is success: a job that must know whether it held the lock to the end looks at
    /// [`ensure_held`](Self::ensure_held) first. While its owner has other guards of it, this takes one level off and
    /// the lock stays held.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`](ReleaseError::NoQuorum): fewer than a majority confirmed within the node timeout. The
    /// others get the release as soon as they can be reached, until the TTL has passed; a level that is taken
    /// off, with the next extension or release.
    ///
    /// # Cancel safety
    ///
    /// The lock is released all the same.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let release = self.held.release();
        match release.decided().await {
            Outcome::Won => Ok(()),
            Outcome::Lost | Outcome::Pending | Outcome::TooLate => {
                release.settled().await; // for a full table; masters that are down have failed already
                Err(ReleaseError::NoQuorum {
                    name: self.held.name().clone(),
                    votes: self.held.votes(&release),
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
