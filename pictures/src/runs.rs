//! Runs that are repeated until one of them shows what its picture is about.

use std::time::{Duration, Instant};

use crate::Result;

/// The time after which no further run begins.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the first run that is typical. A run is not typical if the machine was too busy: then
/// masters answer late, and messages overtake each other.
pub async fn typical<R>(
    record: impl AsyncFn() -> Result<R>,
    is_typical: impl Fn(&R) -> bool,
) -> Result<R> {
    let end = Instant::now() + LIMIT;
    loop {
        let why = match record().await {
            Ok(run) if is_typical(&run) => return Ok(run),
            Ok(_) => "no run is typical, because the machine is too busy".into(),
            Err(why) => why,
        };
        if Instant::now() > end {
            return Err(why);
        }
    }
}
