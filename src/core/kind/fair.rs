//! The fair lock: the hash of a reentrant lock, and a queue of tickets on each master.

use super::{
    reentrant::{can_be_refused, marked_words},
    spec::{HolderForm, Spec},
};
use crate::core::{
    protocol::{
        command::{Action, Command, Reply},
        companion::Companion,
        identity::{QueueOptions, whole_millis},
        reply,
        script::{Script, fenced, lua, owned},
        words::Words,
    },
    vote::{Refusal, SlotVote, verb::Verb},
};

/// A fair lock that is held is extended, healed and left by the scripts of a reentrant lock.
pub(super) static SPEC: Spec = Spec {
    word: "fair",
    shown: "fair lock",
    holder: HolderForm::Ticket,
    companions: COMPANIONS,
    words,
    vote,
    is_watched: true,
    has_readers: false,
    has_slots: false,
};

const COMPANIONS: &[&Companion] = &[&QUEUE, &DEADLINES];

/// The queue, which holds the tickets of waiters.
pub(crate) static QUEUE: Companion = Companion::key("queue", "bmcq", "zset");
/// The times at which the waiters in the queue count as dead.
pub(crate) static DEADLINES: Companion = Companion::key("deadlines", "cbha", "zset");

static ACQUIRE: Script = Script::new(
    "fair/acquire",
    concat!(
        lua!(
            "shared/holder",
            "shared/store",
            "shared/ownership",
            "shared/queue",
            "shared/ballot"
        ),
        "local function acquire()\n",
        lua!("fair/acquire"),
        "end\n",
        lua!("shared/companions")
    ),
);
static RELEASE: Script = Script::new("fair/release", owned!("shared/queue", "fair/release"));
static RELEASE_FENCED: Script = Script::new(
    "fair/release_fenced",
    fenced!(owned!("shared/queue", "fair/release")),
);
static YIELD: Script = Script::new(
    "fair/yield",
    lua!("shared/ownership", "shared/queue", "fair/yield"),
);

fn words(command: &Command) -> Words<'_> {
    let is_fenced = command.is_fenced();
    match &command.action {
        Action::Acquire(holding, ttl, queue) => {
            // An attempt that does not wait has the waiter timeout 0.
            let [timeout, window] = queue.map_or([0, 0], QueueOptions::in_words);
            let words = Words::of(&ACQUIRE, command).keys(COMPANIONS);
            let words = words.depth(holding).ttl(*ttl).ticket();
            words.number(timeout).number(window).ballot()
        }
        Action::Release { holding, .. } if holding.depth == 0 => {
            let script = if is_fenced { &RELEASE_FENCED } else { &RELEASE };
            let words = Words::of(script, command).keys(COMPANIONS);
            words.ticket().ballot()
        }
        Action::Yield(_, waiter_timeout) => {
            let words = Words::of(&YIELD, command).keys(COMPANIONS);
            words.ticket().number(whole_millis(*waiter_timeout))
        }
        Action::Break(holders) => Words::break_held(command, holders).keys(COMPANIONS),
        Action::Inspect => Words::inspect(command).keys(&COMPANIONS[..1]),
        // A heal ignores the queue, because the lock is held.
        Action::Extend(..) | Action::Heal(..) | Action::Probe | Action::Release { .. } => {
            marked_words(command, "quorlock:fair", "")
        }
    }
}

fn vote(command: &Command, reply: &Reply<'_>) -> SlotVote {
    reply::vote(reply, |refusal| match (command.verb(), refusal) {
        (Verb::Acquire, Refusal::Queued { .. } | Refusal::Skewed { .. }) => true,
        (Verb::Yield, refusal) => *refusal == Refusal::Gone,
        (_, refusal) => can_be_refused(command, refusal),
    })
    .into()
}
