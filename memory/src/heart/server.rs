//! A server: its databases, scripts, connections and clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use super::{
    about::{About, Version},
    clock::Clock,
    commands::{Command, Run},
    database::{Answer, Database, Effect, Error, Words},
    keyspace::{Keyspace, Value},
    reply::{Reply, take_command},
};

/// The keys of all databases, by their numbers.
pub type Data = BTreeMap<u32, Keyspace>;

/// A server without IO. Its connections have numbers.
///
/// ```
/// use quorlock_memory::heart::{Server, Version};
///
/// let now = 1_700_000_000_000_000;
/// let mut server = Server::new("example", Version::default());
/// let connection = server.connect();
/// server.receive(connection, b"SET key value PX 1000\r\nGET key\r\n", now);
/// assert_eq!(server.outputs()[&connection], b"+OK\r\n$5\r\nvalue\r\n");
/// ```
#[derive(Debug, Default)]
pub struct Server {
    /// The keys of the database that a command works on are moved here while it runs.
    database: Database,
    data: Data,
    clock: Clock,
    connections: BTreeMap<u64, Connection>,
    /// The number of the newest connection.
    opened: u64,
    /// The keys of which a connection hears the next change, each with the connection.
    tracked: BTreeSet<(Vec<u8>, u64)>,
    /// The bytes that connections are to get. A connection that the server has cut gets none.
    outputs: BTreeMap<u64, Vec<u8>>,
    /// The error that all commands are answered with.
    refusal: Option<Error>,
    /// The user and the password that connections need.
    login: Option<(String, String)>,
    commands: u64,
}

/// A connection, as the server sees it.
#[derive(Debug, Default)]
pub(super) struct Connection {
    input: Vec<u8>,
    pub(super) is_resp3: bool,
    pub(super) is_logged_in: bool,
    /// Set by the last command: the server closes the connection after the reply.
    pub(super) is_ending: bool,
    pub(super) name: String,
    pub(super) database: u32,
    pub(super) tracking: Tracking,
}

/// Which of the keys that a connection reads it tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tracking {
    All,
    /// Those that the next command reads, if this is set.
    OptIn {
        is_next: bool,
    },
    #[default]
    Off,
}

impl Server {
    /// Creates a server without keys. Its run id and its replication id follow from `name`.
    #[must_use]
    pub fn new(name: &str, version: Version) -> Self {
        let mut server = Self::default();
        server.database.about = Arc::new(About::new(name, version));
        server
    }

    /// Opens a connection, and returns its number.
    pub fn connect(&mut self) -> u64 {
        self.opened += 1;
        let connection = Connection {
            is_logged_in: self.login.is_none(),
            ..Connection::default()
        };
        self.connections.insert(self.opened, connection);
        self.opened
    }

    /// Closes a connection, as its client does.
    pub fn close(&mut self, connection: u64) {
        self.forget(connection);
        self.outputs.remove(&connection);
    }

    /// Closes a connection, whose client learns of it and of nothing else.
    pub(super) fn cut(&mut self, connection: u64) {
        self.forget(connection);
        self.outputs.insert(connection, Vec::new());
    }

    fn forget(&mut self, connection: u64) {
        self.connections.remove(&connection);
        self.forget_tracked(connection);
        self.database.channels.retain(|_, listeners| {
            listeners.remove(&connection);
            !listeners.is_empty()
        });
    }

    pub(super) fn forget_tracked(&mut self, connection: u64) {
        self.tracked.retain(|(_, other)| *other != connection);
    }

    /// Returns whether a connection is open. The server closes it after `QUIT`, `CLIENT KILL`,
    /// nonsense in place of a command, and a restart.
    #[must_use]
    pub fn is_open(&self, connection: u64) -> bool {
        self.connections.contains_key(&connection)
    }

