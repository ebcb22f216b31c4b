//! The read-write lock: a hash with an entry for the writer or for each reader, and two queues of
//! tickets on each master.

use super::{
    fair::DEADLINES,
    reentrant::can_be_refused,
    spec::{HolderForm, Spec},
};
use crate::core::{
    protocol::{
        command::{Action, Command, Reply},
        companion::Companion,
        identity::whole_millis,
        reply,
        script::{Script, fenced, lua},
        words::Words,
    },
    vote::{Refusal, SlotVote, verb::Verb},
};

pub(super) static SPEC: Spec = Spec {
    word: "read_write",
    shown: "read-write lock",
    holder: HolderForm::Ticket,
    companions: COMPANIONS,
    words,
    vote,
    is_watched: false,
    has_readers: true,
    has_slots: false,
};

/// The scripts expect this order.
const COMPANIONS: &[&Companion] = &[&WRITERS, &DEADLINES, &READERS];

/// The queue of the tickets of writers.
static WRITERS: Companion = Companion::key("writers", "eeqv", "zset");
/// The queue of the tickets of readers.
static READERS: Companion = Companion::key("readers", "gbnw", "zset");

static ACQUIRE: Script = Script::new(
    "read_write/acquire",
    concat!(
        lua!(
            "read_write/uncontended_acquire",
            "shared/queue",
            "shared/entries",
            "shared/ballot"
        ),
        "local function acquire()\n",
        lua!("read_write/acquire"),
        "end\n",
        lua!("shared/companions")
    ),
);
static EXTEND: Script = Script::new(
    "read_write/extend",
    lua!("shared/queue", "shared/entries", "read_write/extend"),
);
static RELEASE: Script = Script::new(
    "read_write/release",
    lua!(
        "read_write/uncontended_release",
        "shared/queue",
        "shared/entries",
        "read_write/release"
    ),
);
static RELEASE_FENCED: Script = Script::new(
    "read_write/release_fenced",
    fenced!(lua!("shared/queue", "shared/entries", "read_write/release")),
);
static YIELD: Script = Script::new(
    "read_write/yield",
    lua!("shared/queue", "shared/entries", "read_write/yield"),
);

/// The waiter timeout of a command that puts back what a master lost, regardless of the waiters.
const HEAL: &str = "-1";

fn words(command: &Command) -> Words<'_> {
    let of = |script| Words::of(script, command).keys(COMPANIONS);
    match &command.action {
        Action::Acquire(holding, ttl, queue) => {
            let words = of(&ACQUIRE).depth(holding).ttl(*ttl).access(holding);
            words.ticket().queue(*queue).ballot()
        }
        Action::Heal(holding, ttl) => {
            let words = of(&ACQUIRE).depth(holding).ttl(*ttl).access(holding);
            words.ticket().text(HEAL).number(0).ballot()
        }
        Action::Extend(holding, ttl) => of(&EXTEND).depth(holding).ttl(*ttl).access(holding),
        // The level that is gone may have been the last one that excludes others.
        Action::Release { holding, .. } if holding.depth > 0 => {
            of(&EXTEND).depth(holding).number(0).access(holding)
        }
        Action::Release { holding, .. } => {
            let is_fenced = command.is_fenced();
            let script = if is_fenced { &RELEASE_FENCED } else { &RELEASE };
            of(script).access(holding).ticket().ballot()
        }
        Action::Yield(holding, waiter_timeout) => {
            let words = of(&YIELD).access(holding).ticket();
            words.number(whole_millis(*waiter_timeout))
        }
        Action::Break(holders) => Words::break_held(command, holders).keys(COMPANIONS),
        Action::Inspect => Words::inspect(command).keys(COMPANIONS),
        Action::Probe => Words::probe(command),
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
