//! The reentrant lock: a hash with the depth of its owner, which Redisson can read.

use super::{
    Script, Spec,
    script::{lua, releases, script},
};

pub(super) static SPEC: Spec = Spec {
    shown: "reentrant lock",
    has_owner: true,
    companions: &[],
    rights: "EXISTS HSET HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE",
    has_readers: false,
    has_slots: false,
};

pub(in crate::core) static ACQUIRE: Script = script!(
    "reentrant/acquire",
    "shared/holder",
    "shared/store",
    "shared/ownership",
    "shared/ballot"
);
pub(in crate::core) static EXTEND: Script =
    script!("reentrant/extend", "shared/holder", "shared/ownership");
pub(in crate::core) static RELEASE: [Script; 2] =
    releases!("reentrant/release", "shared/holder", "shared/ownership");
