//! The reentrant lock: a hash with the depth of its owner, which Redisson can read.

use super::spec::{HolderForm, Spec};
use crate::core::{
    protocol::{
        command::{Action, Command, Reply},
        companion::CHANNEL,
        reply,
        script::{Script, fenced, lua, owned},
        words::Words,
    },
    vote::{Refusal, SlotVote},
};

pub(super) static SPEC: Spec = Spec {
    word: "reentrant",
    shown: "reentrant lock",
    holder: HolderForm::Owner,
    companions: &[],
    words,
    vote,
    is_watched: true,
    has_readers: false,
    has_slots: false,
};

static ACQUIRE: Script = Script::new(
    "reentrant/acquire",
    lua!(
        "shared/holder",
        "shared/store",
        "shared/ownership",
        "shared/ballot",
        "reentrant/acquire"
    ),
);
static EXTEND: Script = Script::new("reentrant/extend", owned!("reentrant/extend"));
static RELEASE: Script = Script::new("reentrant/release", owned!("reentrant/release"));
static RELEASE_FENCED: Script = Script::new(
    "reentrant/release_fenced",
    fenced!(owned!("reentrant/release")),
);

fn words(command: &Command) -> Words<'_> {
    let channel = command.lock_id.companion(&CHANNEL);
    marked_words(command, "quorlock:reentrant", channel)
}

/// Returns the words for a lock whose hash has the field `marker`, which names its kind. The value
/// of the field is the number of the attempt that holds the lock. A release is published on
/// `channel`, if the channel is not empty.
pub(super) fn marked_words<'a>(
    command: &'a Command,
    marker: &'static str,
    channel: &'a str,
) -> Words<'a> {
    match &command.action {
        Action::Acquire(holding, ttl, _) | Action::Heal(holding, ttl) => {
            let words = Words::of(&ACQUIRE, command).depth(holding).ttl(*ttl);
            words.text(marker).ballot()
        }
        Action::Extend(holding, ttl) => {
            let words = Words::of(&EXTEND, command).depth(holding).ttl(*ttl);
            words.text(marker)
        }
        Action::Release { holding, .. } | Action::Yield(holding, _) => {
            let is_fenced = command.is_fenced();
            let script = if is_fenced { &RELEASE_FENCED } else { &RELEASE };
            let words = Words::of(script, command).depth(holding);
            words.text(marker).text(channel).ballot()
        }
        Action::Break(holders) => Words::break_held(command, holders),
        Action::Inspect => Words::inspect(command),
        Action::Probe => Words::probe(command),
    }
}

fn vote(command: &Command, reply: &Reply<'_>) -> SlotVote {
    reply::vote(reply, |refusal| can_be_refused(command, refusal)).into()
}

/// Returns whether a script of a reentrant lock can answer `command` with this refusal.
pub(super) fn can_be_refused(command: &Command, refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Held(report) => report.has_owner(),
        Refusal::OtherKind => true,
        Refusal::Gone | Refusal::Queued { .. } | Refusal::Skewed { .. } | Refusal::Stale { .. } => {
            command.can_be_refused(refusal)
        }
    }
}
