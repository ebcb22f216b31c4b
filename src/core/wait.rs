//! The policy for waiting after an attempt that did not end in a lock.

use std::time::Duration;

use super::{refused::Refused, retry::Backoff};

/// The time that is added to a TTL to be sure that the key is gone. A key lives to the end of its
/// last millisecond.
const EXPIRY_MARGIN: Duration = Duration::from_millis(2);

/// The settings for waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitPolicy {
    /// The delay before a retry if no message can say that the lock may be free.
    pub(crate) retry: Backoff,
    /// The delay before a retry if a message can say earlier that the lock may be free.
    pub(crate) poll: Backoff,
}

/// The messages about releases that a waiter has received, or can receive. A waiter in the queues
/// of a fair lock counts as subscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The last attempt was made because of a message about a release.
    Received,
    /// No message came, but the waiter is subscribed on a majority of masters.
    Expected,
    /// No message came, and the waiter is not subscribed on a majority of masters.
    Unavailable,
}

/// A wait before the next attempt. Both times are counted from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The time during which a message does not end the wait.
    pub(crate) pause: Duration,
    /// The time after which the wait ends without a message. If `end` is not after `pause`, no
    /// message can end the wait.
    pub(crate) end: Duration,
}

impl Wait {
    fn pause(pause: Duration) -> Self {
        Self { pause, end: pause }
    }
}

/// Returns the wait after an attempt that was `refused`. `failures` is the number of attempts that
/// failed before it.
pub(crate) fn next_wait(
    refused: &Refused,
    notice: Notice,
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
        // No majority can vote before the quarantine ends. The delay after the quarantine is
        // random, so waiters do not all come back at once.
        Refused::Quarantined(left) => Wait {
            pause: delay,
            end: left.saturating_add(delay),
        },
        // The message came, but some masters had not executed the release yet. After the delay
        // `soon`, they have.
        Refused::Queued | Refused::Split if notice == Notice::Received => Wait::pause(soon),
        // A waiter that came back at once would contend with the same clients again.
        Refused::Queued | Refused::Split => Wait::pause(delay),
        Refused::HeldUntil(left) => {
            let poll = match notice {
                // Another client was faster, or the release has not reached a majority yet.
                Notice::Received => soon,
                Notice::Expected => policy.poll.delay(u32::MAX, random),
                Notice::Unavailable => delay,
            };
            let expiry = left.map(|left| left.saturating_add(EXPIRY_MARGIN));
            Wait {
                // Prevents a hot loop while others release the lock and take it again.
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
        use Notice::{Expected, Received, Unavailable};
        use Refused::{HeldUntil, NoQuorum, OtherKind, OwnerBusy, Quarantined, Split, TooSlow};
        let policy = WaitPolicy {
            retry: Backoff::new(millis(10), millis(200)).unwrap(),
            poll: Backoff::new(millis(500), millis(1_500)).unwrap(),
        };
        // This number gives the middle of each range. Retries come after 15 ms, 25 ms and later 105
        // ms, and polls after 1 s.
        let random = u64::MAX / 2 + 1;
        for (refused, notice, failures, pause, end) in [
            (NoQuorum, Expected, 0, 15, 15),
            (NoQuorum, Received, 9, 105, 105),
            (OtherKind, Expected, 0, 15, 15),
            (OwnerBusy, Expected, 1, 25, 25),
            (TooSlow(millis(9)), Unavailable, 1, 25, 25),
            (Quarantined(millis(3_000)), Expected, 0, 15, 3_015),
            (Split, Expected, 9, 105, 105),
            (Split, Unavailable, 9, 105, 105),
            (Split, Received, 9, 15, 15),
            (HeldUntil(None), Expected, 0, 0, 1_000),
            (HeldUntil(None), Unavailable, 0, 0, 15),
            (HeldUntil(None), Unavailable, 9, 10, 105),
            (HeldUntil(None), Received, 2, 0, 15),
            (HeldUntil(None), Received, 3, 10, 15),
            (HeldUntil(Some(millis(7))), Received, 0, 0, 9),
            (HeldUntil(Some(millis(700))), Expected, 0, 0, 702),
            (HeldUntil(Some(millis(7_000))), Expected, 0, 0, 1_000),
        ] {
            let wait = next_wait(&refused, notice, failures, policy, random);
            let expected = Wait {
                pause: millis(pause),
                end: millis(end),
            };
            assert_eq!(wait, expected, "{refused:?} {notice:?} {failures}");
        }
    }
}
