//! Timestamps for tickets and fencing tokens. They follow the clocks of the masters.

use std::{mem, time::Duration};

use parking_lot::Mutex;

use crate::{clock, observe::LockObserver};

/// A source of timestamps in microseconds since 1970. Each timestamp is larger than all timestamps
/// that were handed out since the last correction.
#[derive(Debug, Default)]
pub(crate) struct Timestamps {
    /// The largest timestamp that was handed out since the last correction, and the microseconds by
    /// which the clocks of the masters are ahead of the local clock.
    last_and_offset: Mutex<(u64, i64)>,
}

impl Timestamps {
    /// Returns the time of the masters, estimated from the local clock. If the last timestamp is
    /// not earlier than this time, returns the last timestamp plus one.
    pub(crate) fn next(&self) -> u64 {
        let (last, offset) = &mut *self.last_and_offset.lock();
        let now = clock::wall_micros().saturating_add_signed(*offset);
        *last = now.max(last.saturating_add(1));
        *last
    }

    /// Follows the clocks of the masters from now on. At this moment, these clocks show `theirs`.
    pub(crate) fn correct(&self, theirs: Duration, observer: &LockObserver) {
        let theirs = i64::try_from(theirs.as_micros()).unwrap_or(i64::MAX);
        let ours = i64::try_from(clock::wall_micros()).unwrap_or(i64::MAX);
        let offset_us = theirs.saturating_sub(ours);
        let before = self.follow(offset_us);
        // A smaller difference need not come from the clocks: a ticket may have taken long to
        // arrive.
        if offset_us.abs_diff(before) > 500_000 {
            observer.clock_differs(offset_us);
        }
    }

    /// Sets the offset of the masters' clocks, and returns the one before. The last timestamp may
    /// come from a clock that was ahead, so the next timestamps may be smaller.
    pub(in crate::driver) fn follow(&self, offset: i64) -> i64 {
        mem::replace(&mut *self.last_and_offset.lock(), (0, offset)).1
    }

