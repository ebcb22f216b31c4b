//! The mutex: a string that holds the token of an attempt, as in most Redlock libraries.

use super::spec::{HolderForm, Spec};
use crate::core::{
    protocol::{
        command::{Action, Command, Reply},
        reply,
        script::{Script, fenced, lua},
        words::Words,
    },
    vote::{Refusal, SlotVote, Vote},
};

pub(super) static SPEC: Spec = Spec {
    word: "mutex",
    shown: "mutex",
    holder: HolderForm::Token,
    companions: &[],
    words,
    vote,
    is_watched: true,
    has_readers: false,
    has_slots: false,
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
    match &command.action {
        Action::Acquire(_, ttl, _) | Action::Heal(_, ttl) => match command.watch {
            _ if is_fenced => Words::of(&ACQUIRE, command).ttl(*ttl).ballot(),
            true => Words::of(&ACQUIRE_WATCHED, command).ttl(*ttl),
            false => Words::set(command, *ttl),
        },
        Action::Extend(_, ttl) => Words::of(&EXTEND, command).ttl(*ttl),
        Action::Release { .. } | Action::Yield(..) if is_fenced => {
            Words::of(&RELEASE_FENCED, command).ballot()
        }
        Action::Release { .. } | Action::Yield(..) => Words::of(&RELEASE, command),
        Action::Break(holders) => Words::break_held(command, holders),
        Action::Inspect => Words::inspect(command),
        Action::Probe => Words::probe(command),
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
