//! What a process remembers of a lock: whether clients of other processes want the lock, and how
//! often this process has handed the lock over to its own waiters.

use std::time::Duration;

use super::contest::Start;
use crate::core::time::LeaseTick;

/// What this process has found out by its attempts at one lock. A rival is a client of another
/// process that asks for the lock at the same moment, or that asked just before.
///
/// A process that always asks first meets no rival, and cannot see whether others wait in vain. So
/// it gives way from time to time. If another client then takes the lock, the process has met a
/// rival.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct History {
    /// Counts the attempts without a rival, down to 0 and then again from `CALM - 1`.
    countdown: u8,
    /// The number of wins since the last denied attempt.
    in_a_row: u32,
    /// `true` if the next call gives way, because this process has won many times in a row.
    is_probe_due: bool,
    /// The time before which only the first wins in a row lead to a probe.
    next_probe: Option<LeaseTick>,
    /// The releases since the last win after which another client was faster.
    missed: u32,
    /// The time that the last attempt took.
    took: Duration,
    /// `true` if the last denied attempt got the agreed master but not the other masters. A client
    /// that always asks all masters at once was probably faster, and will be again.
    pub(super) was_outrun: bool,
    /// `true` if the last waiter had to wait in the queues of the masters. The next waiter is then
    /// likely to wait in them as well, so it joins the queues in its first round.
    pub(crate) was_queued: bool,
    pub(crate) run: Run,
}

impl History {
    /// The number of wins after which a process gives way that gets the lock at each release of
    /// another one.
    const CALM: u8 = 6;
    /// The number of further attempts without a rival after which the lock counts as uncontested.
    const UNTIL_CALM: u8 = 8;
    /// A probe takes the time of four attempts, if nobody else wants the lock. This many times the
    /// time of two attempts lies between two of the later ones, so they take a part of 1/64.
    const PROBES_AT_MOST: u32 = 128;
    /// The least and the longest time that two attempts take, as far as this rule is concerned.
    const TWO_ATTEMPTS: (Duration, Duration) =
        (Duration::from_millis(2), Duration::from_millis(100));

    pub(crate) fn note(&mut self, has_rival: bool) {
        self.countdown = match has_rival {
            true => Self::CALM + Self::UNTIL_CALM,
            false => self.countdown.checked_sub(1).unwrap_or(Self::CALM - 1),
        };
    }

    /// Notes an attempt that won a lock without queues on the masters at `now`, and how long it
    /// took.
    pub(crate) fn note_won(&mut self, took: Duration, now: LeaseTick) {
        self.note(false);
        (self.took, self.missed) = (took, 0);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let may_probe = self.next_probe.is_none_or(|at| at <= now);
        let (row, often) = (self.in_a_row, Self::PROBES_AT_MOST);
        self.is_probe_due = matches!(row, 8 | 16) || row.is_multiple_of(32) && may_probe;
        if self.is_probe_due {
            self.next_probe = Some(now + self.two_attempts().saturating_mul(often));
        }
    }

    /// Notes a denied attempt that took the time `took`. `has_news` says whether the attempt came
    /// after a release, and `is_outrun` whether it got only the agreed master.
    pub(super) fn note_denied(&mut self, has_news: bool, is_outrun: bool, took: Duration) {
        (self.in_a_row, self.is_probe_due) = (0, false);
        (self.took, self.was_outrun) = (took, is_outrun);
        self.missed = self.missed.saturating_add(has_news.into());
    }

    pub(crate) fn are_rivals_likely(&self) -> bool {
        self.countdown > Self::CALM
    }

    pub(crate) fn waiter_gives_way(&self) -> bool {
        self.are_rivals_likely() || self.countdown == 1
    }

    pub(crate) fn call_gives_way(&self) -> bool {
        self.are_rivals_likely() || self.is_probe_due
    }

    /// Returns the time that other processes need to notice a release and to ask for the lock.
    pub(crate) fn two_attempts(&self) -> Duration {
        let (least, most) = Self::TWO_ATTEMPTS;
        self.took.saturating_mul(2).clamp(least, most)
    }

