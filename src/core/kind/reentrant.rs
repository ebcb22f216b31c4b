//! The reentrant lock: a hash with the depth of its owner, which Redisson can read.

use super::spec::{HolderForm, Spec};
use crate::core::protocol::script::{Script, lua, releases, script};

pub(super) static SPEC: Spec = Spec {
    shown: "reentrant lock",
    holder: HolderForm::Owner,
    companions: &[],
    has_readers: false,
    has_slots: false,
};

pub(super) static ACQUIRE: Script = script!(
    "reentrant/acquire",
    "shared/holder",
    "shared/store",
    "shared/ownership",
    "shared/ballot"
);
pub(super) static EXTEND: Script = script!("reentrant/extend", "shared/holder", "shared/ownership");
pub(super) static RELEASE: [Script; 2] =
    releases!("reentrant/release", "shared/holder", "shared/ownership");
