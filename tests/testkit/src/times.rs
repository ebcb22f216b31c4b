//! Short names for durations.

use std::time::Duration;

pub const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
