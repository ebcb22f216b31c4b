//! Log messages, spans and metrics about locks and rounds.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tracing::{Span, debug, debug_span, field, info, warn};

use super::metrics::{LockMetrics, RELEASED};
use crate::{
    clock,
    core::{
        error::AcquireError,
        protocol::name::LockId,
        time::{OutageLog, rounded, tick::Tick},
        view::lock_state::LostReason,
        vote::{Slot, Verb, obstacle::Obstacle, quorum::Outcome, votes::Votes},
    },
    master::MASTER,
    meter::{Counted, Histogram, IS_ON},
};

/// Tells the program what happens to a coordinator's locks and rounds. Log subscribers and
/// recorders are code of the program, so the caller of a method must hold no mutex that protects
/// the state of this crate.
#[derive(Debug)]
pub(crate) struct LockObserver {
    /// The label of the coordinator.
    label: Option<Arc<str>>,
    metrics: LockMetrics,
    /// The outages in which there is no quorum. All acquisitions of a coordinator share this value,
    /// so that the log gets one warning for each outage, and not one for each lock.
    no_quorum: Mutex<OutageLog>,
    /// `true` from an attempt that finds no quorum to the next attempt that finds one. This flag
    /// changes only while `no_quorum` is locked. An attempt that finds a quorum looks at the flag
    /// before it locks `no_quorum`, and usually need not lock it.
    lacks_quorum: AtomicBool,
}

impl LockObserver {
    /// Registers the metrics.
    pub(in crate::driver) fn new(label: Option<Arc<str>>) -> Self {
        Self {
            label,
            metrics: LockMetrics::register(),
            no_quorum: Mutex::default(),
            lacks_quorum: AtomicBool::new(false),
        }
    }

    /// Returns a span for a call to acquire `lock`.
    pub(in crate::driver) fn call(&self, lock: &LockId) -> Span {
        let (name, kind) = (lock.name(), lock.kind());
        debug_span!(target: LOCK, "acquire", lock = %name, %kind, outcome = field::Empty)
    }

    /// Logs that the lock was won. `won` reads the claim, and is called only if someone wants to
    /// see the event.
    pub(in crate::driver) fn acquired(
        &self,
        name: &str,
        call: &Span,
        won: impl Fn() -> (Duration, Option<u64>, Option<Slot>),
    ) {
        call.in_scope(
            || debug!(target: LOCK, lock = %name, validity = ?rounded(won().0), fencing_token = won().1, slot = won().2.map(Slot::shown), "lock acquired"),
        );
    }

    pub(in crate::driver) fn not_acquired(&self, name: &str, call: &Span, error: &AcquireError) {
        call.in_scope(|| debug!(target: LOCK, lock = %name, %error, "lock not acquired"));
    }

    /// Records that a call to acquire `lock`, which began at `since`, is over.
    pub(in crate::driver) fn record_call(&self, lock: &LockId, since: Option<Tick>, outcome: &str) {
        let waits = self.metrics.waits.at_both(lock.kind().word(), outcome);
        record_since(since, waits);
    }

    /// Returns a span for a hold of `lock`. `won` reads the claim, and is called only if someone
    /// wants to see the span.
    pub(in crate::driver) fn open_hold(
        &self,
        lock: &LockId,
        won: impl Fn() -> (Option<u64>, Option<Slot>),
    ) -> HoldSpan {
        let (name, kind) = (lock.name(), lock.kind());
        let span = debug_span!(target: LOCK, "hold", lock = %name, %kind, fencing_token = won().0, slot = won().1.map(Slot::shown), end = field::Empty);
        HoldSpan {
            span: (!span.is_disabled()).then(|| Arc::new(span)),
            since: now_if_metered(),
        }
    }

    /// Logs a wait that has taken longer than the TTL of its lock.
    pub(in crate::driver) fn waits(
        &self,
        name: &str,
        waited: Duration,
        reason: &impl fmt::Display,
        own_guard: bool,
    ) {
        if own_guard {
            warn!(target: LOCK, lock = %name, waited = ?rounded(waited), "waiting for a lock that a guard of this coordinator holds");
        } else {
            info!(target: LOCK, lock = %name, waited = ?rounded(waited), %reason, "waiting for a lock for longer than its TTL");
        }
    }

