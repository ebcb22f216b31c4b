//! Levels that leave a lock on the masters: a level that is not the last one, and the last level of
//! a lock that stays for a while after its guards are gone.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Claim, announcement::Locked, live_round::LiveRound, pending_releases::PendingRelease};
use crate::{
    core::{
        kind::command::{Attempt, Command, Verb},
        time::lease::Ttl,
        view::lock_state::LockState,
        vote::{
            master_set::MasterSet,
            quorum::Vote,
            round::{Outcome, Round},
        },
    },
    driver::time::clock,
    log,
    master::CountVotes,
    user_code::shielded,
};

/// A last extension, after which the lock has no holder. It counts as a pending release, so that
/// closing the coordinator waits for it.
#[derive(Debug)]
struct LastExtension {
    round: Arc<LiveRound>,
    name: Arc<str>,
    _pending: PendingRelease,
}

impl CountVotes for LastExtension {
    fn count(&self, master: usize, vote: Vote, now: Instant) {
        let has_failed = self.round.cast(master, vote, now, |round, before| {
            before == Outcome::Pending && round.outcome() == Outcome::Lost
        });
        if has_failed {
            let name = &self.name;
            shielded(|| {
                tracing::warn!(target: log::LOCK, %name, "lock not kept for its minimum time: others may get it when its TTL has passed");
            });
        }
        self.round.wake();
    }
}

impl Claim {
    /// Keeps the lock on the masters for at least `time` from now. Does not shorten the time that
    /// was set before.
    pub(crate) fn hold_for(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        // This clock does not jump forward with the wall clock. The time may be too long for it.
        let until = clock::monotonic().checked_add(time.min(Ttl::MOST));
        let mut state = self.lock();
        state.hold_until = state.hold_until.max(until);
    }

    /// Tells all masters the depth after a level was removed that was not the last one. This is not
    /// owed to any master, because the next extension of this claim also sets the depth.
    pub(super) fn post_depth(&self, state: Locked<'_>, release: &Arc<LiveRound>) {
        let command = Command::release(&self.resource, self.attempt(&state), true);
        state.post(MasterSet::ALL, command, release.clone());
    }

    /// If the lock is held and must stay, posts its last extension, and returns the round of that
    /// extension. Otherwise returns `state`.
    pub(super) fn leave_in_place<'a>(
        &self,
        mut state: Locked<'a>,
    ) -> Result<Arc<LiveRound>, Locked<'a>> {
        let until = state.hold_until;
        let left = until.and_then(|until| until.checked_duration_since(clock::monotonic()));
        let Some(left) = left else {
            return Err(state);
        };
        let now = clock::now();
        if !state.was_won() || matches!(self.state_at(&mut state, now), LockState::Lost(_)) {
            return Err(state);
        }
        let masters = &self.context.masters;
        let round = Round::open(Verb::Extend, masters.count(), now, None);
        let round = LiveRound::open(round, &masters.metrics);
        state.release = Some(round.clone());
        let attempt = Attempt {
            depth: 1,
            ..self.attempt(&state)
        };
        let ttl = masters.config().drift.outlasting(left);
        let command = Command::extend(&self.resource, attempt, ttl);
        let votes = LastExtension {
            round: round.clone(),
            name: self.name().clone(),
            _pending: masters.pending_releases.add(state.keys_until),
        };
        if let Some(timer) = state.timer.take() {
            self.context.renewer.remove(timer);
        }
        state.post(MasterSet::ALL, command, votes);
        Ok(round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Coordinator, Kind, MemoryMaster};

    #[tokio::test(start_paused = true)]
    async fn a_lock_stays_for_the_minimum_time_on_masters_whose_clocks_are_fast() {
        for kind in Kind::ALL {
            let masters = [(); 3].map(|()| MemoryMaster::new());
            masters.iter().for_each(|master| master.set_gain(9_999));
            let [locks, others] = [(); 2].map(|()| Coordinator::new(&masters).unwrap());
            let lock = |locks: &Coordinator| locks.of_kind(kind, "a", &locks.owner());
            for time in [20_000_500, 600_000_000].map(Duration::from_micros) {
                let start = clock::monotonic();
                let guard = lock(&locks).min_hold(time).acquire().await.unwrap();
                guard.release().await.unwrap();
                let next = lock(&others).acquire().await.unwrap();
                let took = clock::monotonic() - start;
                assert!(took >= time, "{kind:?}: {took:?} of {time:?}");
                next.release().await.unwrap();
            }
        }
    }
}
