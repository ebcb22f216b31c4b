//! Clocks and random numbers. No other file reads a clock or draws a random number.

#![expect(
    clippy::disallowed_methods,
    reason = "the one place where the crate reads clocks and draws random numbers"
)]

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;

use crate::core::time::{LeaseTick, Tick};
#[cfg(test)]
use crate::sim::Process;

/// Returns the time on the clock that leases use. This clock is the monotonic clock plus the time
/// for which the machine was suspended.
///
/// While a machine is suspended, its monotonic clock stops. The wall clock and the masters' TTLs do
/// not stop. If the wall clock has run ahead of the monotonic clock, the difference counts as time
/// that has passed. Setting the wall clock forward has the same effect, and costs a holder some
/// validity. Setting the wall clock back changes nothing.
///
/// The time limits of masters are on the [`monotonic`] clock. Timers use the clock of leases, and
/// compare the clocks at least once a second. If a test pauses tokio's clock, [`now`]
/// and [`monotonic`] show virtual time.
pub(crate) fn now() -> LeaseTick {
    now_at(monotonic())
}

/// Returns the time on the clock of [`now`], for a caller that has just read the [`monotonic`]
/// clock.
pub(crate) fn now_at(now: Tick) -> LeaseTick {
    now.with(suspensions(|suspensions| suspensions.look(now)))
}

/// Converts an instant of the clock of [`now`] to the [`monotonic`] clock. Returns `least` if the
/// result would be earlier than `least`. For a future instant, the result is right if the machine
/// is not suspended before that instant. An instant that has passed on one clock has passed on the
/// other. For a past instant, the result may not be what the monotonic clock showed at that
/// instant: the machine may have been suspended since, or the wall clock may have been set forward.
pub(crate) fn to_monotonic(at: LeaseTick, least: Tick) -> Tick {
    let slept = suspensions(|suspensions| suspensions.look(monotonic()));
    at.without(slept).max(least)
}

/// Returns how long to sleep before this function is called again, or `None` if the clock of
/// [`now`] has reached `at`. That clock is read at least once a second, because the machine may
/// have been suspended.
pub(crate) fn next_sleep(at: LeaseTick) -> Option<Duration> {
    const LONGEST: Duration = Duration::from_secs(1);
    let left = at.since(now());
    (!left.is_zero()).then(|| left.min(LONGEST))
}

pub(crate) fn monotonic() -> Tick {
    let (now, origin) = (instant(), origin());
    let nanos = |time: Duration| time.as_nanos() as u64;
    Tick::from_nanos(match now.checked_duration_since(origin) {
        Some(after) => Tick::ORIGIN + nanos(after),
        None => Tick::ORIGIN - nanos(origin - now),
    })
}

/// Returns the instant that the [`monotonic`] clock shows as `at`.
pub(crate) fn to_instant(at: Tick) -> Instant {
    let (origin, first) = (origin(), Tick::from_nanos(Tick::ORIGIN));
    // Both fit: `at` was an instant, or is later than one by the time of a lease.
    origin
        .checked_add(at.since(first))
        .and_then(|at_or_first| at_or_first.checked_sub(first.since(at)))
        .unwrap_or(origin)
}

fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

fn instant() -> Instant {
    #[cfg(test)]
    if let Some(now) = tests::ByHand::now() {
        return now;
    }
    #[cfg(test)]
    if let Some(now) = Process::current(|process| process.monotonic()) {
        return now;
    }
    tokio::time::Instant::now().into_std()
}

/// Returns the time of the wall clock in microseconds since 1970. This time is for timestamps that
/// are compared with those of other processes.
pub(crate) fn wall_micros() -> u64 {
    let wall = wall();
    #[cfg(any(test, feature = "test-util"))]
    let wall = as_paused(wall);
    let since = wall.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}

