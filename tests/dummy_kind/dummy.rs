//! A kind of lock for `scripts/dummy_kind.sh`: the hash of a reentrant lock, with another marker.
//! Masters grant it with the number of a slot.

use std::num::NonZeroU16;

use super::{
    command::{Command, Reply, Verb},
    reentrant::can_be_refused,
    reply,
    script::{Script, lua, owned},
    spec::{HolderForm, Rights, Spec},
    words::Words,
};
use crate::core::vote::{SlotVote, Vote};

pub(super) static SPEC: Spec = Spec {
    word: "dummy",
    shown: "dummy lock",
    holder: HolderForm::Owner,
    scripts: &[&ACQUIRE, &EXTEND, &RELEASE],
    words,
    vote,
    is_token: false,
    rights: Rights {
        name: "rights for dummy locks",
        takes: "EXISTS HSET",
        needs: "HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE",
        fix: "none",
    },
};

static ACQUIRE: Script = Script::new(
    "dummy/acquire",
    lua!("shared/holder", "shared/store", "dummy/acquire"),
);
static EXTEND: Script = Script::new("dummy/extend", owned!("dummy/extend"));
static RELEASE: Script = Script::new("dummy/release", owned!("dummy/release"));

fn words(command: &Command) -> Words<'_> {
    match command.verb {
        Verb::Acquire | Verb::Heal => Words::of(&ACQUIRE, command).depth().ttl(),
        Verb::Extend => Words::of(&EXTEND, command).ttl(),
        Verb::Release | Verb::Yield => Words::of(&RELEASE, command),
        Verb::Break => Words::break_held(command),
        Verb::Inspect => Words::inspect(command),
        Verb::Probe => Words::probe(command),
    }
}

fn vote(command: &Command, reply: &Reply<'_>) -> SlotVote {
    match (command.verb, reply) {
        (Verb::Acquire | Verb::Heal, Reply::Int(slot)) => {
            let slot = u16::try_from(*slot).ok().and_then(NonZeroU16::new);
            let vote = slot.map_or_else(Vote::nonsense, |_| Vote::Grant);
            SlotVote { vote, slot }
        }
        _ => reply::vote(reply, |refusal| can_be_refused(command, refusal)).into(),
    }
}
