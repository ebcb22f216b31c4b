//! Settings: each set of settings is refused with an error, or gives a coordinator that works.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use quorlock::{
    __internals::{is_reentrant, plain},
    Builder, Coordinator, Lock, LockState, MemoryMaster, Quarantine, Reason, Renewal,
};
use tokio::time::{Instant, sleep};

use super::{
    paused_runtime,
    session::{AnyKind, AnyQuarantine, within},
};

pub fn run(input: &[u8]) {
    if let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(input)) {
        paused_runtime().block_on(input.run());
    }
}

#[derive(Arbitrary, Debug)]
struct Input {
    masters: u8,
    ttl: Option<Time>,
    response_timeout: Option<Time>,
    connect_timeout: Option<Time>,
    drift_ppm: Option<u32>,
    retry_delay: Option<(Time, Time)>,
    poll_interval: Option<(Time, Time)>,
    renewal: Option<Renewing>,
    silent_waiter_timeout: Option<Time>,
    quarantine: Option<AnyQuarantine>,
    max_ttl: Option<Time>,
    key_template: Option<String>,
    lock: Settings,
}

/// The settings of one lock.
#[derive(Arbitrary, Debug)]
struct Settings {
    name: String,
    kind: AnyKind,
    is_fenced: bool,
    ttl: Option<Time>,
    renewal: Option<Renewing>,
    extension: Time,
    /// The time for which the guard is kept.
    hold: Time,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Time {
    Any(Duration),
    Max,
    Micros(u16),
    Millis(u16),
    Seconds(u16),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Renewing {
    Off,
    Unlimited,
    UpTo(Time),
}

impl Time {
    fn duration(self) -> Duration {
        match self {
            Self::Any(time) => time,
            Self::Max => Duration::MAX,
            Self::Micros(count) => Duration::from_micros(count.into()),
            Self::Millis(count) => Duration::from_millis(count.into()),
            Self::Seconds(count) => Duration::from_secs(count.into()),
        }
    }
}

impl Renewing {
    fn renewal(self) -> Renewal {
        match self {
            Self::Off => Renewal::Off,
            Self::Unlimited => Renewal::Unlimited,
            Self::UpTo(time) => Renewal::UpTo(time.duration()),
        }
    }
}

/// The most time that a call on healthy masters in memory may take. They answer at once.
const BOUND: Duration = Duration::from_millis(10);

impl Input {
    async fn run(&self) {
        let masters: Vec<_> = (0..self.masters % 70)
            .map(|_| MemoryMaster::new())
            .collect();
        let locks = match self.builder(&masters).build() {
            Ok(locks) => locks,
            Err(error) => return assert_ne!(error.to_string(), ""),
        };
        sleep(BOUND).await; // after this, all masters are connected
        let owner = locks.new_owner();
        let lock = self.lock.lock(&locks, &owner);
        let acquired = within("try_acquire", BOUND, lock.try_acquire()).await;
        match acquired {
            Ok(guard) => self.hold(&lock, guard, &masters).await,
            Err(error) => match error.reason() {
                Reason::Config(_) => {}
                Reason::Quarantined { .. } if self.is_strict() => {}
                _ => panic!("the masters are healthy: {error}"),
            },
        }
        drop(lock);
        within("close", BOUND, locks.close()).await;
    }

    async fn hold(&self, lock: &Lock, guard: quorlock::Guard, masters: &[MemoryMaster]) {
        assert!(
            guard.is_valid() && guard.validity() <= self.ttl(),
            "{guard:?}"
        );
        let settled = within("settled", BOUND, guard.all_votes()).await;
        assert_eq!(settled.granted_count(), masters.len(), "{settled}");
        let again = within("again", BOUND, lock.try_acquire()).await;
        assert_eq!(again.is_ok(), is_reentrant(self.lock.kind.0), "{again:?}");
        drop(again);
        let limit = Duration::from_millis(20);
        let waiting = lock.acquire_within(limit);
        drop(within("acquire_within", limit + BOUND, waiting).await);
        let extension = guard.extend(self.lock.extension.duration());
        drop(within("extend", BOUND, extension).await);
        // Without a bound, renewals of a short lease over a long time would take all day.
        let most = guard
            .validity()
            .saturating_mul(3)
            .min(Duration::from_secs(3_600));
        let start = Instant::now();
        sleep(self.lock.hold.duration().min(most)).await;
        if guard.state() == LockState::Held {
            assert!(guard.is_valid(), "{guard:?} after {:?}", start.elapsed());
            let held = within("is_held", BOUND, lock.is_held()).await;
            assert!(held.is_ok_and(|is_held| is_held));
        }
        drop(within("release", BOUND, guard.release()).await);
    }

    fn builder(&self, masters: &[MemoryMaster]) -> Builder {
        let mut builder = Coordinator::builder().masters(masters);
        macro_rules! set {
            ($($setting:ident: $($value:expr),+;)*) => {$(
                if let Some($setting) = &self.$setting {
                    builder = builder.$setting($($value),+);
                }
            )*};
        }
        set! {
            ttl: ttl.duration();
            response_timeout: response_timeout.duration();
            connect_timeout: connect_timeout.duration();
            drift_ppm: *drift_ppm;
            retry_delay: retry_delay.0.duration()..=retry_delay.1.duration();
            poll_interval: poll_interval.0.duration()..=poll_interval.1.duration();
            renewal: renewal.renewal();
            silent_waiter_timeout: silent_waiter_timeout.duration();
            quarantine: quarantine.0;
            max_ttl: max_ttl.duration();
            key_template: key_template;
        }
        builder
    }

    /// Returns the TTL of the lock.
    fn ttl(&self) -> Duration {
        let ttl = self.lock.ttl.or(self.ttl);
        ttl.map_or(Duration::from_secs(10), Time::duration)
    }

    fn is_strict(&self) -> bool {
        matches!(self.quarantine, Some(AnyQuarantine(Quarantine::Strict)))
    }
}

impl Settings {
    fn lock(&self, locks: &Coordinator, owner: &quorlock::Owner) -> Lock {
        let mut lock = locks.of_kind(self.kind.0, &self.name, owner);
        if let Some(ttl) = self.ttl {
            lock = lock.ttl(ttl.duration());
        }
        if let Some(renewal) = self.renewal {
            lock = lock.renewal(renewal.renewal());
        }
        if self.is_fenced {
            plain(lock.fenced())
        } else {
            lock
        }
    }
}
