//! How long a process lets others go first that have missed more releases.

use std::time::Duration;

/// How long a process gives way to others after a release. No process knows of the others. But the
/// more releases a process has missed, the sooner it asks. So it cannot miss them for ever.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Precedence {
    /// The releases since the last win after which another client was faster.
    missed: u32,
    /// The time that the last attempt took.
    took: Duration,
    /// `true` if the last denied attempt got the agreed master but not the other masters. A client
    /// that always asks all masters at once was probably faster, and will be again.
    pub(super) was_outrun: bool,
}

impl Precedence {
    const LEAST: Duration = Duration::from_millis(2);
    const MOST: Duration = Duration::from_millis(100);

    pub(crate) fn note_won(&mut self, took: Duration) {
        (self.took, self.missed) = (took, 0);
    }

    /// Notes a denied attempt that took the time `took`. `has_news` says whether the attempt came
    /// after a release, and `is_outrun` whether it got only the agreed master.
    pub(crate) fn note_denied(&mut self, has_news: bool, is_outrun: bool, took: Duration) {
        (self.took, self.was_outrun) = (took, is_outrun);
        self.missed = self.missed.saturating_add(has_news.into());
    }

    /// Returns the time that other processes need to notice a release and to ask for the lock.
    pub(crate) fn two_attempts(&self) -> Duration {
        self.took.saturating_mul(2).clamp(Self::LEAST, Self::MOST)
    }

    /// Returns for how long a waiter gives way that has `waited` for the release. This is a small
    /// part of the time for which locks are held here, or the time of two attempts, divided by the
    /// number of missed releases and one. Timers count whole milliseconds, so the rest is a random
    /// millisecond: otherwise, waiters that have missed many releases would all ask at once.
    ///
    /// For a new call, `waited` is `None`. If the last guard of this process has just been dropped,
    /// others hear of the release only now, and may ask in two steps. So the time is twice as long.
    pub(crate) fn time(&self, waited: Option<Duration>, random: u64) -> Duration {
        let least = self.two_attempts();
        let most = waited.map_or(least * 2, |waited| least.max(waited / 32));
        let time = most.min(Self::MOST) / self.missed.saturating_add(1);
        let part = Duration::from_nanos(((random >> 32) * 1_000_000) >> 32);
        Duration::from_millis((time + part).as_millis() as u64) // at most `MOST` and one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Returns the least and the longest time for which a waiter gives way.
    fn times(precedence: Precedence, waited: Option<u64>) -> [Duration; 2] {
        [0, u64::MAX].map(|random| precedence.time(waited.map(millis), random))
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
            let mut precedence = Precedence::default();
            precedence.note_won(millis(took));
            assert_eq!(
                times(precedence, waited)[0],
                millis(time),
                "{took} {waited:?}"
            );
        }
        let mut precedence = Precedence::default();
        precedence.note_denied(false, false, Duration::MAX);
        let most = times(precedence, Some(u64::MAX / 2))[1];
        assert!(most <= Precedence::MOST + millis(1));
    }

    #[test]
    fn who_has_missed_more_releases_gives_way_for_a_shorter_time() {
        let mut precedence = Precedence::default();
        let mut time = || {
            let times = times(precedence, Some(320));
            precedence.note_denied(true, false, millis(1));
            times
        };
        let times: Vec<_> = (0..12).map(|_| time()).collect();
        let least: Vec<_> = times.iter().map(|times| times[0].as_millis()).collect();
        assert_eq!(least, [10, 5, 3, 2, 2, 1, 1, 1, 1, 1, 0, 0]);
        assert!(
            times
                .iter()
                .all(|[least, most]| *most <= *least + millis(1))
        );
        precedence.note_won(millis(1));
        assert_eq!(self::times(precedence, Some(320))[0], millis(10));
    }
}
