//! What is to be done after an input of the machine.

use std::{fmt, mem, sync::Arc, task::Waker, time::Duration};

use smallvec::SmallVec;
use tracing::Span;

use crate::{
    core::{
        protocol::name::LockId,
        time::tick::{LeaseTick, Tick},
        view::lock_state::LostReason,
        vote::{Verb, quorum::Outcome, round::Round, votes::Votes},
    },
    meter::IS_ON,
};

/// What is done once the machine is unlocked. All of it runs code of the program.
#[derive(Debug, Default)]
pub(crate) struct Out {
    pub(crate) wake: Vec<Waker>,
    pub(crate) events: Vec<Event>,
    pub(crate) renewals: Vec<RenewalDecided>,
    /// What is new of which master.
    pub(crate) news: Vec<(usize, MasterEvent)>,
    /// The votes and the rounds that were decided, for metrics.
    pub(crate) voted: Vec<(usize, &'static str)>,
    pub(crate) decided: SmallVec<[Decided; 1]>,
    /// Set if the renewer must look at its timers.
    pub(crate) wakes_renewer: bool,
    /// What is dropped after the unlock.
    pub(crate) garbage: Vec<Box<dyn fmt::Debug + Send>>,
}

/// A round that was decided: its verb, its outcome, and how long it took.
pub(crate) type Decided = (Verb, Outcome, Duration);

/// Something that happened to a lock.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) lock: LockId,
    pub(crate) hold: HoldSpan,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    HoldEnded {
        end: &'static str,
    },
    /// A renewal or an extension has failed, and the next one begins or has begun before. The lock
    /// is still valid for the time `remaining`.
    InDoubt {
        remaining: Duration,
        votes: Votes,
    },
    /// The lock was lost, perhaps because this process did not run for a while.
    Lost {
        reason: LostReason,
        stalled: Option<Duration>,
        votes: Votes,
    },
    /// The command that keeps a lock for its minimum time has failed.
    NotKept,
    NotPutBack {
        votes: Votes,
    },
    /// A majority has confirmed a renewal or an extension. The lock may have been in doubt before.
    Renewed {
        validity: Duration,
        was_in_doubt: bool,
    },
}

/// The outcome of a renewal, and its span if a subscriber wants to see it.
pub(crate) type RenewalDecided = (&'static str, Option<Arc<Span>>);

/// Something that happened to a master, for its health, the log and metrics.
#[derive(Debug)]
pub(crate) enum MasterEvent {
    /// The master answered its first command after an outage in which it only accepted connections.
    AnswersAgain,
    /// The master refused a subscription.
    CallsNobody { error: Arc<str> },
    /// Nothing serves the master any more.
    Closes,
    /// A dial succeeded. This is no news while the outage goes on.
    Connected { is_news: bool },
    /// A connection is in use. If `quarantined_until` is set, the master has no vote until then.
    Connects {
        round_trip: Duration,
        quarantined_until: Option<Tick>,
    },
    /// A connection that had worked has ended, while nobody needed it or because the master lost
    /// its keys. The master is dialled at once.
    ConnectsAgain { why: Arc<str> },
    /// A dial failed, or a connection broke. This is news only if an outage begins with it.
    Down { is_news: bool, why: Arc<str> },
    /// The connection ends, before it is closed.
    Ends { why: Arc<str> },
    /// This program cannot read the key that shows restarts.
    OriginDenied { why: Arc<str> },
    /// The master may have forgotten locks.
    Quarantined { left: Duration, why: &'static str },
    /// Too many releases waited for the master, and the oldest were given up.
    ReleasesGivenUp,
    /// The master refused to report releases.
    ReportsNothing { error: Arc<str> },
    /// The master takes locks again after [`TakesNoLocks`](Self::TakesNoLocks).
    TakesLocks,
    /// The master answers with an error.
    TakesNoLocks { error: Arc<str> },
    /// A quarantine has ended.
    VotesAgain,
}

/// The span of a hold that has not ended. Subscribers are code of the program. So a caller that
/// uses this value, or drops its last clone, must hold no mutex that protects the state of this
/// crate. Cloning runs no code of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct HoldSpan {
    /// `None` if no subscriber wants to see the span.
    pub(crate) span: Option<Arc<Span>>,
    /// The start of the hold, or `None` if there are no metrics.
    pub(crate) since: Option<Tick>,
}

impl Out {
    /// Notes for the metrics that `round` was decided at `at`.
    pub(super) fn note_decided(&mut self, round: &Round, at: LeaseTick) {
        if IS_ON {
            let decided = (round.verb(), round.outcome(), at.since(round.start()));
            self.decided.push(decided);
        }
    }

    /// Returns what waits for the unlock. `None` if nothing does.
    pub(crate) fn take(&mut self) -> Option<Self> {
        let is_empty = self.wake.is_empty()
            && self.events.is_empty()
            && self.renewals.is_empty()
            && self.garbage.is_empty()
            && self.news.is_empty()
            && self.voted.is_empty()
            && self.decided.is_empty()
            && !self.wakes_renewer;
        (!is_empty).then(|| mem::take(self))
    }
}
