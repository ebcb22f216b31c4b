//! What is locked, and who holds it.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::config_error::ConfigError;

/// A kind of lock. All kinds of a name exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Held once. What most Redlock libraries have.
    Mutex,
    /// Held by an owner, as often as it likes. Redisson's plain lock.
    Reentrant,
    /// Reentrant, and those who wait are served in the order in which they came.
    Fair,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mutex => "mutex",
            Self::Reentrant => "reentrant lock",
            Self::Fair => "fair lock",
        })
    }
}

/// The name of a lock and its kind, and the keys that stand for it on every master.
#[derive(Clone, Debug)]
pub(crate) struct Resource(Arc<Names>);

/// Behind one pointer, as every attempt and every command has a copy.
#[derive(Debug)]
struct Names {
    kind: Kind,
    name: Arc<str>,
    key: Arc<str>,
    channel: Arc<str>,
    /// Of a fair lock.
    queue: String,
    deadlines: String,
}

/// The rest follows from kind and key.
impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.kind(), self.key()) == (other.kind(), other.key())
    }
}

impl Eq for Resource {}

impl Hash for Resource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind(), self.key()).hash(state);
    }
}

impl Resource {
    fn new(kind: Kind, name: Arc<str>, key: Arc<str>) -> Self {
        let aside = |what: Aside| match kind {
            Kind::Fair => what.of(&key),
            Kind::Mutex | Kind::Reentrant => String::new(),
        };
        let channel = match kind {
            Kind::Mutex => WAKE.of(&key),
            // Redisson's rule. Names with and without braces may share a channel: messages are hints.
            Kind::Reentrant if key.contains('{') => format!("redisson_lock__channel:{key}"),
            Kind::Reentrant => format!("redisson_lock__channel:{{{key}}}"),
            // Waiters are told one by one.
            Kind::Fair => String::new(),
        };
        Self(Arc::new(Names {
            kind,
            name,
            queue: aside(QUEUE),
            deadlines: aside(DEADLINES),
            channel: channel.into(),
            key,
        }))
    }

    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The name as the user gave it, for messages.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// The key on the masters.
    pub(crate) fn key(&self) -> &Arc<str> {
        &self.0.key
    }

    /// Where waiters are told of a release.
    pub(crate) fn channel(&self) -> &Arc<str> {
        &self.0.channel
    }

    /// The key of the counter from which fencing tokens come.
    pub(crate) fn counter(&self) -> Arc<str> {
        FENCE.of(&self.0.key).into()
    }

    /// The tickets of those who wait for a fair lock, in order.
    pub(crate) fn queue(&self) -> &str {
        &self.0.queue
    }

    /// When each of them counts as dead.
    pub(crate) fn deadlines(&self) -> &str {
        &self.0.deadlines
    }
}

/// The start of a key that the crate keeps beside the key of a lock.
struct Aside {
    /// What the key is for, with a colon at the end.
    prefix: &'static str,
    /// Letters that make the CRC16 of the prefix, these letters and a colon zero. A CRC16 that
    /// starts from zero is that of what follows then, so that the whole has the slot of the lock's
    /// key.
    neutral: &'static str,
}

const QUEUE: Aside = Aside::new("quorlock:queue:", "bmcq");
const DEADLINES: Aside = Aside::new("quorlock:deadlines:", "cbha");
const FENCE: Aside = Aside::new("quorlock:fence:", "maui");
const WAKE: Aside = Aside::new("quorlock:wake:", "blrz");

impl Aside {
    const fn new(prefix: &'static str, neutral: &'static str) -> Self {
        Self { prefix, neutral }
    }

    /// Returns the name of what is kept beside `key`. It has the slot of `key` in a cluster, and no
    /// other key has the same.
    fn of(&self, key: &str) -> String {
        let Self { prefix, neutral } = self;
        if has_hash_tag(key) {
            format!("{prefix}:{key}")
        } else if key.contains('}') {
            // In braces it would be cut off there. It is hashed whole, and so is this.
            format!("{prefix}{neutral}:{key}")
        } else {
            format!("{prefix}{{{key}}}")
        }
    }
}

