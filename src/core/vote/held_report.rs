//! One master's report on a lock that other clients hold.

use std::{fmt, time::Duration};

/// The report in [`Refusal::Held`](crate::votes::Refusal::Held): what one master says of a lock that other
/// clients hold on that master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldReport {
    remaining: Option<Duration>,
    /// The owners, each on a line of its own, or `None` for a mutex.
    owners: Option<String>,
    depth: u64,
    position: Option<u64>,
}

impl HeldReport {
    pub(crate) fn mutex(remaining: Option<Duration>) -> Self {
        Self {
            remaining,
            owners: None,
            depth: 1,
            position: None,
        }
    }

    pub(crate) fn owned(
        remaining: Option<Duration>,
        owners: String,
        depth: u64,
        position: Option<u64>,
    ) -> Self {
        Self {
            remaining,
            owners: Some(owners),
            depth,
            position,
        }
    }

    /// Returns how long the lock will live on the master unless it is extended or released. `None`
    /// if the master did not say, or if the lock has no TTL there.
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// Returns the [IDs](crate::Owner::id) of the owners that hold the lock. A mutex has none. A
    /// master names at most five readers of a read-write lock, and at most five holders of a
    /// semaphore.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        self.owners.iter().flat_map(|owners| owners.split('\n'))
    }

    pub(in crate::core) fn has_owner(&self) -> bool {
        self.owners.is_some()
    }

    /// Returns how many times the first owner has acquired the lock. 1 for a mutex.
    pub fn depth(&self) -> u64 {
        self.depth
    }

    /// Returns the position of this client in the master's queue for the lock, starting at 1.
    /// `None` if the client is not in a queue.
    pub fn position(&self) -> Option<u64> {
        self.position
    }
}

/// Shows, for example, `held by another holder for 5.0s more`.
impl fmt::Display for HeldReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("held by ")?;
        if !self.has_owner() {
            f.write_str("another holder")?;
        }
        for (at, owner) in self.owners().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{owner:?}")?;
        }
        if self.depth() != 1 {
            write!(f, " ({} times)", self.depth())?;
        }
        if let Some(remaining) = self.remaining {
            write!(f, " for {remaining:.1?} more")?;
        }
        match self.position() {
            None => Ok(()),
            Some(position) => write!(f, ", position {position} in the queue"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_what_the_master_said() {
        let millis = Duration::from_millis;
        let by = |remaining, depth, position| {
            HeldReport::owned(remaining, "u:1".into(), depth, position)
        };
        let mutex = HeldReport::mutex(Some(millis(5_000)));
        assert_eq!((mutex.depth(), mutex.owners().count()), (1, 0));
        assert_eq!(by(None, 3, None).depth(), 3);
        for (report, text) in [
            (mutex, "held by another holder for 5.0s more"),
            (HeldReport::mutex(None), "held by another holder"),
            (by(None, 1, None), "held by \"u:1\""),
            (by(None, 3, None), "held by \"u:1\" (3 times)"),
            (
                HeldReport::owned(None, "u:1\nu:2".into(), 1, None),
                "held by \"u:1\", \"u:2\"",
            ),
            (
                by(Some(millis(250)), 2, Some(7)),
                "held by \"u:1\" (2 times) for 250.0ms more, position 7 in the queue",
            ),
        ] {
            assert_eq!(report.to_string(), text);
        }
    }
}