    /// Executes all commands in `bytes`, after the incomplete command that came before. `now` is
    /// the true time.
    pub fn receive(&mut self, connection: u64, bytes: &[u8], now: u64) {
        self.feed(connection, bytes);
        while let Some(words) = self.next_command(connection) {
            self.execute(connection, &words, now);
        }
    }

    /// Adds what a connection has received. [`next_command`](Self::next_command) reads it.
    pub fn feed(&mut self, connection: u64, bytes: &[u8]) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.input.extend_from_slice(bytes);
        }
    }

    /// Takes the next whole command that a connection has received.
    pub fn next_command(&mut self, connection: u64) -> Option<Vec<Vec<u8>>> {
        let taken = take_command(&mut self.connections.get_mut(&connection)?.input);
        taken.unwrap_or_else(|error| {
            let error = format!("ERR Protocol error: {error}");
            self.send(connection, &Reply::Error(error));
            self.forget(connection);
            None
        })
    }

    /// Executes one command of a connection, and sends the reply. If the connection is not open,
    /// the command runs in database 0 and nobody gets its reply: it comes too late, or once more.
    pub fn execute<W: AsRef<[u8]>>(&mut self, connection: u64, words: &[W], now: u64) -> Reply {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        self.commands += 1;
        if !self.is_open(connection) {
            return match &self.refusal {
                Some(error) => Reply::Error(error.to_string()),
                None => self.run(&words, now),
            };
        }
        let answer = self.answer(connection, &words, now);
        let reply = answer.unwrap_or_else(|error| Reply::Error(error.into_owned()));
        self.send(connection, &reply);
        self.spread(connection);
        let open = self.connection(connection);
        let is_about_tracking = words
            .first()
            .is_some_and(|name| name.eq_ignore_ascii_case(b"CLIENT"));
        if let (Tracking::OptIn { is_next }, false) = (&mut open.tracking, is_about_tracking) {
            *is_next = false;
        }
        if open.is_ending {
            self.forget(connection);
        }
        reply
    }

    fn answer(&mut self, number: u64, words: Words<'_>, now: u64) -> Answer {
        let found = Command::find(words, &self.database.about);
        let command = found.map_err(|missing| missing.for_clients(words))?;
        let connection = self.connection(number);
        if !connection.is_logged_in && !command.is_for_strangers() {
            return Err("NOAUTH Authentication required.".into());
        }
        let (index, tracking) = (connection.database, connection.tracking);
        match command.run {
            Run::Connection(run) => run(self, number, words),
            Run::Data(_) => {
                if let Some(error) = &self.refusal {
                    return Err(error.clone());
                }
                self.database.tracks =
                    matches!(tracking, Tracking::All | Tracking::OptIn { is_next: true });
                self.within(index, now, |database| database.run(command, words))
            }
        }
    }

    /// Executes a command as another client would, in database 0. Nothing refuses it, and it does
    /// not count.
    pub fn run<W: AsRef<[u8]>>(&mut self, words: &[W], now: u64) -> Reply {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        self.database.tracks = false;
        let reply = self.within(0, now, |database| database.execute(&words));
        self.spread(0);
        reply
    }

    /// Writes a value in database 0, as another client would. `ttl` is in milliseconds.
    pub fn put(&mut self, key: &str, value: Value, ttl: Option<u64>, now: u64) {
        self.within(0, now, |database| {
            let expires = ttl.map(|ttl| database.now().saturating_add(ttl));
            database.put(key.as_bytes(), value, expires);
        });
        self.spread(0);
    }

    fn within<T>(&mut self, index: u32, now: u64, run: impl FnOnce(&mut Database) -> T) -> T {
        self.database.micros = self.micros(now);
        self.database.clients = self.connections.len();
        self.database.keys = mem::take(self.data.entry(index).or_default());
        let ran = run(&mut self.database);
        self.data.insert(index, mem::take(&mut self.database.keys));
        ran
    }

    /// Tells all connections what the last command has done. `number` is the connection of the
    /// command.
    fn spread(&mut self, number: u64) {
        for effect in mem::take(&mut self.database.effects) {
            match effect {
                Effect::Changed(key) => self.report(&key),
                Effect::Flushed => self.report_all(),
                Effect::FlushedAll => self.flush(),
                Effect::Published(channel, text) => {
                    let listeners = self.database.channels.get(&channel);
                    let words = [b"message", &*channel, &*text].map(Reply::bulk);
                    let message = Reply::Push(words.to_vec());
                    for listener in listeners.cloned().unwrap_or_default() {
                        self.send(listener, &message);
                    }
                }
                Effect::Read(key) => drop(self.tracked.insert((key, number))),
            }
        }
    }

    /// Reports that `key` has changed to the connections that track it. Each of them hears of one
    /// change.
    fn report(&mut self, key: &[u8]) {
        let of_key = (key.to_vec(), 0)..=(key.to_vec(), u64::MAX);
        let trackers: Vec<_> = self.tracked.range(of_key).cloned().collect();
        for tracker in trackers {
            self.tracked.remove(&tracker);
            self.invalidate(tracker.1, Reply::bulks([key]));
        }
    }

    /// Reports that all keys have changed.
    fn report_all(&mut self) {
        self.tracked.clear();
        let trackers = self.connections.iter();
        let trackers = trackers.filter(|(_, one)| one.tracking != Tracking::Off);
        for number in trackers.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.invalidate(number, Reply::Nil);
        }
    }

    /// A client of RESP2 gets no such reports on this connection.
    fn invalidate(&mut self, number: u64, keys: Reply) {
        if self
            .connections
            .get(&number)
            .is_some_and(|one| one.is_resp3)
        {
            self.send(number, &Reply::Push(vec![Reply::bulk("invalidate"), keys]));
        }
    }

    pub(super) fn send(&mut self, number: u64, reply: &Reply) {
        if let Some(connection) = self.connections.get(&number) {
            let output = self.outputs.entry(number).or_default();
            reply.write(connection.is_resp3, output);
        }
    }

    /// Takes the bytes that connections are to get: replies, and pushes. A connection without bytes
    /// was cut.
    pub fn outputs(&mut self) -> BTreeMap<u64, Vec<u8>> {
        mem::take(&mut self.outputs)
    }

    /// Answers every command with this error from now on, and executes none. Commands about the
    /// connection, such as `HELLO` and `SUBSCRIBE`, still work.
    pub fn refuse_with(&mut self, error: Option<&str>) {
        self.refusal = error.map(|error| error.to_owned().into());
    }

    /// Takes the right to a command from all users, such as `PUBLISH` or `CLIENT|TRACKING`.
    pub fn deny(&mut self, command: &str) {
        let denied = &mut Arc::make_mut(&mut self.database.about).denied;
        denied.insert(command.to_lowercase());
    }

    /// Demands this login of all connections that are opened from now on.
    pub fn require_login(&mut self, user: &str, password: &str) {
        self.login = Some((user.to_owned(), password.to_owned()));
    }

    /// Deletes the keys that have expired, and tells the connections that track them. Without this,
    /// a key that has expired is gone, too, but nobody hears of it until someone writes it.
    pub fn expire(&mut self, now: u64) {
        let millis = self.micros(now) / 1_000;
        for keys in self.data.values_mut() {
            let expired = keys
                .entries
                .extract_if(.., |_, entry| entry.is_expired(millis));
            let changed = expired.map(|(key, _)| Effect::Changed(key));
            self.database.effects.extend(changed);
        }
        self.spread(0);
    }

    /// Returns when the next key that `connection` tracks will have expired, in true time.
    #[must_use]
    pub fn next_expiry(&self, connection: u64) -> Option<u64> {
        let keys = self.tracked.iter();
        let keys = keys.filter(|(_, number)| *number == connection);
        let expiries = keys.flat_map(|(key, _)| {
            let entries = self.data.values().filter_map(|keys| keys.entries.get(key));
            entries.filter_map(|entry| entry.expires)
        });
        self.clock.when((expiries.min()? + 1).saturating_mul(1_000))
    }

    /// Returns the time that the server shows, in microseconds since 1970.
    #[must_use]
    pub fn micros(&self, now: u64) -> u64 {
        self.clock.shows(now)
    }

    /// Sets the clock: it shows `ahead` microseconds more than `now`, and gains `ppm` microseconds
    /// in a second from now on. With -1,000,000 it stands still.
    pub fn set_clock(&mut self, now: u64, ahead: i64, ppm: i64) {
        self.clock = Clock::new(now, ahead, ppm);
    }

    /// Returns the keys of database 0. Nobody hears of changes that are made in this way.
    pub fn keys(&mut self) -> &mut Keyspace {
        self.data.entry(0).or_default()
    }

    /// Returns a copy of all keys.
    #[must_use]
    pub fn snapshot(&self) -> Data {
        self.data.clone()
    }

    /// Begins another process with these keys: connections break, scripts are gone, and the run id
    /// is new.
    pub fn restart(&mut self, data: Data) {
        for number in self.numbers().collect::<Vec<_>>() {
            self.cut(number);
        }
        self.database.scripts.clear();
        Arc::make_mut(&mut self.database.about).restart();
        self.data = data;
    }

    /// Becomes a replica of a server with these keys, and a master again: the replication id is
    /// new, and connections that track keys hear that all have changed.
    pub fn resync(&mut self, data: Data) {
        Arc::make_mut(&mut self.database.about).promote();
        self.data = data;
        self.report_all();
    }

    /// Deletes all keys, like `FLUSHALL`.
    pub fn flush(&mut self) {
        self.data.clear();
        self.report_all();
    }

    /// Returns how many commands were executed or answered with an error.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Returns the number of subscriptions to channels.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.database.channels.values().map(BTreeSet::len).sum()
    }
}

