//! The connections of a server, and what is pushed to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{
    effect::Effect,
    reply::{Input, Reply},
};

/// All connections. Each has a number.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: BTreeMap<u64, Connection>,
    /// The number of the newest connection.
    newest: u64,
    /// The channels, with the connections that listen.
    channels: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// Each key that a connection tracks, with the number of this connection.
    tracked: BTreeSet<(Vec<u8>, u64)>,
    /// The output of each connection. It is empty for a connection that was cut.
    outputs: BTreeMap<u64, Vec<u8>>,
    /// The user and the password that new connections need.
    pub(super) login: Option<(String, String)>,
}

/// A connection, as the server sees it.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) input: Input,
    pub(super) is_resp3: bool,
    pub(super) is_logged_in: bool,
    /// Set by the last command: the server closes the connection after the reply.
    pub(super) is_ending: bool,
    pub(super) name: String,
    pub(super) database: u32,
    pub(super) tracking: Tracking,
}

/// Which keys a connection tracks when it reads them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tracking {
    All,
    /// The keys that the next command reads.
    Next,
    /// No keys, until the connection asks to track those of the next command.
    OnRequest,
    #[default]
    Off,
}

impl Connections {
    pub(super) fn open(&mut self) -> u64 {
        self.newest += 1;
        let connection = Connection {
            is_logged_in: self.login.is_none(),
            ..Connection::default()
        };
        self.open.insert(self.newest, connection);
        self.newest
    }

    pub(super) fn get(&mut self, number: u64) -> Option<&mut Connection> {
        self.open.get_mut(&number)
    }

    pub(super) fn is_open(&self, number: u64) -> bool {
        self.open.contains_key(&number)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.open.keys().copied()
    }

    /// Closes a connection. Its client still gets the output so far.
    pub(super) fn end(&mut self, number: u64) {
        self.open.remove(&number);
        self.untrack(number);
        self.channels.retain(|_, listeners| {
            listeners.remove(&number);
            !listeners.is_empty()
        });
    }

    /// Closes a connection. Its client sees that it is closed, and gets no more output.
    pub(super) fn cut(&mut self, number: u64) {
        self.end(number);
        self.outputs.insert(number, Vec::new());
    }

    /// Forgets a connection that its client has closed.
    pub(super) fn forget(&mut self, number: u64) {
        self.end(number);
        self.outputs.remove(&number);
    }

    /// Begins or ends a subscription. Returns how many subscriptions the connection has after that.
    pub(super) fn listen(&mut self, number: u64, channel: &[u8], begins: bool) -> usize {
        let listeners = self.channels.entry(channel.to_vec()).or_default();
        match begins {
            true => listeners.insert(number),
            false => listeners.remove(&number),
        };
        self.channels.retain(|_, listeners| !listeners.is_empty());
        self.channels_of(number).len()
    }

    pub(super) fn channels_of(&self, number: u64) -> Vec<Vec<u8>> {
        let channels = self.channels.iter();
        let channels = channels.filter(|(_, listeners)| listeners.contains(&number));
        channels.map(|(channel, _)| channel.clone()).collect()
    }

    /// Returns how many connections listen on a channel.
    pub(super) fn listeners(&self, channel: &[u8]) -> usize {
        self.channels.get(channel).map_or(0, BTreeSet::len)
    }

    pub(super) fn subscriptions(&self) -> usize {
        self.channels.values().map(BTreeSet::len).sum()
    }

    pub(super) fn untrack(&mut self, number: u64) {
        self.tracked.retain(|(_, other)| *other != number);
    }

    /// Returns the keys that a connection tracks.
    pub(super) fn tracked(&self, number: u64) -> impl Iterator<Item = &[u8]> {
        let keys = self.tracked.iter();
        let keys = keys.filter(move |(_, other)| *other == number);
        keys.map(|(key, _)| key.as_slice())
    }

    /// Tells all connections what a command of connection `number` has done.
    pub(super) fn tell(&mut self, number: u64, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Changed(key) => self.report(&key),
                Effect::Flushed { .. } => self.report_all(),
                Effect::Published(channel, text) => {
                    let listeners = self.channels.get(&channel).cloned().unwrap_or_default();
                    let words = [b"message", &*channel, &*text].map(Reply::bulk);
                    let message = Reply::Push(words.to_vec());
                    for listener in listeners {
                        self.send(listener, &message);
                    }
                }
                Effect::Read(key) => drop(self.tracked.insert((key, number))),
            }
        }
    }

    /// Reports a change of `key` to the connections that track it. After that, none of them tracks
    /// it.
    fn report(&mut self, key: &[u8]) {
        let of_key = (key.to_vec(), 0)..=(key.to_vec(), u64::MAX);
        let trackers: Vec<_> = self.tracked.range(of_key).cloned().collect();
        for tracker in trackers {
            self.tracked.remove(&tracker);
            self.invalidate(tracker.1, Reply::bulks([key]));
        }
    }

    /// Reports that all keys have changed.
    pub(super) fn report_all(&mut self) {
        self.tracked.clear();
        let trackers = self.open.iter();
        let trackers = trackers.filter(|(_, one)| one.tracking != Tracking::Off);
        for number in trackers.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.invalidate(number, Reply::Nil);
        }
    }

    /// Reports changed keys. A connection with RESP2 gets no such reports.
    fn invalidate(&mut self, number: u64, keys: Reply) {
        if self.open.get(&number).is_some_and(|one| one.is_resp3) {
            self.send(number, &Reply::Push(vec![Reply::bulk("invalidate"), keys]));
        }
    }

    pub(super) fn send(&mut self, number: u64, reply: &Reply) {
        if let Some(connection) = self.open.get(&number) {
            let output = self.outputs.entry(number).or_default();
            reply.write(connection.is_resp3, output);
        }
    }

    pub(super) fn take_outputs(&mut self) -> BTreeMap<u64, Vec<u8>> {
        mem::take(&mut self.outputs)
    }

    /// Returns the line of a connection in `CLIENT LIST`.
    pub(super) fn describe(&self, number: u64) -> String {
        let Some(connection) = self.open.get(&number) else {
            return String::new();
        };
        let Connection { name, database, .. } = connection;
        let resp = if connection.is_resp3 { 3 } else { 2 };
        let channels = self.channels_of(number).len();
        let flags = if channels > 0 { "P" } else { "N" };
        format!(
            "id={number} addr=memory:{number} name={name} age=0 idle=0 flags={flags} \
             db={database} sub={channels} psub=0 user=default resp={resp}\n"
        )
    }
}
