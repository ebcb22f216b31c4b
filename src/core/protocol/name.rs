//! Names of locks, their keys on the masters, and the tokens of mutexes.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use smallvec::SmallVec;

use super::identity::ClientName;
use crate::core::{
    config_error::ConfigError,
    kind::{
        LockKind,
        companion::{Companion, Companions, RESERVED},
        companion_keys,
    },
};

/// The name and the kind of a lock, and its keys on every master.
#[derive(Clone)]
pub(crate) struct LockId {
    names: Arc<Names>,
    /// The number of holders that a semaphore has at most. 1 for a lock of another kind.
    permits: u16,
}

/// The contents of a [`LockId`]. They are shared, because every attempt and every command has a
/// clone of the [`LockId`].
struct Names {
    kind: LockKind,
    name: Arc<str>,
    key: Arc<str>,
    companions: Companions,
}

/// Shows kind, name and key. The other keys follow from these.
impl fmt::Debug for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name, key) = (self.kind(), self.name(), self.key());
        write!(f, "{kind:?} {name:?} at {key:?}")
    }
}

/// Compares kind and key. The permits are not compared. All other fields follow from kind and key.
impl PartialEq for LockId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.names, &other.names)
            || (self.kind(), self.key()) == (other.kind(), other.key())
    }
}

impl Eq for LockId {}

impl Hash for LockId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind(), self.key()).hash(state);
    }
}

impl LockId {
    fn new(kind: LockKind, name: Arc<str>, key: Arc<str>) -> Self {
        let names = Names {
            kind,
            name,
            key,
            companions: Companions::default(),
        };
        Self {
            names: Arc::new(names),
            permits: 1,
        }
    }

    pub(crate) fn with_permits(self, permits: u16) -> Self {
        Self { permits, ..self }
    }

    pub(crate) fn kind(&self) -> LockKind {
        self.names.kind
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.names.name
    }

    pub(crate) fn key(&self) -> &Arc<str> {
        &self.names.key
    }

    /// Returns the number of holders that a semaphore has at most, as this program knows it. 1 for
    /// a lock of another kind.
    pub(crate) fn permits(&self) -> u16 {
        self.permits
    }

    /// Returns a key or a channel that belongs to the lock, such as the key of the queue.
    pub(crate) fn companion(&self, companion: &'static Companion) -> &str {
        self.names.companions.text(companion, self.key())
    }

    /// Returns the key of the counter for fencing tokens.
    #[cfg(test)]
    pub(crate) fn counter(&self) -> Arc<str> {
        self.companion(&crate::core::kind::companion::FENCE).into()
    }
}

/// The template for the keys of locks. It contains `{name}` exactly once, in the place of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyTemplate {
    before: String,
    after: String,
}

impl KeyTemplate {
    const EXAMPLE: &str = "quorlock:check";
    const VARIABLE: &str = "{name}";
    /// The maximum length of a name in bytes. Masters repeat the name in every message to
    /// subscribers. A longer name is probably a mistake.
    const MOST_NAME: usize = 64 * 1024;

    pub(crate) fn parse(template: &str) -> Result<Self, ConfigError> {
        if template.starts_with(RESERVED) {
            return Err(reserved(template));
        }
        match template.split_once(Self::VARIABLE) {
            Some((before, after)) if !after.contains(Self::VARIABLE) => Ok(Self {
                before: before.to_owned(),
                after: after.to_owned(),
            }),
            _ => Err(ConfigError::BadKeyTemplate {
                template: template.to_owned(),
            }),
        }
    }

    /// Returns the lock of this kind and name. An empty name is refused, because its key would be
    /// the template without a name.
    pub(crate) fn lock_id(&self, kind: LockKind, name: Arc<str>) -> Result<LockId, ConfigError> {
        if name.is_empty() {
            return Err(ConfigError::EmptyName);
        }
        if name.len() > Self::MOST_NAME {
            let (given, most) = (format!("{} bytes", name.len()), Self::MOST_NAME);
            return Err(ConfigError::out_of_range(
                "name",
                given,
                format!("at most {most}"),
            ));
        }
        let key = self.key(&name);
        if key.starts_with(RESERVED) || *name == *Self::EXAMPLE {
            return Err(reserved(&key));
        }
        Ok(LockId::new(kind, name, key))
    }