/// For the commands about connections.
impl Server {
    /// Returns the open connection with this number.
    pub(super) fn connection(&mut self, number: u64) -> &mut Connection {
        self.connections.entry(number).or_default()
    }

    pub(super) fn about(&self) -> &About {
        &self.database.about
    }

    /// Returns the numbers of all open connections.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.connections.keys().copied()
    }

    pub(super) fn demands_login(&self) -> bool {
        self.login.is_some()
    }

    pub(super) fn log_in(&mut self, number: u64, user: &[u8], password: &[u8]) -> Answer<()> {
        let is_right = match &self.login {
            Some((name, secret)) => (name.as_bytes(), secret.as_bytes()) == (user, password),
            None => user == b"default",
        };
        if !is_right {
            return Err("WRONGPASS invalid username-password pair or user is disabled.".into());
        }
        self.connection(number).is_logged_in = true;
        Ok(())
    }

    /// Begins or ends a subscription. Returns how many the connection has then.
    pub(super) fn listen(&mut self, number: u64, channel: &[u8], begins: bool) -> usize {
        let channels = &mut self.database.channels;
        let listeners = channels.entry(channel.to_vec()).or_default();
        match begins {
            true => listeners.insert(number),
            false => listeners.remove(&number),
        };
        channels.retain(|_, listeners| !listeners.is_empty());
        self.channels_of(number).len()
    }

    pub(super) fn channels_of(&self, number: u64) -> Vec<Vec<u8>> {
        let channels = self.database.channels.iter();
        let channels = channels.filter(|(_, listeners)| listeners.contains(&number));
        channels.map(|(channel, _)| channel.clone()).collect()
    }

    /// Returns the line of a connection in `CLIENT LIST`.
    pub(super) fn describe(&self, number: u64) -> String {
        let Some(connection) = self.connections.get(&number) else {
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
