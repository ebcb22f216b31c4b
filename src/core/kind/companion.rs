//! What belongs to a lock besides its key: further keys, and channels.

use std::{ptr, sync::OnceLock};

/// A channel or a further key that belongs to a lock. Its text is made from the key of the lock. A
/// kind of lock defines its companions in its own module.
#[derive(Debug)]
pub(crate) struct Companion {
    /// The purpose. If the companion is a key, the crate `quorlock-check` uses this word for the
    /// right to that key.
    pub(crate) name: &'static str,
    /// For a key: letters that put the companion key into the same hash slot as the lock's key. With
    /// the letters, the CRC16 of the text before the lock's key is 0. This text is `quorlock:`, the
    /// name, a colon, the letters and another colon.
    ///
    /// `None` for a channel with Redisson's name for it. Two keys such as `a` and `{a}` share a
    /// channel. This is harmless, because messages are only hints.
    key: Option<&'static str>,
}

/// The channel on which the release of a reentrant lock is published, for the waiters of Redisson.
pub(crate) static CHANNEL: Companion = Companion {
    name: "redisson_lock__channel",
    key: None,
};
/// The times at which the waiters in the queues of a lock count as dead.
pub(in crate::core) static DEADLINES: Companion = Companion::key("deadlines", "cbha");
/// The counter for fencing tokens. Every lock may have one.
pub(crate) static FENCE: Companion = Companion::key("fence", "maui");

impl Companion {
    /// Returns a key that the crate keeps.
    pub(in crate::core) const fn key(name: &'static str, neutral: &'static str) -> Self {
        let key = Some(neutral);
        Self { name, key }
    }

    /// Returns the companion of `key`, the key of a lock. A cluster gives both the same hash slot.
    /// Different keys of locks have different companion keys.
    fn text(&self, key: &str) -> String {
        let name = self.name;
        match self.key {
            None if key.contains('{') => format!("{name}:{key}"),
            None => format!("{name}:{{{key}}}"),
            Some(_) if has_hash_tag(key) => format!("{RESERVED}{name}::{key}"),
            // If the key stood in braces, the hash tag would end at its first `}`. Without braces,
            // a cluster hashes the whole companion key.
            Some(neutral) if key.contains('}') => {
                format!("{RESERVED}{name}:{neutral}:{key}")
            }
            Some(_) => format!("{RESERVED}{name}:{{{key}}}"),
        }
    }
}

/// The start of all keys of the crate, except the keys of the locks themselves.
pub(in crate::core) const RESERVED: &str = "quorlock:";

/// Returns whether a cluster hashes only a part of `key`. This part is the text between the first
/// `{` and the first `}` after it, if that text is not empty.
fn has_hash_tag(key: &str) -> bool {
    let after = key.split_once('{').map(|(_, after)| after);
    let tag = after.and_then(|after| after.split_once('}'));
    tag.is_some_and(|(tag, _)| !tag.is_empty())
}

