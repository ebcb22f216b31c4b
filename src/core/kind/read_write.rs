//! The read-write lock: a hash with an entry for the writer or for each reader, and two queues of
//! tickets on each master.

use super::{
    Script, Spec,
    companion::{Companion, DEADLINES},
    script::{lua, releases, script, script_with_companions},
};

pub(super) static SPEC: Spec = Spec {
    shown: "read-write lock",
    has_owner: true,
    companions: &[&WRITERS, &DEADLINES, &READERS],
    rights: "EXISTS HSET HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE \
             TIME ZADD ZREM ZRANGE ZSCORE ZLEXCOUNT",
    has_readers: true,
    has_slots: false,
};

static WRITERS: Companion = Companion::key("writers", "eeqv");
static READERS: Companion = Companion::key("readers", "gbnw");

pub(in crate::core) static ACQUIRE: Script = script_with_companions!(
    "read_write/acquire",
    "read_write/uncontended_acquire",
    "shared/queue",
    "shared/entries",
    "shared/ballot"
);
pub(in crate::core) static EXTEND: Script =
    script!("read_write/extend", "shared/queue", "shared/entries");
pub(in crate::core) static RELEASE: [Script; 2] = releases!(
    "read_write/release",
    first "read_write/uncontended_release",
    "shared/queue",
    "shared/entries"
);
pub(in crate::core) static YIELD: Script =
    script!("read_write/yield", "shared/queue", "shared/entries");
