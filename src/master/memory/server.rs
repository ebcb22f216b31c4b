//! The state of a memory master.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    task::Waker,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use super::{fault::Fault, keys::Keys};
use crate::core::{command::Command, restart::RestartRecord};

pub(super) struct State {
    /// The address, which is also the run id.
    pub(super) address: Arc<str>,
    started: Instant,
    /// The offset that is added to the time of day, in microseconds.
    pub(super) clock_offset: i64,
    pub(super) keys: Keys,
    pub(super) fault: Fault,
    /// The number of commands that were executed or answered with an error.
    pub(super) commands: u64,
    pub(super) connections: u64,
    /// The commands that were sent while the master hung, over connections that have been closed
    /// since then.
    pub(super) undelivered: VecDeque<Command>,
    /// The subscriptions, each with its channel and the number of its connection.
    pub(super) subscriptions: BTreeSet<(String, u64)>,
    /// The messages that each connection has not read yet. A message has a channel and a text.
    pub(super) messages: BTreeMap<u64, Vec<(String, String)>>,
    /// The connections to wake when the fault changes or a message is published.
    pub(super) wakers: BTreeMap<u64, Waker>,
    /// The guard record. A server keeps this record in a key, and forgets it with the other keys.
    /// `None` until a client asks whether the master restarted.
    pub(super) guard: Option<RestartRecord>,
}

impl State {
    pub(super) fn new(address: Arc<str>) -> Self {
        Self {
            address,
            started: now(),
            clock_offset: 0,
            keys: Keys::default(),
            fault: Fault::None,
            commands: 0,
            connections: 0,
            undelivered: VecDeque::new(),
            subscriptions: BTreeSet::new(),
            messages: BTreeMap::new(),
            wakers: BTreeMap::new(),
            guard: None,
        }
    }

    /// Returns the keys, and sets their time to that of the master's own clock. Expired keys count
    /// as deleted.
    pub(super) fn keys(&mut self) -> &mut Keys {
        let now = now().saturating_duration_since(self.started);
        self.keys.at(millis(now))
    }

    /// Returns the time of day plus the offset, in microseconds since 1970. Clients read the time
    /// of day for their tickets.
    #[expect(
        clippy::disallowed_methods,
        reason = "a memory master is a server, and compares its time with that of tickets"
    )]
    pub(super) fn wall_micros(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let micros = u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX);
        micros.saturating_add_signed(self.clock_offset)
    }

    pub(super) fn publish(&mut self, channel: &str, message: &str) {
        let subscriptions = (channel.to_owned(), 0)..=(channel.to_owned(), u64::MAX);
        for (_, connection) in self.subscriptions.range(subscriptions) {
            let messages = self.messages.entry(*connection).or_default();
            messages.push((channel.to_owned(), message.to_owned()));
            if let Some(waker) = self.wakers.get(connection) {
                waker.wake_by_ref();
            }
        }
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a memory master is a server, and keeps the time by which its keys expire"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}