/// Moves a reading of the wall clock by the difference between tokio's clock and the real monotonic
/// clock. If a test pauses tokio's clock, masters in memory move their time of day, too. No two
/// readings in a test are equal, so two clients do not offer the same timestamp.
#[cfg(any(test, feature = "test-util"))]
fn as_paused(wall: SystemTime) -> SystemTime {
    use std::cell::Cell;
    const MICROSECOND: Duration = Duration::from_micros(1);
    thread_local!(static LAST: Cell<SystemTime> = const { Cell::new(SystemTime::UNIX_EPOCH) });
    #[cfg(test)]
    if Process::current(|_| ()).is_some() {
        return wall;
    }
    let (paused, real) = (instant(), Instant::now());
    let shown =
        wall + paused.saturating_duration_since(real) - real.saturating_duration_since(paused);
    let next = LAST.get() + MICROSECOND;
    // Each test that pauses the clock has its own time.
    let is_same_test = next
        .duration_since(shown)
        .is_ok_and(|ahead| ahead.as_secs() == 0);
    LAST.set(if is_same_test { next } else { shown });
    LAST.get()
}

fn suspensions<T>(f: impl FnOnce(&Suspensions) -> T) -> T {
    static MACHINE: Suspensions = Suspensions::new();
    #[cfg(test)]
    if let Some(process) = Process::current(std::sync::Arc::clone) {
        return f(&process.suspensions);
    }
    f(&MACHINE)
}

/// The time for which a machine was suspended.
#[derive(Debug)]
pub(crate) struct Suspensions {
    /// The time of the last comparison, as the number in a [`Tick`].
    compared: AtomicU64,
    /// The result of the last [`wall_at_origin`].
    last: Mutex<Option<SystemTime>>,
    /// The total time for which the monotonic clock has stood still, in nanoseconds. It is at most
    /// [`MOST`](Self::MOST).
    slept: AtomicU64,
}

impl Suspensions {
    /// About 100 years. Any instant can be moved by this time without an overflow. Only tests that
    /// set the wall clock back and forth could exceed this limit.
    const MOST: u64 = 100 * 366 * 24 * 60 * 60 * 1_000_000_000;

    pub(crate) const fn new() -> Self {
        Self {
            compared: AtomicU64::new(u64::MAX),
            last: Mutex::new(None),
            slept: AtomicU64::new(0),
        }
    }

    /// Compares the clocks, and returns the total time for which the monotonic clock has stood
    /// still.
    ///
    /// Does not compare them if the last comparison was less than a millisecond before `now` on the
    /// [`monotonic`] clock. That clock stands still during a suspension, so a suspension may be
    /// noticed up to a millisecond after it ends.
    fn look(&self, now: Tick) -> Duration {
        const INTERVAL: Duration = Duration::from_millis(1);
        let now = now.nanos();
        // `now` may be before the last comparison, because each test that pauses the clock has its
        // own time.
        if now.abs_diff(self.compared.load(Ordering::Relaxed)) >= INTERVAL.as_nanos() as u64 {
            self.compare(now);
        }
        self.total()
    }

    pub(crate) fn total(&self) -> Duration {
        Duration::from_nanos(self.slept.load(Ordering::Relaxed))
    }

    fn compare(&self, now: u64) {
        let Some(mut last) = self.last.try_lock() else {
            return;
        };
        if let Some(wall) = wall_at_origin() {
            self.note(&mut last, wall);
            self.compared.store(now, Ordering::Relaxed);
        }
    }

    /// Notes another result of [`wall_at_origin`] in `last`, which is locked. If the result has
    /// grown, the wall clock has run ahead of the monotonic clock.
    fn note(&self, last: &mut Option<SystemTime>, wall: SystemTime) {
        const NOISE: Duration = Duration::from_millis(5);
        let ahead = last.replace(wall).map(|last| wall.duration_since(last));
        if let Some(Ok(ahead)) = ahead
            && ahead >= NOISE
        {
            let slept = (self.total() + ahead).as_nanos().min(Self::MOST.into());
            self.slept.store(slept as u64, Ordering::Relaxed);
        }
    }
}

fn wall() -> SystemTime {
    #[cfg(test)]
    if let Some(now) = Process::current(|process| process.wall()) {
        return now;
    }
    let wall = SystemTime::now();
    #[cfg(test)]
    let wall = wall + tests::ahead();
    wall
}

