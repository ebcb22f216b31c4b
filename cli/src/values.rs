//! Reads the values of options.

use std::{num::ParseIntError, time::Duration};

use quorlock::ConfigError;

/// Reads a time such as `500ms`. A time that no clock can be moved by is refused.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    const MOST: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time > MOST {
        return Err("it is longer than 100 years".to_owned());
    }
    Ok(time)
}

/// Reads a [time] that is not zero.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("it is zero".to_owned()),
        time => Ok(time),
    }
}

/// Reads the number of permits of a semaphore. The library refuses the same numbers, but only when
/// it is asked for the lock.
pub(crate) fn permits(text: &str) -> Result<usize, String> {
    const MOST: usize = 1_000;
    let given = text
        .parse()
        .map_err(|error: ParseIntError| error.to_string())?;
    if (1..=MOST).contains(&given) {
        return Ok(given);
    }
    let refused = ConfigError::OutOfRange {
        setting: "semaphore",
        given: format!("{given} permits"),
        range: format!("from 1 to {MOST}"),
    };
    Err(refused.to_string())
}
