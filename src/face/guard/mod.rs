//! A lock that is held.

use std::{
    fmt, iter,
    pin::pin,
    time::{Duration, Instant},
};

use futures::future::{Either, select, select_all};

pub(super) use self::any::sealed::Key;
pub use self::{
    any::{AnyGuard, Fenceable, OneName},
    fenced::FencedGuard,
    shared::{MultiGuard, PermitGuard, ReadGuard, WriteGuard},
};
use super::fence::FencingToken;
use crate::{
    clock,
    core::{
        error::{ExtendError, LostError, QuorumError},
        kind::Access,
        protocol::detached::Detached,
        view::LockState,
        vote::{Slot, votes::Votes},
    },
    driver::claim::{ClaimHandle, Level},
    meter::Counted,
};

mod any;
mod fenced;
mod shared;

/// A lock that a majority of masters holds for this guard, until
/// [`valid_until`](Self::valid_until).
///
/// As long as the guard lives, the lock is renewed each time that a third of its validity has
/// passed. [`Lock::renewal`](crate::Lock::renewal) can limit how long
/// the lock is renewed. The lock may be lost, for example because it could not be renewed:
/// [`run`](Self::run) then stops the work, and [`lost`](Self::lost) resolves.
///
/// Bind the guard to a name: `let guard = ..` or `let _guard = ..` holds the lock to the end of the
/// scope. `let _ = ..` and `if lock.try_acquire().await.is_ok()` drop the guard and release the
/// lock before the work begins.
///
/// Dropping the guard posts a release to all masters. The drop does not block, spawns no task, and
/// works inside and outside a runtime. To know the result of the release, call
/// [`release`](Self::release) instead. To be sure that the release has arrived, wait for
/// [`Coordinator::close`](crate::Coordinator::close).
///
/// # Guarantees
///
/// While this guard [is valid](Self::is_valid), no other guard of this name is valid in any
/// process. The exceptions are guards of one [owner](crate::Owner), guards of readers, and guards
/// of different [slots](PermitGuard::slot): such guards can be valid together.
/// [`docs::guarantees`](crate::docs::guarantees) lists the conditions.
///
/// The guards of one owner for the same lock are levels of that lock. They share its validity, its
/// renewal and its loss. For example, extending one of them extends all of them. The lock is
/// released when the last of them is dropped.
///
/// # Not guaranteed
///
/// The result of a check is true only at the moment of the check. If the holder is paused after the
/// check, it may act when the guard is no longer valid. To refuse a late action, the resource must
/// check each action itself, for example by a [fencing token](FencedGuard::token).
#[must_use = "dropping a guard releases its lock: bind it, as in `let _guard = ..`, and not to `_`"]
#[clippy::has_significant_drop]
pub struct Guard {
    first: Level,
    /// The levels of the other names, if the guard holds several names.
    others: Vec<Level>,
    /// Counts this guard in the metrics.
    _counted: Option<Counted>,
}

impl Guard {
    pub(crate) fn new(first: Level, others: Vec<Level>) -> Self {
        Self {
            _counted: first.claim.count_guard(),
            first,
            others,
        }
    }

    /// Returns the guard of all these levels, at least one.
    pub(crate) fn of_all(mut levels: Vec<Level>) -> Self {
        let others = levels.split_off(1);
        Self::new(levels.remove(0), others)
    }

    /// Returns the lock's name. If the guard holds [several](Self::names) names, returns the first.
    pub fn name(&self) -> &str {
        self.first.claim.name()
    }