    /// Returns the fair lock `quorlock:check`. Checks and probes try commands on the keys of this
    /// lock, and may write these keys. The name is reserved, so no program can acquire the lock.
    /// The keys are made from the template, as for any other lock. So a Redis user with the right
    /// to such keys needs no further right.
    pub(crate) fn example(&self) -> LockId {
        let name: Arc<str> = Self::EXAMPLE.into();
        let key = self.key(&name);
        LockId::new(LockKind::Fair, name, key)
    }

    fn key(&self, name: &Arc<str>) -> Arc<str> {
        if self.before.is_empty() && self.after.is_empty() {
            name.clone()
        } else {
            format!("{}{name}{}", self.before, self.after).into()
        }
    }
}

fn reserved(key: &str) -> ConfigError {
    ConfigError::ReservedKey {
        key: key.to_owned(),
    }
}

/// A key that a lock uses on each master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExampleKey {
    /// The purpose, such as `queue`. It is a part of the key: see
    /// [`docs::operations`](crate::docs::operations#rights). Empty for the key of the lock itself.
    pub purpose: &'static str,
    /// The key.
    pub key: String,
}

/// Returns the keys of the lock `quorlock:check` under a [template](crate::Builder::key_template),
/// including those that only some kinds of locks have. Nobody can acquire this lock, so a tool can
/// use its keys to test the rights of a user. The first key is that of the lock itself.
///
/// ```
/// let keys = quorlock::tools::example_keys("app:{name}")?;
/// assert_eq!(keys[0].key, "app:quorlock:check");
/// assert!(keys.iter().any(|one| one.key == "quorlock:queue:{app:quorlock:check}"));
/// # Ok::<(), quorlock::ConfigError>(())
/// ```
pub fn example_keys(key_template: &str) -> Result<Vec<ExampleKey>, ConfigError> {
    let lock = KeyTemplate::parse(key_template)?.example();
    let companion = |companion: &'static Companion| ExampleKey {
        purpose: companion.name,
        key: lock.companion(companion).to_owned(),
    };
    let own = ExampleKey {
        purpose: "",
        key: lock.key().to_string(),
    };
    Ok([own]
        .into_iter()
        .chain(companion_keys().map(companion))
        .collect())
}

/// The value that the holder of a mutex writes under the key. It consists of 20 random bytes in
/// hex, which are new for every attempt. If the coordinator has a client name, `@`, the time of the
/// attempt, `@` and this name follow.
///
/// Any client that knows a token can release the lock, so `Debug` never shows a token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(SmallVec<[u8; Self::MOST]>); // so no attempt allocates memory for its token

impl Token {
    const MOST: usize = 40 + 1 + ClientName::TIME + 1 + ClientName::MOST;

    /// `client` is the client name, and the time of the attempt in milliseconds since 1970.
    pub(crate) fn new(random: [u8; 20], client: Option<(&ClientName, u64)>) -> Self {
        let digit = |half| half + if half < 10 { b'0' } else { b'a' - 10 };
        let digits = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
        let mut text: SmallVec<_> = random.iter().flat_map(digits).collect();
        if let Some((client, at)) = client {
            text.push(ClientName::MARK as u8);
            text.extend_from_slice(&ClientName::digits(at));
            text.push(ClientName::MARK as u8);
            text.extend_from_slice(client.as_str().as_bytes());
        }
        Self(text)
    }

