//! Reads the values of options.

use std::time::Duration;

/// Reads a time such as `500ms`, or `5` for seconds, as `flock` and `timeout` do. A time that no
/// clock can be moved by is refused.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    const MOST: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    if text.starts_with('-') {
        return Err("it is not a time such as 5, 500ms or 1m".to_owned());
    }
    let seconds = text.starts_with(|first: char| first.is_ascii_digit());
    let seconds = seconds.then(|| text.parse().ok()).flatten();
    let time = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string()),
        None => humantime::parse_duration(text).map_err(|error| error.to_string()),
    }?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_a_unit_is_in_seconds() {
        for (text, millis) in [
            ("5", Some(5_000)),
            ("0.5", Some(500)),
            ("0", Some(0)),
            ("500ms", Some(500)),
            ("1m 30s", Some(90_000)),
            ("-1s", None),
            ("-1", None),
            ("inf", None),
            ("1e300", None),
            ("five", None),
        ] {
            let expected = millis.map(Duration::from_millis);
            assert_eq!(time(text).ok(), expected, "{text}");
        }
    }
}