/// Returns what the wall clock showed, or would have shown, at the origin of the monotonic clock.
/// Two results are compared to find out whether the machine was suspended in between. Tests may
/// pause and advance tokio's clock, but not these clocks of the operating system. Returns `None` if
/// the reading takes so long that it could look like a suspension.
fn wall_at_origin() -> Option<SystemTime> {
    const PAUSE: Duration = Duration::from_millis(1);
    let at_origin =
        |now: Instant, wall: SystemTime| wall.checked_sub(now.saturating_duration_since(origin()));
    #[cfg(test)]
    if let Some((now, wall)) = Process::current(|process| (process.monotonic(), process.wall())) {
        return at_origin(now, wall);
    }
    let before = Instant::now();
    let wall = wall();
    let now = Instant::now();
    at_origin(now, wall).filter(|_| now - before < PAUSE)
}

pub(crate) fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    #[cfg(test)]
    if Process::current(|process| process.random(&mut bytes)).is_some() {
        return bytes;
    }
    rand::Rng::fill_bytes(&mut rand::rng(), &mut bytes);
    bytes
}

pub(crate) fn random_u64() -> u64 {
    u64::from_ne_bytes(random())
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(
        clippy::disallowed_methods,
        reason = "a suspended machine takes real time"
    )]

    use std::{cell::Cell, env, process::Command, sync::LazyLock, thread};

    use testkit::times::seconds;
    use tokio::time::timeout;

    use super::*;
    use crate::{Coordinator, Guard, LockState, LostReason, MemoryMaster};

    /// A monotonic clock that a test sets by hand, for its own thread, as long as this value
    /// exists.
    pub(crate) struct ByHand;

    thread_local!(static ELAPSED: Cell<Option<Duration>> = const { Cell::new(None) });

    impl ByHand {
        pub(crate) fn start() -> Self {
            Self::set(Duration::ZERO);
            Self
        }

        pub(crate) fn set(elapsed: Duration) {
            ELAPSED.set(Some(elapsed));
        }

        pub(crate) fn pass(time: Duration) {
            Self::set(Self::elapsed() + time);
        }

        pub(crate) fn elapsed() -> Duration {
            ELAPSED.get().unwrap_or_default()
        }

        pub(super) fn now() -> Option<Instant> {
            static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
            ELAPSED.get().map(|elapsed| *ORIGIN + elapsed)
        }
    }

    impl Drop for ByHand {
        fn drop(&mut self) {
            ELAPSED.set(None);
        }
    }

    /// The milliseconds by which a test has set the wall clock forward.
    static AHEAD: AtomicU64 = AtomicU64::new(0);

    pub(super) fn ahead() -> Duration {
        Duration::from_millis(AHEAD.load(Ordering::Relaxed))
    }

    /// Simulates a suspension of the machine: the wall clock moves on, and the monotonic clock
    /// stands still.
    async fn suspend(time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        AHEAD.fetch_add(millis, Ordering::Relaxed);
        pass().await;
    }

    /// Lets enough time pass for the clocks to be compared again.
    async fn pass() {
        thread::sleep(Duration::from_millis(3));
        tokio::time::advance(Duration::from_millis(2)).await;
    }

    /// Returns the state of the lock after the clocks were compared. Tries several comparisons,
    /// because a reading of the clocks that takes too long is not used.
    async fn state(guard: &Guard) -> LockState {
        for _ in 0..4 {
            guard.state();
            pass().await;
        }
        guard.state()
    }

    /// Runs `test` with a paused clock in a process of its own, because a simulated suspension
    /// affects all tests of a process.
    fn alone(name: &str, test: impl Future<Output = ()>) {
        const ALONE: &str = "QUORLOCK_TEST_ALONE";
        if env::var_os(ALONE).is_some() {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build().unwrap();
            return runtime.block_on(test);
        }
        let ended = Command::new(env::current_exe().unwrap())
            .args(["--exact", &format!("clock::tests::{name}"), "--nocapture"])
            .env(ALONE, "")
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&ended.stdout);
        let stderr = String::from_utf8_lossy(&ended.stderr);
        let has_passed = ended.status.success() && stdout.contains("1 passed");
        assert!(has_passed, "{stdout}{stderr}");
    }

    /// Acquires a lock with the default TTL, 10 s.
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
    fn a_lock_is_lost_when_the_machine_wakes_up_after_its_validity() {
        alone(
            "a_lock_is_lost_when_the_machine_wakes_up_after_its_validity",
            async {
                for is_renewed in [true, false] {
                    let (masters, _locks, guard) = guard("r", is_renewed).await;
                    tokio::time::sleep(seconds(1)).await;
                    assert_eq!(state(&guard).await, LockState::Held);
                    suspend(seconds(10)).await;
                    let now = state(&guard).await;
                    assert_eq!(now, LockState::Lost(LostReason::Expired));
                    assert!(!guard.is_valid() && guard.remaining().is_zero());
                    let commands = masters[0].commands();
                    // The lock is lost although the masters still have the key. Their clock stood
                    // still, too.
                    assert_eq!(masters[0].keys(), ["r"]);
                    guard.extend(seconds(10)).await.unwrap_err();
                    tokio::time::sleep(seconds(5)).await;
                    assert_eq!(masters[0].commands(), commands);
                    guard.release().await.unwrap();
                }
            },
        );
    }

    /// The timer of `lost` uses a clock that a suspension stops. `lost` still resolves in time.
    #[test]
    fn lost_resolves_within_a_second_of_waking_up() {
        alone("lost_resolves_within_a_second_of_waking_up", async {
            let (_masters, _locks, guard) = guard("r", false).await;
            let early = timeout(seconds(2), guard.lost()).await;
            assert!(early.is_err());
            let (lost, ()) = tokio::join!(timeout(seconds(2), guard.lost()), async {
                tokio::time::sleep(Duration::from_millis(500)).await;
                suspend(seconds(10)).await;
            });
            assert_eq!(lost.unwrap().reason, LostReason::Expired);
        });
    }

    #[test]
    fn a_lock_is_renewed_within_a_second_of_waking_up_in_time() {
        alone(
            "a_lock_is_renewed_within_a_second_of_waking_up_in_time",
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
                suspend(seconds(7)).await; // longer than the rest of the first lease
                assert_eq!(state(&guard).await, LockState::Held);
            },
        );
    }

    #[test]
    fn validity_ends_in_the_past_once_it_is_over() {
        alone("validity_ends_in_the_past_once_it_is_over", async {
            let epoch = instant();
            tokio::time::sleep(seconds(1)).await;
            let (_masters, _locks, guard) = guard("r", false).await;
            let began = instant();
            tokio::time::sleep(seconds(1)).await;
            suspend(seconds(4)).await;
            assert_eq!(state(&guard).await, LockState::Held);
            assert_eq!(guard.valid_until(), instant() + guard.remaining());
            for hours in [1, 24 * 365 * 50, 24 * 365 * 500] {
                suspend(seconds(3_600 * hours)).await;
                assert!(matches!(state(&guard).await, LockState::Lost(_)));
                assert!(guard.valid_until() <= instant());
                assert!(guard.valid_until() >= began - Duration::from_millis(10));
                assert!(guard.valid_until() > epoch);
            }
        });
    }

    /// A step of the wall clock does not end a pending release.
    #[test]
    fn a_release_is_owed_when_the_wall_clock_is_set_forward() {
        alone(
            "a_release_is_owed_when_the_wall_clock_is_set_forward",
            async {
                let (masters, locks, guard) = guard("r", false).await;
                guard.all_votes().await;
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
                assert!(locks.close_within(seconds(60)).await);
            },
        );
    }

    #[test]
    fn only_a_wall_clock_that_ran_ahead_counts() {
        let (suspensions, mut last) = (Suspensions::new(), None);
        for (monotonic, wall, expected) in [
            (0, 0, 0),
            (10, 10, 0),
            (20, 80, 60),     // suspended for a minute
            (30, 85, 60),     // set back a little
            (40, -3_600, 60), // set back by an hour
            (50, -3_560, 90), // suspended for half a minute after that
            (50, -3_559, 91),
        ] {
            let at_origin = 10_000_u64.saturating_add_signed(wall - monotonic);
            suspensions.note(&mut last, SystemTime::UNIX_EPOCH + seconds(at_origin));
            assert_eq!(suspensions.total(), seconds(expected), "{monotonic} {wall}");
        }
    }
}
