//! The mutex: a string that holds the token of an attempt, as in most Redlock libraries.

use super::{
    command::{Command, Reply, Verb},
    reply,
    script::{Script, fenced, lua},
    spec::{HolderForm, Rights, Spec},
    words::Words,
};
use crate::core::vote::{Refusal, SlotVote, Vote};

pub(super) static SPEC: Spec = Spec {
    word: "mutex",
    shown: "mutex",
    holder: HolderForm::Token,
    companions: &[],
    scripts: &[
        &ACQUIRE,
        &ACQUIRE_WATCHED,
        &EXTEND,
        &RELEASE,
        &RELEASE_FENCED,
    ],
    words,
    vote,
    is_token: true,
    rights: Rights {
        name: "rights for mutexes",
        takes: "SET",
        needs: "GET DEL PTTL PEXPIRE",
        fix: "ACL SETUSER <user> +set +get +del +pttl +pexpire",
    },
};

/// Takes a fenced mutex. A mutex that is not fenced is taken with a plain `SET`.
static ACQUIRE: Script = Script::new("mutex/acquire", lua!("shared/ballot", "mutex/acquire"));
/// Takes a mutex that is not fenced, or reads the key of its holder, so that the master reports the
/// next change of the key.
static ACQUIRE_WATCHED: Script =
    Script::new("mutex/acquire_watched", lua!("mutex/acquire_watched"));
static EXTEND: Script = Script::new("mutex/extend", lua!("mutex/extend"));
static RELEASE: Script = Script::new("mutex/release", lua!("mutex/release"));
static RELEASE_FENCED: Script = Script::new("mutex/release_fenced", fenced!(lua!("mutex/release")));

fn words(command: &Command) -> Words<'_> {
    let is_fenced = command.is_fenced();
    match command.verb {
        Verb::Acquire | Verb::Heal if is_fenced => Words::of(&ACQUIRE, command).ttl().ballot(),
        Verb::Acquire | Verb::Heal if command.watch => Words::of(&ACQUIRE_WATCHED, command).ttl(),
        Verb::Acquire | Verb::Heal => Words::set(command),
        Verb::Extend => Words::of(&EXTEND, command).ttl(),
        Verb::Release | Verb::Yield if is_fenced => Words::of(&RELEASE_FENCED, command).ballot(),
        Verb::Release | Verb::Yield => Words::of(&RELEASE, command),
        Verb::Break => Words::break_held(command),
        Verb::Inspect => Words::inspect(command),
        Verb::Probe => Words::probe(command),
    }
}

fn vote(command: &Command, reply: &Reply<'_>) -> SlotVote {
    let is_set = command.is_acquisition() && !command.is_fenced() && !command.watch;
    let vote = match reply {
        Reply::Ok if is_set => Vote::Grant,
        Reply::Nil if is_set => Vote::Refuse(Refusal::held(None)),
        _ if is_set => Vote::nonsense(),
        _ => reply::vote(reply, |refusal| match refusal {
            Refusal::Held(report) => !report.has_owner(),
            Refusal::Gone | Refusal::Skewed { .. } | Refusal::Stale { .. } => {
                command.can_be_refused(refusal)
            }
            Refusal::OtherKind | Refusal::Queued { .. } => false,
        }),
    };
    vote.into()
}