    /// Returns the names that the guard holds: one name, or the names of
    /// [`multi_mutex`](crate::Coordinator::multi_mutex), each once, in the order of their keys.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.levels().map(|level| &**level.claim.name())
    }

    /// Returns each name with its fencing token. Returns nothing if the lock is not fenced.
    #[doc(hidden)]
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (&str, FencingToken)> {
        self.levels().filter_map(|level| {
            let token = level.claim.fencing_token()?;
            Some((&**level.claim.name(), FencingToken::from(token)))
        })
    }

    /// Returns the number of rounds that it took to acquire the lock. If the guard holds several
    /// names, returns the largest number.
    ///
    /// For a mutex or a reentrant lock, only the attempt that won counts. The number is 1, or more
    /// if a fencing token took more rounds. For a lock with queues, all rounds of the waiter count.
    /// The number starts again from 1 if the waiter left the queues for a while, or took a new
    /// position because its clock was wrong.
    #[doc(hidden)]
    pub fn rounds(&self) -> u32 {
        let rounds = self.levels().map(|level| level.claim.rounds());
        rounds.max().unwrap_or_default()
    }

    /// Returns the number of guards that the owner has of this lock, including the guards that the
    /// owner is acquiring now. This process counts the guards. For a mutex, the number is 1.
    pub fn depth(&self) -> u32 {
        self.first.claim.depth()
    }

    /// Returns the slot of a permit. `None` for any other lock.
    #[doc(hidden)]
    pub fn slot(&self) -> Option<usize> {
        self.first.claim.slot().map(Slot::shown)
    }

    /// Returns whether others may hold the lock as well: true for a reader of a [read-write
    /// lock](crate::Coordinator::read_write), and for a permit of a
    /// [semaphore](crate::Coordinator::semaphore).
    #[doc(hidden)]
    pub fn shares(&self) -> bool {
        self.first.access() == Access::Shared
    }

    /// Turns this guard of a writer into the guard of a reader. Does nothing to any other guard.
    pub(crate) fn downgrade(&self) {
        if self.first.claim.kind().spec().has_readers {
            self.first.downgrade();
        }
    }

    /// Returns the length of the validity: the TTL, minus the duration of the round that won or
    /// last extended the lock, minus the drift allowance.
    #[doc(hidden)]
    pub fn validity(&self) -> Duration {
        self.weakest().validity()
    }

    /// Returns when the validity ends, on the clock of [`Instant`]. With tokio's paused clock,
    /// compare it with tokio's `Instant`.
    ///
    /// While the lock is valid, this instant is the present time plus
    /// [`remaining`](Self::remaining). If the machine is suspended, or its wall clock steps
    /// forward, the validity ends earlier on this clock. After the validity has ended, this instant
    /// is in the past, but not before the start of the acquisition.
    pub fn valid_until(&self) -> Instant {
        clock::to_instant(self.weakest().valid_until())
    }

    /// Returns what is left of the validity, or zero once the lock is lost.
    pub fn remaining(&self) -> Duration {
        self.weakest().remaining()
    }

    /// Returns whether this guard still holds the lock. Once this is `false`, it stays `false`.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns the state of the lock: held, in doubt, or lost with the reason.
    pub fn state(&self) -> LockState {
        self.weakest().lock_state()
    }

    /// Checks that this guard still holds the lock.
    ///
    /// # Errors
    ///
    /// [`LostError`], with the reason, if the lock is lost.
    pub fn ensure_valid(&self) -> Result<(), LostError> {
        self.weakest().ensure_valid()
    }

    /// Waits until the lock is lost. To stop the work then, use [`run`](Self::run), or a `select!`
    /// that is `biased` and has this method as its first branch: after a stall, the loss and the
    /// next step of the work may be ready at the same time.
    ///
    /// A lock is lost when its validity ends. A timer in this process detects that without an
    /// answer from any master. If the runtime of that timer shuts down, this method returns at
    /// once, and [`state`](Self::state) reports the loss from then on.
    ///
    /// A lock is lost earlier if a majority of masters refuse a renewal or an extension because the
    /// guard does not hold the lock. Masters report this only when they are asked. So the loss is
    /// noticed with the next renewal, at most a third of the validity later.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the lock.
    pub async fn lost(&self) -> LostError {
        if self.others.is_empty() {
            let claim = &self.first.claim;
            return claim.lost_error(claim.lost().await);
        }
        let waits = self.levels().map(|level| {
            let claim = &level.claim;
            Box::pin(async move { claim.lost_error(claim.lost().await) })
        });
        select_all(waits).await.0
    }

    /// Runs `work` until it is done or the lock is lost. If the lock is lost while `work` waits,
    /// `work` is dropped unfinished, even if it is ready to go on.
    ///
    /// This method is like a `select!` between [`lost`](Self::lost) and `work`. It does not release
    /// the lock.
    ///
    /// # Errors
    ///
    /// [`LostError`]: the lock was lost before the end of `work`. If it was lost during the last
    /// step of `work`, the result of `work` is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the unfinished `work`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let guard = locks.mutex("orders/42").acquire_within(Duration::from_secs(1)).await?;
    /// let sum = guard.run(async { 40 + 2 }).await?;
    /// assert_eq!(sum, 42);
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, LostError> {
        // The loss is checked first: after a stall, the work may be ready for its next step, too.
        match select(pin!(self.lost()), pin!(work)).await {
            Either::Left((lost, _)) => Err(lost),
            Either::Right((done, _)) => self.ensure_valid().map(|()| done),
        }
    }

    /// Stops the renewal. The lock then ends with its present validity unless it is
    /// [extended](Self::extend).
    ///
    /// The renewal stops for all guards that the owner has of this lock. It starts again when the
    /// owner acquires the lock again.
    pub fn stop_renewing(&self) {
        self.levels().for_each(|level| level.claim.stop_renewing());
    }

    /// Returns the vote of each master in the newest round: the one that won the lock, or the last
    /// extension or renewal. Masters that are slower than the majority may not have voted yet. A
    /// later call returns their votes, too.
    pub fn votes(&self) -> Votes {
        self.weakest().newest_votes()
    }

    /// Waits until every master has answered or timed out, and returns the [votes](Self::votes).
    /// The wait takes at most the response timeout. For a master whose first connection is under way,
    /// it takes at most the connect timeout.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the lock.
    pub async fn all_votes(&self) -> Votes {
        for level in self.levels() {
            level.claim.settled().await;
        }
        self.votes()
    }

    /// Makes the lock valid for `ttl` from now, minus the round trip and the drift allowance.
    ///
    /// An extension never shortens the lock. If `ttl` would end before the present validity, the
    /// masters are asked, so that a loss is noticed, and the validity stays. An extension counts
    /// only if a majority confirms while the guard is still valid.
    ///
    /// A master may have lost the key, for example by a restart. It gets the key back after a
    /// majority has confirmed the extension. From then on, its vote in [`votes`](Self::votes) is a
    /// grant.
    ///
    /// Renewals still use the lock's own TTL. The next renewal begins when the guard is valid for
    /// only two thirds of the time that this TTL would give. A limit that is set by
    /// [`Lock::renewal`](crate::Lock::renewal) does not start again with an extension.
    ///
    /// # Errors
    ///
    /// After every error except `Lost` the guard is at least as valid as before. No key was created,
    /// deleted or shortened. Masters that confirmed keep the key for the new TTL.
    ///
    /// - [`NoQuorum`](ExtendError::NoQuorum): too few masters confirmed in time. Late
    ///   answers of a majority may still make the validity longer. Try again after a pause, because a request to a master that is known to be down fails
    ///   in microseconds.
    /// - [`Lost`](ExtendError::Lost): a majority says that the guard does not hold the lock, or its
    ///   validity has ended. Stop the work, even if validity was left.
    /// - [`Config`](ExtendError::Config): `ttl` cannot be used. Nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the extension. The extension counts if a majority
    /// confirms.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
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
        let mut result = Ok(());
        for (claim, posted) in self.post(|level| level.claim.extend(ttl)) {
            let extended = match posted {
                Ok(Some(round)) => claim.confirm_extension(&round).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            let Err(error) = extended else {
                continue;
            };
            if matches!(error, ExtendError::Lost(_)) || result.is_ok() {
                result = Err(error);
            }
        }
        result
    }

    pub(crate) async fn detached(&self, ttl: Duration) -> Result<Detached, ExtendError> {
        // Before any level ends, so that all names are detached, or none.
        self.levels().try_for_each(Level::check_detach)?;
        self.extend(ttl).await?;
        let locks = self.levels().map(Level::detach);
        Ok(Detached {
            ttl,
            locks: locks.collect::<Result<_, _>>()?,
        })
    }

    /// Releases the lock on all masters, and waits until a majority has confirmed. If the guard
    /// holds several [names](Self::names), waits for each of them, and returns the first error.
    ///
    /// The release also succeeds if the lock was lost before. To find out whether the lock was held
    /// to the end of the work, call [`ensure_valid`](Self::ensure_valid) before the release. If the
    /// owner has other guards of this lock, this method releases one level, and the lock stays
    /// held.
    ///
    /// # Errors
    ///
    /// [`QuorumError`]: fewer than a majority confirmed in time. Each master has a response timeout to
    /// confirm. If other commands must be sent before the release, the wait is longer: at most the
    /// connect timeout and two response timeouts. The caller need not do anything: masters that did not
    /// confirm get the release if they can be reached before the TTL has passed. If only one level
    /// was released, the next extension or release tells these masters the new depth.
    ///
    /// If the lock has a [minimum hold](crate::Lock::min_hold), the error says that too few masters
    /// keep the lock for the rest of that time. Others may then get the lock when its TTL has
    /// passed. If half of the masters confirmed, others cannot get it in the minimum hold.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the release.
    pub async fn release(self) -> Result<(), QuorumError> {
        let mut result = Ok(());
        for (claim, release) in self.post(|level| level.end(false)) {
            result = result.and(claim.confirm_release(release).await);
        }
        result
    }

    /// Posts a command for each name, the last name first. Returns the results.
    fn post<'a, T: 'a>(
        &'a self,
        post: impl Fn(&'a Level) -> T,
    ) -> impl Iterator<Item = (&'a ClaimHandle, T)> {
        let post = |level: &'a Level| (&level.claim, post(level));
        let others: Vec<_> = self.others.iter().rev().map(&post).collect();
        iter::once(post(&self.first)).chain(others)
    }

    pub(in crate::face) fn levels(&self) -> impl Iterator<Item = &Level> {
        iter::once(&self.first).chain(&self.others)
    }

    /// Returns the claim whose lease ends first, or has ended first. The guard is valid as long as
    /// this claim is valid.
    fn weakest(&self) -> &ClaimHandle {
        if self.others.is_empty() {
            return &self.first.claim;
        }
        let claims = self.levels().map(|level| &level.claim);
        let weakest = claims.min_by_key(|claim| (claim.remaining(), claim.valid_until()));
        weakest.unwrap_or(&self.first.claim)
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

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use crate::{Coordinator, Fault, MemoryMaster, Quarantine, Renewal};

    #[tokio::test(start_paused = true)]
    async fn a_guard_of_several_names_is_as_valid_as_the_weakest() {
        let masters = [(); 3].map(|()| MemoryMaster::new());
        let locks = Coordinator::new(&masters).unwrap();
        let guard = locks.multi_mutex(["a", "b"]).try_acquire().await.unwrap();
        for master in &masters {
            master.set("b", "another's", None);
        }
        let lost = guard.lost().await;
        assert_eq!(&*lost.name, "b");
        assert!(!guard.is_valid() && guard.ensure_valid().is_err());
    }

    /// A master says that it has no key, but only after the lease has ended.
    #[tokio::test(start_paused = true)]
    async fn no_key_is_put_back_after_the_lease() {
        let ttl = Duration::from_millis(4_100);
        let masters = [(); 3].map(|()| MemoryMaster::new());
        let locks = Coordinator::builder()
            .quarantine(Quarantine::Off)
            .response_timeout(Duration::from_secs(4))
            .masters(&masters)
            .build();
        let lock = locks.unwrap().mutex("a").ttl(ttl).renewal(Renewal::Off);
        let guard = lock.try_acquire().await.unwrap();
        masters[0].forget();
        masters[0].inject(Fault::Delay(2 * ttl));
        guard.extend(ttl).await.unwrap();
        sleep(guard.remaining()).await;
        masters[0].inject(Fault::None); // the answer comes now
        sleep(Duration::from_secs(1)).await;
        assert_eq!(masters[0].get("a"), None);
    }
}
