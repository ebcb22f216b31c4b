//! What is to be done after an input of the machine: commands to send, and effects.

use std::{
    sync::{Arc, OnceLock},
    task::Waker,
    time::Duration,
};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tracing::Span;

use crate::{
    core::{
        kind::Script,
        protocol::{Command, LockId, NativeRelease},
        time::{LeaseTick, Tick},
        view::LostReason,
        vote::{Outcome, Round, Verb, Votes},
    },
    machine::{RoundId, VotesTo},
    meter::IS_ON,
};

/// Something that is done once the machine is unlocked. Nearly all of it runs code of the program.
pub(crate) enum Effect {
    /// A round was decided, for metrics: its verb, its outcome, and how long it took.
    Decided(Verb, Outcome, Duration),
    Drop(Waker),
    Event(LockId, Option<Arc<Hold>>, What),
    News(usize, MasterEvent),
    RenewalDecided(Option<Arc<Hold>>, RoundId, &'static str),
    /// A renewal was posted, and someone wants to see it.
    Renews(LockId, Arc<Hold>, RoundId),
    /// The vote of a master, for metrics.
    Voted(usize, &'static str),
    Wake(Waker),
    /// The renewer must look at its timers.
    WakeRenewer,
}

/// A hold that someone wants to see. Subscribers are code of the program, so the spans are used,
/// and the last reference is dropped, while no mutex is locked. The claim passes its reference on
/// with the end of the hold.
pub(crate) struct Hold {
    /// `None` if no subscriber wants the span.
    pub(crate) span: Option<Span>,
    /// The start of the hold, or `None` if there are no metrics.
    pub(crate) since: Option<Tick>,
    /// The renewals whose spans have not ended.
    pub(crate) renewals: Mutex<Vec<(RoundId, Arc<Span>)>>,
}

/// Something that happened to a lock.
pub(crate) enum What {
    /// The hold has ended, with the word for its end.
    HoldEnded(&'static str),
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
    /// The command that keeps a lock for its minimum hold has failed.
    NotKept,
    NotPutBack(Votes),
    /// A majority has confirmed a renewal or an extension. The lock may have been in doubt before.
    Renewed {
        validity: Duration,
        was_in_doubt: bool,
    },
}

/// Something that happened to a master, for the log, metrics, and watchers of its health.
pub(crate) enum MasterEvent {
    /// The master answered its first command after an outage in which it only accepted connections.
    AnswersAgain,
    /// The master refused a subscription.
    CallsNobody { error: Arc<str> },
    /// The state of the master has changed. Another event says why, if the log should.
    Changes,
    /// A dial succeeded. This is no news while the outage goes on.
    Connected { is_first: bool, is_news: bool },
    /// A connection that had worked has ended, while nobody needed it or because the master lost
    /// its keys. The master is dialled at once.
    ConnectsAgain { why: Arc<str> },
    /// A dial failed, or a connection broke. This is news only if an outage begins with it.
    Down { is_news: bool, why: Arc<str> },
    /// This program cannot read the key that shows restarts.
    OriginDenied { why: Arc<str> },
    /// These programs have used other lists of masters lately.
    OtherLists { clients: String, ours: String },
    /// The master may have forgotten locks.
    Quarantined { left: Duration, why: &'static str },
    /// Too many releases waited for the master, and the oldest were given up.
    ReleasesGivenUp,
    /// The master refused to report releases.
    ReportsNothing { error: Arc<str> },
    /// The master takes locks again after [`TakesNoLocks`](Self::TakesNoLocks).
    TakesLocks { is_news: bool },
    /// The master answers with an error. This is no news soon after another error.
    TakesNoLocks { is_news: bool, why: Arc<str> },
    /// A quarantine has ended.
    VotesAgain,
}

impl Effect {
    pub(crate) fn decided(round: &Round, at: LeaseTick) -> Option<Self> {
        IS_ON.then(|| Self::Decided(round.verb(), round.outcome(), at.since(round.start())))
    }
}

/// One command, shared by the masters to which it is posted.
///
/// Every master casts at least one vote. The first vote comes at the latest when the response
/// timeout of the master is over. If a reply comes later, another vote follows. The response
/// timeout begins when the command is sent. Before that, the command may have to wait for the first
/// dial. If the master does not keep up, or is dialled again, the command may also wait for up to
/// one response timeout. A release that is owed may wait for longer: until it is sent, until the
/// connection ends, or until it is no longer owed. If this process notices a deadline late, the
/// master gets the delay as extra time, but at most one response timeout.
pub(crate) struct Request {
    pub(crate) command: Command,
    /// The time of the post. The response timeout of each master begins later, when the command is
    /// sent.
    pub(crate) posted: Tick,
    /// The encoded command. The first send creates it.
    pub(crate) encoded: OnceLock<Encoded>,
    pub(crate) votes_to: VotesTo,
}

impl Request {
    pub(crate) fn new(command: Command, posted: Tick, votes_to: VotesTo) -> Self {
        Self {
            command,
            posted,
            encoded: OnceLock::new(),
            votes_to,
        }
    }
}

/// The largest number of values of one type whose memory is kept. So the calls of a usual program
/// need no allocation, and what a burst has needed is freed.
const MOST_SPARE: usize = 256;

/// Boxes to use again.
pub(super) type Spare<T> = Vec<Box<T>>;

/// Returns a box with `value`: one of those in `spare`, if there is one.
#[inline]
pub(super) fn boxed<T>(spare: &mut Spare<T>, value: T) -> Box<T> {
    match spare.pop() {
        Some(mut spare) => {
            *spare = value;
            spare
        }
        None => Box::new(value),
    }
}

/// Keeps `one` in `spare`, to use its memory again. Its value is dropped later, so this must run no
/// code of the program.
pub(super) fn keep<T>(spare: &mut Vec<T>, one: T) {
    if spare.len() < MOST_SPARE {
        spare.push(one);
    }
}

/// A command as bytes, for masters that have its script or its native release. Only a long command,
/// such as one for a lock with a long name, needs an allocation.
pub(crate) struct Encoded {
    pub(crate) native: Option<NativeRelease>,
    pub(crate) script: Option<&'static Script>,
    pub(crate) bytes: SmallVec<[u8; 240]>,
}
