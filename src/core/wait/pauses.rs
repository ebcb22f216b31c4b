//! How long a waiter waits after an attempt that failed.

use std::{mem, time::Duration};

use crate::core::{
    reason::Reason,
    time::{Backoff, LeaseTick},
};

/// The waits of one waiter between its attempts.
///
/// News leads to attempts at a limited [`Pace`], whatever the masters report.
pub(crate) struct Pauses {
    /// The delay before a retry if no master says when the lock may be free.
    pub(super) retry: Backoff,
    /// The delay before a retry if masters report changes. A report may lead to an earlier retry.
    pub(super) poll: Backoff,
    /// What the last attempt met: the reason, and whether masters granted the lock for a moment.
    met: Option<(mem::Discriminant<Reason>, bool)>,
    /// The number of attempts in a row that met this reason, not counting the first one.
    repeats: u32,
    pace: Pace,
    /// The time at which the attempts so far would end if each took the interval of the pace.
    used_until: Option<LeaseTick>,
}

/// How many attempts news may lead to: a burst, and then one for each interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) burst: u32,
    interval: Duration,
}

impl Pace {
    /// The pace of a waiter to which masters report changes of the key. There are two reasons for
    /// this limit. A server whose table of tracked keys is too small also reports keys that did not
    /// change. And if a hundred processes want a lock, each of them would otherwise make an attempt
    /// after each release.
    pub(crate) const OF_REPORTS: Self = Self {
        burst: 28,
        interval: Duration::from_millis(250),
    };
    /// The pace of a waiter in the queues. Masters call it when its turn has come, so it needs few
    /// attempts. But masters that know different holders may call it again and again.
    pub(crate) const OF_CALLS: Self = Self {
        burst: 6,
        interval: Duration::from_millis(50),
    };
    /// After the burst, a waiter makes its attempts in series of this length. The first attempt of
    /// a series only finds out what has happened since the last series.
    const SERIES: u32 = 2;
}

/// What an attempt met: the reason, and whether masters granted the lock for a moment, although
/// another client holds it.
pub(crate) type Met<'a> = (&'a Reason, bool);

/// A wait before the next attempt. Both times are counted from the start of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Reports of masters do not end the wait before this time has passed.
    pub(crate) pause: Duration,
    /// The time after which the wait ends even without a report. If `end` is not after `pause`, a
    /// report cannot end the wait.
    pub(crate) end: Duration,
}

impl Pauses {
    /// The time that is added to a TTL to be sure that the key is gone. A key lives to the end of
    /// its last millisecond.
    const EXPIRY_MARGIN: Duration = Duration::from_millis(2);

    pub(crate) fn new(retry: Backoff, poll: Backoff, pace: Pace) -> Self {
        Self {
            retry,
            poll,
            met: None,
            repeats: 0,
            pace,
            used_until: None,
        }
    }

    /// Returns the wait after an attempt. `met` is what the attempt met. `is_told` says whether a
    /// master tells the waiter when the lock may be free.
    pub(crate) fn after(&mut self, met: Met<'_>, is_told: bool, random: u64) -> Wait {
        let (reason, took_some) = met;
        let met = Some((mem::discriminant(reason), took_some));
        self.repeats = if self.met == met {
            self.repeats.saturating_add(1)
        } else {
            0
        };
        self.met = met;
        let delay = self.retry.delay(self.repeats, random);
        let without_events = |time| (time, time);
        let (pause, end) = match reason {
            Reason::Held { remaining: left } => {
                let poll = if is_told {
                    self.poll.spread(random)
                } else {
                    delay
                };
                let expiry = left.map_or(Duration::MAX, |left| {
                    left.saturating_add(Self::EXPIRY_MARGIN)
                });
                let end = expiry.min(poll);
                // Several clients may each take some masters and give them back. A client that
                // asked again at once would contend with the same clients.
                let pause = if took_some { delay } else { Duration::ZERO };
                (pause.min(end), end)
            }
            // No majority can vote before the quarantine ends. The delay after the quarantine is
            // random, so waiters do not all come back at once.
            Reason::Quarantined { remaining } => without_events(remaining.saturating_add(delay)),
            _ => without_events(delay),
        };
        Wait { pause, end }
    }

