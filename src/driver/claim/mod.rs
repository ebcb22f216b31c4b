//! Claims on locks. A claim notes what its rounds may have left on the masters, keeps the lock and
//! releases it.

use std::{
    mem,
    ops::ControlFlow,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use super::{
    context::Context,
    live_round::LiveRound,
    observe::{
        metrics::{LEFT, LOST, RELEASED},
        observer::HoldSpan,
    },
    renewer::{Renew, TimerKey},
    time::Signal,
};
use crate::{
    clock,
    core::{
        claim::{ClaimState, ClaimStep, Notice, Terms},
        kind::{Kind, rights::Rights},
        protocol::command::Command,
        time::tick::{LeaseTick, Tick},
        view::lock_state::{LockState, LostReason},
        vote::{MasterSet, Slot, Verb, votes::Votes},
    },
    master::VoteCounter,
    meter::Counted,
};

pub(crate) mod ask;
pub(crate) mod extension;
pub(crate) mod level;
pub(crate) mod owned_lock;

/// A claim on a lock, from its first round to its release.
#[derive(Debug)]
pub(crate) struct Claim {
    context: Arc<Context>,
    terms: Terms,
    rights: Rights,
    /// The start of the first round, on the monotonic clock.
    began: Tick,
    protected: Mutex<Protected>,
    has_hold_begun: AtomicBool,
    /// Notified when the lock is lost.
    lost_signal: Signal,
}

impl Claim {
    pub(crate) fn name(&self) -> &Arc<str> {
        self.terms.lock_id.name()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.terms.lock_id.kind()
    }

    /// Returns the number of guards.
    pub(crate) fn depth(&self) -> u32 {
        self.read(ClaimState::depth)
    }

    /// Returns the number of rounds in which this claim has asked for the lock.
    pub(crate) fn rounds(&self) -> u32 {
        self.read(|claim| claim.rounds)
    }

    /// Returns the newest round: the acquisition, or the last extension.
    pub(crate) fn newest_round(&self) -> Arc<LiveRound> {
        self.protected.lock().newest.clone()
    }

    /// Returns the votes in the newest round.
    pub(crate) fn newest_votes(&self) -> Votes {
        if self.context.is_forked() {
            return self.votes(&self.context.closed_round(Verb::Extend));
        }
        self.votes(&self.newest_round())
    }

    /// Returns the fencing token, if the lock is fenced.
    pub(crate) fn fencing_token(&self) -> Option<u64> {
        self.read(ClaimState::fencing_token)
    }

    /// Returns the slot that was won, if the lock has slots.
    pub(crate) fn slot(&self) -> Option<Slot> {
        self.read(ClaimState::slot)
    }

    /// Returns the time that was left of the lease when the lock was won or last extended.
    pub(crate) fn validity(&self) -> Duration {
        self.read(|claim| claim.validity)
    }

    /// Returns a lower bound of the time for which this process stood still before the lock was
    /// lost. Returns `None` if the loss is not known to come from such a pause.
    pub(crate) fn stalled(&self) -> Option<Duration> {
        self.read(ClaimState::stalled)
    }

    /// Returns the end of the lease, on the clock of [`Tick`]. If a step of the wall clock moves
    /// the end to a time before the start of the first round, returns that start.
    pub(crate) fn valid_until(&self) -> Tick {
        if self.context.is_forked() {
            return self.began;
        }
        let until = self.read(|claim| Some(claim.lease.until()));
        until.map_or(self.began, |until| clock::to_monotonic(until, self.began))
    }

    /// Returns whether the lock is held. After a fork, the parent has it.
    pub(crate) fn lock_state(&self) -> LockState {
        if self.context.is_forked() {
            return LockState::Lost(LostReason::Ended);
        }
        self.lock().take_step(ClaimState::look)
    }

    /// Returns the time that is left of the lease. It is zero once the lock is lost.
    pub(crate) fn remaining(&self) -> Duration {
        if self.context.is_forked() {
            return Duration::ZERO;
        }
        self.lock().take_step(|claim, step| match claim.look(step) {
            LockState::Held | LockState::InDoubt => claim.lease.remaining(step.now),
            LockState::Lost(_) => Duration::ZERO,
        })
    }

    /// Begins the hold after the lock was won or reentered, and starts to renew the lock. If the
    /// lock is held already, keeps its renewal limit unless the limit in `request` is later. Does
    /// the same with the end of the minimum time.
    pub(crate) fn hold(self: &Arc<Self>, request: &ask::LockRequest) {
        let Context {
            observer, renewer, ..
        } = &*self.context;
        // The node timeout of a slow master may be long, compared with the lease.
        let least_retry = self.context.config.node_timeout.least();
        let spread = renewer.is_crowded().then(clock::random_u64);
        let has_begun = self.has_hold_begun.swap(true, Ordering::Relaxed);
        let mut hold = (!has_begun).then(|| {
            let lock = &self.terms.lock_id;
            observer.open_hold(lock, || (self.fencing_token(), self.slot()))
        });
        let mut locked = self.lock(); // declared after `hold`: unlocked before `hold` is dropped
        let due = locked.take_step(|claim, step| {
            claim.stay(step, request.min_hold);
            claim.hold(step, request.renewal, least_retry, spread)
        });
        if hold.is_some() && locked.state().is_held() {
            locked.protected.hold = hold.take();
        }
        if let Some(due) = due {
            self.start_timer(&mut locked, due);
        }
    }

    /// Stops the renewal. Without another extension, the lock ends with its present lease.
    pub(crate) fn stop_renewing(&self) {
        if self.context.is_forked() {
            return;
        }
        let mut locked = self.lock();
        locked.protected.state.stop_renewing();
        self.stop_timer(&mut locked);
    }

    /// Waits until the lock is lost. The lock also counts as lost when the timers end, because
    /// nothing can notice the end of its lease after that.
    pub(crate) async fn lost(&self) -> LostReason {
        let check = || match self.lock_state() {
            LockState::Lost(reason) => ControlFlow::Break(reason),
            // This task has its own timer for the end of the lease. The timer fires even if every
            // renewal hangs.
            LockState::Held | LockState::InDoubt => {
                ControlFlow::Continue(self.read(|claim| Some(claim.lease.until())))
            }
        };
        loop {
            if let Some(reason) = self.lost_signal.wait(&self.context.timers, check).await {
                return reason;
            }
            self.lock()
                .take_step(|claim, step| claim.lose(step, LostReason::Ended));
        }
    }

    /// Waits until every master has voted in the newest round. When the tasks have ended, no
    /// further vote comes.
    pub(crate) async fn settled(&self) {
        if !self.context.timers.have_ended() {
            self.newest_round().settled().await;
        }
    }

    pub(crate) fn votes(&self, round: &LiveRound) -> Votes {
        self.context.masters.votes(round)
    }

    fn start_timer(self: &Arc<Self>, locked: &mut Locked<'_>, due: LeaseTick) {
        let claim = Arc::downgrade(self) as Weak<dyn Renew>;
        locked.protected.timer = Some(self.context.renewer.add(due, claim));
    }

    fn stop_timer(&self, locked: &mut Locked<'_>) {
        if let Some(timer) = locked.protected.timer.take() {
            self.context.renewer.remove(timer);
        }
    }

    /// Ends the hold, if it has begun and has not ended before.
    fn end_hold(&self, end: &str) {
        let hold = self.protected.lock().hold.take();
        if let Some(hold) = hold {
            let observer = &self.context.observer;
            observer.end_hold(&self.terms.lock_id, &hold, end);
        }
    }

    /// Counts a guard, as long as the returned value exists.
    pub(crate) fn count_guard(&self) -> Option<Counted> {
        self.context.observer.count_guard(&self.terms.lock_id)
    }

    /// Returns the span of the hold. It is empty if there is no hold.
    fn hold_span(&self) -> HoldSpan {
        self.protected.lock().hold.clone().unwrap_or_default()
    }

    fn lock(&self) -> Locked<'_> {
        let protected = self.protected.lock();
        let monotonic = clock::monotonic();
        Locked {
            claim: self,
            protected,
            now: clock::now_at(monotonic),
            monotonic,
            notice: None,
            retired: None,
        }
    }

    /// Returns what `look` returns. After a fork, the mutex may stay locked: then, returns the
    /// default.
    fn read<T: Default>(&self, look: impl FnOnce(&ClaimState) -> T) -> T {
        let free = self.protected.try_lock();
        let is_stuck = free.is_none() && self.context.is_forked();
        if is_stuck {
            return T::default();
        }
        look(&free.unwrap_or_else(|| self.protected.lock()).state)
    }

    /// Announces a change. `retired` is the round that has put the lock in doubt, if one has.
    fn announce(&self, notice: Notice, retired: Option<&LiveRound>) {
        let (observer, lock) = (&self.context.observer, &self.terms.lock_id);
        let (name, hold) = (self.name(), self.hold_span());
        match notice {
            Notice::InDoubt { remaining } => {
                if let Some(round) = retired {
                    observer.in_doubt(name, &hold, remaining, &self.votes(round));
                }
            }
            Notice::Left => self.end_hold(LEFT),
            // A call for several locks may lose one of them before a guard has it.
            Notice::Lost { .. } if !self.has_hold_begun.load(Ordering::Relaxed) => {}
            Notice::Lost { reason, stalled } => {
                let votes = self.votes(&self.newest_round());
                observer.lost(lock, &hold, (reason, stalled), &votes);
                self.end_hold(LOST);
            }
            Notice::Released => self.end_hold(RELEASED),
            Notice::Renewed {
                validity,
                was_in_doubt,
            } => observer.renewed(name, &hold, validity, was_in_doubt),
        }
    }
}

