//! Timestamps for tickets and fencing tokens, by the clocks of the masters.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use super::clock;
use crate::user_code::shielded;

/// Hands out timestamps in microseconds since 1970. Each is larger than all before it.
#[derive(Debug, Default)]
pub(crate) struct Timestamps {
    /// The newest timestamp that was handed out or seen.
    last: AtomicU64,
    /// By how many microseconds the clocks of the masters are ahead of the local one.
    pub(super) offset: AtomicI64,
}

impl Timestamps {
    /// Returns the time of the masters, as far as it is known, or the first free number after the
    /// newest timestamp if that is later.
    pub(crate) fn next(&self) -> u64 {
        let offset = self.offset.load(Ordering::Relaxed);
        let now = clock::wall_micros().saturating_add_signed(offset);
        let after = |last: u64| now.max(last.saturating_add(1));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let last = self.last.fetch_update(set, fetch, |last| Some(after(last)));
        last.map_or(now, after)
    }

    /// Notes a timestamp that the masters have seen.
    pub(crate) fn note(&self, timestamp: u64) {
        self.last.fetch_max(timestamp, Ordering::Relaxed);
    }

    /// Goes by the masters from now on, whose clocks show `theirs`.
    pub(crate) fn correct(&self, theirs: Duration) {
        let theirs = i64::try_from(theirs.as_micros()).unwrap_or(i64::MAX);
        let ours = i64::try_from(clock::wall_micros()).unwrap_or(i64::MAX);
        let offset_us = theirs.saturating_sub(ours);
        let before = self.offset.swap(offset_us, Ordering::Relaxed);
        // A smaller difference only means that a ticket took long to arrive.
        if offset_us.abs_diff(before) > 500_000 {
            shielded(|| {
                tracing::warn!(
                    offset_us,
                    "the local clock differs from the clocks of the masters: using theirs"
                );
            });
        }
        // A timestamp from a clock that was ahead must not hold back those from the right one.
        self.last.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        future::Future,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        task::Poll,
        time::Duration,
    };

    use parking_lot::Mutex;
    use tokio::task::JoinSet;

    use crate::{AcquireError, Coordinator, Fault, Guard, Kind, Lock, MemoryMaster, driver::clock};

    const HOUR: i64 = 3_600_000_000;
    const KINDS: [Kind; 3] = [Kind::Mutex, Kind::Reentrant, Kind::Fair];

    fn lock(kind: Kind, locks: &Coordinator) -> Lock {
        match kind {
            Kind::Mutex => locks.mutex("r"),
            Kind::Reentrant => locks.reentrant("r", &locks.owner()),
            Kind::Fair => locks.fair("r", &locks.owner()),
        }
        .fenced()
    }

    fn masters(count: usize) -> Vec<MemoryMaster> {
        (0..count).map(|_| MemoryMaster::new()).collect()
    }

    fn set_clock(locks: &Coordinator, ahead: i64) {
        let offset = &locks.engine().masters().timestamps.offset;
        offset.store(ahead, Ordering::Relaxed);
    }

    /// How many rounds the first acquisition takes, the next one after that of another client whose clock is right,
    /// and the one after that.
    #[tokio::test(start_paused = true)]
    async fn what_a_clock_that_is_off_costs() {
        for kind in KINDS {
            for (ahead, rounds) in [
                (0, [1, 1, 1]),
                (900_000, [1, 2, 1]),  // the other one's is behind the counter
                (-900_000, [1, 1, 2]), // and this one's
                (HOUR, [2, 1, 1]),     // it goes by the masters' from then on
                (-HOUR, [2, 1, 1]),
            ] {
                let masters = masters(3);
                let (off, right) = (
                    Coordinator::new(&masters).unwrap(),
                    Coordinator::new(&masters).unwrap(),
                );
                tokio::time::sleep(Duration::from_millis(1)).await;
                set_clock(&off, ahead);
                let mut last = 0;
                for (locks, rounds) in [&off, &right, &off].into_iter().zip(rounds) {
                    let guard = lock(kind, locks).acquire().await.unwrap();
                    let token = guard.fencing_token().unwrap();
                    assert!(token > last, "{kind} {ahead}: {token} after {last}");
                    // A waiter for a fair lock begins anew, with another ticket.
                    let rounds = if kind == Kind::Fair && ahead.abs() == HOUR {
                        1
                    } else {
                        rounds
                    };
                    assert_eq!(guard.rounds(), rounds, "{kind} {ahead}");
                    last = token;
                    guard.release().await.unwrap();
                }
            }
        }
    }

