//! The mutex: a string that holds the token of an attempt, as in most Redlock libraries.

use super::{
    Script, Spec,
    script::{lua, releases, script},
};

pub(super) static SPEC: Spec = Spec {
    shown: "mutex",
    has_owner: false,
    companions: &[],
    rights: "SET GET DEL PTTL PEXPIRE",
    has_readers: false,
    has_slots: false,
};

/// Takes a fenced mutex. A mutex that is neither fenced nor watched is taken with a plain `SET`.
pub(in crate::core) static ACQUIRE: Script = script!("mutex/acquire", "shared/ballot");
/// Takes a mutex that is not fenced. If another client holds the mutex, reads the key, so that the
/// master reports the next change of the key.
pub(in crate::core) static ACQUIRE_WATCHED: Script = script!("mutex/acquire_watched");
pub(in crate::core) static EXTEND: Script = script!("mutex/extend");
pub(in crate::core) static RELEASE: [Script; 2] = releases!("mutex/release");