    /// Returns the token with this text. `None` if the text is too long.
    pub(crate) fn of(text: &str) -> Option<Self> {
        (text.len() <= Self::MOST).then(|| Self(text.as_bytes().into()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
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
                    .lock_id(LockKind::Mutex, name.into())
                    .unwrap()
                    .key()
                    .to_string()
            });
            assert_eq!(made.as_deref(), key, "{template}");
        }
    }

    #[test]
    fn a_lock_is_the_same_if_its_kind_and_its_key_are() {
        let lock_id = |template: &str, kind, name: &str| {
            let template = KeyTemplate::parse(template).unwrap();
            template.lock_id(kind, name.into()).unwrap()
        };
        let hash = |lock_id: &LockId| {
            let mut hasher = std::hash::DefaultHasher::new();
            lock_id.hash(&mut hasher);
            hasher.finish()
        };
        let one = lock_id("{name}", LockKind::Mutex, "a:b");
        let same = lock_id("a:{name}", LockKind::Mutex, "b");
        assert_eq!((&one, hash(&one)), (&same, hash(&same)));
        assert_eq!((&**one.name(), &**same.name()), ("a:b", "b"));
        for (kind, name) in [(LockKind::Fair, "a:b"), (LockKind::Mutex, "b")] {
            let other = lock_id("{name}", kind, name);
            assert_ne!(one, other);
            assert_ne!(hash(&one), hash(&other));
        }
    }

    #[test]
    fn a_check_uses_a_fair_lock_of_the_template() {
        let example = KeyTemplate::parse("app:{name}").unwrap().example();
        let found = (example.kind(), &**example.key());
        assert_eq!(found, (LockKind::Fair, "app:quorlock:check"));
    }

    #[test]
    fn a_name_has_at_most_64_kb() {
        let template = KeyTemplate::parse("{name}").unwrap();
        let named = |length| template.lock_id(LockKind::Mutex, "a".repeat(length).into());
        assert!(named(65_536).is_ok());
        assert_eq!(
            named(65_537).unwrap_err().to_string(),
            "a name of 65537 bytes is out of range: it must be at most 65536"
        );
    }

    #[test]
    fn an_empty_name_is_refused() {
        let refused = KeyTemplate::parse("{name}")
            .unwrap()
            .lock_id(LockKind::Mutex, "".into());
        assert!(matches!(refused, Err(ConfigError::EmptyName)));
    }

    #[test]
    fn a_token_is_hex_and_debug_does_not_show_it() {
        let token = Token::new([0xa5; 20], None);
        assert_eq!(token.bytes(), "a5".repeat(20).as_bytes());
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn the_time_and_the_name_of_the_client_follow_the_digits() {
        for name in ["a", "web-3/812", &"n".repeat(64)] {
            let client = ClientName::parse(name.to_owned()).unwrap();
            let token = Token::new([0xa5; 20], Some((&client, 1_764_252_180_042)));
            let expected = format!("{}@1764252180042@{name}", "a5".repeat(20));
            assert_eq!(token.bytes(), expected.as_bytes());
            assert_eq!(format!("{token:?}"), "Token(..)");
            assert_ne!(token, Token::new([0xa5; 20], None));
        }
    }

    #[test]
    fn keys_of_the_crate_are_refused() {
        let refused = |template: &str, name: &str| {
            let template = KeyTemplate::parse(template)?;
            template.lock_id(LockKind::Mutex, name.into()).map(|_| ())
        };
        for (template, name, key) in [
            ("{name}", "quorlock:fence:{a}", "quorlock:fence:{a}"),
            ("{name}", "quorlock:", "quorlock:"),
            ("quorl{name}", "ock:origin", "quorlock:origin"),
            ("quorlock:{name}", "a", "quorlock:{name}"),
            ("app:{name}", "quorlock:check", "app:quorlock:check"),
            ("{name}:lock", "quorlock:check", "quorlock:check:lock"),
        ] {
            let key = key.to_owned();
            let error = Err(ConfigError::ReservedKey { key });
            assert_eq!(refused(template, name), error, "{template} {name}");
        }
        for (template, name) in [
            ("{name}", "quorlock"),
            ("{name}", "Quorlock:a"),
            ("app:{name}", "quorlock:origin"),
        ] {
            assert_eq!(refused(template, name), Ok(()), "{template} {name}");
        }
    }
}
