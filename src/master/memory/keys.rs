//! The keys of a memory master. A function with the name of a Redis command does the same as that
//! command.

use std::{borrow::Cow, collections::BTreeMap};

use crate::core::{protocol::command::Reply, restart::ORIGIN_KEY};

/// The error of a server if a key has another type than the command needs.
const WRONGTYPE: Error =
    Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value");

/// An error reply to a command. The error ends a script.
pub(in crate::master) type Error = Cow<'static, str>;

pub(in crate::master) type KeyResult<T> = Result<T, Error>;

/// The reply to a command, or the error.
pub(in crate::master) type Replied = KeyResult<Reply<'static>>;

/// All keys, at one point in time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    /// The time in milliseconds of the master's own clock.
    now: u64,
    entries: BTreeMap<String, Entry>,
    /// The keys that were written or deleted since this list was last taken.
    pub(in crate::master) changed: Vec<String>,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    /// The millisecond in which the key expires. As in Redis, the key lives until the end of this
    /// millisecond.
    expires: Option<u64>,
}

#[cfg_attr(test, derive(PartialEq))]
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Hash(BTreeMap<String, String>),
    /// The members and their scores.
    Sorted(BTreeMap<String, f64>),
    Text(String),
}

impl Keys {
    /// Sets the time. The time stays the same until the next call, as on a server during a script.
    pub(in crate::master) fn at(&mut self, now: u64) -> &mut Self {
        self.now = now;
        self
    }

    pub(in crate::master) fn now(&self) -> u64 {
        self.now
    }

    /// Returns the names of all keys that have not expired, in order, without the origin record.
    pub(crate) fn names(&mut self) -> Vec<String> {
        let now = self.now;
        self.entries.retain(|_, entry| !entry.is_expired(now));
        let names = self.entries.keys().filter(|name| *name != ORIGIN_KEY);
        names.cloned().collect()
    }

    pub(in crate::master) fn put(&mut self, key: String, value: Value, ttl: Option<u64>) {
        let expires = ttl.map(|ttl| self.now.saturating_add(ttl));
        self.changed.push(key.clone());
        self.entries.insert(key, Entry { value, expires });
    }

    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        Some(&self.live(key)?.value)
    }

    pub(crate) fn exists(&self, key: &str) -> bool {
        self.live(key).is_some()
    }

    /// Deletes a key. Returns whether it was there.
    pub(crate) fn del(&mut self, key: &str) -> bool {
        let Some(entry) = self.entries.remove(key) else {
            return false;
        };
        self.changed.push(key.to_owned());
        !entry.is_expired(self.now)
    }

    /// Returns the remaining TTL in milliseconds. Returns -1 if the key has no TTL, and -2 if there
    /// is no key.
    pub(crate) fn pttl(&self, key: &str) -> i64 {
        match self.live(key) {
            None => -2,
            Some(Entry { expires: None, .. }) => -1,
            Some(Entry {
                expires: Some(expires),
                ..
            }) => i64::try_from(expires - self.now).unwrap_or(i64::MAX),
        }
    }

    /// Sets the TTL of a key. Returns whether the key is there.
    pub(in crate::master) fn pexpire(&mut self, key: &str, ttl: u64) -> bool {
        if ttl == 0 {
            return self.del(key);
        }
        let expires = self.now.saturating_add(ttl);
        let entry = self.live_mut(key);
        entry.map(|entry| entry.expires = Some(expires)).is_some()
    }

    pub(in crate::master) fn get(&self, key: &str) -> KeyResult<Option<&str>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(WRONGTYPE),
        }
    }

    /// Returns the fields of a hash. A key that does not exist has none.
    pub(in crate::master) fn hash(&self, key: &str) -> KeyResult<&BTreeMap<String, String>> {
        match self.value(key) {
            None => Ok(const { &BTreeMap::new() }),
            Some(Value::Hash(fields)) => Ok(fields),
            Some(_) => Err(WRONGTYPE),
        }
    }

    /// Sets fields. Returns how many of them are new.
    pub(in crate::master) fn hset(
        &mut self,
        key: &str,
        fields: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> KeyResult<usize> {
        let empty = || Value::Hash(BTreeMap::new());
        let Value::Hash(hash) = self.value_mut(key, empty) else {
            return Err(WRONGTYPE);
        };
        let before = hash.len();
        hash.extend(
            fields
                .into_iter()
                .map(|(field, value)| (field.into(), value.into())),
        );
        Ok(hash.len() - before)
    }

    /// Deletes fields. Also deletes the key if no field is left. Returns how many were there.
    pub(in crate::master) fn hdel(&mut self, key: &str, fields: &[String]) -> KeyResult<usize> {
        let Some(entry) = self.live_mut(key) else {
            return Ok(0);
        };
        let Value::Hash(hash) = &mut entry.value else {
            return Err(WRONGTYPE);
        };
        let before = hash.len();
        hash.retain(|field, _| !fields.contains(field));
        let left = hash.len();
        if left == 0 {
            self.del(key);
        }
        Ok(before - left)
    }

    /// Adds a member, or changes its score. Returns whether the member is new.
    pub(in crate::master) fn zadd(
        &mut self,
        key: &str,
        score: f64,
        member: &str,
    ) -> KeyResult<bool> {
        let empty = || Value::Sorted(BTreeMap::new());
        let Value::Sorted(members) = self.value_mut(key, empty) else {
            return Err(WRONGTYPE);
        };
        Ok(members.insert(member.to_owned(), score).is_none())
    }

    /// Deletes a member. Also deletes the key if no member is left. Returns whether the member was
    /// there.
    pub(in crate::master) fn zrem(&mut self, key: &str, member: &str) -> KeyResult<bool> {
        let Some(entry) = self.live_mut(key) else {
            return Ok(false);
        };
        let Value::Sorted(members) = &mut entry.value else {
            return Err(WRONGTYPE);
        };
        let was_there = members.remove(member).is_some();
        if members.is_empty() {
            self.del(key);
        }
        Ok(was_there)
    }

    /// Returns all members, ordered by score and then as strings.
    pub(in crate::master) fn zrange(&self, key: &str) -> KeyResult<Vec<&str>> {
        let mut members: Vec<_> = self.sorted(key)?.iter().collect();
        members.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        Ok(members.into_iter().map(|(member, _)| &**member).collect())
    }

    /// Returns the members of a sorted set with their scores. A key that does not exist has none.
    pub(in crate::master) fn sorted(&self, key: &str) -> KeyResult<&BTreeMap<String, f64>> {
        match self.value(key) {
            None => Ok(const { &BTreeMap::new() }),
            Some(Value::Sorted(members)) => Ok(members),
            Some(_) => Err(WRONGTYPE),
        }
    }

    fn live(&self, key: &str) -> Option<&Entry> {
        let entry = self.entries.get(key)?;
        (!entry.is_expired(self.now)).then_some(entry)
    }

    /// Returns the entry of a key that is about to change.
    fn live_mut(&mut self, key: &str) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(key)?;
        if entry.is_expired(self.now) {
            return None;
        }
        self.changed.push(key.to_owned());
        Some(entry)
    }

    /// Returns the value of `key`. Creates the key if it does not exist.
    fn value_mut(&mut self, key: &str, empty: impl Fn() -> Value) -> &mut Value {
        if !self.exists(key) {
            self.del(key); // it may have expired
        }
        self.changed.push(key.to_owned());
        let entry = self.entries.entry(key.to_owned());
        let anew = || Entry {
            value: empty(),
            expires: None,
        };
        &mut entry.or_insert_with(anew).value
    }
}

impl Entry {
    fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| now > expires)
    }
}
