//! One attempt at a lock, from its first byte to its release.

mod keeping;
mod rounds;

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::{
    core::{
        ballot::Ballot,
        command::{Action, Command, NewKey, Verb, WakeScope},
        identity::Identity,
        lease::{Lease, Ttl},
        lock_state::{LockState, LostReason},
        master_set::MasterSet,
        name::{Kind, Resource},
        renewal::RenewalPlan,
        round::{Outcome, Round},
        votes::Votes,
    },
    driver::clock,
    driver::engine::Engine,
    driver::live_round::{HealVotes, LiveRound, PostedRelease},
    driver::owned_lock::{LockOwner, OwnedLock},
    driver::renewer::TimerKey,
    master::Request,
    user_code::shielded,
};

pub(crate) use rounds::NextRound;

/// What is asked for: a lock, for how long, and in whose name.
#[derive(Clone, Debug)]
pub(crate) struct LockRequest {
    pub(crate) resource: Resource,
    pub(crate) ttl: Ttl,
    /// Of a mutex there is none.
    pub(crate) owner: Option<Arc<LockOwner<Claim>>>,
    /// The counter of a fenced lock.
    pub(crate) counter: Option<Arc<str>>,
}

/// What a claim may have left on the masters, how it is kept, and how it is taken back.
#[derive(Debug)]
pub(crate) struct Claim {
    engine: Arc<Engine>,
    resource: Resource,
    ttl: Ttl,
    /// Of a fenced lock.
    counter: Option<Arc<str>>,
    /// For the owner's other attempts, while this one is held.
    _owned: Option<Arc<OwnedLock<Claim>>>,
    /// When the first attempt began, on the monotonic clock.
    began: Instant,
    state: Mutex<State>,
    /// The lock may be lost: whoever waits for that looks again.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// That of the newest attempt: what gives it back gives back those before it, too, and nothing that comes
    /// after it.
    identity: Identity,
    lease: Lease,
    /// What was left of the lease when it was won.
    validity: Duration,
    /// When the last key that we may have written is gone by itself, on the monotonic clock: a wall
    /// clock that is set forward must not make a release look needless.
    keys_until: Instant,
    /// Masters that may hold the key, a bit each; those of the newest round come on top.
    may_hold: MasterSet,
    /// What the newest acquisition offered for a fencing token.
    candidate: u64,
    /// How many rounds it has taken to acquire the lock.
    rounds: u32,
    /// How many guards there are, or will be when their rounds are won.
    depth: u32,
    /// The acquisition, or the last extension.
    newest: Arc<LiveRound>,
    /// An extension before the newest round failed, and none has succeeded since.
    in_doubt: bool,
    /// Never unset: who was told that it is lost must not hear otherwise later.
    lost: Option<LostReason>,
    renewal: Option<RenewalPlan>,
    timer_key: Option<TimerKey>,
    release: Option<Arc<LiveRound>>,
}

/// The state while it is locked. A loss is announced after it is unlocked, as that runs code of the
/// program's.
#[derive(Debug)]
struct Locked<'a> {
    /// Dropped first, as it comes first.
    state: MutexGuard<'a, State>,
    announcement: Announcement<'a>,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// Announces a loss, if there is one, when this is dropped.
#[derive(Debug)]
struct Announcement<'a> {
    hold: &'a Claim,
    lost: Option<LostReason>,
}

impl Drop for Announcement<'_> {
    fn drop(&mut self) {
        if let Some(reason) = self.lost {
            let hold = self.hold;
            shielded(|| tracing::warn!(name = %hold.name(), ?reason, "lock lost"));
            shielded(|| hold.changed.notify_waiters());
        }
    }
}