    /// Returns for how long a waiter gives way that has `waited` for the release. No process knows of
    /// the others. But the more releases a process has missed, the sooner it asks. So it cannot miss
    /// them for ever. The time is a small part of the time for which locks are held here, or the
    /// time of two attempts, divided by the number of missed releases and one. Timers count whole
    /// milliseconds, so the rest is a random millisecond: otherwise, waiters that have missed many
    /// releases would all ask at once.
    ///
    /// For a new call, `waited` is `None`. If the last guard of this process has just been dropped,
    /// others hear of the release only now, and may ask in two steps. So the time is twice as long.
    pub(crate) fn time(&self, waited: Option<Duration>, random: u64) -> Duration {
        let least = self.two_attempts();
        let most = waited.map_or(least * 2, |waited| least.max(waited / 32));
        let time = most.min(Self::TWO_ATTEMPTS.1) / self.missed.saturating_add(1);
        let part = Duration::from_nanos(((random >> 32) * 1_000_000) >> 32);
        Duration::from_millis((time + part).as_millis() as u64)
    }
}

/// The latest hand-overs of a lock, each from one waiter of this process to the next.
///
/// After a release, the next waiter of the same process is always the first to ask for the lock. So
/// the waiters of other processes would get nothing while this process has waiters. After some
/// hand-overs, or after some time, the next waiter gives way for a moment. `parking_lot` calls this
/// eventual fairness.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// The time of the first hand-over.
    since: Option<LeaseTick>,
    hand_overs: u32,
    /// How many times in a row a waiter gave way in vain: no other client took the lock.
    vain: u32,
}

impl Run {
    /// A run is over after this number of hand-overs, or after this time. Both limits double each
    /// time a waiter gives way in vain.
    const MOST: (u32, Duration) = (8, Duration::from_millis(100));
    const MOST_VAIN: u32 = 7;
    /// The least time limit of a run if the rivals poll. A long run is better, because after the
    /// run the lock is free until a rival asks.
    const LEAST_IF_POLLED: Duration = Duration::from_millis(400);

    /// Notes how an attempt of a waiter of this process began. `won_at` is the time at which the
    /// attempt won the lock, or `None`.
    pub(crate) fn note(&mut self, start: Start, won_at: Option<LeaseTick>) {
        let vain = match (start, won_at) {
            (Start::HandedOver, Some(now)) => {
                self.hand_overs += 1;
                self.since.get_or_insert(now);
                return;
            }
            // Perhaps a guard of this process has the lock. So this attempt says nothing of other
            // processes.
            (Start::Plain | Start::NextInLine, None) => return,
            (Start::GaveWay, None) => 0,
            (Start::GaveWay, Some(_)) => Self::MOST_VAIN.min(self.vain + 1),
            (_, _) => self.vain,
        };
        *self = Self {
            vain,
            ..Self::default()
        };
    }

