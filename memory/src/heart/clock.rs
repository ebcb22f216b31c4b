//! The clock of a server, which may be wrong.

/// A clock that shows more or less than the true time, and runs at a rate of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// By how many microseconds the clock was ahead when it was set.
    ahead: i64,
    /// When the clock was set.
    since: u64,
    /// How many microseconds the clock gains in a second.
    ppm: i64,
}

impl Clock {
    const MILLION: i128 = 1_000_000;

    pub(super) fn new(now: u64, ahead: i64, ppm: i64) -> Self {
        Self {
            ahead,
            since: now,
            ppm,
        }
    }

    /// Returns what the clock shows at `now`.
    pub(super) fn shows(self, now: u64) -> u64 {
        let passed = i128::from(now) - i128::from(self.since);
        let gained = (passed * i128::from(self.ppm)).div_euclid(Self::MILLION);
        clamped(i128::from(now) + i128::from(self.ahead) + gained)
    }

    /// Returns a time by which the clock has reached `shown`. `None` for a clock that stands still.
    pub(super) fn when(self, shown: u64) -> Option<u64> {
        let rate = Self::MILLION + i128::from(self.ppm);
        if rate <= 0 {
            return None;
        }
        let since = i128::from(self.since);
        let passed = i128::from(shown) - i128::from(self.ahead) - since;
        Some(clamped(
            since + (passed * Self::MILLION).div_euclid(rate) + 1,
        ))
    }
}

fn clamped(micros: i128) -> u64 {
    u64::try_from(micros.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_has_an_error_and_a_rate() {
        const START: u64 = 1_700_000_000_000_000;
        const HOUR: u64 = 3_600_000_000;
        for (ahead, ppm, after_an_hour) in [
            (0, 0, HOUR as i64),
            (-500, 0, HOUR as i64 - 500),
            (7, 100, HOUR as i64 + 7 + 360_000),
            (7, -100, HOUR as i64 + 7 - 360_000),
            (7, -1_000_000, 7),
        ] {
            let clock = Clock::new(START, ahead, ppm);
            assert_eq!(clock.shows(START), START.saturating_add_signed(ahead));
            let shown = clock.shows(START + HOUR);
            assert_eq!(shown, START.saturating_add_signed(after_an_hour));
            match clock.when(shown) {
                Some(when) => assert!((START + HOUR..START + HOUR + 2).contains(&when)),
                None => assert_eq!(ppm, -1_000_000),
            }
        }
    }
}