impl Claim {
    fn lock(&self) -> Locked<'_> {
        Locked {
            state: self.state.lock(),
            announcement: Announcement {
                hold: self,
                lost: None,
            },
        }
    }

    /// Waits for the outcome of the acquisition. A lock that was won is still given up when nothing is
    /// left of its validity by the time this task gets to run.
    pub(crate) async fn decided(&self) -> Outcome {
        let acquisition = self.newest_round();
        let outcome = acquisition.decided().await;
        if outcome != Outcome::Won {
            return outcome;
        }
        let now = clock::now();
        let mut state = self.state.lock();
        state.validity = state.lease.remaining(now);
        if state.lease.is_valid(now) {
            Outcome::Won
        } else {
            Outcome::TooLate
        }
    }

    /// Takes one level off, and with the last one the claim back from all masters: behind whatever was sent for
    /// it, and owed to those that may hold it and cannot be reached now.
    fn leave(&self) -> Arc<LiveRound> {
        let start = clock::now();
        let round = Round::open(Verb::Release, self.engine.size(), start, None);
        let release = LiveRound::of_release(round);
        let mut state = self.lock();
        state.depth = state.depth.saturating_sub(1);
        if let Some(owner) = state.identity.owner()
            && state.depth > 0
        {
            // Owed to nobody: whatever comes next sets the depth right.
            let action = Action::SetDepth {
                by: owner.clone(),
                depth: state.depth,
                ballot: self.ballot(&state),
            };
            let command = Command::new(&self.resource, action);
            let ask = self.engine.ask(command, release.clone());
            self.engine.post(&ask);
            return release;
        }
        state.release = Some(release.clone());
        let (delivery, was_won) = self.deliver(&state, &release);
        if let Some(timer_key) = state.timer_key.take() {
            self.engine.renewer().forget(timer_key);
        }
        drop(state);
        // Not under the lock: both may wake a task.
        drop(delivery);
        if was_won {
            self.engine.waiting().released(&self.resource);
        }
        release
    }

    /// Posts the release of the last level. Whether others wait for it comes with what is posted,
    /// which is to be dropped after unlocking.
    fn deliver(
        &self,
        state: &State,
        release: &Arc<LiveRound>,
    ) -> (Arc<Request<PostedRelease>>, bool) {
        let (was_won, wakes) = (state.newest.was_won(), self.wakes(state));
        let delivery = PostedRelease {
            release: release.clone(),
            keys_until: state.keys_until,
            may_hold: state.may_hold,
            newest: state.newest.clone(),
            _pending: self.engine.pending_release(state.keys_until),
        };
        let publishers = match &state.identity {
            Identity::Token(token) if was_won => self.engine.publishers(token.spread()),
            // It is not known which masters have the key, and the others tell nobody. A waiter of
            // Redisson listens to a single master, which may be any.
            _ => MasterSet::ALL,
        };
        let action = Action::Release {
            by: state.identity.clone(),
            wakes,
            ballot: self.ballot(state),
        };
        let command = Command::new(&self.resource, action);
        let engine = &self.engine;
        let ask = engine.request_with_publishers(command, publishers, delivery);
        engine.post(&ask);
        (ask, was_won)
    }

    /// Puts the key back on `masters`, a bit each, which lost it. Only ever called when a majority
    /// has confirmed that the lock is ours. Does nothing after a release, nor when the validity is
    /// over: a master that answers late may do so after that.
    pub(crate) fn heal(&self, masters: MasterSet, ttl: Ttl, extension: &Arc<LiveRound>) {
        let start = clock::now();
        let mut state = self.lock();
        let is_lost = matches!(self.look(&mut state, start), LockState::Lost(_));
        if state.release.is_some() || is_lost {
            return;
        }
        state.keys_until = state.keys_until.max(end_of(ttl));
        state.may_hold |= masters;
        let healing = HealVotes {
            extension: extension.clone(),
        };
        let key = NewKey {
            ttl,
            depth: state.depth,
            ballot: self.ballot(&state),
        };
        let by = state.identity.clone();
        let command = Command::new(&self.resource, Action::Heal { by, key });
        let ask = self.engine.ask(command, healing);
        self.engine.post_to(masters, &ask);
    }

    pub(crate) fn kind(&self) -> Kind {
        self.resource.kind()
    }

    /// How many guards there are.
    pub(crate) fn depth(&self) -> u32 {
        self.state.lock().depth
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        self.resource.name()
    }

    /// How long the acquisition has been under way, and what it asked for.
    pub(crate) fn elapsed(&self) -> (Duration, Duration) {
        let elapsed = self.newest_round().elapsed(clock::now());
        (elapsed, self.ttl.duration())
    }

    pub(crate) fn validity(&self) -> Duration {
        self.state.lock().validity
    }

    /// When the lease ends, on the clock that users have. After a step of the wall clock this could
    /// lie before the start, so it is never earlier than that.
    pub(crate) fn valid_until(&self) -> Instant {
        let until = self.state.lock().lease.until();
        clock::to_monotonic(until, self.began)
    }

    /// The acquisition, or the last extension.
    pub(crate) fn newest_round(&self) -> Arc<LiveRound> {
        self.state.lock().newest.clone()
    }

    pub(crate) fn votes(&self, round: &LiveRound) -> Votes {
        self.engine.votes(round)
    }

    /// The fencing token, of a fenced lock that is held.
    pub(crate) fn fencing_token(&self) -> Option<u64> {
        self.counter.is_some().then(|| self.state.lock().candidate)
    }

    /// How many rounds it has taken to acquire the lock.
    pub(crate) fn rounds(&self) -> u32 {
        self.state.lock().rounds
    }

    fn ballot(&self, state: &State) -> Option<Ballot> {
        self.counter.as_ref().map(|counter| Ballot {
            counter: counter.clone(),
            candidate: state.candidate,
        })
    }

    /// Returns whom the last release wakes.
    ///
    /// A lost round has found the lock held by others, and gives back what it got on some masters.
    /// Waiters of this crate count these masters, see [`ChannelEvent`](crate::master::ChannelEvent): if each such
    /// message woke them, they would wake each other with every attempt.
    fn wakes(&self, state: &State) -> WakeScope {
        let may_have_been_held =
            state.newest.was_won() || state.newest.read(Round::may_have_barred);
        match &state.identity {
            // Its scripts call the next waiter by themselves.
            Identity::Ticket { .. } => WakeScope::Nobody,
            _ if may_have_been_held => WakeScope::Everybody,
            // Redisson takes no part in it, and a message would be one more command per master.
            Identity::Token(_) => WakeScope::Nobody,
            Identity::Owner { .. } => WakeScope::ThisMaster,
        }
    }
}

/// When what is written now with `ttl` is gone by itself, on the monotonic clock.
fn end_of(ttl: Ttl) -> Instant {
    let now = clock::monotonic();
    now.checked_add(ttl.duration()).unwrap_or(now)
}

/// One level of a hold, which is given up when this is dropped, wherever its owner's future was: this is what
/// makes every round that does not end in a lock end in a release.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub(crate) struct Level {
    hold: Arc<Claim>,
    release: OnceLock<Arc<LiveRound>>,
}

impl Level {
    /// The first level.
    pub(crate) fn new(hold: Arc<Claim>) -> Self {
        Self {
            hold,
            release: OnceLock::new(),
        }
    }

    /// Gives the level up, once.
    pub(crate) fn release(&self) -> Arc<LiveRound> {
        self.release.get_or_init(|| self.hold.leave()).clone()
    }
}

impl Deref for Level {
    type Target = Arc<Claim>;

    fn deref(&self) -> &Arc<Claim> {
        &self.hold
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.release();
    }
}