    pub(in crate::driver) fn in_doubt(
        &self,
        name: &str,
        hold: &HoldSpan,
        remaining: Duration,
        votes: &Votes,
    ) {
        hold.inside(
            || warn!(target: LOCK, lock = %name, remaining = ?rounded(remaining), %votes, "lock in doubt: it could not be renewed"),
        );
    }

    pub(in crate::driver) fn renewed(
        &self,
        name: &str,
        hold: &HoldSpan,
        validity: Duration,
        was_in_doubt: bool,
    ) {
        hold.inside(|| {
            if was_in_doubt {
                info!(target: LOCK, lock = %name, validity = ?rounded(validity), "lock no longer in doubt");
            } else {
                debug!(target: LOCK, lock = %name, validity = ?rounded(validity), "lock renewed");
            }
        });
    }

    /// Logs that the key was not put back on a master that had lost it. The next renewal tries
    /// again.
    pub(in crate::driver) fn not_put_back(&self, name: &str, hold: &HoldSpan, votes: &Votes) {
        hold.inside(|| info!(target: LOCK, lock = %name, %votes, "lock not put back on a master"));
    }

    /// Logs and counts the loss of `lock`. `stalled` is the time for which this process did not run
    /// before the loss.
    pub(in crate::driver) fn lost(
        &self,
        lock: &LockId,
        hold: &HoldSpan,
        (reason, stalled): (LostReason, Option<Duration>),
        votes: &Votes,
    ) {
        let (name, why) = (lock.name(), reason.after(stalled));
        hold.inside(|| warn!(target: LOCK, lock = %name, reason = %why, %votes, "lock lost"));
        let reason = match reason {
            LostReason::Disowned => "disowned",
            // Both reasons mean that nothing extended the lock, so they share a label.
            LostReason::Expired | LostReason::Ended => "expired",
            LostReason::RenewalLimit => "renewal_limit",
        };
        if let Some(losses) = self.metrics.losses.at_both(lock.kind().word(), reason) {
            losses.increment(1);
        }
    }

    /// Records the end of a hold of `lock`. `end` is the word for this end in the metrics. If the
    /// lock was released, also logs that.
    pub(in crate::driver) fn end_hold(&self, lock: &LockId, hold: &HoldSpan, end: &str) {
        let name = lock.name();
        let holds = self.metrics.holds.at_both(lock.kind().word(), end);
        record_since(hold.since, holds);
        if let Some(span) = &hold.span {
            span.record("end", end);
        }
        if end == RELEASED {
            hold.inside(|| debug!(target: LOCK, lock = %name, "lock released"));
        }
    }

    pub(in crate::driver) fn not_kept(&self, name: &str) {
        warn!(target: LOCK, lock = %name, "lock not kept for its minimum time: others may get it when its TTL has passed");
    }

    /// Returns a span for a renewal, if a subscriber wants to see the span of the `hold`.
    pub(in crate::driver) fn renewal(&self, name: &str, hold: &HoldSpan) -> Option<Span> {
        let hold = hold.span.as_deref()?;
        Some(debug_span!(target: LOCK, parent: hold, "renew", lock = %name, outcome = field::Empty))
    }

    /// Counts a renewal that was decided.
    pub(in crate::driver) fn renewal_decided(&self, outcome: &str) {
        if let Some(renewals) = self.metrics.renewals.at(outcome) {
            renewals.increment(1);
        }
    }

    /// Records that a round is over. `look` returns its verb, its outcome and how long it took. A
    /// round that is over without an outcome has asked only the agreed master, which refused.
    pub(in crate::driver) fn record_round(&self, look: impl FnOnce() -> (Verb, Outcome, Duration)) {
        if !IS_ON {
            return;
        }
        let (verb, outcome, time) = look();
        let verb = match verb {
            Verb::Acquire => "acquire",
            Verb::Extend => "extend",
            Verb::Release => "release",
            Verb::Break | Verb::Heal | Verb::Inspect | Verb::Probe | Verb::Yield => return,
        };
        let outcome = match outcome {
            Outcome::NoMajority => "no_majority",
            Outcome::Pending => "cut_short",
            Outcome::TooLate => "too_late",
            Outcome::Won => "won",
        };
        if let Some(times) = self.metrics.round_times.at(verb) {
            times.record(time.as_secs_f64());
        }
        if let Some(rounds) = self.metrics.rounds.at_both(verb, outcome) {
            rounds.increment(1);
        }
    }

