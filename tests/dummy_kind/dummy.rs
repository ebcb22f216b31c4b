//! A kind of lock for `scripts/dummy_kind.sh`: the hash of a reentrant lock, with another marker.
//! It has more keys and arguments than the kinds of the crate. Masters grant it with the number of
//! a slot.

use super::{
    Spec,
    companion::Companion,
    script::{Script, lua, script},
};

pub(super) static SPEC: Spec = Spec {
    shown: "dummy lock",
    has_owner: true,
    companions: &[&ONE, &TWO, &THREE, &FOUR, &FIVE, &SIX],
    rights: "EXISTS HSET HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE",
    has_readers: false,
    has_slots: true,
};

static ONE: Companion = Companion::key("one", "cceb");
static TWO: Companion = Companion::key("two", "djpw");
static THREE: Companion = Companion::key("three", "amur");
static FOUR: Companion = Companion::key("four", "aqjt");
static FIVE: Companion = Companion::key("five", "bgdi");
static SIX: Companion = Companion::key("six", "cgqt");

pub(in crate::core) static ACQUIRE: Script =
    script!("dummy/acquire", "shared/holder", "shared/store");
pub(in crate::core) static EXTEND: Script =
    script!("dummy/extend", "shared/holder", "shared/ownership");
pub(in crate::core) static RELEASE: Script =
    script!("dummy/release", "shared/holder", "shared/ownership");
