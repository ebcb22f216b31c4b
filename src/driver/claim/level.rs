//! One level of a claim, for one guard. A level ends with a release. If the lock must stay for a
//! while after its guards are gone, the last level ends with an extension instead.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use super::{Claim, owned_lock::OwnedLock};
use crate::{
    clock,
    core::{
        error::ReleaseError,
        kind::Access,
        protocol::command::Action,
        time::tick::Tick,
        vote::{MasterSet, Refusal, SlotVote, Verb, Vote, quorum::Outcome, round::Round},
    },
    driver::{context::PendingRelease, live_round::LiveRound},
    master::VoteCounter,
};

/// One level of a claim, for one guard. Dropping this value removes the level. A future that is
/// dropped before it completes also drops its `Level`. So every round that leads to no guard is
/// followed by a release.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub(crate) struct Level {
    pub(crate) claim: Arc<Claim>,
    /// Keeps alive the entry through which other tasks of the owner find the claim.
    _owned: Option<Arc<OwnedLock>>,
    release: OnceLock<Arc<LiveRound>>,
    /// `true` if other clients may share the lock with this level.
    is_shared: AtomicBool,
}

impl Level {
    /// Creates the first level of a claim, or a level that [`Claim::reenter`] has counted.
    pub(crate) fn new(claim: Arc<Claim>, access: Access, owned: Option<Arc<OwnedLock>>) -> Self {
        Self {
            claim,
            _owned: owned,
            release: OnceLock::new(),
            is_shared: AtomicBool::new(access == Access::Shared),
        }
    }

    /// Removes the level, unless it was removed before. Returns the round of the command that
    /// removes the level. With `watch`, the release of the last level also watches the key.
    pub(crate) fn end(&self, watch: bool) -> Arc<LiveRound> {
        let leave = || self.claim.leave(self.access(), watch);
        self.release.get_or_init(leave).clone()
    }

    /// Returns whether this level shares the lock with others or excludes them.
    pub(crate) fn access(&self) -> Access {
        if self.is_shared.load(Ordering::Relaxed) {
            Access::Shared
        } else {
            Access::Exclusive
        }
    }

    /// Lets other clients share the lock with this level, unless the level is shared already.
    pub(crate) fn downgrade(&self) {
        if !self.is_shared.swap(true, Ordering::Relaxed) {
            self.claim.downgrade();
        }
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl Claim {
    /// Removes one level. Removing the last level releases the lock on all masters that may have
    /// the key. The release arrives after all earlier requests of this claim. A master that cannot
    /// be reached now is owed the release: it gets the release on a later connection.
    ///
    /// After a fork, does nothing: the lock belongs to the parent.
    fn leave(&self, access: Access, watch: bool) -> Arc<LiveRound> {
        if self.context.is_forked() {
            return self.context.closed_round(Verb::Release);
        }
        let mut locked = self.lock();
        let newest = locked.protected.newest.clone();
        let leave = locked.take_step(|claim, step| claim.leave(step, access));
        let mut command = leave.command;
        let round = self.context.open_round(command.verb(), locked.now);
        let Some(keys_until) = leave.keys_until else {
            locked.post(leave.to, command, round.clone());
            return round;
        };
        command.watch = watch;
        let frees = matches!(command.action, Action::Release { was_won: true, .. });
        let votes = LastVoteCounter {
            round: round.clone(),
            owed: leave.owed.map(|masters| (masters, newest)),
            keys_until,
            name: self.name().clone(),
            _pending: self.context.pending_releases.add(keys_until),
        };
        self.stop_timer(&mut locked);
        locked.post(leave.to, command, votes);
        for master in 0..self.context.masters.count() {
            if !leave.to.contains(master) {
                let gone = Vote::Refuse(Refusal::Gone).into();
                round.count(master, gone, clock::monotonic());
            }
        }
        if frees {
            self.context.local_waiters.note_release(&self.terms.lock_id);
        }
        round
    }

    /// Waits until a majority has confirmed `release`, which removes a level.
    pub(crate) async fn confirm_release(&self, release: &LiveRound) -> Result<(), ReleaseError> {
        if release.decided().await == Outcome::Won {
            return Ok(());
        }
        self.context.in_time(release.settled()).await; // so that the error shows every vote
        let (name, votes) = (self.name().clone(), self.votes(release));
        Err(if release.read(Round::verb) == Verb::Extend {
            ReleaseError::NotLeft { name, votes }
        } else {
            ReleaseError::NoQuorum { name, votes }
        })
    }
}

/// A counter of the votes on the last command of a claim: a release, or a last extension, after
/// which the lock has no holder. The command counts as pending while this value lives. The round of
/// the command may live longer. So a task that still reads the round does not delay the close of
/// the coordinator.
#[derive(Debug)]
struct LastVoteCounter {
    round: Arc<LiveRound>,
    /// The masters that are owed the release, and the round before the release. Masters that may
    /// keep what that round asked for are owed the release, too. `None` for an extension.
    owed: Option<(MasterSet, Arc<LiveRound>)>,
    /// The instant on the monotonic clock until which the masters are owed the release.
    keys_until: Tick,
    name: Arc<str>,
    _pending: PendingRelease,
}

impl VoteCounter for LastVoteCounter {
    fn count(&self, master: usize, vote: SlotVote, now: Tick) {
        let has_failed = self
            .round
            .count_and_look(master, vote, now, |round, before| {
                before == Outcome::Pending && round.outcome() == Outcome::NoMajority
            });
        if has_failed && self.owed.is_none() {
            self.round.observer().not_kept(&self.name);
        }
    }

    fn wake(&self) {
        self.round.wake();
    }

    fn owed_until(&self, master: usize) -> Option<Tick> {
        let (masters, newest) = self.owed.as_ref()?;
        let owed = *masters | newest.read(Round::may_keep);
        owed.contains(master).then_some(self.keys_until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Coordinator, Kind, MemoryMaster};

    #[tokio::test(start_paused = true)]
    async fn a_lock_stays_for_the_minimum_time_on_masters_whose_clocks_are_fast() {
        for kind in Kind::ALL {
            let masters = [(); 3].map(|()| MemoryMaster::new());
            masters.iter().for_each(|master| master.set_clock(0, 9_999));
            let [locks, others] = [(); 2].map(|()| Coordinator::new(&masters).unwrap());
            let lock = |locks: &Coordinator| locks.of_kind(kind, "a", &locks.owner());
            for time in [20_000_500, 600_000_000].map(Duration::from_micros) {
                let start = clock::monotonic();
                let guard = lock(&locks).min_hold(time).acquire().await.unwrap();
                guard.release().await.unwrap();
                let next = lock(&others).acquire().await.unwrap();
                let took = clock::monotonic().since(start);
                assert!(took >= time, "{kind:?}: {took:?} of {time:?}");
                next.release().await.unwrap();
            }
        }
    }
}