    /// Counts an attempt. Returns the time for which news must not lead to another attempt.
    pub(crate) fn rest(&mut self, now: LeaseTick) -> Duration {
        let Pace { burst, interval } = self.pace;
        let used_until = self.used_until.map_or(now, |used| used.max(now)) + interval;
        self.used_until = Some(used_until);
        match used_until.since(now + interval * burst) {
            Duration::ZERO => Duration::ZERO,
            _ => interval * Pace::SERIES,
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::times::millis;

    use super::*;

    /// With this number, delays are in the middle of their ranges: retries come after 15 ms, 25 ms
    /// and later 105 ms, and polls after 1 s.
    const RANDOM: u64 = u64::MAX / 2 + 1;

    fn pauses() -> Pauses {
        let retry = Backoff::new(millis(10), millis(200)).unwrap();
        let poll = Backoff::new(millis(500), millis(1_500)).unwrap();
        Pauses::new(retry, poll, Pace::OF_REPORTS)
    }

    fn now() -> LeaseTick {
        LeaseTick::some()
    }

    #[test]
    fn the_wait_depends_on_the_reason_and_on_how_often_it_was_met() {
        use Reason::{NoQuorum, OtherKind, OwnerBusy, Queued, Split};
        let (held, told, alone) = (Reason::Held { remaining: None }, true, false);
        let left = |time| {
            let remaining = Some(millis(time));
            Reason::Held { remaining }
        };
        let quarantined = Reason::Quarantined {
            remaining: millis(3_000),
        };
        let slow = Reason::TooSlow { elapsed: millis(9) };
        for waits in [
            &[
                (NoQuorum, told, 15, 15),
                (NoQuorum, told, 25, 25),
                (Split, told, 15, 15),
            ][..],
            &[(OtherKind, told, 15, 15)],
            &[(OwnerBusy, told, 15, 15), (OwnerBusy, told, 25, 25)],
            &[(slow, told, 15, 15)],
            &[(Queued, told, 15, 15)],
            &[(quarantined, told, 3_015, 3_015)],
            &[
                (Split, told, 15, 15),
                (Split, told, 25, 25),
                (Split, told, 45, 45),
            ],
            &[(held.clone(), told, 0, 1_000)],
            &[(left(700), told, 0, 702)],
            &[(left(7_000), told, 0, 1_000)],
            &[(held.clone(), alone, 0, 15), (held, alone, 0, 25)],
            &[(left(7), alone, 0, 9)],
        ] {
            let mut pauses = pauses();
            for (reason, is_told, pause, end) in waits {
                let wait = pauses.after((reason, false), *is_told, RANDOM);
                let expected = Wait {
                    pause: millis(*pause),
                    end: millis(*end),
                };
                assert_eq!(wait, expected, "{reason:?} in {waits:?}");
            }
        }
    }

    #[test]
    fn a_waiter_that_took_some_masters_comes_back_later_and_later() {
        let mut pauses = pauses();
        let mut pause = |took_some| {
            let held = Reason::Held { remaining: None };
            pauses.after((&held, took_some), true, RANDOM).pause
        };
        assert_eq!([true, true, false].map(&mut pause), [15, 25, 0].map(millis));
        let mut expires = self::pauses();
        let remaining = Some(millis(3));
        let expiring = Reason::Held { remaining };
        let wait = expires.after((&expiring, true), true, RANDOM);
        assert_eq!(wait.pause, millis(5));
    }

    /// In this test, news follows each attempt at once.
    #[test]
    fn news_leads_to_a_burst_of_attempts_and_then_to_few() {
        for (pace, at_once, in_all) in [
            (Pace::OF_REPORTS, 29, 400..=435), // the burst, and one that finds it used
            (Pace::OF_CALLS, 7, 2_000..=2_015),
        ] {
            let (mut pauses, start) = (Pauses { pace, ..pauses() }, now());
            let (mut at, mut attempts) = (start, Vec::new());
            while at < start + millis(100_000) {
                attempts.push(at);
                at = at + pauses.rest(at);
            }
            let early = attempts.iter().filter(|at| **at == start).count();
            assert_eq!(early, at_once, "{pace:?}");
            assert!(in_all.contains(&attempts.len()), "{pace:?}: {attempts:?}");
            assert_eq!(pauses.rest(at + millis(8_000)), millis(0), "a new burst");
        }
    }
}
