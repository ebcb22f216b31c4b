//! Times, as people and as JSON have them.

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

/// Writes a time with two or three digits.
pub(crate) fn brief(time: Duration) -> String {
    let (micros, millis) = (time.as_micros(), time.as_millis());
    match millis {
        // Not every terminal shows a micro sign.
        0 => format!("{micros}us"),
        1..10 => format!("{:.1}ms", time.as_secs_f64() * 1e3),
        10..1_000 => format!("{millis}ms"),
        1_000..60_000 => format!("{:.1}s", (millis / 100) as f64 / 10.0),
        _ => humantime::format_duration(Duration::from_secs(time.as_secs())).to_string(),
    }
}

/// Writes a time in whole seconds, but no less than one.
pub(crate) fn rounded(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    humantime::format_duration(Duration::from_secs(seconds.max(1))).to_string()
}

/// Writes a time that has passed, such as `14:02 UTC, 3h 12m ago`. `at` is in milliseconds of Unix
/// time, by the clock of another host.
pub(crate) fn age(at: u64) -> String {
    let age = humantime::format_duration(Duration::from_secs(passed(at).as_secs()));
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at);
    let time = humantime::format_rfc3339_seconds(at).to_string();
    let time = time.get(11..16).unwrap_or_default();
    format!("{time} UTC, {age} ago")
}

/// Returns the time that has passed since a time in milliseconds of Unix time. Since 0, it is the
/// Unix time.
pub(crate) fn passed(at: u64) -> Duration {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at);
    SystemTime::now().duration_since(at).unwrap_or_default()
}

/// Serializes a time as a number of milliseconds.
pub(crate) fn millis<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_millis()).serialize(to)
}

/// Serializes a time as a number of microseconds.
pub(crate) fn micros<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_micros()).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_brief() {
        for (micros, text) in [
            (0, "0us"),
            (310, "310us"),
            (2_540, "2.5ms"),
            (12_900, "12ms"),
            (9_999_000, "9.9s"),
            (61_000_000, "1m 1s"),
        ] {
            assert_eq!(brief(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn rounded_times_are_whole_seconds() {
        for (millis, text) in [(0, "1s"), (1_000, "1s"), (1_001, "2s"), (60_000, "1m")] {
            assert_eq!(rounded(Duration::from_millis(millis)), text);
        }
    }
}
