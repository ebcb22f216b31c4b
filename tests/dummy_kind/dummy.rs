//! A kind of lock for `scripts/dummy_kind.sh`: the hash of a reentrant lock, with another marker.

use super::{
    command::{Command, Reply, Verb},
    reentrant::can_be_refused,
    reply,
    script::{Script, lua, owned},
    spec::{HolderForm, Rights, Spec},
    words::Words,
};
use crate::core::vote::Vote;

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

fn vote(command: &Command, reply: &Reply<'_>) -> Vote {
    reply::vote(reply, |refusal| can_be_refused(command, refusal))
}
