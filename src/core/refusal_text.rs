//! The text that masters send in place of a grant.

use std::time::Duration;

use super::{held_report::HeldReport, quorum::Refusal};

/// Reads a script's refusal, whose format is in `lua/README.md`. Returns `None` if it makes no
/// sense.
pub(super) fn refusal(text: &str) -> Option<Refusal> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    Some(match word {
        "held" => {
            let mut words = rest.splitn(4, ' ');
            let remaining = millis(words.next()?)?;
            let depth = words.next()?.parse().ok()?;
            let position = position(words.next()?)?;
            let owner = words.next()?.to_owned();
            Refusal::Held(HeldReport::owned(remaining, owner, depth, position))
        }
        "queued" => Refusal::Queued {
            position: position(rest)?,
        },
        "kind" => Refusal::OtherKind,
        "stale" => Refusal::Stale {
            counter: rest.parse().ok()?,
        },
        "skew" => Refusal::Skewed {
            clock: Duration::from_micros(rest.parse().ok()?),
        },
        _ => return None,
    })
}

/// Reads a TTL in milliseconds, where -1 stands for none.
fn millis(text: &str) -> Option<Option<Duration>> {
    let left: i64 = text.parse().ok()?;
    // A key lives to the end of its last millisecond.
    let left = u64::try_from(left).ok().map(|left| left.max(1));
    Some(left.map(Duration::from_millis))
}

/// Reads a position in a queue, where 0 stands for none.
fn position(text: &str) -> Option<Option<u64>> {
    let position = text.parse().ok()?;
    Some((position > 0).then_some(position))
}