/// Returns whether a cluster hashes only a part of `key`: what is between the first `{` and the
/// first `}` after it, if that is anything.
fn has_hash_tag(key: &str) -> bool {
    let after = key.split_once('{').map(|(_, after)| after);
    let tag = after.and_then(|after| after.split_once('}'));
    tag.is_some_and(|(tag, _)| !tag.is_empty())
}

/// How a key is made of a name: `{name}` stands for it, exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyTemplate {
    before: String,
    after: String,
}

impl KeyTemplate {
    const PLACE: &str = "{name}";
    /// Masters repeat names to those who subscribe, and a longer one is a mistake.
    const MOST_NAME: usize = 64 * 1024;

    pub(crate) fn parse(template: &str) -> Result<Self, ConfigError> {
        if template.starts_with(RESERVED) {
            return Err(reserved(template));
        }
        match template.split_once(Self::PLACE) {
            Some((before, after)) if !after.contains(Self::PLACE) => Ok(Self {
                before: before.to_owned(),
                after: after.to_owned(),
            }),
            _ => Err(ConfigError::KeyTemplate {
                template: template.to_owned(),
            }),
        }
    }

    /// The `kind` of lock called `name`; an empty name would lock the bare template.
    pub(crate) fn resource(&self, kind: Kind, name: Arc<str>) -> Result<Resource, ConfigError> {
        if name.is_empty() {
            return Err(ConfigError::EmptyName);
        }
        if name.len() > Self::MOST_NAME {
            return Err(ConfigError::NameTooLong {
                length: name.len(),
                most: Self::MOST_NAME,
            });
        }
        let key = self.key(&name);
        if key.starts_with(RESERVED) {
            return Err(reserved(&key));
        }
        Ok(Resource::new(kind, name, key))
    }

    /// Returns a lock that no user can name, for trying what may be done with locks.
    pub(crate) fn nobodys(&self) -> Resource {
        let name: Arc<str> = "quorlock:check".into();
        let key = self.key(&name);
        Resource::new(Kind::Fair, name, key)
    }

    fn key(&self, name: &Arc<str>) -> Arc<str> {
        if self.before.is_empty() && self.after.is_empty() {
            name.clone()
        } else {
            format!("{}{name}{}", self.before, self.after).into()
        }
    }
}

/// Every key of the crate begins with this, but for those of the locks themselves.
const RESERVED: &str = "quorlock:";

fn reserved(key: &str) -> ConfigError {
    ConfigError::ReservedKey {
        key: key.to_owned(),
    }
}

/// What a holder writes under the key: 20 fresh random bytes in hex, new for every attempt.
///
/// Whoever knows it can release the lock, so it never shows in `Debug`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token([u8; Self::LEN]);

impl Token {
    const LEN: usize = 40;

