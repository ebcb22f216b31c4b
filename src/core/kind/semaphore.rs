//! The semaphore: a hash with an entry for each holder, who has a slot of its own, and a queue of
//! tickets on each master.

use std::num::NonZeroU16;

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
    vote::{Refusal, SlotVote, Vote, verb::Verb},
};

pub(super) static SPEC: Spec = Spec {
    word: "semaphore",
    shown: "semaphore",
    holder: HolderForm::Ticket,
    companions: COMPANIONS,
    words,
    vote,
    is_watched: false,
    has_readers: false,
    has_slots: true,
};

/// The scripts expect this order.
const COMPANIONS: &[&Companion] = &[&WAITERS, &DEADLINES];

/// The queue of the tickets.
static WAITERS: Companion = Companion::key("waiters", "anrc", "zset");

static ACQUIRE: Script = Script::new(
    "semaphore/acquire",
    concat!(
        lua!(
            "semaphore/uncontended_acquire",
            "shared/queue",
            "shared/permits",
            "shared/ballot"
        ),
        "local function acquire()\n",
        lua!("semaphore/acquire"),
        "end\n",
        lua!("shared/companions")
    ),
);
static EXTEND: Script = Script::new(
    "semaphore/extend",
    lua!("shared/queue", "shared/permits", "semaphore/extend"),
);
static RELEASE: Script = Script::new(
    "semaphore/release",
    lua!(
        "semaphore/uncontended_release",
        "shared/queue",
        "shared/permits",
        "semaphore/release"
    ),
);
static RELEASE_FENCED: Script = Script::new(
    "semaphore/release_fenced",
    fenced!(lua!("shared/queue", "shared/permits", "semaphore/release")),
);
static YIELD: Script = Script::new(
    "semaphore/yield",
    lua!("shared/queue", "shared/permits", "semaphore/yield"),
);

/// The waiter timeout of a command that puts back what a master lost, regardless of the waiters.
const HEAL: &str = "-1";

fn words(command: &Command) -> Words<'_> {
    let of = |script| Words::of(script, command).keys(COMPANIONS);
    match &command.action {
        Action::Acquire(holding, ttl, queue) => {
            let words = of(&ACQUIRE).depth(holding).ttl(*ttl);
            let words = words.permits().slot(holding).ticket();
            words.queue(*queue).ballot()
        }
        Action::Heal(holding, ttl) => {
            let words = of(&ACQUIRE).depth(holding).ttl(*ttl);
            let words = words.permits().slot(holding).ticket();
            words.text(HEAL).number(0).ballot()
        }
        Action::Extend(holding, ttl) => of(&EXTEND).depth(holding).ttl(*ttl).slot(holding),
        Action::Release { holding, .. } if holding.depth > 0 => {
            of(&EXTEND).depth(holding).number(0).slot(holding)
        }
        Action::Release { .. } => {
            let is_fenced = command.is_fenced();
            let script = if is_fenced { &RELEASE_FENCED } else { &RELEASE };
            of(script).ticket().permits().ballot()
        }
        Action::Yield(_, waiter_timeout) => {
            of(&YIELD).ticket().number(whole_millis(*waiter_timeout))
        }
        Action::Break(holders) => Words::break_held(command, holders).keys(COMPANIONS),
        Action::Inspect => Words::inspect(command).keys(COMPANIONS),
        Action::Probe => Words::probe(command),
    }
}

fn vote(command: &Command, reply: &Reply<'_>) -> SlotVote {
    if let (Verb::Acquire | Verb::Heal, Reply::Int(slot)) = (command.verb(), reply) {
        let slot = u16::try_from(*slot).ok().and_then(NonZeroU16::new);
        // The other masters may be asked for this slot, and would grant any number.
        let slot = slot.filter(|slot| slot.get() <= command.lock_id.permits());
        let vote = slot.map_or_else(Vote::nonsense, |_| Vote::Grant);
        return SlotVote { vote, slot };
    }
    reply::vote(reply, |refusal| match (command.verb(), refusal) {
        (Verb::Acquire, Refusal::Queued { .. } | Refusal::Skewed { .. }) => true,
        (Verb::Yield, refusal) => *refusal == Refusal::Gone,
        (_, refusal) => can_be_refused(command, refusal),
    })
    .into()
}
