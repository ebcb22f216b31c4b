//! Log messages, spans and metrics about locks and rounds.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tracing::{Span, debug, debug_span, field, info, warn};

use crate::{
    clock,
    core::{
        error::AcquireError,
        kind::LockKind,
        protocol::LockId,
        reason::Reason,
        time::{OutageLog, Tick, rounded},
        view::LostReason,
        vote::{Outcome, Slot, Verb},
    },
    machine::{
        RoundId,
        claim::{KEPT, LOST, RELEASED, detach::DETACHED},
        out::{Hold, What},
        round::{CONFIRMED, CONFIRMED_LATE, FAILED},
    },
    meter::{By, Counted, Counter, Gauge, Histogram, IS_ON, counter, gauge, histogram, names},
};

/// Tells the program what happens to a coordinator's locks and rounds. Log subscribers and
/// recorders are code of the program, so the caller of a method must hold no mutex that protects
/// the state of this crate.
pub(crate) struct LockObserver {
    coordinator: Option<Arc<str>>,
    /// The outages in which there is no quorum. All acquisitions of a coordinator share this value,
    /// so that the log gets one warning for each outage, and not one for each lock.
    no_quorum: Mutex<OutageLog>,
    // If a metric is about locks, its first label is the kind of lock.
    waits: By<By<Histogram>>,
    holds: By<By<Histogram>>,
    losses: By<By<Counter>>,
    waiters: By<Gauge>,
    guards: By<Gauge>,
    round_times: By<Histogram>,
    rounds: By<By<Counter>>,
    renewals: By<Counter>,
}

impl LockObserver {
    /// Registers the metrics.
    pub(crate) fn new(coordinator: Option<Arc<str>>) -> Self {
        let words = &LockKind::ALL.map(LockKind::as_str);
        let (kinds, rounds) = (("kind", &words[..]), ("round", VERBS));
        Self {
            coordinator,
            no_quorum: Mutex::default(),
            waits: By::of_both(histogram, names::WAIT, kinds, ("outcome", WAITS)),
            holds: By::of_both(histogram, names::HOLD, kinds, ("end", ENDS)),
            losses: By::of_both(counter, names::LOSSES, kinds, ("reason", REASONS)),
            waiters: By::new(words, |kind| gauge(names::WAITERS, &[("kind", kind)])),
            guards: By::new(words, |kind| gauge(names::GUARDS, &[("kind", kind)])),
            round_times: By::new(VERBS, |verb| histogram(names::ROUND, &[("round", verb)])),
            rounds: By::of_both(counter, names::ROUNDS, rounds, ("outcome", ROUNDS)),
            renewals: By::new(RENEWALS, |outcome| {
                counter(names::RENEWALS, &[("outcome", outcome)])
            }),
        }
    }

    /// Logs and counts what the machine has said.
    pub(crate) fn tell(&self, lock: &LockId, hold: Option<&Hold>, what: What) {
        let name = lock.name();
        let _inside = hold.and_then(|hold| hold.span.as_ref()).map(Span::enter);
        match what {
            What::HoldEnded(end) => self.end_hold(lock, hold, end),
            What::InDoubt { remaining, votes } => {
                warn!(target: LOCK, lock = %name, remaining = ?rounded(remaining), %votes, "lock in doubt: it could not be renewed");
            }
            What::Lost {
                reason,
                stalled,
                votes,
            } => {
                let why = reason.after(stalled);
                warn!(target: LOCK, lock = %name, reason = %why, %votes, "lock lost");
                let reason = match reason {
                    LostReason::TakenAway => "taken_away",
                    LostReason::Expired => "expired",
                    LostReason::Closed => "closed",
                    LostReason::RenewalLimit => "renewal_limit",
                };
                if let Some(losses) = self.losses.at_both(lock.kind().as_str(), reason) {
                    losses.increment(1);
                }
            }
            What::NotKept => {
                warn!(target: LOCK, lock = %name, "lock not kept for its minimum hold: others may get it when its TTL has passed");
            }
            // The next renewal tries again.
            What::NotPutBack(votes) => {
                info!(target: LOCK, lock = %name, %votes, "lock not put back on a master");
            }
            What::Renewed {
                validity,
                was_in_doubt: true,
            } => {
                info!(target: LOCK, lock = %name, validity = ?rounded(validity), "lock no longer in doubt");
            }
            What::Renewed { validity, .. } => {
                debug!(target: LOCK, lock = %name, validity = ?rounded(validity), "lock renewed");
            }
        }
    }

