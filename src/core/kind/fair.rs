//! The fair lock: the hash of a reentrant lock, and a queue of tickets on each master.

use super::{
    Script, Spec,
    companion::{Companion, DEADLINES},
    script::{lua, releases, script, script_with_companions},
};

pub(super) static SPEC: Spec = Spec {
    shown: "fair lock",
    has_owner: true,
    companions: &[&QUEUE, &DEADLINES],
    rights: "EXISTS HSET HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE \
             TIME ZADD ZREM ZRANGE ZRANK ZSCORE",
    has_readers: false,
    has_slots: false,
};

pub(crate) static QUEUE: Companion = Companion::key("queue", "bmcq");

pub(in crate::core) static ACQUIRE: Script = script_with_companions!(
    "fair/acquire",
    "shared/holder",
    "shared/store",
    "shared/ownership",
    "shared/queue",
    "shared/ballot"
);
pub(in crate::core) static RELEASE: [Script; 2] = releases!(
    "fair/release",
    "shared/holder",
    "shared/ownership",
    "shared/queue"
);
pub(in crate::core) static YIELD: Script =
    script!("fair/yield", "shared/ownership", "shared/queue");
