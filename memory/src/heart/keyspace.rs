//! The keys of one database.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    hash::{Hash, Hasher},
};

/// The keys of one database, with their values and the times when they expire.
///
/// ```
/// use quorlock_memory::heart::{Keyspace, Reply, Script};
///
/// let now = 1_700_000_000_000_000;
/// let mut keys = Keyspace::default();
/// let script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
/// let ran = keys.eval(&script, &["stock"], &["5"], now);
/// assert_eq!(ran.reply, Reply::Int(5));
/// assert_eq!(ran.changed, [b"stock"]);
///
/// let before = keys.clone();
/// keys.run(&["PEXPIRE", "stock", "1000"], now);
/// assert_ne!(keys, before);
/// assert_eq!(keys.run(&["GET", "stock"], now + 1_001_000).reply, Reply::Nil);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keyspace {
    pub(super) entries: BTreeMap<Vec<u8>, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// The millisecond in which the key expires. As in Redis, the key lives until the end of this
    /// millisecond.
    pub(super) expires: Option<u64>,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Value {
    /// Fields and their values.
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    /// Members and their scores.
    Sorted(BTreeMap<Vec<u8>, Score>),
    /// A string.
    Text(Vec<u8>),
}

/// The score of a member of a sorted set: any `f64` but NaN.
#[derive(Clone, Copy, Debug)]
pub struct Score(f64);

impl Keyspace {
    /// Returns the names of all keys that have not expired, in order.
    pub fn names(&self, micros: u64) -> impl Iterator<Item = &[u8]> {
        let live = self.entries.iter();
        let live = live.filter(move |(_, entry)| !entry.is_expired(micros / 1_000));
        live.map(|(name, _)| name.as_slice())
    }

    /// Returns the value of a key that has not expired.
    pub fn value(&self, key: impl AsRef<[u8]>, micros: u64) -> Option<&Value> {
        let entry = self.entries.get(key.as_ref())?;
        (!entry.is_expired(micros / 1_000)).then_some(&entry.value)
    }

    /// Returns the remaining TTL in milliseconds: -1 if the key has none, -2 if there is no key.
    pub fn pttl(&self, key: impl AsRef<[u8]>, micros: u64) -> i64 {
        let now = micros / 1_000;
        match self.entries.get(key.as_ref()) {
            Some(entry) if !entry.is_expired(now) => entry.expires.map_or(-1, |expires| {
                i64::try_from(expires - now).unwrap_or(i64::MAX)
            }),
            _ => -2,
        }
    }
}

impl Entry {
    pub(super) fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| now > expires)
    }
}

impl Score {
    /// Returns the score with this number, and `None` for NaN.
    #[must_use]
    pub fn new(number: f64) -> Option<Self> {
        // Zero and negative zero are the same score.
        (!number.is_nan()).then_some(Self(if number == 0.0 { 0.0 } else { number }))
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Hash for Score {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}
