//! The one policy for waiting after an attempt that did not end in a lock.

use std::time::Duration;

use super::{refused::Refused, retry::Backoff};

/// The time from the end of a TTL to the moment when the key is gone for sure: a key lives to the
/// end of its last millisecond.
const EXPIRY_MARGIN: Duration = Duration::from_millis(2);

/// The settings for waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitPolicy {
    /// The pause before a retry, with no better sign that the lock may be free.
    pub(crate) retry: Backoff,
    /// The pause before a retry by a waiter that masters tell of releases.
    pub(crate) poll: Backoff,
}

/// The knowledge that a waiter has from messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A release was heard, which is why the last attempt was made.
    OfRelease,
    /// Nothing, but a majority of masters will tell of a release.
    Nothing,
    /// Nothing, and no majority of masters will tell of anything.
    Never,
}

/// A wait before the next attempt. Both times count from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The time during which messages do not matter.
    pub(crate) pause: Duration,
    /// The end of the wait, unless a message ends it earlier. No message can if this is not after
    /// the pause.
    pub(crate) end: Duration,
}

impl Wait {
    fn pause(pause: Duration) -> Self {
        Self { pause, end: pause }
    }
}

/// Returns how to wait after an attempt that was `refused`. Attempts failed `failures` times before
/// that.
pub(crate) fn next_wait(
    refused: &Refused,
    told: Told,
    failures: u32,
    policy: WaitPolicy,
    random: u64,
) -> Wait {
    let delay = policy.retry.delay(failures, random);
    let soon = policy.retry.delay(0, random);
    match refused {
        Refused::NoQuorum | Refused::OtherKind | Refused::OwnerBusy | Refused::TooSlow(_) => {
            Wait::pause(delay)
        }
        // No majority can vote before that. Waiters do not all come back at once.
        Refused::Quarantined(left) => Wait {
            pause: delay,
            end: left.saturating_add(delay),
        },
        // The release was heard before all masters had executed it, and by now they have.
        Refused::Queued | Refused::Split if told == Told::OfRelease => Wait::pause(soon),
        // A waiter that comes back at once meets the same rivals.
        Refused::Queued | Refused::Split => Wait::pause(delay),
        Refused::HeldUntil(left) => {
            let poll = match told {
                // Another was first, or the release has not reached a majority yet.
                Told::OfRelease => soon,
                Told::Nothing => policy.poll.delay(u32::MAX, random),
                Told::Never => delay,
            };
            let expiry = left.map(|left| left.saturating_add(EXPIRY_MARGIN));
            Wait {
                // However often others release the lock and take it again, this is no hot loop.
                pause: if failures > 2 {
                    policy.retry.least()
                } else {
                    Duration::ZERO
                },
                end: expiry.map_or(poll, |expiry| expiry.min(poll)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn wait_table() {
        use Refused::{HeldUntil, NoQuorum, OtherKind, OwnerBusy, Quarantined, Split, TooSlow};
        use Told::{Never, Nothing, OfRelease};
        let policy = WaitPolicy {
            retry: Backoff::new(millis(10), millis(200)).unwrap(),
            poll: Backoff::new(millis(500), millis(1_500)).unwrap(),
        };
        // The middle of each range: retries after 15 ms, 25 ms and later 105 ms, polls after 1 s.
        let random = u64::MAX / 2 + 1;
        for (refused, told, failures, pause, end) in [
            (NoQuorum, Nothing, 0, 15, 15),
            (NoQuorum, OfRelease, 9, 105, 105),
            (OtherKind, Nothing, 0, 15, 15),
            (OwnerBusy, Nothing, 1, 25, 25),
            (TooSlow(millis(9)), Never, 1, 25, 25),
            (Quarantined(millis(3_000)), Nothing, 0, 15, 3_015),
            (Split, Nothing, 9, 105, 105),
            (Split, Never, 9, 105, 105),
            (Split, OfRelease, 9, 15, 15),
            (HeldUntil(None), Nothing, 0, 0, 1_000),
            (HeldUntil(None), Never, 0, 0, 15),
            (HeldUntil(None), Never, 9, 10, 105),
            (HeldUntil(None), OfRelease, 2, 0, 15),
            (HeldUntil(None), OfRelease, 3, 10, 15),
            (HeldUntil(Some(millis(7))), OfRelease, 0, 0, 9),
            (HeldUntil(Some(millis(700))), Nothing, 0, 0, 702),
            (HeldUntil(Some(millis(7_000))), Nothing, 0, 0, 1_000),
        ] {
            let wait = next_wait(&refused, told, failures, policy, random);
            let expected = Wait {
                pause: millis(pause),
                end: millis(end),
            };
            assert_eq!(wait, expected, "{refused:?} {told:?} {failures}");
        }
    }
}