    #[cfg(test)]
    pub(in crate::driver) fn offset(&self) -> i64 {
        self.last_and_offset.lock().1
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

    use crate::{Coordinator, Fault, FencedGuard, Lock, LockKind, MemoryMaster, clock};

    const HOUR: i64 = 3_600_000_000;
    fn lock(kind: LockKind, locks: &Coordinator) -> Lock<FencedGuard> {
        locks.of_kind(kind, "r", &locks.new_owner()).fenced()
    }

    fn masters(count: usize) -> Vec<MemoryMaster> {
        (0..count).map(|_| MemoryMaster::new()).collect()
    }

    fn set_clock(locks: &Coordinator, ahead: i64) {
        locks.context().timestamps.follow(ahead);
    }

    /// The table lists the numbers of rounds of three acquisitions. A client with a wrong clock
    /// makes the first and the third one. A client with a right clock makes the second one.
    #[tokio::test(start_paused = true)]
    async fn a_wrong_clock_costs_a_round_or_two() {
        for kind in LockKind::ALL {
            for (ahead, rounds) in [
                (0, [1, 1, 1]),
                (500_000, [1, 2, 1]),  // the counter is ahead of the right clock
                (-500_000, [1, 1, 2]), // the counter is ahead of the wrong clock
                (HOUR, [2, 1, 1]),     // the masters correct the wrong clock
                (-HOUR, [2, 1, 1]),
            ] {
                let masters = masters(3);
                let [off, right] = [(); 2].map(|()| Coordinator::new(&masters).unwrap());
                tokio::time::sleep(Duration::from_millis(1)).await;
                set_clock(&off, ahead);
                let mut last = 0;
                for (locks, rounds) in [&off, &right, &off].into_iter().zip(rounds) {
                    let guard = lock(kind, locks).acquire().await.unwrap();
                    let token = u64::from(guard.token());
                    assert!(token > last, "{kind} {ahead}: {token} after {last}");
                    // After a step of an hour, a waiter in a queue starts again with another
                    // ticket. The count of rounds starts again, too.
                    let rounds = if kind.has_queue() && ahead.abs() == HOUR {
                        1
                    } else {
                        rounds
                    };
                    assert_eq!(guard.rounds(), rounds, "{kind} {ahead}");
                    last = token;
                    guard.release().await.unwrap();
                    // The loser of a round for a permit offers a candidate that is up to 4 ms
                    // larger than necessary.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }

    /// A rival's fast clock has raised the counter of one lock. A client with a right clock takes
    /// that lock. The next ticket of this client is not ahead of time.
    #[tokio::test(start_paused = true)]
    async fn a_counter_that_is_ahead_of_time_moves_no_ticket() {
        let masters = masters(3);
        let [fast, right] = [(); 2].map(|()| Coordinator::new(&masters).unwrap());
        tokio::time::sleep(Duration::from_millis(1)).await;
        set_clock(&fast, 900_000);
        for locks in [&fast, &right] {
            let guard = lock(LockKind::Mutex, locks).acquire().await.unwrap();
            guard.release().await.unwrap();
        }
        let ticket = right.context().timestamps.next();
        assert!(ticket < clock::wall_micros() + 100_000);
    }

    /// A client with a wrong clock drops its attempt. The token that the attempt offered does not
    /// raise the counters.
    #[tokio::test(start_paused = true)]
    async fn a_client_with_a_wrong_clock_does_not_raise_the_counters() {
        for kind in LockKind::ALL {
            let masters = masters(3);
            let [off, right] = [(); 2].map(|()| Coordinator::new(&masters).unwrap());
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
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(u64::from(guard.token()) <= clock::wall_micros());
        }
    }

    /// If one master does not answer, a round is lost before a majority of masters have said that
    /// the candidate is too low.
    #[tokio::test(start_paused = true)]
    async fn the_next_waiter_raises_its_ballot_while_a_master_is_down() {
        for (size, down, off) in [
            (3, 0, -900_000),
            (3, 1, -900_000),
            (5, 1, -900_000),
            (3, 1, -HOUR),
            (5, 1, HOUR),
        ] {
            for kind in LockKind::ALL {
                let masters = masters(size);
                let [right, behind] = [(); 2].map(|()| Coordinator::new(&masters).unwrap());
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
                let took = served.since(released);
                assert!(
                    took < Duration::from_millis(50),
                    "{size} {down} {off} {kind}: {took:?}"
                );
            }
        }
    }

    /// One master is down, one says that the candidate is below its counter, and one says that the
    /// time in the candidate is wrong. Neither answer alone has a majority.
    #[tokio::test(start_paused = true)]
    async fn a_counter_and_a_clock_are_a_majority_together() {
        for kind in LockKind::ALL {
            let masters = masters(3);
            let [right, behind] = [(); 2].map(|()| Coordinator::new(&masters).unwrap());
            masters[0].inject(Fault::Down);
            masters[1].inject(Fault::Down);
            tokio::time::sleep(Duration::from_millis(50)).await;
            set_clock(&behind, -HOUR);
            lock(kind, &right).try_acquire().await.unwrap_err();
            masters[1].inject(Fault::None);
            tokio::time::sleep(Duration::from_secs(2)).await;
            let asked = clock::now();
            let limit = Duration::from_secs(60);
            let _guard = lock(kind, &behind).acquire_within(limit).await.unwrap();
            let took = clock::now().since(asked);
            assert!(took < Duration::from_millis(50), "{kind}: {took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_master_with_a_wrong_clock_is_no_obstacle() {
        for kind in LockKind::ALL {
            for ahead in [-HOUR, -1_500_000, 1_500_000, HOUR] {
                let masters = masters(3);
                let locks = Coordinator::new(&masters).unwrap();
                let mut last = 0;
                for turn in 0..9 {
                    masters[turn % 3].set_clock(if turn < 6 { ahead } else { 0 }, 0);
                    masters[(turn + 2) % 3].set_clock(0, 0);
                    let guard = lock(kind, &locks).acquire().await.unwrap();
                    let token = u64::from(guard.token());
                    assert!(token > last, "{kind} {ahead}: {token} after {last}");
                    last = token;
                    guard.release().await.unwrap();
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_increase_when_the_clocks_of_all_masters_go_back() {
        for kind in LockKind::ALL {
            let masters = masters(3);
            let locks = Coordinator::new(&masters).unwrap();
            let mut last = 0;
            for turn in 0..20 {
                if turn % 5 == 4 {
                    for master in &masters {
                        master.set_clock(-HOUR * turn, 0);
                    }
                }
                let guard = lock(kind, &locks).acquire().await.unwrap();
                let token = u64::from(guard.token());
                assert!(token > last, "{kind} {turn}: {token} after {last}");
                last = token;
                guard.release().await.unwrap();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn acquire_within_ends_in_time_if_masters_disagree_on_the_time() {
        for kind in LockKind::ALL {
            let masters = masters(3);
            for (hours, master) in (0..).zip(&masters) {
                master.set_clock(hours * HOUR, 0);
                master.inject(Fault::Delay(Duration::from_millis(1)));
            }
            let locks = Coordinator::new(&masters).unwrap();
            let lock = lock(kind, &locks);
            let limited = lock.acquire_within(Duration::from_secs(5));
            let ended = tokio::time::timeout(Duration::from_secs(6), limited).await;
            let error = ended.expect("acquire_within did not end").unwrap_err();
            assert!(error.to_string().starts_with("gave up"), "{error}");
            let commands = masters[0].commands();
            assert!(commands < 400, "{kind}: {commands} in 5 s");
        }
    }

    /// The fencing tokens that a lock has given so far.
    #[derive(Default)]
    struct Seen {
        /// The largest token of an acquisition that has returned.
        largest: AtomicU64,
        all: Mutex<BTreeSet<u64>>,
    }

    impl Seen {
        fn note(&self, guard: &FencedGuard, before: u64) {
            let token = u64::from(guard.token());
            assert!(token > before, "{token} after {before}");
            self.largest.fetch_max(token, Ordering::SeqCst);
            assert!(self.all.lock().insert(token), "{token} twice");
        }
    }

    /// Simulates sixteen processes. In each, four tasks contend for one lock. From time to time, a
    /// task deletes the lock that it holds.
    async fn contend(kind: LockKind) {
        const PROCESSES: i64 = 16;
        const TASKS: usize = 4;
        const TURNS: usize = 20;
        let masters = masters(5);
        let seen = Arc::new(Seen::default());
        let mut tasks = JoinSet::new();
        for process in 0..PROCESSES {
            let locks = Coordinator::builder()
                .masters(&masters)
                .retry_delay(Duration::from_millis(1)..=Duration::from_millis(5))
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
                    for turn in 0..TURNS {
                        let before = seen.largest.load(Ordering::SeqCst);
                        let guard = lock.acquire().await.unwrap();
                        seen.note(&guard, before);
                        if (turn + task) % 8 == 7 {
                            // This breaks exclusion: the next client gets the lock before the
                            // release.
                            masters.iter().for_each(|master| master.delete("r"));
                            tokio::time::sleep(Duration::from_millis(2)).await;
                        }
                        if turn == TURNS / 2 && task == 0 {
                            set_clock(&locks, -HOUR); // the clock jumps back
                        }
                        let _ = guard.release().await;
                    }
                });
            }
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        let count = PROCESSES as usize * TASKS * TURNS;
        assert_eq!(seen.all.lock().len(), count);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_with_wrong_clocks_get_tokens_in_order() {
        for kind in LockKind::ALL {
            contend(kind).await;
        }
    }
}