    /// Whoever gives up a wrong candidate takes it back from where it never was.
    #[tokio::test(start_paused = true)]
    async fn a_client_whose_clock_is_wrong_does_not_move_the_counters() {
        for kind in KINDS {
            let masters = masters(3);
            let (off, right) = (
                Coordinator::new(&masters).unwrap(),
                Coordinator::new(&masters).unwrap(),
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
            set_clock(&off, HOUR);
            let attempt = lock(kind, &off);
            let mut attempt = Box::pin(attempt.acquire());
            let dropped = std::future::poll_fn(|cx| {
                assert!(attempt.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            });
            dropped.await;
            drop(attempt);
            tokio::time::sleep(Duration::from_millis(1)).await;
            let guard = lock(kind, &right).acquire().await.unwrap();
            assert_eq!(guard.rounds(), 1, "{kind}");
            assert!(guard.fencing_token().unwrap() <= clock::wall_micros());
        }
    }

    /// A round is lost before a majority have said that the candidate is late, where one master says nothing.
    #[tokio::test(start_paused = true)]
    async fn who_is_next_bids_again_while_a_master_is_down() {
        for (size, down, off) in [
            (3, 0, -900_000),
            (3, 1, -900_000),
            (5, 1, -900_000),
            (3, 1, -HOUR),
            (5, 1, HOUR),
        ] {
            for kind in KINDS {
                let masters = masters(size);
                let (right, behind) = (
                    Coordinator::new(&masters).unwrap(),
                    Coordinator::new(&masters).unwrap(),
                );
                masters[..down]
                    .iter()
                    .for_each(|master| master.inject(Fault::Down));
                for (number, master) in masters[down..].iter().enumerate() {
                    master.inject(Fault::Delay(Duration::from_millis(1 + number as u64)));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                set_clock(&behind, off);
                let held = lock(kind, &right).acquire().await.unwrap();
                let waiter = lock(kind, &behind);
                let served = async {
                    let _guard = waiter.acquire().await.unwrap();
                    clock::now()
                };
                let released = async {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    held.release().await.unwrap();
                    clock::now()
                };
                let (served, released) = tokio::join!(served, released);
                let took = served.saturating_duration_since(released);
                assert!(
                    took < Duration::from_millis(50),
                    "{size} {down} {off} {kind}: {took:?}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_master_whose_clock_is_off_is_no_obstacle() {
        for kind in KINDS {
            for ahead in [-HOUR, -1_500_000, 1_500_000, HOUR] {
                let masters = masters(3);
                let locks = Coordinator::new(&masters).unwrap();
                let mut last = 0;
                for turn in 0..9 {
                    masters[turn % 3].set_clock(if turn < 6 { ahead } else { 0 });
                    masters[(turn + 2) % 3].set_clock(0);
                    let guard = lock(kind, &locks).acquire().await.unwrap();
                    let token = guard.fencing_token().unwrap();
                    assert!(token > last, "{kind} {ahead}: {token} after {last}");
                    last = token;
                    guard.release().await.unwrap();
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_grow_when_all_masters_clocks_go_back() {
        for kind in KINDS {
            let masters = masters(3);
            let locks = Coordinator::new(&masters).unwrap();
            let mut last = 0;
            for turn in 0..20 {
                if turn % 5 == 4 {
                    for master in &masters {
                        master.set_clock(-HOUR * turn);
                    }
                }
                let guard = lock(kind, &locks).acquire().await.unwrap();
                let token = guard.fencing_token().unwrap();
                assert!(token > last, "{kind} {turn}: {token} after {last}");
                last = token;
                guard.release().await.unwrap();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_masters_do_not_agree_on_the_time_a_limit_is_kept() {
        for kind in KINDS {
            let masters = masters(3);
            for (hours, master) in (0..).zip(&masters) {
                master.set_clock(hours * HOUR);
                master.inject(Fault::Delay(Duration::from_millis(1)));
            }
            let locks = Coordinator::new(&masters).unwrap();
            let lock = lock(kind, &locks);
            let limited = lock.acquire_within(Duration::from_secs(5));
            let ended = tokio::time::timeout(Duration::from_secs(6), limited).await;
            let error = ended.expect("it does not end").unwrap_err();
            assert!(matches!(error, AcquireError::Deadline { .. }), "{error}");
            let commands = masters[0].commands();
            assert!(commands < 400, "{kind}: {commands} in 5 s");
        }
    }

    /// What has been seen of a lock's tokens.
    #[derive(Default)]
    struct Seen {
        /// The largest of those whose acquisition has returned.
        largest: AtomicU64,
        all: Mutex<BTreeSet<u64>>,
    }

    impl Seen {
        fn note(&self, guard: &Guard, before: u64) {
            let token = guard.fencing_token().unwrap();
            assert!(token > before, "{token} after {before}");
            self.largest.fetch_max(token, Ordering::SeqCst);
            assert!(self.all.lock().insert(token), "{token} twice");
        }
    }

    /// Sixteen processes, as it were, with tasks that all want one lock, which from time to time is deleted under
    /// its holder.
    async fn contend(kind: Kind, turns: usize) {
        const PROCESSES: i64 = 16;
        const TASKS: usize = 4;
        let masters = masters(5);
        let seen = Arc::new(Seen::default());
        let mut tasks = JoinSet::new();
        for process in 0..PROCESSES {
            let locks = Coordinator::builder()
                .masters(&masters)
                .retry_delay(Duration::from_millis(1), Duration::from_millis(5))
                .build()
                .unwrap();
            set_clock(
                &locks,
                match process {
                    0 => HOUR,
                    1 => -HOUR,
                    _ => (process - 2) * 1_800_000 / 13 - 900_000,
                },
            );
            for task in 0..TASKS {
                let (lock, locks) = (lock(kind, &locks), locks.clone());
                let (seen, masters) = (seen.clone(), masters.clone());
                tasks.spawn(async move {
                    for turn in 0..turns {
                        let before = seen.largest.load(Ordering::SeqCst);
                        let guard = lock.acquire().await.unwrap();
                        seen.note(&guard, before);
                        if (turn + task) % 8 == 7 {
                            // Exclusion is gone, and the next one comes before the release.
                            masters.iter().for_each(|master| master.delete("r"));
                            tokio::time::sleep(Duration::from_millis(2)).await;
                        }
                        if turn == turns / 2 && task == 0 {
                            set_clock(&locks, -HOUR); // it jumps back
                        }
                        let _ = guard.release().await;
                    }
                });
            }
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        let count = PROCESSES as usize * TASKS * turns;
        assert_eq!(seen.all.lock().len(), count);
    }

    #[tokio::test(start_paused = true)]
    async fn no_token_is_drawn_twice_or_late_by_clients_whose_clocks_are_off() {
        for kind in KINDS {
            contend(kind, 20).await;
        }
    }

    /// A million: `cargo test --release --lib a_million -- --ignored`, takes some minutes.
    #[tokio::test(start_paused = true)]
    #[ignore = "takes minutes"]
    async fn a_million_tokens_of_clients_whose_clocks_are_off() {
        for kind in KINDS {
            contend(kind, 5_300).await;
        }
    }
}
