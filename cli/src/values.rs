//! Reads the values of options.

use std::{path::PathBuf, time::Duration};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use quorlock::{Quarantine, SharedSettings};
use serde::de::{
    Deserialize, Error as _,
    value::{Error, MapDeserializer},
};

/// Reads a time as the setting `ttl` is read. A time that no clock can be moved by is refused.
pub(crate) fn time(text: &str) -> Result<Duration, Error> {
    const MOST: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    let time = setting("ttl", text)?.ttl;
    let time = time.filter(|time| *time <= MOST);
    time.ok_or_else(|| Error::custom("is longer than 100 years"))
}

/// Reads a word as the setting `quarantine` is read.
pub(crate) fn quarantine() -> impl TypedValueParser<Value = Quarantine> {
    let words = PossibleValuesParser::new(["strict", "observed", "off"]);
    words.try_map(|word| {
        Ok::<_, Error>(setting("quarantine", &word)?.quarantine.unwrap_or_default())
    })
}

fn setting(key: &str, text: &str) -> Result<SharedSettings, Error> {
    SharedSettings::deserialize(MapDeserializer::new([(key, text)].into_iter()))
}

/// Reads the name of a file for the node exporter, which ignores others.
pub(crate) fn textfile(name: &str) -> Result<PathBuf, &'static str> {
    let file = name.ends_with(".prom").then(|| name.into());
    file.ok_or("expected a name that ends with .prom")
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