    pub(crate) fn count_renewal(&self, outcome: &'static str) {
        if let Some(renewals) = self.renewals.at(outcome) {
            renewals.increment(1);
        }
    }

    pub(crate) fn call(&self, lock: &LockId) -> Span {
        let (name, kind) = (lock.name(), lock.kind());
        debug_span!(target: LOCK, "acquire", lock = %name, kind = kind.as_str(), outcome = field::Empty)
    }

    /// Logs that the lock was won. `won` reads the claim, and is called only if someone wants to
    /// see the event.
    pub(crate) fn acquired(
        &self,
        name: &str,
        call: &Span,
        won: impl Fn() -> (Duration, Option<u64>, Option<Slot>),
    ) {
        call.in_scope(
            || debug!(target: LOCK, lock = %name, validity = ?rounded(won().0), fencing_token = won().1, slot = won().2.map(Slot::shown), "lock acquired"),
        );
    }

    pub(crate) fn not_acquired(&self, name: &str, call: &Span, error: &AcquireError) {
        call.in_scope(|| debug!(target: LOCK, lock = %name, reason = %error, "lock not acquired"));
    }

    /// Records that a call to acquire `lock`, which began at `since`, is over.
    pub(crate) fn record_call(&self, lock: &LockId, since: Option<Tick>, outcome: &str) {
        let waits = self.waits.at_both(lock.kind().as_str(), outcome);
        record_since(since, waits);
    }

    /// Returns the hold of `lock` that begins now, if someone wants to see it. `won` reads the
    /// claim, and is called only if a subscriber wants to see the span.
    pub(crate) fn hold(
        &self,
        lock: &LockId,
        won: impl Fn() -> (Option<u64>, Option<Slot>),
    ) -> Option<Arc<Hold>> {
        let (name, kind) = (lock.name(), lock.kind());
        let span = debug_span!(target: LOCK, "hold", lock = %name, kind = kind.as_str(), fencing_token = won().0, slot = won().1.map(Slot::shown), end = field::Empty);
        let (span, since) = ((!span.is_disabled()).then_some(span), now_if_metered());
        if span.is_none() && since.is_none() {
            return None;
        }
        let renewals = Mutex::default();
        Some(Arc::new(Hold {
            span,
            since,
            renewals,
        }))
    }

    /// Logs a wait that has taken longer than the TTL of its lock.
    pub(crate) fn waits(&self, name: &str, waited: Duration, reason: &Reason) {
        info!(target: LOCK, lock = %name, waited = ?rounded(waited), %reason, "waiting for a lock for longer than its TTL");
    }

    /// Records the end of a hold of `lock`. `end` is the word for this end in the metrics. If the
    /// lock was released, also logs that.
    fn end_hold(&self, lock: &LockId, hold: Option<&Hold>, end: &str) {
        let name = lock.name();
        if let Some(hold) = hold {
            let holds = self.holds.at_both(lock.kind().as_str(), end);
            record_since(hold.since, holds);
            if let Some(span) = &hold.span {
                span.record("end", end);
            }
        }
        if end == RELEASED {
            debug!(target: LOCK, lock = %name, "lock released");
        }
    }

    /// Records that a round is over, and how long it took. A round that is over without an outcome
    /// has asked only the agreed master, which refused.
    pub(crate) fn record_round(&self, verb: Verb, outcome: Outcome, time: Duration) {
        let verb = match verb {
            Verb::Acquire => "acquire",
            Verb::Extend => "extend",
            Verb::Release => "release",
            Verb::Break | Verb::Heal | Verb::Inspect | Verb::Probe | Verb::Yield => return,
        };
        let outcome = match outcome {
            Outcome::NoMajority => "no_majority",
            Outcome::Pending => "cut_short",
            Outcome::TooLate => "too_slow",
            Outcome::Won => "won",
        };
        if let Some(times) = self.round_times.at(verb) {
            times.record(time.as_secs_f64());
        }
        if let Some(rounds) = self.rounds.at_both(verb, outcome) {
            rounds.increment(1);
        }
    }

