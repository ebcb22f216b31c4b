//! What masters say of locks that others hold.

use std::{sync::Arc, time::Duration};

use super::quorum::{Holder, Refusal};

/// What a script says instead of a grant: see `lua/README.md`. `None` when it makes no sense.
pub(super) fn refusal(text: &str) -> Option<Refusal> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    Some(match word {
        "held" => {
            let mut words = rest.splitn(4, ' ');
            let remaining = millis(words.next()?)?;
            let depth = words.next()?.parse().ok()?;
            let place = place(words.next()?)?;
            let owner = words.next()?.into();
            Refusal::Held {
                remaining,
                holder: Some(Arc::new(Holder {
                    owner,
                    depth,
                    place,
                })),
            }
        }
        "queued" => Refusal::Queued {
            place: place(rest)?,
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

/// A TTL as masters say it: -1 stands for none.
fn millis(text: &str) -> Option<Option<Duration>> {
    let left: i64 = text.parse().ok()?;
    // A key lives to the end of its last millisecond.
    let left = u64::try_from(left).ok().map(|left| left.max(1));
    Some(left.map(Duration::from_millis))
}

/// A place in a queue: 0 stands for none.
fn place(text: &str) -> Option<Option<u64>> {
    let place = text.parse().ok()?;
    Some((place > 0).then_some(place))
}
