//! The semaphore: a hash with an entry and a slot for each holder, and a queue of tickets on each
//! master.

use super::{
    Script, Spec,
    companion::{Companion, DEADLINES},
    script::{lua, releases, script, script_with_companions},
};

pub(super) static SPEC: Spec = Spec {
    shown: "semaphore",
    has_owner: true,
    companions: &[&WAITERS, &DEADLINES],
    rights: "EXISTS HSET HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE \
             TIME ZADD ZREM ZRANGE ZSCORE ZLEXCOUNT",
    has_readers: false,
    has_slots: true,
};

static WAITERS: Companion = Companion::key("waiters", "anrc");

pub(in crate::core) static ACQUIRE: Script = script_with_companions!(
    "semaphore/acquire",
    "semaphore/uncontended_acquire",
    "shared/queue",
    "shared/permits",
    "shared/ballot"
);
pub(in crate::core) static EXTEND: Script =
    script!("semaphore/extend", "shared/queue", "shared/permits");
pub(in crate::core) static RELEASE: [Script; 2] = releases!(
    "semaphore/release",
    first "semaphore/uncontended_release",
    "shared/queue",
    "shared/permits"
);
pub(in crate::core) static YIELD: Script =
    script!("semaphore/yield", "shared/queue", "shared/permits");
