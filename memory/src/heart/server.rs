//! A server: its databases, scripts, connections and clock.

use std::{collections::BTreeMap, fmt, mem, sync::Arc};

use super::{
    about::{About, Version},
    clock::Clock,
    commands::{Command, execute},
    connections::Tracking,
    database::{Answer, Database, Error, Words},
    effect::Effect,
    keyspace::{Entry, Keyspace, Value},
    reply::Reply,
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
#[derive(Default)]
pub struct Server {
    /// While a command runs, the keys of its database are moved here.
    database: Database,
    data: Data,
    clock: Clock,
    /// The error that all commands are answered with.
    refusal: Option<Error>,
    commands: u64,
    /// How many keys were left when expired keys were last deleted.
    kept: usize,
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
        self.database.connections.open()
    }

    /// Closes a connection, as its client does.
    pub fn close(&mut self, connection: u64) {
        self.database.connections.forget(connection);
    }

    /// Returns whether a connection is open. The server closes it after `QUIT`, `CLIENT KILL`,
    /// nonsense in place of a command, and a restart.
    #[must_use]
    pub fn is_open(&self, connection: u64) -> bool {
        self.database.connections.is_open(connection)
    }

    /// Executes all commands in `bytes`, which may begin with the rest of an incomplete command.
    /// `now` is the true time.
    pub fn receive(&mut self, connection: u64, bytes: &[u8], now: u64) {
        if let Some(connection) = self.database.connections.get(connection) {
            connection.input.push(bytes);
        }
        while let Some(words) = self.next_command(connection) {
            self.execute(connection, &words, now);
        }
    }

    /// Takes the next whole command that a connection has received.
    fn next_command(&mut self, connection: u64) -> Option<Vec<Vec<u8>>> {
        let connections = &mut self.database.connections;
        let taken = connections.get(connection)?.input.take_command();
        taken.unwrap_or_else(|error| {
            let error = Reply::Error(format!("ERR Protocol error: {error}"));
            connections.send(connection, &error);
            connections.end(connection);
            None
        })
    }

    /// Executes one command of a connection, and sends the reply. If the connection is not open,
    /// the command runs in database 0 and nobody gets its reply: such a command comes too late, or
    /// twice.
    pub fn execute<W: AsRef<[u8]>>(&mut self, connection: u64, words: &[W], now: u64) -> Reply {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        self.database.caller = connection;
        let answer = self.answer(&words, now);
        let reply = answer.unwrap_or_else(|error| Reply::Error(error.into_owned()));
        self.database.connections.send(connection, &reply);
        self.tell();
        if let Some(client) = self.database.client() {
            let is_of_client = words
                .first()
                .is_some_and(|name| name.eq_ignore_ascii_case(b"CLIENT"));
            if client.tracking == Tracking::Next && !is_of_client {
                client.tracking = Tracking::OnRequest;
            }
            if client.is_ending {
                self.database.connections.end(connection);
            }
        }
        reply
    }

    fn answer(&mut self, words: Words<'_>, now: u64) -> Answer {
        let found = Command::find(words, &self.database.about);
        let command = found.map_err(|missing| missing.for_clients(words))?;
        let client = self.database.client();
        let (is_logged_in, index) =
            client.map_or((true, 0), |one| (one.is_logged_in, one.database));
        if !is_logged_in && !command.is_for_strangers() {
            return Err("NOAUTH Authentication required.".into());
        }
        self.commands += u64::from(!command.is_about_connection);
        match &self.refusal {
            Some(error) if !command.is_about_connection => Err(error.clone()),
            _ => self.within(index, now, |database| command.run(database, words)),
        }
    }

    /// Executes a command as another client would, in database 0. It needs no login,
    /// [`refuse_with`](Self::refuse_with) does not apply to it, and [`commands`](Self::commands)
    /// does not count it.
    pub fn run<W: AsRef<[u8]>>(&mut self, words: &[W], now: u64) -> Reply {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        self.database.caller = 0;
        let reply = self.within(0, now, |database| execute(database, &words));
        self.tell();
        reply
    }

    /// Writes a value in database 0, as another client would. `ttl` is in milliseconds.
    pub fn put(&mut self, key: &str, value: Value, ttl: Option<u64>, now: u64) {
        self.within(0, now, |database| {
            let expires = ttl.map(|ttl| database.now().saturating_add(ttl).min(i64::MAX as u64));
            database.put(key.as_bytes(), value, expires);
        });
        self.tell();
    }

    fn within<T>(&mut self, index: u32, now: u64, run: impl FnOnce(&mut Database) -> T) -> T {
        self.database.micros = self.micros(now);
        self.database.keys = mem::take(self.data.entry(index).or_default());
        let ran = run(&mut self.database);
        let is_flush = |effect: &Effect| matches!(effect, Effect::Flushed { everywhere: true });
        if self.database.effects.iter().any(is_flush) {
            self.data.clear();
        }
        self.data.insert(index, mem::take(&mut self.database.keys));
        if self.count() > 2 * self.kept + 1_000 {
            self.delete_expired();
        }
        ran
    }

    fn count(&self) -> usize {
        let keys = self.data.values();
        keys.map(|keys| keys.entries.len()).sum()
    }

    /// Sends the pushes that follow from the last command to all connections.
    fn tell(&mut self) {
        let effects = mem::take(&mut self.database.effects);
        let caller = self.database.caller;
        self.database.connections.tell(caller, effects);
    }

    /// Takes the output of connections: replies and pushes. A connection with an empty output was
    /// cut.
    pub fn outputs(&mut self) -> BTreeMap<u64, Vec<u8>> {
        self.database.connections.take_outputs()
    }

    /// Answers every command with this error from now on, and executes none. Commands about the
    /// connection, such as `HELLO` and `SUBSCRIBE`, still work.
    pub fn refuse_with(&mut self, error: Option<&str>) {
        self.refusal = error.map(|error| error.to_owned().into());
    }

    /// Takes the right to a command, such as `PUBLISH` or `CLIENT|TRACKING`, from all users.
    pub fn deny(&mut self, command: &str) {
        let denied = &mut Arc::make_mut(&mut self.database.about).denied;
        denied.insert(command.to_lowercase());
    }

    /// Demands this login of all connections that are opened from now on.
    pub fn require_login(&mut self, user: &str, password: &str) {
        self.database.connections.login = Some((user.to_owned(), password.to_owned()));
    }

    /// Deletes the keys that have expired, and tells the connections that track them. An expired
    /// key counts as gone even without this call, but no connection hears of that until someone
    /// writes the key, or until there are many more keys than before.
    pub fn expire(&mut self, now: u64) {
        self.database.micros = self.micros(now);
        self.delete_expired();
        self.tell();
    }

    fn delete_expired(&mut self) {
        let millis = self.database.now();
        for keys in self.data.values_mut() {
            let is_kept = |key: &Vec<u8>, entry: &mut Entry| {
                let is_expired = entry.is_expired(millis);
                if is_expired {
                    self.database.effects.push(Effect::Changed(key.clone()));
                }
                !is_expired
            };
            keys.entries.retain(is_kept);
        }
        self.kept = self.count();
    }

    /// Returns when the next key that `connection` tracks will have expired, in true time.
    #[must_use]
    pub fn next_expiry(&self, connection: u64) -> Option<u64> {
        let keys = self.database.connections.tracked(connection);
        let expiries = keys.flat_map(|key| {
            let entries = self.data.values().filter_map(|keys| keys.entries.get(key));
            entries.filter_map(|entry| entry.expires)
        });
        self.clock
            .when(expiries.min()?.saturating_add(1).saturating_mul(1_000))
    }

    /// Returns the time that the server shows, in microseconds since 1970.
    #[must_use]
    pub fn micros(&self, now: u64) -> u64 {
        self.clock.shows(now)
    }

    /// Sets the clock: it shows `ahead` microseconds more than `now`, and gains `ppm` microseconds
    /// in a second from now on. With a `ppm` of -1,000,000, it stands still.
    pub fn set_clock(&mut self, now: u64, ahead: i64, ppm: i64) {
        self.clock = Clock::new(now, ahead, ppm);
    }

    /// Returns the keys of database 0. No connection hears of changes that you make to them.
    pub fn keys(&mut self) -> &mut Keyspace {
        self.data.entry(0).or_default()
    }

    /// Returns a copy of all keys.
    #[must_use]
    pub fn snapshot(&self) -> Data {
        self.data.clone()
    }

    /// Begins another process with these keys: connections break, scripts are gone, and the run id
    /// is new. The values of `CONFIG SET` and the rights that were taken away stay as they are.
    pub fn restart(&mut self, data: Data) {
        let connections = &mut self.database.connections;
        for number in connections.numbers().collect::<Vec<_>>() {
            connections.cut(number);
        }
        self.database.scripts.clear();
        Arc::make_mut(&mut self.database.about).restart();
        self.data = data;
    }

    /// Becomes a replica of a server with these keys, and a master again: the replication id is
    /// new, and connections that track keys hear that all keys have changed.
    pub fn resync(&mut self, data: Data) {
        Arc::make_mut(&mut self.database.about).promote();
        self.data = data;
        self.database.connections.report_all();
    }

    /// Deletes all keys, like `FLUSHALL`.
    pub fn flush(&mut self) {
        self.data.clear();
        self.database.connections.report_all();
    }

    /// Returns how many commands on data were executed or refused. Those about the connection do
    /// not count.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Returns the number of subscriptions to channels.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.database.connections.subscriptions()
    }
}

/// Shows neither the login nor what connections send.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("data", &self.data)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
