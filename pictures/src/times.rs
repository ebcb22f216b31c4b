//! Times as numbers for a scale.

use std::time::{Duration, Instant};

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Returns the milliseconds from `start` to a later time. They are negative for an earlier time.
pub fn ms(start: Instant, time: Instant) -> f64 {
    millis(time.saturating_duration_since(start)) - millis(start.saturating_duration_since(time))
}