/// The texts of the companions of one lock. Few locks need companions, so each text is made when it
/// is first needed. The texts are a linked list, so a lock can have any number of them.
#[derive(Default)]
pub(in crate::core) struct Companions(OnceLock<Box<(&'static Companion, String, Self)>>);

impl Companions {
    pub(in crate::core) fn text(&self, companion: &'static Companion, key: &str) -> &str {
        let make = || Box::new((companion, companion.text(key), Self::default()));
        let (made, text, others) = &**self.0.get_or_init(make);
        match ptr::eq(*made, companion) {
            true => text,
            false => others.text(companion, key),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::core::{
        kind::{self, LockKind, fair::QUEUE},
        protocol::name::{KeyTemplate, LockId},
    };

    fn lock_id(name: &str) -> LockId {
        let template = KeyTemplate::parse("{name}").unwrap();
        template.lock_id(LockKind::Fair, name.into()).unwrap()
    }

    #[test]
    fn every_reentrant_lock_has_the_channel_of_redisson() {
        let channel = |name: &str| lock_id(name).companion(&CHANNEL).to_owned();
        assert_eq!(channel("a"), "redisson_lock__channel:{a}");
        assert_eq!(channel("{a}b"), "redisson_lock__channel:{a}b");
    }

    /// Returns the hash slot of a key in Redis Cluster: the CRC16 (XMODEM) of the hash tag. A key
    /// without a hash tag is hashed as a whole.
    fn hash_slot(key: &str) -> u16 {
        let tag = key
            .split_once('{')
            .and_then(|(_, rest)| rest.split_once('}'))
            .map_or("", |(tag, _)| tag);
        let hashed = if tag.is_empty() { key } else { tag };
        crc16(hashed) % 16_384
    }

    fn crc16(text: &str) -> u16 {
        text.bytes().fold(0, |crc, byte| {
            (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
                if crc & 0x8000 == 0 {
                    crc << 1
                } else {
                    (crc << 1) ^ 0x1021
                }
            })
        })
    }

    fn companion_keys(name: &str) -> Vec<String> {
        let lock_id = lock_id(name);
        let keys = kind::companion_keys().map(|key| lock_id.companion(key).to_owned());
        keys.collect()
    }

    #[test]
    fn hash_slots_are_those_of_redis_cluster() {
        // The expected hash slots are the replies of `CLUSTER KEYSLOT`.
        for (key, expected) in [
            ("123456789", 12_739),
            ("foo{bar}{zap}", 5_061),
            ("bar", 5_061),
        ] {
            assert_eq!(hash_slot(key), expected, "{key}");
        }
    }

    /// If this test fails, its message has letters that fit.
    #[test]
    fn the_letters_make_the_checksum_0() {
        for Companion { name, key } in kind::companion_keys() {
            let is_neutral = |letters: &str| crc16(&format!("quorlock:{name}:{letters}:")) == 0;
            let Some(neutral) = key else {
                panic!("{name} is no key");
            };
            let all = (0..26_u32.pow(4)).map(|number| {
                let digit = |place| b'a' + (number / 26_u32.pow(place) % 26) as u8;
                String::from_utf8([3, 2, 1, 0].map(digit).to_vec()).unwrap()
            });
            let fitting = || all.into_iter().find(|letters| is_neutral(letters));
            assert!(is_neutral(neutral), "{name}: {:?}", fitting());
        }
    }

    #[test]
    fn companion_keys_have_their_usual_names() {
        for (name, queue, counter) in [
            ("a", "quorlock:queue:{a}", "quorlock:fence:{a}"),
            ("{a}b", "quorlock:queue::{a}b", "quorlock:fence::{a}b"),
            ("x{", "quorlock:queue:{x{}", "quorlock:fence:{x{}"),
            ("a}b", "quorlock:queue:bmcq:a}b", "quorlock:fence:maui:a}b"),
        ] {
            let lock_id = lock_id(name);
            let its_keys = [&QUEUE, &FENCE].map(|key| lock_id.companion(key));
            assert_eq!(its_keys, [queue, counter], "{name}");
        }
    }

    proptest! {
        #[test]
        fn companion_keys_are_in_the_hash_slot_of_the_key(name in "[ab{}:]{1,8}|.{1,12}") {
            for companion in companion_keys(&name) {
                prop_assert_eq!(hash_slot(&companion), hash_slot(&name), "{} of {}", companion, name);
            }
        }

        #[test]
        fn no_two_names_share_a_companion_key(one in "[a{}:]{1,6}", other in "[a{}:]{1,6}") {
            for (its, others) in companion_keys(&one).iter().zip(companion_keys(&other)) {
                prop_assert_eq!(*its == others, one == other, "{} of {} and {}", its, one, other);
            }
        }

        #[test]
        fn each_companion_key_has_a_purpose_of_its_own(name in "[a{}:]{1,6}") {
            let keys = companion_keys(&name);
            let distinct: BTreeSet<_> = keys.iter().collect();
            prop_assert_eq!(distinct.len(), keys.len(), "{:?}", keys);
        }
    }

    #[test]
    fn companions_are_the_same_in_any_order() {
        let (one, other) = (lock_id("a"), lock_id("a"));
        let all: Vec<_> = kind::companion_keys().chain([&CHANNEL]).collect();
        for companion in all.iter().rev() {
            one.companion(companion);
        }
        for companion in all {
            assert_eq!(one.companion(companion), other.companion(companion));
        }
    }
}