    /// Returns whether the run is over. Then the next waiter gives way. `are_told` says whether
    /// masters tell the rivals of a release. Otherwise the rivals ask from time to time.
    pub(crate) fn is_over(&self, are_told: bool, now: LeaseTick) -> bool {
        let times = 1 << self.vain;
        let (most, time) = (Self::MOST.0 * times, Self::MOST.1 * times);
        let (most, time) = match are_told {
            true => (most, time),
            false => (u32::MAX, time.max(Self::LEAST_IF_POLLED)),
        };
        let is_late = |since| now.since(since) >= time;
        self.hand_overs >= most || self.since.is_some_and(is_late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_is_remembered_for_some_wins() {
        let mut history = History::default();
        assert!(!history.are_rivals_likely());
        history.note(true);
        for _ in 0..History::UNTIL_CALM {
            assert!(history.are_rivals_likely());
            assert!(history.waiter_gives_way() && history.call_gives_way());
            history.note_won(Duration::ZERO, LeaseTick::some());
        }
        assert!(!history.are_rivals_likely());
    }

    /// Returns the wins before which `gives_way` is `true`, counted from 0. The wins are `apart`.
    fn wins(
        mut history: History,
        apart: Duration,
        gives_way: impl Fn(&History) -> bool,
    ) -> Vec<u32> {
        let mut wins = Vec::new();
        for win in 0..260 {
            if gives_way(&history) {
                wins.push(win);
            }
            history.note_won(Duration::ZERO, LeaseTick::some() + apart * win);
        }
        wins
    }

    #[test]
    fn a_process_without_rivals_gives_way_from_time_to_time() {
        let (history, millis) = (History::default(), Duration::from_millis);
        let of_waiter = wins(history, millis(1), History::waiter_gives_way);
        assert_eq!(of_waiter[..3], [5, 11, 17]);
        for (apart, expected) in [
            (
                millis(20),
                &[8, 16, 32, 64, 96, 128, 160, 192, 224, 256][..],
            ),
            (millis(5), &[8, 16, 96, 160, 224]), // 256 ms lie between two of the later ones
            (Duration::ZERO, &[8, 16]),
        ] {
            let of_calls = wins(history, apart, History::call_gives_way);
            assert_eq!(of_calls, expected, "{apart:?}");
        }
        let mut denied = history;
        (0..8).for_each(|_| denied.note_won(Duration::ZERO, LeaseTick::some()));
        denied.note_denied(false, false, Duration::ZERO);
        let of_calls = wins(denied, millis(20), History::call_gives_way);
        assert_eq!(of_calls[..3], [8, 16, 32]);
    }

    /// Returns the least and the longest time for which a waiter gives way, in milliseconds.
    fn times(history: &History, waited: Option<u64>) -> [u128; 2] {
        let waited = waited.map(Duration::from_millis);
        [0, u64::MAX].map(|random| history.time(waited, random).as_millis())
    }

    #[test]
    fn a_waiter_gives_way_for_two_attempts_or_a_part_of_its_wait() {
        for (took, waited, time) in [
            (0, Some(0), 2),
            (1, Some(64), 2),
            (9, Some(64), 18),
            (9, Some(640), 20),
            (9, None, 36),
        ] {
            let mut history = History::default();
            history.note_won(Duration::from_millis(took), LeaseTick::some());
            assert_eq!(times(&history, waited)[0], time, "{took} {waited:?}");
        }
        let mut history = History::default();
        history.note_denied(false, false, Duration::MAX);
        assert!(times(&history, Some(u64::MAX / 2))[1] <= 101);
    }

    #[test]
    fn who_has_missed_more_releases_gives_way_for_a_shorter_time() {
        let (mut history, took) = (History::default(), Duration::from_millis(1));
        let mut time = || {
            let [least, most] = times(&history, Some(320));
            history.note_denied(true, false, took);
            assert!(most <= least + 1);
            least
        };
        let times: Vec<_> = (0..12).map(|_| time()).collect();
        assert_eq!(times, [10, 5, 3, 2, 2, 1, 1, 1, 1, 1, 0, 0]);
        history.note_won(took, LeaseTick::some());
        assert_eq!(self::times(&history, Some(320))[0], 10);
    }

    #[test]
    fn a_run_ends_after_some_hand_overs_or_some_time() {
        use Start::{GaveWay, HandedOver, NextInLine, Plain};
        let now = LeaseTick::some();
        for (are_told, apart, hand_overs) in [(true, 0, 8), (true, 30, 4), (false, 1, 400)] {
            let mut run = Run::default();
            let mut times = (0..).map(|count| now + Duration::from_millis(apart) * count);
            let handed_over = times.position(|at| {
                let is_over = run.is_over(are_told, at);
                run.note(HandedOver, Some(at));
                is_over
            });
            assert_eq!(handed_over, Some(hand_overs), "{are_told} {apart}");
            run.note(HandedOver, None);
            assert!(!run.is_over(are_told, now));
            (0..9).for_each(|_| run.note(GaveWay, Some(now)));
            (0..1_023).for_each(|_| run.note(HandedOver, Some(now)));
            run.note(Plain, None); // a guard of this process may have the lock
            run.note(NextInLine, None);
            assert!(!run.is_over(are_told, now + Duration::from_millis(12_799)));
            assert!(run.is_over(are_told, now + Duration::from_millis(12_800)));
            for start in [Plain, NextInLine] {
                run.note(start, Some(now));
                (0..1_023).for_each(|_| run.note(HandedOver, Some(now)));
                assert!(!run.is_over(are_told, now), "{start:?}");
            }
            run.note(GaveWay, None);
            (0..8).for_each(|_| run.note(HandedOver, Some(now)));
            assert_eq!(run.is_over(are_told, now), are_told);
        }
    }
}
