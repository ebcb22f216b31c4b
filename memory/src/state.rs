//! A server, and the state that the tasks of its connections share.

use std::{
    collections::{BTreeMap, BTreeSet},
    task::Waker,
    time::{Duration, Instant as StdInstant, SystemTime},
};

use tokio::time::Instant;

use crate::{
    fault::Fault,
    heart::{Server, Version},
};

pub(crate) struct State {
    pub(crate) server: Server,
    pub(crate) fault: Fault,
    /// The keys that tests do not see.
    pub(crate) hidden: BTreeSet<String>,
    ends: BTreeMap<u64, End>,
    /// When the server began, by tokio's clock.
    started: Instant,
    /// The time of day at `started`, in microseconds since 1970.
    epoch: u64,
}

/// What the task of a connection gets from other tasks.
#[derive(Default)]
struct End {
    output: Vec<u8>,
    has_lost_replies: bool,
    waker: Option<Waker>,
}

impl State {
    pub(crate) fn new(address: &str, version: Version) -> Self {
        let (started, real) = (Instant::now(), StdInstant::now());
        // By how much a paused clock is ahead of the real one, or behind it.
        let started_std = started.into_std();
        let (ahead, behind) = (
            started_std.saturating_duration_since(real),
            real.saturating_duration_since(started_std),
        );
        let wall = SystemTime::now() + ahead - behind;
        let since = wall.duration_since(SystemTime::UNIX_EPOCH);
        // Whole milliseconds, so that a run with a paused clock does not depend on a part of one.
        let epoch = since.unwrap_or_default().as_millis() as u64 * 1_000;
        Self {
            server: Server::new(address, version),
            fault: Fault::None,
            hidden: BTreeSet::new(),
            ends: BTreeMap::new(),
            started,
            epoch,
        }
    }

    /// Returns the time of day by tokio's clock, in microseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        let passed = Instant::now().saturating_duration_since(self.started);
        self.epoch + passed.as_micros() as u64
    }

    pub(crate) fn connect(&mut self) -> u64 {
        let number = self.server.connect();
        self.ends.insert(number, End::default());
        number
    }

    /// Closes a connection. Output that its task has not taken yet is lost.
    pub(crate) fn close(&mut self, number: u64) {
        self.server.close(number);
        let end = self.ends.remove(&number);
        end.and_then(|end| end.waker)
            .into_iter()
            .for_each(Waker::wake);
    }

    /// Returns the current fault, and `None` once the connection is closed. `waker` is woken when
    /// the fault changes, and when there is output.
    pub(crate) fn fault_of(&mut self, number: u64, waker: &Waker) -> Option<Fault> {
        let end = self.ends.get_mut(&number)?;
        match &mut end.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        Some(self.fault.clone())
    }

    pub(crate) fn has_output(&self, number: u64) -> bool {
        let end = self.ends.get(&number);
        end.is_some_and(|end| !end.output.is_empty())
    }

    pub(crate) fn take_output(&mut self, number: u64) -> Vec<u8> {
        let end = self.ends.get_mut(&number);
        end.map(|end| std::mem::take(&mut end.output))
            .unwrap_or_default()
    }

    /// Executes commands of a connection.
    pub(crate) fn receive(&mut self, number: u64, bytes: &[u8]) {
        self.server.receive(number, bytes, self.now());
        self.spread();
    }

    pub(crate) fn expire(&mut self) {
        self.server.expire(self.now());
        self.spread();
    }

    /// Returns when the next key that a connection tracks expires, by tokio's clock.
    pub(crate) fn next_expiry(&self, number: u64) -> Option<Instant> {
        let left = self.server.next_expiry(number)?.saturating_sub(self.epoch);
        self.started.checked_add(Duration::from_micros(left))
    }

    /// Calls `f` with the server and the time, and gives connections what the server sends.
    pub(crate) fn with<T>(&mut self, f: impl FnOnce(&mut Server, u64) -> T) -> T {
        let now = self.now();
        let returned = f(&mut self.server, now);
        self.spread();
        returned
    }

    /// Sets the fault, breaks the connections that do not outlive the change, and wakes the others.
    pub(crate) fn inject(&mut self, fault: Fault) {
        let error = match &fault {
            Fault::ErrorReply(error) => Some(error.as_str()),
            _ => None,
        };
        self.server.refuse_with(error);
        self.fault = fault;
        let breaks = |end: &End| match self.fault {
            Fault::Down => true,
            Fault::Mute => false,
            _ => end.has_lost_replies,
        };
        let broken = self.ends.iter().filter(|(_, end)| breaks(end));
        for number in broken.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.close(number);
        }
        self.wake_all();
    }

    /// Makes the tasks of all connections look at the fault, at the clock, and at their output.
    pub(crate) fn wake_all(&self) {
        let wakers = self.ends.values().filter_map(|end| end.waker.as_ref());
        wakers.for_each(Waker::wake_by_ref);
    }

    /// Gives each connection what the server sends on it, and wakes its task.
    fn spread(&mut self) {
        for (number, bytes) in self.server.outputs() {
            if bytes.is_empty() {
                self.close(number); // the server has cut it
            }
            let Some(end) = self.ends.get_mut(&number) else {
                continue;
            };
            if self.fault == Fault::Mute {
                end.has_lost_replies = true;
            } else {
                end.output.extend(bytes);
            }
            if let Some(waker) = &end.waker {
                waker.wake_by_ref();
            }
        }
    }
}
