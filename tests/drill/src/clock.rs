//! One clock for all processes of a drill.
//!
//! Times are nanoseconds of `CLOCK_MONOTONIC`, which the kernel keeps for the whole machine. They
//! are read with `clock_gettime`, because the number in an [`Instant`] is private.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// A time, or the length of a span of time, in nanoseconds.
pub type Nanos = u64;

pub const MILLISECOND: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000 * MILLISECOND;

pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as Nanos * SECOND + time.tv_nsec as Nanos
}

/// Converts an instant of this process. On Linux, an `Instant` is a reading of the same clock. So
/// the error is at most the time between the two readings here.
pub fn of(instant: Instant) -> Nanos {
    let (here, now) = both();
    match instant.checked_duration_since(here) {
        Some(ahead) => now + nanos(ahead),
        None => now - nanos(here.duration_since(instant)),
    }
}

/// Returns the present time of both clocks. The process may be paused between two readings, so they
/// are read until it was not.
fn both() -> (Instant, Nanos) {
    loop {
        let before = now();
        let here = Instant::now();
        if now() - before < MILLISECOND / 10 {
            return (here, before);
        }
    }
}

/// Returns the wall clock time in microseconds, as in a ticket that is drawn now. Returns 0 if the
/// clock is so wrong that the ticket may have the time of the masters.
pub fn came() -> u64 {
    // The library that makes clocks wrong does not see this call.
    let time = clock_gettime(ClockId::Realtime);
    let right = time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000;
    Some(wall_micros())
        .filter(|wall| wall.abs_diff(right) < 300_000)
        .unwrap_or_default()
}

pub const fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}

/// Returns the wall clock time in microseconds, as in the tickets of fair locks.
pub fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as u64
}

/// The file that tells the library `wrong_clock.c` how wrong the wall clock of a process is.
#[derive(Clone, Debug)]
pub struct WrongClock {
    path: PathBuf,
    ahead: i64,
}

impl WrongClock {
    /// Makes a clock that is `ahead` by so many milliseconds, and too fast by `rate` parts per
    /// million.
    pub fn new(path: PathBuf, ahead: i64, rate: i64) -> io::Result<Self> {
        let ahead = ahead * MILLISECOND as i64;
        let file = [ahead, rate, now() as i64].map(i64::to_ne_bytes).concat();
        fs::write(&path, file)?;
        Ok(Self { path, ahead })
    }

    /// Sets the clock to `step` milliseconds more than at the start.
    pub fn step(&self, step: i64) -> io::Result<()> {
        let ahead = self.ahead + step * MILLISECOND as i64;
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.write_all_at(&ahead.to_ne_bytes(), 0)
    }

    /// Returns what a process needs in its environment.
    pub fn environment(&self, library: &Path) -> [(&'static str, PathBuf); 2] {
        [
            ("LD_PRELOAD", library.to_owned()),
            ("QUORLOCK_DRILL_CLOCK", self.path.clone()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_and_the_clock_of_all_processes_agree() {
        for offset in [0, 5, 5_000] {
            let offset = Duration::from_millis(offset);
            let before = now();
            let instant = Instant::now();
            let after = now();
            let (early, late) = (of(instant - offset), of(instant + offset));
            // Another task may run between two readings.
            let range = before.saturating_sub(SECOND / 10)..after + SECOND / 10;
            assert!(range.contains(&(early + nanos(offset))));
            assert!(range.contains(&(late - nanos(offset))));
        }
    }
}
