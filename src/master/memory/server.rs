//! The state of a memory master.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
    task::Waker,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use super::{
    fault::Fault,
    keys::{Keys, Replied},
};
use crate::core::kind::{
    command::{Command, Reply, Verb},
    identity::Identity,
};

pub(in crate::master) struct State {
    pub(in crate::master) address: Arc<str>,
    pub(in crate::master) run_id: String,
    started: Instant,
    /// The time of the clock in microseconds, if a simulation sets it.
    #[cfg(test)]
    simulated: Option<u64>,
    /// The number of milliseconds by which the clock gains in 1,000 s.
    #[cfg(test)]
    pub(in crate::master) gain: u64,
    /// The offset that is added to the time of day, in microseconds.
    pub(in crate::master) clock_offset: i64,
    pub(in crate::master) keys: Keys,
    pub(in crate::master) fault: Fault,
    /// The number of commands that were executed or answered with an error.
    pub(in crate::master) commands: u64,
    pub(in crate::master) connections: u64,
    /// The number of the newest connection that a restart has broken.
    pub(in crate::master) broken: u64,
    /// The commands that were sent while the master hung, over connections that have been closed
    /// since then.
    pub(in crate::master) undelivered: VecDeque<Command>,
    /// The subscriptions, each with its channel and the number of its connection.
    pub(in crate::master) subscriptions: BTreeSet<(String, u64)>,
    /// The keys of which a connection hears the next change, each with the connection.
    tracked: BTreeSet<(String, u64)>,
    /// The pushes that a connection has not read yet.
    pub(in crate::master) pushes: BTreeMap<u64, Vec<Push>>,
    /// The connections to wake when the fault changes or something is pushed to them.
    pub(in crate::master) wakers: BTreeMap<u64, Waker>,
    /// The number of times that the master was a replica and was promoted.
    promotions: u64,
}

impl State {
    pub(in crate::master) fn new(address: Arc<str>) -> Self {
        Self {
            run_id: hex(&address),
            address,
            started: now(),
            #[cfg(test)]
            simulated: None,
            #[cfg(test)]
            gain: 0,
            clock_offset: 0,
            keys: Keys::default(),
            fault: Fault::None,
            commands: 0,
            connections: 0,
            broken: 0,
            undelivered: VecDeque::new(),
            subscriptions: BTreeSet::new(),
            tracked: BTreeSet::new(),
            pushes: BTreeMap::new(),
            wakers: BTreeMap::new(),
            promotions: 0,
        }
    }

    /// Returns the keys, and sets their time to that of the master's own clock. Expired keys count
    /// as deleted.
    pub(in crate::master) fn keys(&mut self) -> &mut Keys {
        #[cfg(test)]
        if let Some(micros) = self.simulated {
            return self.keys.at(micros / 1_000);
        }
        let now = millis(now().saturating_duration_since(self.started));
        #[cfg(test)]
        let now = now + now * self.gain / 1_000_000;
        self.keys.at(now)
    }

    /// Returns the time of day plus the offset, in microseconds since 1970. Clients read the time
    /// of day for their tickets.
    #[expect(
        clippy::disallowed_methods,
        reason = "a memory master is a server, and compares its time with that of tickets"
    )]
    pub(in crate::master) fn wall_micros(&self) -> u64 {
        #[cfg(test)]
        if let Some(micros) = self.simulated {
            return micros;
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let micros = u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX);
        micros.saturating_add_signed(self.clock_offset)
    }

    /// Sets the clock, for good.
    #[cfg(test)]
    pub(in crate::master) fn set_time(&mut self, micros: u64) {
        self.simulated = Some(micros);
        self.keys.at(micros / 1_000);
    }

    pub(in crate::master) fn publish(&mut self, channel: &str, message: &str) {
        let push = Push::Message(channel.to_owned(), message.to_owned());
        for connection in connections(&self.subscriptions, channel) {
            self.push(connection, push.clone());
        }
    }

    /// Executes a command of `connection`. If the command watches its key, `connection` then hears
    /// of the next change of that key.
    pub(in crate::master) fn serve(&mut self, connection: u64, command: &Command) -> Replied {
        let tracked = (command.resource.key().to_string(), connection);
        // All scripts read the key first, except for those that take a mutex: they read the key if
        // it exists already.
        let takes_mutex =
            command.verb == Verb::Acquire && matches!(command.by(), Some(Identity::Token(_)));
        let reads_first = !takes_mutex;
        if command.watch && reads_first {
            self.tracked.insert(tracked.clone());
        }
        let replied = self.execute(command);
        self.report_changes();
        if command.watch && !reads_first && !matches!(replied, Ok(Reply::Int(1))) {
            self.tracked.insert(tracked);
        }
        replied
    }

    /// Reports the keys that have changed to the connections that track them. Each of these
    /// connections hears of one change.
    pub(in crate::master) fn report_changes(&mut self) {
        for key in mem::take(&mut self.keys.changed) {
            for connection in connections(&self.tracked, &key) {
                self.tracked.remove(&(key.clone(), connection));
                self.push(connection, Push::Changed(Some(key.clone())));
            }
        }
    }

    /// Returns the reply to `INFO`: that of a master whose log is complete, with the lines that
    /// scripts and checks look at.
    pub(in crate::master) fn info(&self) -> String {
        let Self {
            run_id, promotions, ..
        } = self;
        let base = hex(&self.address);
        let no_id = "0".repeat(40);
        format!(
            "redis_version:7.0.0\r\nredis_mode:standalone\r\nrun_id:{run_id}\r\n\
             maxmemory_policy:noeviction\r\n\
             aof_enabled:1\r\naof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n\
             aof_last_rewrite_time_sec:-1\r\naof_last_bgrewrite_status:ok\r\n\
             role:master\r\nconnected_slaves:0\r\nrepl_backlog_active:0\r\n\
             master_replid:{base}{promotions:x}\r\nmaster_replid2:{no_id}\r\n"
        )
    }

    /// Deletes all keys, and reports that to all connections.
    pub(in crate::master) fn flush(&mut self) {
        self.replace(Keys::default());
    }

    /// Becomes a replica of a server with these keys, and a master again.
    pub(in crate::master) fn resync(&mut self, keys: Keys) {
        self.replace(keys);
        self.promotions += 1;
    }

    fn replace(&mut self, keys: Keys) {
        self.keys = keys;
        self.tracked.clear();
        for connection in self.wakers.keys().copied().collect::<Vec<_>>() {
            self.push(connection, Push::Changed(None));
        }
    }

    /// Loses all data and breaks all connections, like a restart without persistence.
    pub(in crate::master) fn restart(&mut self) {
        self.keys.clear();
        self.undelivered.clear();
        self.broken = self.connections;
    }

    /// Forgets a connection that was closed.
    pub(in crate::master) fn close(&mut self, connection: u64) {
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

/// A push message to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::master) enum Push {
    /// A message on a channel.
    Message(String, String),
    /// This key has changed. `None` if all keys have.
    Changed(Option<String>),
}

/// Returns an id of hexadecimal digits.
fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the connections that have an entry for `name`.
fn connections(entries: &BTreeSet<(String, u64)>, name: &str) -> Vec<u64> {
    let of_name = (name.to_owned(), 0)..=(name.to_owned(), u64::MAX);
    entries.range(of_name).map(|(_, one)| *one).collect()
}

pub(in crate::master) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a memory master is a server, and keeps the time by which its keys expire"
)]
pub(in crate::master) fn now() -> Instant {
    Instant::now()
}
