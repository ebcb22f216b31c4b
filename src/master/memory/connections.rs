//! The connections of a memory master, and what is pushed to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    task::Waker,
};

/// All connections. Each has a number.
#[derive(Default)]
pub(crate) struct Connections {
    /// The subscriptions, each with its channel and the number of its connection.
    pub(crate) subscriptions: BTreeSet<(String, u64)>,
    /// The keys of which a connection hears the next change, each with the connection.
    pub(super) tracked: BTreeSet<(String, u64)>,
    /// The pushes that a connection has not read yet.
    pub(crate) pushes: BTreeMap<u64, Vec<Push>>,
    /// The connections to wake when the fault changes or something is pushed to them.
    pub(crate) wakers: BTreeMap<u64, Waker>,
}

/// A push message to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    /// This key has changed. `None` if all keys have.
    Changed(Option<String>),
    /// A message on a channel.
    Message(String, String),
}

impl Connections {
    pub(super) fn publish(&mut self, channel: &str, message: &str) {
        let push = Push::Message(channel.to_owned(), message.to_owned());
        for connection in numbers(&self.subscriptions, channel) {
            self.push(connection, push.clone());
        }
    }

    /// Reports that `key` has changed to the connections that track it. Each of them hears of one
    /// change.
    pub(super) fn report(&mut self, key: &str) {
        for connection in numbers(&self.tracked, key) {
            self.tracked.remove(&(key.to_owned(), connection));
            self.push(connection, Push::Changed(Some(key.to_owned())));
        }
    }

    /// Reports that all keys have changed.
    pub(super) fn report_all(&mut self) {
        self.tracked.clear();
        for connection in self.wakers.keys().copied().collect::<Vec<_>>() {
            self.push(connection, Push::Changed(None));
        }
    }

    /// Forgets a connection that was closed.
    pub(crate) fn close(&mut self, connection: u64) {
        self.wakers.remove(&connection);
        self.pushes.remove(&connection);
        self.subscriptions.retain(|(_, other)| *other != connection);
        self.tracked.retain(|(_, other)| *other != connection);
    }

    fn push(&mut self, connection: u64, push: Push) {
        self.pushes.entry(connection).or_default().push(push);
        if let Some(waker) = self.wakers.get(&connection) {
            waker.wake_by_ref();
        }
    }
}

/// Returns the connections that have an entry for `name`.
fn numbers(entries: &BTreeSet<(String, u64)>, name: &str) -> Vec<u64> {
    let of_name = (name.to_owned(), 0)..=(name.to_owned(), u64::MAX);
    entries.range(of_name).map(|(_, one)| *one).collect()
}
