//! The settings of one lock.

use std::time::Duration;

use super::{Lock, Owner};
use crate::{
    core::{config_error::ConfigError, protocol::LockId, time::Renewal},
    face::guard::{Fenceable, FencedGuard},
};

impl Lock {
    /// Makes a fair or a read-write lock reentrant: `owner` may acquire it again while it holds it.
    /// Without this method, each call that acquires the lock has an owner of its own, so a task
    /// that holds the lock and acquires it again waits for itself.
    ///
    /// Replaces the owner of a reentrant lock. An owner that cannot be used is reported when the
    /// lock is acquired: [`TakesNoOwner`](ConfigError::TakesNoOwner) for a mutex, and
    /// [`ForeignOwner`](ConfigError::ForeignOwner) if another coordinator made the owner.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let lock = locks.fair("orders/42").owner(&locks.new_owner());
    /// let outer = lock.acquire().await?;
    /// let inner = lock.acquire().await?; // does not wait: the owner has the lock
    /// assert_eq!(inner.depth(), 2);
    /// # drop((outer, inner));
    /// # Ok(()) }
    /// ```
    pub fn owner(mut self, owner: &Owner) -> Self {
        let draft = &mut self.draft;
        let kind = draft.lock_id.as_ref().ok().map(LockId::kind);
        if let Some(kind) = kind.filter(|kind| !kind.is_reentrant()) {
            return self.refused(ConfigError::TakesNoOwner { kind });
        }
        if !draft.context.owners.have(owner.id()) {
            let owner = owner.id().to_owned();
            return self.refused(ConfigError::ForeignOwner { owner });
        }
        draft.owner = Some(owner.clone());
        self
    }
}

/// Settings of one lock. The TTL and the renewal replace those of the coordinator.
impl<G> Lock<G> {
    /// Sets how long the lock lives on the masters unless it is extended or released. A TTL that
    /// cannot be used is reported when the lock is acquired.
    ///
    /// Replaces the coordinator's [TTL](crate::Builder::ttl) for this lock.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.draft.ttl = self.draft.context.config.ttl(ttl);
        self
    }

    /// Sets how long the lock is renewed while its guard lives. If an owner acquires the lock
    /// again, a second limit counts from that acquisition, and the later of the two limits applies.
    ///
    /// Replaces the coordinator's [setting](crate::Builder::renewal) for this lock.
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.draft.renewal = renewal;
        self
    }

    /// Keeps others from the lock for `time` after its acquisition, even if its guard is released
    /// or dropped earlier. Defaults to zero.
    ///
    /// Use this for a job that must run on only one host each time. Without a minimum hold, the
    /// lock is free as soon as the job is done, and a host whose clock is late runs the job again.
    /// ShedLock calls this `lockAtLeastFor`.
    ///
    /// If a guard is released or dropped before that time has passed, the lock stays on the masters
    /// for the rest of the time plus the [drift](crate::Builder::drift_ppm), without a holder and
    /// without a renewal. The process may end meanwhile. The rest may be longer than
    /// [`max_ttl`](crate::Builder::max_ttl). A minimum hold of more than 366 days is refused when
    /// the lock is acquired. The time need not fit into the TTL. If the TTL ends later than the
    /// minimum hold, the lock stays until the TTL ends.
    ///
    /// A job that fails keeps others away, too. To allow a repeat,
    /// [break](crate::Coordinator::break_held) the lock, but only after the job has ended: an
    /// inspection shows the lock as held in both cases.
    ///
    /// # Not guaranteed
    ///
    /// While the guard lives, its TTL and its [renewal](Self::renewal) decide how long the lock is
    /// held. A lock that is lost, or whose holder dies, does not stay for the rest of the time.
    ///
    /// The [owner](crate::Owner) of the lock may acquire it again during the rest of the time. An
    /// attempt of the owner ends the minimum hold, even if the attempt fails. So use a
    /// lock without an owner.
    ///
    /// A writer becomes a reader by [`downgrade`](crate::WriteGuard::downgrade), or when an owner drops
    /// its last write guard while it has a read guard. From then on, others may read, too: the rest
    /// of the minimum hold keeps out only writers.
    ///
    /// Masters that restart may forget a lock that stays without a holder. The
    /// [quarantine](crate::Quarantine) protects holders only: these masters vote again after
    /// [`max_ttl`](crate::Builder::max_ttl), even if the minimum hold is longer. The lock is free
    /// if a majority of masters has forgotten it. Against this, let the masters persist. Or set a
    /// `max_ttl` of at least the minimum hold and a [`Strict`](crate::Quarantine::Strict)
    /// quarantine, both in all programs: to a new process, a master that has forgotten everything
    /// looks new otherwise.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let lock = locks.mutex("nightly report").min_hold(Duration::from_secs(600));
    /// let guard = lock.try_acquire().await?;
    /// // The job takes a second.
    /// guard.release().await?;
    ///
    /// let late = lock.try_acquire().await;
    /// assert!(late.is_err_and(|error| error.is_busy()));
    /// # Ok(()) }
    /// ```
    pub fn min_hold(mut self, time: Duration) -> Self {
        self.draft.min_hold = time;
        self
    }
}

impl<G: Fenceable> Lock<G> {
    /// Makes every guard carry a [fencing token](FencedGuard::token). The token is larger than that
    /// of every earlier holder of this lock. A [reader](crate::ReadWriteLock::read) has no token,
    /// because readers hold the lock together.
    ///
    /// The holder passes the token to the resource that it writes to. The resource refuses a token
    /// that is smaller than the largest token it has seen: see
    /// [`docs::fencing`](crate::docs::fencing). In this way the resource stops a holder that acts
    /// late. A lock alone cannot do that.
    ///
    /// A token normally costs no extra round. It costs one more round if the masters' counters for
    /// tokens are ahead of the clock of this process. It costs one more round, once per
    /// coordinator, if this clock is more than one second off the masters' clocks. See
    /// [`docs::fencing`](crate::docs::fencing#what-it-costs).
    ///
    /// For a fenced mutex, the masters run a script instead of a `SET`. All clients that use the
    /// name must ask for a token.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let lock = locks.mutex("orders/42").fenced();
    /// let first = lock.acquire().await?;
    /// let earlier = first.token();
    /// drop(first);
    /// assert!(lock.acquire().await?.token() > earlier);
    /// # Ok(()) }
    /// ```
    pub fn fenced(mut self) -> Lock<FencedGuard<G>> {
        self.draft.is_fenced = true;
        Lock::of(self.draft)
    }
}
