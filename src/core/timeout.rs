//! How long one master may take to answer.

use std::time::Duration;

/// How the node timeout of a connection is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeTimeout {
    /// The user has set it, for all masters.
    Fixed(Duration),
    /// It follows the round trip to each master.
    Measured,
}

impl NodeTimeout {
    /// The shortest and the longest measured timeout.
    const LEAST: Duration = Duration::from_millis(50);
    const MOST: Duration = Duration::from_secs(1);
    /// Round trips in a measured timeout: a loaded master is slower than an idle one.
    const ROUND_TRIPS: u32 = 4;
    /// A connection is given up after this many node timeouts without a byte from the master. What
    /// piles up in it would otherwise be executed when the master comes back to life.
    const PATIENCE: u32 = 3;
    /// Bytes without a whole reply extend the patience with a connection this many times.
    const PATIENCE_WITH_BYTES: u32 = 10;

    /// Returns the shortest timeout that any master gets.
    pub(crate) fn least(self) -> Duration {
        match self {
            Self::Fixed(timeout) => timeout,
            Self::Measured => Self::LEAST,
        }
    }

    /// Returns the limits for a master whose fastest answer took `round_trip`.
    pub(crate) fn limits(self, round_trip: Duration) -> Limits {
        let measured = round_trip.saturating_mul(Self::ROUND_TRIPS);
        let timeout = match self {
            Self::Fixed(timeout) => timeout,
            Self::Measured => measured.clamp(Self::LEAST, Self::MOST),
        };
        // A master that is further away than a fixed timeout is too slow to vote, but it is alive.
        let silence = timeout.max(round_trip.saturating_mul(2)) * Self::PATIENCE;
        Limits {
            timeout,
            silence,
            progress: silence * Self::PATIENCE_WITH_BYTES,
        }
    }
}

/// How long to wait for one master, for different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// For the answer to a command, until its vote counts as failed.
    pub(crate) timeout: Duration,
    /// For any byte, until the connection is given up.
    pub(crate) silence: Duration,
    /// For a whole reply while bytes come in, until the connection is given up.
    pub(crate) progress: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_table() {
        use NodeTimeout::{Fixed, Measured};
        let millis = Duration::from_millis;
        for (node_timeout, round_trip, timeout, silence) in [
            (Measured, 0, 50, 150),
            (Measured, 12, 50, 150),
            (Measured, 16, 64, 192),
            (Measured, 120, 480, 1_440),
            (Measured, 400, 1_000, 3_000),
            (Measured, 2_000, 1_000, 12_000),
            (Fixed(millis(50)), 0, 50, 150),
            (Fixed(millis(50)), 200, 50, 1_200),
            (Fixed(millis(2_000)), 200, 2_000, 6_000),
        ] {
            let limits = node_timeout.limits(millis(round_trip));
            let expected = Limits {
                timeout: millis(timeout),
                silence: millis(silence),
                progress: millis(silence * 10),
            };
            assert_eq!(limits, expected, "{node_timeout:?} {round_trip}");
        }
    }
}