#[derive(Debug)]
struct Protected {
    state: ClaimState,
    /// The newest round: the acquisition, or the last extension.
    newest: Arc<LiveRound>,
    /// The span of the hold, from the win to the release or the loss.
    hold: Option<HoldSpan>,
    timer: Option<TimerKey>,
}

/// The state of a claim while it is locked. The time is read after the mutex is locked. Dropping
/// this value unlocks the state, and then announces a change. The announcement runs code of the
/// program, so no mutex may be locked.
#[derive(Debug)]
struct Locked<'a> {
    claim: &'a Claim,
    protected: MutexGuard<'a, Protected>,
    now: LeaseTick,
    monotonic: Tick,
    /// A change to announce.
    notice: Option<Notice>,
    /// A round before the newest one: the last one when a new one was opened, or one that has
    /// failed. Dropping the round drops wakers. This field is declared after `protected`, so it is
    /// dropped after the unlock.
    retired: Option<Arc<LiveRound>>,
}

impl Locked<'_> {
    /// Calls `act` with the state, and locks the newest round meanwhile.
    fn take_step<T>(&mut self, act: impl FnOnce(&mut ClaimState, &mut ClaimStep<'_>) -> T) -> T {
        let Protected { state, newest, .. } = &mut *self.protected;
        let (done, notice, opened) = newest.read(|round| {
            let terms = &self.claim.terms;
            let mut step = ClaimStep::new(terms, round, self.now, self.monotonic);
            let done = act(state, &mut step);
            (done, step.notice, step.opened)
        });
        if notice.is_some() {
            self.notice = notice;
        }
        if let Some(round) = opened {
            let round = LiveRound::open(*round, &self.claim.context.observer);
            self.retired = Some(mem::replace(newest, round));
        }
        done
    }

    fn state(&self) -> &ClaimState {
        &self.protected.state
    }

    /// Posts `command`, unlocks, and then casts the votes of the masters that failed at once.
    /// Casting may run code of the program. The claim is locked until the command is posted, so a
    /// release never overtakes an extension.
    fn post<C: VoteCounter + 'static>(self, to: MasterSet, command: Command, votes_to: C) {
        let masters = &self.claim.context.masters;
        let posted = masters.post_locked(to, command, votes_to, self.monotonic);
        drop(self);
        drop(posted);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let claim = self.claim;
        let Some(mut notice) = self.notice.take() else {
            return;
        };
        if let Notice::Lost { stalled, .. } = &mut notice
            && stalled.is_some()
            && claim.context.renewer.is_crowded()
        {
            // With very many locks, the renewer may be late although the process did not stand
            // still, because the renewer also waits for votes.
            *stalled = None;
            self.protected.state.was_not_stalled();
        }
        let retired = self.retired.as_deref();
        MutexGuard::unlocked(&mut self.protected, || {
            if let Notice::Lost { .. } = notice {
                claim.lost_signal.notify();
            }
            claim.announce(notice, retired);
        });
    }
}
