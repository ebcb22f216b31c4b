//! What commands and scripts work on: the keys of one database at one time, and the other state of
//! the server.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use super::{
    about::About,
    connections::{Connection, Connections},
    effect::Effect,
    keyspace::{Entry, Keyspace, Score, Value},
    reply::Reply,
    script::Script,
};

/// The error of a server if a key has another type than the command needs.
pub(super) const WRONGTYPE: Error =
    Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value");

/// The error of a server if a word is no number.
pub(super) const NOT_INTEGER: Error = Cow::Borrowed("ERR value is not an integer or out of range");

/// The error of a server if it does not understand a word.
pub(super) const SYNTAX: Error = Cow::Borrowed("ERR syntax error");

/// An error reply to a command. In a script, `redis.call` throws it.
pub(super) type Error = Cow<'static, str>;

pub(super) type Answer<T = Reply> = Result<T, Error>;

/// The words of a command. The first is its name.
pub(super) type Words<'a> = &'a [&'a [u8]];

/// Executes a command.
pub(super) type Run = fn(&mut Database, Words<'_>) -> Answer;

/// The data that commands work on.
#[derive(Debug, Default)]
pub(super) struct Database {
    pub(super) keys: Keyspace,
    /// The time of the server. It stays the same during a script.
    pub(super) micros: u64,
    pub(super) about: Arc<About>,
    /// The scripts that were loaded, by their hashes.
    pub(super) scripts: BTreeMap<String, Script>,
    pub(super) connections: Connections,
    /// The number of the connection whose command is executed. 0 if there is none.
    pub(super) caller: u64,
    pub(super) effects: Vec<Effect>,
}

impl Database {
    /// Returns the connection of the caller.
    pub(super) fn client(&mut self) -> Option<&mut Connection> {
        self.connections.get(self.caller)
    }

    /// Returns the time in milliseconds, by which keys expire.
    pub(super) fn now(&self) -> u64 {
        self.micros / 1_000
    }

    pub(super) fn value(&self, key: &[u8]) -> Option<&Value> {
        self.keys.value(key, self.micros)
    }

    /// Returns when a key expires: `None` if it does not exist, `Some(None)` if it never expires.
    pub(super) fn expires(&self, key: &[u8]) -> Option<Option<u64>> {
        self.value(key)?;
        self.keys.entries.get(key).map(|entry| entry.expires)
    }

    pub(super) fn text(&self, key: &[u8]) -> Answer<Option<&[u8]>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(WRONGTYPE),
        }
    }

    /// Returns the fields of a hash. A key that does not exist has none.
    pub(super) fn hash(&self, key: &[u8]) -> Answer<&BTreeMap<Vec<u8>, Vec<u8>>> {
        match self.value(key) {
            None => Ok(const { &BTreeMap::new() }),
            Some(Value::Hash(fields)) => Ok(fields),
            Some(_) => Err(WRONGTYPE),
        }
    }

    /// Returns the members of a sorted set. A key that does not exist has none.
    pub(super) fn sorted(&self, key: &[u8]) -> Answer<&BTreeMap<Vec<u8>, Score>> {
        match self.value(key) {
            None => Ok(const { &BTreeMap::new() }),
            Some(Value::Sorted(members)) => Ok(members),
            Some(_) => Err(WRONGTYPE),
        }
    }

    /// Returns the fields of a hash that is about to change. Call [`changed`](Self::changed)
    /// afterwards.
    pub(super) fn hash_mut(&mut self, key: &[u8]) -> Answer<&mut BTreeMap<Vec<u8>, Vec<u8>>> {
        match self.value_mut(key, || Value::Hash(BTreeMap::new())) {
            Value::Hash(fields) => Ok(fields),
            _ => Err(WRONGTYPE),
        }
    }

    /// Returns the members of a sorted set that is about to change. Call [`changed`](Self::changed)
    /// afterwards.
    pub(super) fn sorted_mut(&mut self, key: &[u8]) -> Answer<&mut BTreeMap<Vec<u8>, Score>> {
        match self.value_mut(key, || Value::Sorted(BTreeMap::new())) {
            Value::Sorted(members) => Ok(members),
            _ => Err(WRONGTYPE),
        }
    }

    fn value_mut(&mut self, key: &[u8], empty: fn() -> Value) -> &mut Value {
        if self.value(key).is_none() {
            self.remove(key); // it may have expired
        }
        let entry = self.keys.entries.entry(key.to_vec());
        let anew = || Entry {
            value: empty(),
            expires: None,
        };
        &mut entry.or_insert_with(anew).value
    }

    /// Notes whether a key has changed. Removes a hash or a sorted set that has become empty.
    pub(super) fn changed(&mut self, key: &[u8], has_changed: bool) {
        let is_empty = match self.keys.entries.get(key).map(|entry| &entry.value) {
            Some(Value::Hash(fields)) => fields.is_empty(),
            Some(Value::Sorted(members)) => members.is_empty(),
            Some(Value::Text(_)) | None => false,
        };
        if is_empty {
            self.keys.entries.remove(key);
        }
        if has_changed {
            self.effects.push(Effect::Changed(key.to_vec()));
        }
    }

    pub(super) fn put(&mut self, key: &[u8], value: Value, expires: Option<u64>) {
        let entry = Entry { value, expires };
        self.keys.entries.insert(key.to_vec(), entry);
        self.changed(key, true);
    }

    /// Sets when a key expires. Returns whether the key was there.
    pub(super) fn set_expiry(&mut self, key: &[u8], expires: u64) -> bool {
        if self.value(key).is_none() {
            return false;
        }
        if expires <= self.now() {
            return self.remove(key);
        }
        let entry = self.keys.entries.get_mut(key);
        entry
            .into_iter()
            .for_each(|entry| entry.expires = Some(expires));
        self.changed(key, true);
        true
    }

    /// Deletes a key. Returns whether it was there.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let Some(entry) = self.keys.entries.remove(key) else {
            return false;
        };
        self.changed(key, true);
        !entry.is_expired(self.now())
    }
}
