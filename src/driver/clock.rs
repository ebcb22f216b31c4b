//! Where time and chance come in. Nobody else reads a clock or draws a random number.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;

/// The clock by which locks are held: the monotonic clock, moved on by what it slept through.
///
/// That one stops while a machine is suspended, and the masters' TTLs run on. The wall clock does not stop:
/// when it has run ahead of the monotonic one, the difference counts as time that has passed. A wall
/// clock that is set forward looks the same, and costs a holder some validity; one that is set back
/// changes nothing.
///
/// Timers, and whatever is between us and one master, go by the [`monotonic`] clock alone. Under tokio's paused
/// clock both are virtual time, which is how tests drive the real code.
pub(crate) fn now() -> Instant {
    let now = monotonic();
    compare_clocks(now);
    from_monotonic(now)
}

/// An instant of the [`monotonic`] clock on the clock of [`now`], but for what was slept through since that
/// was last asked. For votes, whose outcome is looked at once more before anybody relies on it.
pub(crate) fn from_monotonic(at: Instant) -> Instant {
    at + slept()
}

/// An instant of the clock of [`now`] on the [`monotonic`] one, if nothing more is slept through,
/// or `least` if that is later. An instant that has passed on one clock has passed on the other,
/// but the monotonic clock may never have shown it: it stood still then, or the wall clock was set
/// forward.
pub(crate) fn to_monotonic(at: Instant, least: Instant) -> Instant {
    compare_clocks(monotonic());
    at.checked_sub(slept()).map_or(least, |at| at.max(least))
}

/// Sleeps until `at` on the clock of [`now`], looking up at least once a second.
pub(crate) async fn sleep_until(at: Instant) {
    const LONGEST: Duration = Duration::from_secs(1);
    loop {
        let left = at.saturating_duration_since(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST)).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the crate reads its clock"
)]
pub(crate) fn monotonic() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The wall clock in microseconds since 1970, for tickets that are compared with those of other processes.
pub(crate) fn wall_micros() -> u64 {
    let since = wall().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}

/// For how long the monotonic clock has stood still, in all, in nanoseconds. At most
/// [`MOST_SLEPT`].
static SLEPT: AtomicU64 = AtomicU64::new(0);

/// About 100 years, which any instant can be moved by. A wall clock that is set back and forth adds
/// up to more only in tests of that.
const MOST_SLEPT: u64 = 100 * 366 * 24 * 60 * 60 * 1_000_000_000;

fn slept() -> Duration {
    Duration::from_nanos(SLEPT.load(Ordering::Relaxed))
}

/// Compares the clocks, if that was not done within a millisecond before `now`, on the [`monotonic`] clock. That one
/// may not have moved while the machine was suspended, so it may go on for so long before that is noticed.
fn compare_clocks(now: Instant) {
    const OFTEN: Duration = Duration::from_millis(1);
    static ORIGIN: LazyLock<Instant> = LazyLock::new(monotonic);
    /// When that was done, in nanoseconds after the origin.
    static DONE: AtomicU64 = AtomicU64::new(u64::MAX);
    static LAST: Mutex<Option<Reading>> = Mutex::new(None);

    let now = now.saturating_duration_since(*ORIGIN).as_nanos() as u64;
    // Either way: clocks that tests wind on do not agree with each other.
    if now.abs_diff(DONE.load(Ordering::Relaxed)) < OFTEN.as_nanos() as u64 {
        return;
    }
    let Some(mut last) = LAST.try_lock() else {
        return;
    };
    if let Some(reading) = Reading::take() {
        if let Some(last) = *last {
            let slept = SLEPT.load(Ordering::Relaxed); // which changes under this lock only
            let slept = slept.saturating_add(reading.ahead_of(last));
            SLEPT.store(slept.min(MOST_SLEPT), Ordering::Relaxed);
        }
        *last = Some(reading);
        DONE.store(now, Ordering::Relaxed);
    }
}

/// The clocks whose difference tells of a suspended machine. Not tokio's, which tests may stop and wind
/// on.
#[derive(Clone, Copy)]
struct Reading {
    monotonic: Instant,
    wall: SystemTime,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the crate reads the wall clock"
)]
fn wall() -> SystemTime {
    let wall = SystemTime::now();
    #[cfg(test)]
    let wall = wall + tests::ahead();
    wall
}