    pub(crate) fn new(random: [u8; Self::LEN / 2]) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; Self::LEN];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(random) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        Self(hex)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A number by which things can be spread.
    pub(crate) fn spread(&self) -> u8 {
        self.0[0].wrapping_add(self.0[1])
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_template_holds_the_name_exactly_once() {
        for (template, name, key) in [
            ("{name}", "a", Some("a")),
            ("redlock:{name}", "a", Some("redlock:a")),
            ("{name}:lock", "{name}", Some("{name}:lock")),
            ("redlock:", "a", None),
            ("", "a", None),
            ("{name}{name}", "a", None),
        ] {
            let made = KeyTemplate::parse(template).ok().map(|template| {
                template
                    .resource(Kind::Mutex, name.into())
                    .unwrap()
                    .key()
                    .to_string()
            });
            assert_eq!(made.as_deref(), key, "{template}");
        }
    }

    #[test]
    fn every_key_has_a_channel() {
        let channel = |kind, name: &str| {
            let template = KeyTemplate::parse("{name}").unwrap();
            template
                .resource(kind, name.into())
                .unwrap()
                .channel()
                .to_string()
        };
        assert_eq!(channel(Kind::Mutex, "a"), "quorlock:wake:{a}");
        assert_eq!(channel(Kind::Mutex, "{a}b"), "quorlock:wake::{a}b");
        assert_eq!(channel(Kind::Reentrant, "a"), "redisson_lock__channel:{a}");
        assert_eq!(
            channel(Kind::Reentrant, "{a}b"),
            "redisson_lock__channel:{a}b"
        );
    }

    #[test]
    fn an_empty_name_is_refused() {
        let refused = KeyTemplate::parse("{name}")
            .unwrap()
            .resource(Kind::Mutex, "".into());
        assert!(matches!(refused, Err(ConfigError::EmptyName)));
    }

    #[test]
    fn a_token_is_hex_and_does_not_show() {
        let token = Token::new([0xa5; 20]);
        assert_eq!(token.as_bytes(), "a5".repeat(20).as_bytes());
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    /// The slot of a key in Redis Cluster: the CRC16 (XMODEM) of the hash tag, or of all of it.
    fn slot(key: &str) -> u16 {
        let tag = key
            .split_once('{')
            .and_then(|(_, rest)| rest.split_once('}'))
            .map_or("", |(tag, _)| tag);
        let hashed = if tag.is_empty() { key } else { tag };
        let crc = hashed.bytes().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
                if crc & 0x8000 == 0 {
                    crc << 1
                } else {
                    (crc << 1) ^ 0x1021
                }
            })
        });
        crc % 16_384
    }

    fn side_keys(name: &str) -> [String; 3] {
        let template = KeyTemplate::parse("{name}").unwrap();
        let fair = template.resource(Kind::Fair, name.into()).unwrap();
        [
            fair.queue().to_owned(),
            fair.deadlines().to_owned(),
            fair.counter().to_string(),
        ]
    }

    #[test]
    fn slots_are_those_of_redis_cluster() {
        // What CLUSTER KEYSLOT says.
        for (key, expected) in [
            ("123456789", 12_739),
            ("foo{bar}{zap}", 5_061),
            ("bar", 5_061),
        ] {
            assert_eq!(slot(key), expected, "{key}");
        }
    }

    #[test]
    fn the_side_keys_of_ordinary_names_are_as_ever() {
        for (name, queue, counter) in [
            ("a", "quorlock:queue:{a}", "quorlock:fence:{a}"),
            ("{a}b", "quorlock:queue::{a}b", "quorlock:fence::{a}b"),
            ("x{", "quorlock:queue:{x{}", "quorlock:fence:{x{}"),
            ("a}b", "quorlock:queue:bmcq:a}b", "quorlock:fence:maui:a}b"),
        ] {
            let [its_queue, _, its_counter] = side_keys(name);
            assert_eq!((&*its_queue, &*its_counter), (queue, counter), "{name}");
        }
    }

    proptest! {
        #[test]
        fn side_keys_are_in_the_slot_of_the_key(name in "[ab{}:]{1,8}|.{1,12}") {
            for side in side_keys(&name) {
                prop_assert_eq!(slot(&side), slot(&name), "{} of {}", side, name);
            }
        }

        #[test]
        fn no_two_names_share_a_side_key(one in "[a{}:]{1,6}", other in "[a{}:]{1,6}") {
            for (its, others) in side_keys(&one).iter().zip(side_keys(&other)) {
                prop_assert_eq!(*its == others, one == other, "{} of {} and {}", its, one, other);
            }
        }
    }

    #[test]
    fn keys_that_begin_as_the_crates_own_are_refused() {
        let refused = |template: &str, name: &str| {
            let template = KeyTemplate::parse(template)?;
            template.resource(Kind::Mutex, name.into()).map(|_| ())
        };
        for (template, name, key) in [
            ("{name}", "quorlock:fence:{a}", "quorlock:fence:{a}"),
            ("{name}", "quorlock:", "quorlock:"),
            ("quorl{name}", "ock:guard", "quorlock:guard"),
            ("quorlock:{name}", "a", "quorlock:{name}"),
        ] {
            let key = key.to_owned();
            let error = Err(ConfigError::ReservedKey { key });
            assert_eq!(refused(template, name), error, "{template} {name}");
        }
        for (template, name) in [
            ("{name}", "quorlock"),
            ("{name}", "Quorlock:a"),
            ("app:{name}", "quorlock:guard"),
        ] {
            assert_eq!(refused(template, name), Ok(()), "{template} {name}");
        }
    }
}
