//! The text that a master sends when it refuses.

use std::time::Duration;

use crate::core::vote::{Refusal, held_report::HeldReport};

/// Reads the refusal of a script. `lua/README.md` describes the format. Returns `None` if the text
/// makes no sense.
pub(super) fn refusal(text: &str) -> Option<Refusal> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    Some(match word {
        "held" => {
            let mut words = rest.splitn(4, ' ');
            let remaining = millis(words.next()?)?;
            let depth = words.next()?.parse().ok()?;
            let position = position(words.next()?)?;
            let owners = owner(words.next()?);
            Refusal::Held(HeldReport::owned(remaining, owners, depth, position))
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

/// Reads the ID of an owner, or the lines with the IDs of several. Only the start of a long text is
/// kept, because errors show it for each master. The IDs of this crate are shorter.
pub(in crate::core) fn owner(text: &str) -> String {
    text.chars().take(256).collect()
}

/// Reads a TTL in milliseconds. -1 means that there is no TTL.
fn millis(text: &str) -> Option<Option<Duration>> {
    let left: i64 = text.parse().ok()?;
    // A key lives to the end of its last millisecond, so 0 counts as 1.
    let left = u64::try_from(left).ok().map(|left| left.max(1));
    Some(left.map(Duration::from_millis))
}

/// Reads a position in a queue. 0 means that the caller is not queued.
fn position(text: &str) -> Option<Option<u64>> {
    let position = text.parse().ok()?;
    Some((position > 0).then_some(position))
}