impl Reading {
    /// None when a pause while reading would look like sleep.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the crate compares the clocks of the machine"
    )]
    fn take() -> Option<Self> {
        const PAUSE: Duration = Duration::from_millis(1);
        let before = Instant::now();
        let wall = wall();
        let monotonic = Instant::now();
        (monotonic - before < PAUSE).then_some(Self { monotonic, wall })
    }

    /// By how many nanoseconds the wall clock has run ahead of the monotonic one since `last`.
    fn ahead_of(self, last: Self) -> u64 {
        const NOISE: Duration = Duration::from_millis(5);
        let monotonic = self.monotonic.saturating_duration_since(last.monotonic);
        let wall = self.wall.duration_since(last.wall).unwrap_or_default();
        match wall.saturating_sub(monotonic) {
            ahead if ahead < NOISE => 0,
            ahead => u64::try_from(ahead.as_nanos()).unwrap_or(0),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the crate draws random numbers"
)]
pub(crate) fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    rand::Rng::fill_bytes(&mut rand::rng(), &mut bytes);
    bytes
}

pub(crate) fn random_u64() -> u64 {
    u64::from_ne_bytes(random())
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::disallowed_methods,
        reason = "what machines do while they are suspended takes real time"
    )]

    use std::{env, process::Command, thread};

    use tokio::time::timeout;

    use super::*;
    use crate::{Coordinator, Guard, LockState, LostReason, MemoryMaster};

    /// By how many milliseconds a test has set the wall clock ahead.
    static AHEAD: AtomicU64 = AtomicU64::new(0);

    pub(super) fn ahead() -> Duration {
        Duration::from_millis(AHEAD.load(Ordering::Relaxed))
    }

    /// Sleeps without the monotonic clock, as far as we can tell.
    async fn suspend(time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        AHEAD.fetch_add(millis, Ordering::Relaxed);
        pass().await;
    }

    /// The clocks are not compared more often than once a millisecond.
    async fn pass() {
        thread::sleep(Duration::from_millis(3));
        tokio::time::advance(Duration::from_millis(2)).await;
    }

    /// How the lock stands, looked at until the clocks could be compared: a look that is itself held up does
    /// not.
    async fn state(guard: &Guard) -> LockState {
        for _ in 0..4 {
            guard.state();
            pass().await;
        }
        guard.state()
    }

    /// Runs `test` under the paused clock in a process of its own: what is slept through goes for all tests
    /// of a process.
    fn alone(name: &str, test: impl Future<Output = ()>) {
        const ALONE: &str = "QUORLOCK_TEST_ALONE";
        if env::var_os(ALONE).is_some() {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build().unwrap();
            return runtime.block_on(test);
        }
        let ended = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                &format!("driver::clock::tests::{name}"),
                "--nocapture",
            ])
            .env(ALONE, "")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        let complained = String::from_utf8_lossy(&ended.stderr);
        let is_well = ended.status.success() && said.contains("1 passed");
        assert!(is_well, "{said}{complained}");
    }

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// The default TTL is 10 s.
    async fn guard(name: &str, is_renewed: bool) -> (Vec<MemoryMaster>, Coordinator, Guard) {
        let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
        let locks = Coordinator::new(&masters).unwrap();
        let mut lock = locks.mutex(name);
        if !is_renewed {
            lock = lock.renewal(crate::Renewal::Off);
        }
        let guard = lock.acquire().await.unwrap();
        (masters, locks, guard)
    }

    #[test]
    fn who_wakes_up_after_the_validity_has_lost_the_lock() {
        alone("who_wakes_up_after_the_validity_has_lost_the_lock", async {
            for is_renewed in [true, false] {
                let (masters, _locks, guard) = guard("r", is_renewed).await;
                tokio::time::sleep(seconds(1)).await;
                assert_eq!(state(&guard).await, LockState::Held);
                suspend(seconds(10)).await;
                let now = state(&guard).await;
                assert_eq!(now, LockState::Lost(LostReason::Expired));
                assert!(!guard.is_valid() && guard.remaining().is_zero());
                let commands = masters[0].commands();
                // The masters have it still, as their clock stood still, too. It is not ours any more.
                assert_eq!(masters[0].keys(), ["r"]);
                guard.extend(seconds(10)).await.unwrap_err();
                tokio::time::sleep(seconds(5)).await;
                assert_eq!(masters[0].commands(), commands);
                guard.release().await.unwrap();
            }
        });
    }

    /// Its timer stands still with the monotonic clock, and is looked after all the same.
    #[test]
    fn who_waits_for_the_loss_hears_of_it_within_a_second_of_waking_up() {
        alone(
            "who_waits_for_the_loss_hears_of_it_within_a_second_of_waking_up",
            async {
                let (_masters, _locks, guard) = guard("r", false).await;
                let early = timeout(seconds(2), guard.lost()).await;
                assert!(early.is_err());
                let (lost, ()) = tokio::join!(timeout(seconds(2), guard.lost()), async {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    suspend(seconds(10)).await;
                });
                assert_eq!(lost.unwrap().reason, LostReason::Expired);
            },
        );
    }

    #[test]
    fn who_wakes_up_in_time_renews_the_lock_within_a_second() {
        alone(
            "who_wakes_up_in_time_renews_the_lock_within_a_second",
            async {
                let (masters, _locks, guard) = guard("r", true).await;
                let commands = masters[0].commands();
                tokio::time::sleep(Duration::from_millis(500)).await;
                suspend(seconds(5)).await;
                assert_eq!(state(&guard).await, LockState::Held);
                assert!(guard.remaining() < seconds(5), "{guard:?}");
                assert_eq!(masters[0].commands(), commands);
                tokio::time::sleep(seconds(1) + Duration::from_millis(10)).await;
                assert_eq!(masters[0].commands(), commands + 1);
                assert_eq!(state(&guard).await, LockState::Held);
                assert!(guard.remaining() > seconds(8), "{guard:?}");
                suspend(seconds(7)).await; // more than was left before
                assert_eq!(state(&guard).await, LockState::Held);
            },
        );
    }

    #[test]
    fn validity_ends_in_the_past_once_it_is_over() {
        alone("validity_ends_in_the_past_once_it_is_over", async {
            let origin = monotonic();
            tokio::time::sleep(seconds(1)).await;
            let (_masters, _locks, guard) = guard("r", false).await;
            let began = monotonic();
            tokio::time::sleep(seconds(1)).await;
            suspend(seconds(4)).await;
            assert_eq!(state(&guard).await, LockState::Held);
            assert_eq!(guard.valid_until(), monotonic() + guard.remaining());
            for hours in [1, 24 * 365 * 50, 24 * 365 * 500] {
                suspend(seconds(3_600 * hours)).await;
                assert!(matches!(state(&guard).await, LockState::Lost(_)));
                assert!(guard.valid_until() <= monotonic());
                assert!(guard.valid_until() >= began - Duration::from_millis(10));
                assert!(guard.valid_until() > origin);
            }
        });
    }

    /// A step of the wall clock does not end what is owed.
    #[test]
    fn a_release_is_owed_when_the_wall_clock_is_set_forward() {
        alone(
            "a_release_is_owed_when_the_wall_clock_is_set_forward",
            async {
                let (masters, locks, guard) = guard("r", false).await;
                guard.settled().await;
                masters[0].inject(crate::Fault::Down);
                tokio::time::sleep(seconds(1)).await;
                guard.release().await.unwrap();
                suspend(seconds(3_600)).await;
                let other = locks.mutex("other").try_acquire().await.unwrap();
                tokio::time::sleep(seconds(2)).await;
                assert_eq!(masters[0].keys(), ["r"]);
                masters[0].inject(crate::Fault::None);
                tokio::time::sleep(seconds(2)).await;
                assert!(!masters[0].keys().contains(&"r".to_owned()));
                drop(other);
                timeout(seconds(60), locks.close()).await.unwrap();
            },
        );
    }

    #[test]
    fn only_a_wall_clock_that_ran_ahead_counts() {
        let origin = Reading {
            monotonic: monotonic(),
            wall: wall(),
        };
        let mut last = origin;
        let mut slept = 0;
        for (monotonic, wall, expected) in [
            (10, 10, 0),
            (20, 80, 60),     // suspended for a minute
            (30, 85, 60),     // set back a little
            (40, -3_600, 60), // set back by an hour
            (50, -3_560, 90), // suspended for half a minute after that
            (50, -3_559, 91),
        ] {
            let distance = Duration::from_secs(i64::unsigned_abs(wall));
            let reading = Reading {
                monotonic: origin.monotonic + Duration::from_secs(monotonic),
                wall: if wall < 0 {
                    origin.wall - distance
                } else {
                    origin.wall + distance
                },
            };
            slept += Duration::from_nanos(reading.ahead_of(last)).as_secs();
            assert_eq!(slept, expected, "{monotonic} {wall}");
            last = reading;
        }
    }
}
