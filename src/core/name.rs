//! What is locked, and who holds it.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use crate::error::ConfigError;

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
        let aside = |what: &str| match kind {
            Kind::Fair => beside(what, &key),
            Kind::Mutex | Kind::Reentrant => String::new(),
        };
        let channel = match kind {
            Kind::Mutex => beside("quorlock:wake:", &key),
            // Redisson's rule. Names with and without braces may share a channel: messages are hints.
            Kind::Reentrant if key.contains('{') => format!("redisson_lock__channel:{key}"),
            Kind::Reentrant => format!("redisson_lock__channel:{{{key}}}"),
            // Waiters are told one by one.
            Kind::Fair => String::new(),
        };
        Self(Arc::new(Names {
            kind,
            name,
            queue: aside("quorlock:queue:"),
            deadlines: aside("quorlock:deadlines:"),
            channel: channel.into(),
            key,
        }))
    }

    /// For what is about no lock.
    pub(crate) fn nothing() -> Self {
        Self::new(Kind::Mutex, "".into(), "".into())
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
        beside("quorlock:fence:", &self.0.key).into()
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

/// What stands beside `key`: in braces, as cluster-aware proxies route by them; a key with braces brings its
/// own, and a second colon, so that no two keys share it.
fn beside(what: &str, key: &str) -> String {
    if key.contains('{') {
        format!("{what}:{key}")
    } else {
        format!("{what}{{{key}}}")
    }
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
        let key = if self.before.is_empty() && self.after.is_empty() {
            name.clone()
        } else {
            format!("{}{name}{}", self.before, self.after).into()
        };
        Ok(Resource::new(kind, name, key))
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
}