    pub(crate) fn count_waiter(&self, lock: &LockId) -> Option<Counted> {
        self.waiters.at(lock.kind().as_str()).map(Counted::new)
    }

    pub(crate) fn count_guard(&self, lock: &LockId) -> Option<Counted> {
        self.guards.at(lock.kind().as_str()).map(Counted::new)
    }

    /// Logs that the local clock is behind the clocks of the masters by `offset_us` microseconds.
    pub(crate) fn clock_differs(&self, offset_us: i64) {
        warn!(target: MASTER, offset_us, "the local clock differs from the clocks of the masters: using theirs");
    }

    /// Logs that a master denies the question whether it takes locks, which is about `key`.
    pub(crate) fn not_asked(&self, master: &str, key: &str, error: &str) {
        let coordinator = self.coordinator.as_deref();
        warn!(target: MASTER, coordinator, %master, %key, reason = %error, "readiness is not known: if locks are denied, too, set the key template, or give the right");
    }

    pub(crate) fn lacks_quorum(&self, name: &str, reason: &Reason, votes: impl FnOnce() -> String) {
        let begins = self.no_quorum.lock().fails(clock::monotonic());
        if begins {
            let votes = votes();
            let coordinator = self.coordinator.as_deref();
            warn!(target: LOCK, coordinator, lock = %name, %reason, %votes, "no quorum: no lock can be acquired");
        }
    }

    /// Notes that an attempt found a quorum, which may have refused the lock.
    pub(crate) fn found_quorum(&self) {
        let ends = self.no_quorum.lock().works();
        if ends {
            let coordinator = self.coordinator.as_deref();
            info!(target: LOCK, coordinator, "quorum again: locks can be acquired");
        }
    }
}

const ENDS: &[&str] = &[DETACHED, KEPT, LOST, RELEASED];
const REASONS: &[&str] = &["taken_away", "expired", "closed", "renewal_limit"];
const RENEWALS: &[&str] = &[CONFIRMED, CONFIRMED_LATE, FAILED];
const ROUNDS: &[&str] = &["cut_short", "no_majority", "too_slow", "won"];
const VERBS: &[&str] = &["acquire", "extend", "release"];
const WAITS: &[&str] = &[
    "acquired",
    "busy",
    "closed",
    "denied",
    "dropped",
    "no_quorum",
    "other_kind",
    "quarantined",
    "too_slow",
];

impl Hold {
    /// Opens a span for a renewal: `round`.
    pub(crate) fn open_renewal(&self, name: &str, round: RoundId) {
        if let Some(hold) = &self.span {
            let span = debug_span!(target: LOCK, parent: hold, "renew", lock = %name, outcome = field::Empty);
            self.renewals.lock().push((round, Arc::new(span)));
        }
    }

    /// Records the outcome of a renewal in its span. If a majority has confirmed the renewal, ends
    /// this span and those of earlier renewals. Otherwise, late answers may still confirm it.
    pub(crate) fn decide_renewal(&self, round: RoundId, outcome: &str) {
        let mut spans = Vec::new();
        {
            let mut renewals = self.renewals.lock();
            if let Some(at) = renewals.iter().position(|(id, _)| *id == round) {
                if outcome == FAILED {
                    spans.push(renewals[at].clone());
                } else {
                    spans.extend(renewals.drain(..=at));
                }
            }
        }
        if let Some((_, span)) = spans.last() {
            span.record("outcome", outcome);
        }
    }
}

pub(crate) fn now_if_metered() -> Option<Tick> {
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

/// The target of the log events about masters: connected, down, without a vote. This name is part
/// of the API, because programs filter by it.
pub(crate) const MASTER: &str = "quorlock::master";
