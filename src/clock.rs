//! Where time and chance come in. Nobody else reads a clock or draws a random number.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

/// The monotonic clock, moved on by what it slept through.
///
/// It stops while a machine is suspended, and the masters' TTLs run on. The wall clock does not stop:
/// when it has run ahead of the monotonic one, the difference counts as time that has passed. A wall
/// clock that is set forward looks the same, and costs a holder some validity; one that is set back
/// changes nothing.
///
/// Under tokio's paused clock this is virtual time, which is how tests drive the real code.
pub(crate) fn now() -> Instant {
    monotonic() + slept()
}

/// Like [`now`], at half the cost, but for what was slept through since `now` was last called. For
/// votes, whose outcome is looked at once more with `now` before anybody relies on it.
pub(crate) fn fast_now() -> Instant {
    monotonic() + Duration::from_nanos(SLEPT.load(Ordering::Relaxed))
}

/// For how long the monotonic clock has stood still, in all, as far as has been noticed.
static SLEPT: AtomicU64 = AtomicU64::new(0);

/// Sleeps until `at` on the clock of [`now`], looking up at least once a second.
pub(crate) async fn sleep_until(at: Instant) {
    const LONGEST: Duration = Duration::from_secs(1);
    loop {
        let left = at.saturating_duration_since(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST)).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the crate reads its clock"
)]
fn monotonic() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The clocks whose difference tells of a suspended machine. Not tokio's, which tests may stop and wind
/// on.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the crate compares the clocks of the machine"
)]
fn real() -> (Instant, SystemTime) {
    let wall = SystemTime::now(); // first: a pause in between must not look like sleep
    (Instant::now(), wall)
}

fn slept() -> Duration {
    static ORIGIN: OnceLock<(Instant, SystemTime)> = OnceLock::new();
    let now = real();
    let origin = *ORIGIN.get_or_init(|| now);
    let known = SLEPT.load(Ordering::Relaxed);
    let ahead = ahead(origin, now);
    if ahead <= known {
        return Duration::from_nanos(known);
    }
    Duration::from_nanos(SLEPT.fetch_max(ahead, Ordering::Relaxed).max(ahead))
}

/// By how many nanoseconds the wall clock has run ahead of the monotonic one since `origin`; less than
/// the two can differ by being read one after the other is none.
fn ahead(origin: (Instant, SystemTime), now: (Instant, SystemTime)) -> u64 {
    const NOISE: Duration = Duration::from_millis(5);
    let monotonic = now.0.saturating_duration_since(origin.0);
    let wall = now.1.duration_since(origin.1).unwrap_or_default();
    let ahead = wall.saturating_sub(monotonic);
    if ahead < NOISE {
        return 0;
    }
    u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the crate draws random numbers"
)]
pub(crate) fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    rand::Rng::fill_bytes(&mut rand::rng(), &mut bytes);
    bytes
}

pub(crate) fn random_u64() -> u64 {
    u64::from_ne_bytes(random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wall_clock_that_ran_ahead_counts() {
        let origin = real();
        let at = |monotonic, wall: i64| {
            let monotonic = origin.0 + Duration::from_secs(monotonic);
            let distance = Duration::from_secs(wall.unsigned_abs());
            let wall = if wall < 0 {
                origin.1 - distance
            } else {
                origin.1 + distance
            };
            Duration::from_nanos(ahead(origin, (monotonic, wall))).as_secs()
        };
        for (monotonic, wall, expected) in [
            (10, 10, 0),
            (10, 70, 60),   // suspended for a minute
            (10, 5, 0),     // set back
            (10, -3600, 0), // far back
            (0, 1, 1),
        ] {
            assert_eq!(at(monotonic, wall), expected, "{monotonic} {wall}");
        }
    }
}
