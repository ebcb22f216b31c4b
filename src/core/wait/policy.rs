//! The policy for waiting after an attempt that did not end in a lock.

use std::time::Duration;

use super::retry::Backoff;
use crate::core::vote::refused::Refused;

/// The time that is added to a TTL to be sure that the key is gone. A key lives to the end of its
/// last millisecond.
const EXPIRY_MARGIN: Duration = Duration::from_millis(2);

/// The settings for waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitPolicy {
    /// The delay before a retry if no master says when the lock may be free.
    pub(crate) retry: Backoff,
    /// The delay before a retry if masters say earlier when the lock may be free.
    pub(crate) poll: Backoff,
}

/// The last attempt, which failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastAttempt<'a> {
    pub(crate) refused: &'a Refused,
    /// `true` if masters granted the lock for a moment, although another client holds it.
    pub(crate) took_some: bool,
    /// `true` if a majority of masters tell the waiter when the lock may be free.
    pub(crate) is_heard: bool,
    /// The number of attempts in a row before it that failed for the same reason.
    pub(crate) failures: u32,
    /// The number of false reports in a row.
    pub(crate) false_reports: u32,
}

/// A wait before the next attempt. Both times are counted from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The time during which no report of a master ends the wait.
    pub(crate) pause: Duration,
    /// The time after which the wait ends without an event. If `end` is not after `pause`, no event
    /// can end the wait.
    pub(crate) end: Duration,
    /// `true` if other clients are likely to make an attempt at `end`, too.
    pub(crate) is_contested: bool,
}

impl Wait {
    fn pause(pause: Duration) -> Self {
        Self {
            pause,
            end: pause,
            is_contested: false,
        }
    }
}

/// Returns the wait after the `last` attempt.
pub(crate) fn next_wait(last: LastAttempt<'_>, policy: WaitPolicy, random: u64) -> Wait {
    let delay = policy.retry.delay(last.failures, random);
    match last.refused {
        Refused::NoQuorum | Refused::OtherKind | Refused::OwnerBusy | Refused::TooSlow(_) => {
            Wait::pause(delay)
        }
        // No majority can vote before the quarantine ends. The delay after the quarantine is
        // random, so waiters do not all come back at once.
        Refused::Quarantined(left) => Wait {
            pause: delay,
            end: left.saturating_add(delay),
            is_contested: true,
        },
        // A waiter that came back at once would contend with the same clients again.
        Refused::Queued | Refused::Split => Wait {
            is_contested: true,
            ..Wait::pause(delay)
        },
        Refused::HeldUntil(left) => {
            let poll = if last.is_heard {
                policy.poll.delay(u32::MAX, random)
            } else {
                delay
            };
            let expiry = left.map(|left| left.saturating_add(EXPIRY_MARGIN));
            let end = expiry.map_or(poll, |expiry| expiry.min(poll));
            Wait {
                pause: match last.failures {
                    // Several clients may each take some masters and give them back. A client
                    // that came back at once would contend with the same clients again.
                    _ if last.took_some => delay,
                    // Limits the attempts while others release the lock and take it again, and
                    // even more while masters report changes that did not happen.
                    3.. => {
                        let growth = 2_u32.saturating_pow(last.false_reports);
                        let pause = (policy.retry.least() / 10).saturating_mul(growth);
                        pause.min(policy.poll.least()).min(end)
                    }
                    _ => Duration::ZERO,
                },
                end,
                is_contested: expiry.is_some_and(|expiry| expiry <= poll),
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
        let policy = WaitPolicy {
            retry: Backoff::new(millis(10), millis(200)).unwrap(),
            poll: Backoff::new(millis(500), millis(1_500)).unwrap(),
        };
        // This number gives the middle of each range. Retries come after 15 ms, 25 ms and later 105
        // ms, and polls after 1 s.
        let random = u64::MAX / 2 + 1;
        for (refused, is_heard, failures, pause, end, is_contested) in [
            (NoQuorum, true, 0, 15, 15, false),
            (NoQuorum, true, 9, 105, 105, false),
            (OtherKind, true, 0, 15, 15, false),
            (OwnerBusy, true, 1, 25, 25, false),
            (TooSlow(millis(9)), false, 1, 25, 25, false),
            (Quarantined(millis(3_000)), true, 0, 15, 3_015, true),
            (Split, true, 0, 15, 15, true),
            (Split, false, 9, 105, 105, true),
            (HeldUntil(None), true, 0, 0, 1_000, false),
            (HeldUntil(None), false, 0, 0, 15, false),
            (HeldUntil(None), false, 9, 1, 105, false),
            (HeldUntil(None), true, 2, 0, 1_000, false),
            (HeldUntil(None), true, 3, 1, 1_000, false),
            (HeldUntil(Some(millis(7))), false, 0, 0, 9, true),
            (HeldUntil(Some(millis(700))), true, 0, 0, 702, true),
            (HeldUntil(Some(millis(7_000))), true, 0, 0, 1_000, false),
        ] {
            let mut last = LastAttempt {
                refused: &refused,
                took_some: false,
                is_heard,
                failures,
                false_reports: 0,
            };
            let wait = next_wait(last, policy, random);
            let expected = Wait {
                pause: millis(pause),
                end: millis(end),
                is_contested,
            };
            assert_eq!(wait, expected, "{last:?}");
            if let HeldUntil(_) = refused {
                last.took_some = true;
                let pause = policy.retry.delay(failures, random);
                let expected = Wait { pause, ..expected };
                assert_eq!(next_wait(last, policy, random), expected, "{last:?}");
            }
        }
    }

    #[test]
    fn false_reports_lengthen_the_pause() {
        let policy = WaitPolicy {
            retry: Backoff::between(millis(10), millis(200)),
            poll: Backoff::between(millis(500), millis(1_500)),
        };
        for (left, failures, false_reports, pause) in [
            (9_000, 2, 2, 0),
            (9_000, 9, 0, 1),
            (9_000, 9, 3, 8),
            (9_000, 9, 7, 128),
            (9_000, 9, 9, 500),
            (9_000, 9, u32::MAX, 500),
            (100, 9, u32::MAX, 102), // no later than the expiry
        ] {
            let last = LastAttempt {
                refused: &Refused::HeldUntil(Some(millis(left))),
                took_some: false,
                is_heard: true,
                failures,
                false_reports,
            };
            assert_eq!(next_wait(last, policy, 0).pause, millis(pause), "{last:?}");
        }
    }
}
