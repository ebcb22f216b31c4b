//! A claim on a lock: what it may have left on the masters, how it is kept, and how it is released.

use std::{
    ops::Deref,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{context::Context, renew::schedule::TimerKey, time::clock, waiting::signal::Signal};
use crate::{
    core::{
        ballot::Ballot,
        kind::{
            command::{Attempt, Command, Verb},
            identity::Identity,
            name::Resource,
        },
        time::{
            lease::{Lease, Ttl},
            renewal::RenewalPlan,
        },
        view::lock_state::LostReason,
        vote::{
            master_set::MasterSet,
            quorum::{Refusal, Vote},
            round::{Outcome, Round},
            votes::Votes,
        },
    },
    master::CountVotes,
};
use announcement::Locked;
use hold::{Hold, HoldEnd};
use live_round::LiveRound;
use owned_lock::{LockOwner, OwnedLock};
use pending_releases::PendingRelease;

mod announcement;
pub(crate) mod ballots;
pub(crate) mod extension;
pub(in crate::driver) mod hold;
mod left;
pub(crate) mod live_round;
mod lock_state;
mod observed;
pub(crate) mod owned_lock;
pub(in crate::driver) mod pending_releases;
pub(crate) mod rounds;

/// A request for a lock: its resource, its TTL, its owner and its counter.
#[derive(Clone, Debug)]
pub(crate) struct LockRequest {
    pub(crate) resource: Resource,
    pub(crate) ttl: Ttl,
    /// `None` for a mutex.
    pub(crate) owner: Option<Arc<LockOwner<Claim>>>,
    /// The counter of a fenced lock.
    pub(crate) counter: Option<Arc<str>>,
}

/// A claim on a lock, from its first round to its release.
#[derive(Debug)]
pub(crate) struct Claim {
    context: Arc<Context>,
    resource: Resource,
    ttl: Ttl,
    /// The counter of a fenced lock.
    counter: Option<Arc<str>>,
    /// Keeps the entry alive through which other tasks of the owner find this claim.
    _owned: Option<Arc<OwnedLock<Self>>>,
    /// The start of the first round, on the monotonic clock.
    began: Instant,
    state: Mutex<State>,
    has_hold_begun: AtomicBool,
    /// Notified when the lock is lost.
    changed: Signal,
}

#[derive(Debug)]
struct State {
    /// The identity of the newest attempt. A release with this identity takes back this attempt and
    /// all earlier ones.
    identity: Identity,
    lease: Lease,
    /// The time that was left of the lease when the lock was won or last extended.
    validity: Duration,
    /// The instant at which everything that this claim may have written has expired. After this
    /// instant, no release is needed. The instant is on the monotonic clock, because the clock of
    /// [`clock::now`] can jump forward with the wall clock.
    keys_until: Instant,
    /// The masters that may have the key or the ticket because of a heal, or because of a round
    /// before the newest one.
    may_hold: MasterSet,
    /// The masters that the newest acquisition has not asked yet.
    unasked: MasterSet,
    /// The number that the newest acquisition offers for the fencing token.
    candidate: u64,
    /// The number of rounds in which this claim has asked for the lock.
    rounds: u32,
    /// The number of guards. It includes guards whose rounds are still under way.
    depth: u32,
    /// The newest round: the acquisition, or the last extension.
    newest: Arc<LiveRound>,
    /// `true` if there was an extension. Only a lock that was won is extended.
    was_extended: bool,
    /// `true` if an extension before the newest round failed, and none has succeeded since.
    in_doubt: bool,
    /// The reason why the lock was lost. It never changes once it is set, because the loss is
    /// announced.
    lost: Option<LostReason>,
    /// The time for which the renewer did not run before the loss.
    stalled: Option<Duration>,
    /// Set from the win to the release or the loss.
    hold: Option<Hold>,
    renewal: Option<RenewalPlan>,
    /// The instant on the monotonic clock until which the lock stays on the masters, even if all
    /// guards are dropped before.
    hold_until: Option<Instant>,
    timer: Option<TimerKey>,
    /// The time when the renewer looks at this claim next.
    next_look: Option<Instant>,
    release: Option<Arc<LiveRound>>,
}

impl State {
    fn was_won(&self) -> bool {
        self.was_extended || self.newest.read(Round::outcome) == Outcome::Won
    }

    /// Adds to `may_hold` the masters that may have the key or the ticket because of the newest
    /// round. Called before another round becomes the newest.
    fn keep_newest(&mut self) {
        let may_keep = self.newest.read(Round::may_keep);
        self.may_hold |= may_keep;
    }

    /// Returns the masters that need a release. If the newest acquisition did not ask all masters,
    /// these are only the masters that may have the key.
    fn needs_release(&self) -> MasterSet {
        if mutant!(RollbackOfGrants) && !self.was_won() {
            return self.newest.read(Round::granted);
        }
        if mutant!(NoRollback) && !self.was_won() {
            return MasterSet::NONE;
        }
        if self.unasked.is_empty() {
            MasterSet::ALL
        } else {
            self.may_hold | (self.newest.read(Round::may_keep) - self.unasked)
        }
    }
}

impl Claim {
    pub(crate) fn name(&self) -> &Arc<str> {
        self.resource.name()
    }

    /// Returns the number of guards.
    pub(crate) fn depth(&self) -> u32 {
        self.lock().depth
    }

    /// Returns the number of rounds in which this claim has asked for the lock.
    pub(crate) fn rounds(&self) -> u32 {
        self.lock().rounds
    }

    /// Returns the newest round: the acquisition, or the last extension.
    pub(crate) fn newest_round(&self) -> Arc<LiveRound> {
        self.lock().newest.clone()
    }

    /// Waits until every master has voted in `round`, at most for a node timeout.
    pub(crate) async fn settled(&self, round: &LiveRound) {
        self.context.masters.settled(round).await;
    }

    pub(crate) fn votes(&self, round: &LiveRound) -> Votes {
        self.context.masters.votes(round)
    }

    /// Returns the fencing token, if the lock is fenced.
    pub(crate) fn fencing_token(&self) -> Option<u64> {
        self.counter.is_some().then(|| self.lock().candidate)
    }

    /// Returns the attempt as commands to masters carry it.
    fn attempt(&self, state: &State) -> Attempt {
        let ballot = self.counter.as_ref().map(|counter| Ballot {
            counter: counter.clone(),
            candidate: state.candidate,
        });
        Attempt {
            by: state.identity.clone(),
            depth: state.depth,
            ballot,
        }
    }

    /// Removes one level. Removing the last level releases the lock on all masters. The release
    /// arrives after all earlier requests of this claim. If a master may have the key and cannot be
    /// reached now, the release is owed to that master. With `watch`, the release of the last level
    /// also watches the key.
    fn leave(&self, watch: bool) -> Arc<LiveRound> {
        let masters = &self.context.masters;
        let now = clock::now();
        let round = Round::open(Verb::Release, masters.count(), now, None);
        let release = LiveRound::open(round, &masters.metrics);
        let mut state = self.lock();
        state.depth = state.depth.saturating_sub(1);
        if state.depth > 0 {
            self.post_depth(state, &release);
            return release;
        }
        let hold = state.hold.take();
        if hold.is_some() {
            self.state_at(&mut state, now); // notes an expiry that no one has noticed
        }
        let mut state = match self.leave_in_place(state) {
            Ok(left) => {
                self.end_hold(hold, HoldEnd::Left);
                return left;
            }
            Err(state) => state,
        };
        state.release = Some(release.clone());
        let (was_won, is_lost) = (state.was_won(), state.lost.is_some());
        if let Some(timer) = state.timer.take() {
            self.context.renewer.remove(timer);
        }
        let to = state.needs_release();
        self.post_release(state, to, &release, watch);
        for master in (0..masters.count()).filter(|master| !to.contains(*master)) {
            release.count(master, Vote::Refuse(Refusal::Gone), clock::monotonic());
        }
        if was_won {
            self.context.local_waiters.released(&self.resource);
        }
        let end = if is_lost {
            HoldEnd::Lost
        } else {
            HoldEnd::Released
        };
        self.end_hold(hold, end);
        release
    }

    /// Posts the release of the last level to the masters that need it.
    fn post_release(
        &self,
        state: Locked<'_>,
        to: MasterSet,
        release: &Arc<LiveRound>,
        watch: bool,
    ) {
        let masters = &self.context.masters;
        let votes = PostedRelease {
            release: release.clone(),
            keys_until: state.keys_until,
            may_hold: state.may_hold,
            newest: state.newest.clone(),
            _pending: masters.pending_releases.add(state.keys_until),
        };
        let attempt = self.attempt(&state);
        let mut command = Command::release(&self.resource, attempt, state.was_won());
        command.watch = watch;
        state.post(to, command, votes);
    }
}

/// Returns the expiry of a key that is written at `now` with `ttl`, on the monotonic clock.
fn expiry_of(ttl: Ttl, now: Instant) -> Instant {
    now.checked_add(ttl.duration()).unwrap_or(now)
}

/// A release that was posted. The release counts as pending while this value lives. Its round may
/// live longer: a task that reads the round does not delay the close of the coordinator.
#[derive(Debug)]
struct PostedRelease {
    release: Arc<LiveRound>,
    /// The instant on the monotonic clock at which everything that the claim may have written has
    /// expired.
    keys_until: Instant,
    /// The masters that may have the key or the ticket because of a heal, or because of a round
    /// before the newest one.
    may_hold: MasterSet,
    newest: Arc<LiveRound>,
    _pending: PendingRelease,
}

impl CountVotes for PostedRelease {
    fn count(&self, master: usize, vote: Vote, now: Instant) {
        self.release.count(master, vote, now);
    }

    fn owed_until(&self, master: usize) -> Option<Instant> {
        let may_hold = self.may_hold | self.newest.read(Round::may_keep);
        (may_hold.contains(master) && !mutant!(NothingOwed)).then_some(self.keys_until)
    }
}

/// One level of a claim, for one guard. Dropping this value removes the level. A future that is
/// dropped before it completes also drops its `Level`. So every round that does not end in a lock
/// is followed by a release.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub(crate) struct Level {
    claim: Arc<Claim>,
    release: OnceLock<Arc<LiveRound>>,
}

impl Level {
    /// Creates the first level of a claim, or a level that [`Claim::reenter`] has counted.
    pub(crate) fn new(claim: Arc<Claim>) -> Self {
        Self {
            claim,
            release: OnceLock::new(),
        }
    }

    /// Removes the level, unless it was removed before. Returns the round of the command that
    /// removes the level.
    pub(crate) fn release(&self) -> Arc<LiveRound> {
        self.give_back(false)
    }

    /// Does the same as [`release`](Self::release). With `watch`, also watches the key.
    pub(crate) fn give_back(&self, watch: bool) -> Arc<LiveRound> {
        let release = self.release.get_or_init(|| self.claim.leave(watch));
        release.clone()
    }
}

impl Deref for Level {
    type Target = Arc<Claim>;

    fn deref(&self) -> &Arc<Claim> {
        &self.claim
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.release();
    }
}
