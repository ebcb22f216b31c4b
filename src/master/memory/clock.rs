//! The clocks of a memory master.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

pub(in crate::master) struct Clock {
    started: Instant,
    /// The time of both clocks in microseconds, if a simulation sets it.
    #[cfg(test)]
    pub(super) simulated: Option<u64>,
    /// The number of milliseconds that the clock of the keys gains in 1,000 s.
    #[cfg(test)]
    pub(super) gain: u64,
    /// The offset that is added to the time of day, in microseconds.
    pub(super) offset: i64,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            started: now(),
            #[cfg(test)]
            simulated: None,
            #[cfg(test)]
            gain: 0,
            offset: 0,
        }
    }

    /// Returns the time by which keys expire, in milliseconds. Tests can pause it.
    pub(super) fn millis(&self) -> u64 {
        #[cfg(test)]
        if let Some(micros) = self.simulated {
            return micros / 1_000;
        }
        let now = millis(now().saturating_duration_since(self.started));
        #[cfg(test)]
        let now = now + now * self.gain / 1_000_000;
        now
    }

    /// Returns the time of day plus the offset, in microseconds since 1970. Clients read the time
    /// of day for their tickets.
    #[expect(
        clippy::disallowed_methods,
        reason = "a memory master is a server, and compares its time with that of tickets"
    )]
    pub(super) fn wall_micros(&self) -> u64 {
        #[cfg(test)]
        if let Some(micros) = self.simulated {
            return micros;
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let micros = u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX);
        micros.saturating_add_signed(self.offset)
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