    /// Counts a waiter for `lock`, as long as the returned value exists.
    pub(in crate::driver) fn count_waiter(&self, lock: &LockId) -> Option<Counted> {
        let waiters = self.metrics.waiters.at(lock.kind().word());
        waiters.map(Counted::new)
    }

    /// Counts a guard of `lock`, as long as the returned value exists.
    pub(in crate::driver) fn count_guard(&self, lock: &LockId) -> Option<Counted> {
        let guards = self.metrics.guards.at(lock.kind().word());
        guards.map(Counted::new)
    }

    /// Logs that the local clock is behind the clocks of the masters by `offset_us` microseconds.
    pub(in crate::driver) fn clock_differs(&self, offset_us: i64) {
        warn!(target: MASTER, offset_us, "the local clock differs from the clocks of the masters: using theirs");
    }

    /// Logs that a master denies the question whether it takes locks, which is about `key`.
    pub(in crate::driver) fn not_asked(&self, master: &str, key: &str, error: &str) {
        let label = self.label.as_deref();
        warn!(target: MASTER, label, %master, %key, %error, "readiness is not known: if locks are denied, too, set the key template, or give the right");
    }

    /// Notes that an attempt at the lock `name` found no quorum, for this `reason`.
    pub(in crate::driver) fn lacks_quorum(
        &self,
        name: &str,
        reason: &Obstacle,
        votes: impl FnOnce() -> String,
    ) {
        let mut no_quorum = self.no_quorum.lock();
        self.lacks_quorum.store(true, Ordering::Relaxed);
        let begins = no_quorum.fails(clock::monotonic());
        drop(no_quorum);
        if begins {
            let votes = votes();
            let label = self.label.as_deref();
            warn!(target: LOCK, label, lock = %name, %reason, %votes, "no quorum: no lock can be acquired");
        }
    }

    /// Notes that an attempt found a quorum, which may have refused the lock.
    pub(in crate::driver) fn found_quorum(&self) {
        if !self.lacks_quorum.load(Ordering::Relaxed) {
            return;
        }
        let mut no_quorum = self.no_quorum.lock();
        self.lacks_quorum.store(false, Ordering::Relaxed);
        let ends = no_quorum.works();
        drop(no_quorum);
        if ends {
            let label = self.label.as_deref();
            info!(target: LOCK, label, "quorum again: locks can be acquired");
        }
    }
}

/// The span of a hold that has not ended. Subscribers are code of the program. So a caller that
/// uses this value, or drops its last clone, must hold no mutex that protects the state of this
/// crate. Cloning runs no code of the program.
#[derive(Clone, Debug, Default)]
pub(in crate::driver) struct HoldSpan {
    /// `None` if no subscriber wants to see the span.
    span: Option<Arc<Span>>,
    /// The start of the hold, or `None` if there are no metrics.
    since: Option<Tick>,
}

impl HoldSpan {
    /// Calls `log`, which writes log messages, inside the span.
    fn inside(&self, log: impl FnOnce()) {
        match &self.span {
            Some(span) => span.in_scope(log),
            None => log(),
        }
    }
}

/// Returns the time, if there are metrics.
pub(in crate::driver) fn now_if_metered() -> Option<Tick> {
    IS_ON.then(clock::monotonic)
}

/// Records the time since `since`, if there are metrics.
fn record_since(since: Option<Tick>, times: Option<&Histogram>) {
    if let (Some(since), Some(times)) = (since, times) {
        let lasted = clock::monotonic().since(since);
        times.record(lasted.as_secs_f64());
    }
}

/// The target of the log events about locks: acquired, renewed, in doubt, released and lost. This
/// name is part of the API, because programs filter by it.
const LOCK: &str = "quorlock::lock";
