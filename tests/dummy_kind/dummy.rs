//! A kind of lock for `scripts/dummy_kind.sh`: the hash of a reentrant lock, with another marker.
//! It has more keys and arguments than the kinds of the crate. Masters grant it with the number of
//! a slot.

use std::num::NonZeroU16;

use super::{
    reentrant::can_be_refused,
    spec::{HolderForm, Spec},
};
use crate::core::{
    protocol::{
        command::{Action, Command, Reply},
        companion::Companion,
        reply,
        script::{Script, lua, owned},
        words::Words,
    },
    vote::{SlotVote, Vote, verb::Verb},
};

pub(super) static SPEC: Spec = Spec {
    word: "dummy",
    shown: "dummy lock",
    holder: HolderForm::Owner,
    companions: COMPANIONS,
    words,
    vote,
    is_watched: true,
    has_readers: false,
    has_slots: true,
};

const COMPANIONS: &[&Companion] = &[&ONE, &TWO, &THREE, &FOUR, &FIVE, &SIX];

static ONE: Companion = Companion::key("one", "cceb", "zset");
static TWO: Companion = Companion::key("two", "djpw", "zset");
static THREE: Companion = Companion::key("three", "amur", "zset");
static FOUR: Companion = Companion::key("four", "aqjt", "zset");
static FIVE: Companion = Companion::key("five", "bgdi", "string");
static SIX: Companion = Companion::key("six", "cgqt", "string");

static ACQUIRE: Script = Script::new(
    "dummy/acquire",
    lua!("shared/holder", "shared/store", "dummy/acquire"),
);
static EXTEND: Script = Script::new("dummy/extend", owned!("dummy/extend"));
static RELEASE: Script = Script::new("dummy/release", owned!("dummy/release"));

fn words(command: &Command) -> Words<'_> {
    match &command.action {
        Action::Acquire(attempt, ttl, _) | Action::Heal(attempt, ttl) => {
            let words = Words::of(&ACQUIRE, command).keys(COMPANIONS);
            let words = words.depth(attempt).ttl(*ttl);
            (5..=14).fold(words, Words::number).ballot()
        }
        Action::Extend(_, ttl) => Words::of(&EXTEND, command).ttl(*ttl),
        Action::Release { .. } | Action::Yield(..) => Words::of(&RELEASE, command).keys(COMPANIONS),
        Action::Break(holders) => Words::break_held(command, holders),
        Action::Inspect => Words::inspect(command),
        Action::Probe => Words::probe(command),
    }
}

fn vote(command: &Command, reply: &Reply<'_>) -> SlotVote {
    match (command.verb(), reply) {
        (Verb::Acquire | Verb::Heal, Reply::Int(slot)) => {
            let slot = u16::try_from(*slot).ok().and_then(NonZeroU16::new);
            let vote = slot.map_or_else(Vote::nonsense, |_| Vote::Grant);
            SlotVote { vote, slot }
        }
        _ => reply::vote(reply, |refusal| can_be_refused(command, refusal)).into(),
    }
}
