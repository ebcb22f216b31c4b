//! The state of a memory master.

use std::{mem, sync::Arc};

use super::{
    clock::Clock,
    connections::Connections,
    keys::{Keys, Replied},
};
use crate::core::protocol::{
    command::{Command, Reply, Verb},
    identity::Identity,
};

pub(crate) struct ServerState {
    pub(crate) address: Arc<str>,
    pub(crate) run_id: String,
    pub(super) clock: Clock,
    pub(crate) keys: Keys,
    pub(crate) connections: Connections,
    /// The number of times that the master was a replica and was promoted.
    promotions: u64,
}

impl ServerState {
    pub(crate) fn new(address: Arc<str>) -> Self {
        Self {
            run_id: hex(&address),
            address,
            clock: Clock::new(),
            keys: Keys::default(),
            connections: Connections::default(),
            promotions: 0,
        }
    }

    /// Returns the keys, and sets their time to that of the master's own clock. Expired keys count
    /// as deleted.
    pub(crate) fn keys(&mut self) -> &mut Keys {
        self.keys.at(self.clock.millis())
    }

    /// Sets the clock, for good.
    #[cfg(test)]
    pub(crate) fn set_time(&mut self, micros: u64) {
        self.clock.simulated = Some(micros);
        self.keys();
    }

    /// Executes a command of `connection`. If the command watches its key, `connection` then hears
    /// of the next change of that key.
    pub(crate) fn serve(&mut self, connection: u64, command: &Command) -> Replied {
        let tracked = (command.lock_id.key().to_string(), connection);
        // All scripts read the key first, except for those that take a mutex: they read the key if
        // it exists already.
        let takes_mutex =
            command.verb() == Verb::Acquire && matches!(command.by(), Some(Identity::Token(_)));
        let reads_first = !takes_mutex;
        if command.watch && reads_first {
            self.connections.tracked.insert(tracked.clone());
        }
        let replied = self.execute(command);
        self.report_changes();
        if command.watch && !reads_first && !matches!(replied, Ok(Reply::Int(1))) {
            self.connections.tracked.insert(tracked);
        }
        replied
    }

    /// Reports the keys that have changed to the connections that track them. Each of these
    /// connections hears of one change.
    pub(crate) fn report_changes(&mut self) {
        for key in mem::take(&mut self.keys.changed) {
            self.connections.report(&key);
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
    pub(crate) fn flush(&mut self) {
        self.replace(Keys::default());
    }

    /// Becomes a replica of a server with these keys, and a master again.
    pub(crate) fn resync(&mut self, keys: Keys) {
        self.replace(keys);
        self.promotions += 1;
    }

    fn replace(&mut self, keys: Keys) {
        self.keys = keys;
        self.connections.report_all();
    }
}

/// Returns an id of hexadecimal digits.
fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
