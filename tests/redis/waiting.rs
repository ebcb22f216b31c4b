//! Waiting for a lock that another client holds, on real servers.

use std::time::{Duration, Instant};

use quorlock::{Coordinator, Guard};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::common::*;

/// The time limit for a waiter that is woken. It is less than the shortest poll interval.
const WOKEN: Duration = Duration::from_millis(300);

fn waiter(locks: &Coordinator) -> JoinHandle<(Instant, Guard)> {
    let lock = locks.mutex("r");
    tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        (Instant::now(), guard)
    })
}

/// Returns how long after `since` the waiter got the lock.
async fn wait_of(waiter: JoinHandle<(Instant, Guard)>, since: Instant) -> Duration {
    let (at, guard) = timeout(TEST_TIMEOUT / 2, waiter).await.unwrap().unwrap();
    guard.release().await.unwrap();
    at.saturating_duration_since(since)
}

/// Returns how long a waiter of `locks` waits for a lock that `others` release. It may poll.
async fn hand_over(others: &Coordinator, locks: &Coordinator) -> Duration {
    let guard = acquire_on_all(&others.mutex("r")).await;
    let waiting = waiter(locks);
    sleep(millis(100)).await;
    let since = Instant::now();
    guard.release().await.unwrap();
    wait_of(waiting, since).await
}

/// Lets another client hold the lock for a minute.
fn occupy(masters: &[Server]) {
    for master in masters {
        let set = master.command(&["SET", "r", "another's", "PX", "60000"]);
        assert_eq!(set, "OK");
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Fails if each of three waits takes longer than the limit. One may, on a busy machine.
async fn assert_within(limit: Duration, what: &str, mut wait: impl AsyncFnMut() -> Duration) {
    let mut least = Duration::MAX;
    for _ in 0..3 {
        least = least.min(wait().await);
        if least < limit {
            return;
        }
    }
    panic!("{what}: {least:?}");
}

/// The holder is another program. Masters report all changes of a key, whoever makes them.
#[test]
fn a_key_that_another_program_deletes_wakes_a_waiter() {
    on_each_version(3, async |_, masters| {
        let locks = coordinator(patient(), &masters);
        for delete in [
            &["DEL", "r"][..],
            &["UNLINK", "r"],
            &["EVAL", "return redis.call('DEL', KEYS[1])", "1", "r"],
            &["PEXPIRE", "r", "0"],
            &["RENAME", "r", "another"],
            &["FLUSHDB"],
            &["FLUSHALL"],
        ] {
            assert_within(WOKEN, &format!("{delete:?}"), async || {
                occupy(&masters);
                let waiting = waiter(&locks);
                until_watched(&masters).await;
                let since = Instant::now();
                for master in &masters {
                    master.command(delete);
                }
                wait_of(waiting, since).await
            })
            .await;
        }
    });
}

/// A server that may track only one key forgets the others. It reports each key that it forgets.
#[test]
fn a_server_that_forgets_tracked_keys_wakes_their_waiters() {
    on_each_version(3, async |_, masters| {
        for master in &masters {
            let set = master.command(&["CONFIG", "SET", "tracking-table-max-keys", "1"]);
            assert_eq!(set, "OK");
        }
        // After many false reports, a waiter pauses for half a second. The polls come so late that
        // a waiter without reports misses the limit.
        let pause = millis(500);
        let patient = || patient().poll_interval(pause..=pause * 10);
        let locks = coordinator(patient(), &masters);
        let holders: Vec<_> = (0..4).map(|_| coordinator(patient(), &masters)).collect();
        let mut times = Vec::new();
        for _ in 0..3 {
            let mut guards = Vec::new();
            let mut waiting = Vec::new();
            for (number, holder) in holders.iter().enumerate() {
                guards.push(acquire_on_all(&holder.mutex(format!("r{number}"))).await);
                let lock = locks.mutex(format!("r{number}"));
                waiting.push(tokio::spawn(async move {
                    let guard = lock.acquire().await.unwrap();
                    (Instant::now(), guard)
                }));
            }
            until_watched(&masters).await;
            for (guard, waiting) in guards.into_iter().zip(waiting) {
                let since = Instant::now();
                guard.release().await.unwrap();
                times.push(wait_of(waiting, since).await);
            }
        }
        let median = median(times);
        assert!(median < pause + WOKEN, "{median:?}");
    });
}

#[test]
fn a_user_without_the_right_to_track_keys_polls() {
    on_each_version(3, async |_, masters| {
        for right in ["-client|tracking", "-client|caching", "-client"] {
            let mut urls = Vec::new();
            for master in &masters {
                let rules = [
                    "ACL", "SETUSER", "u", "reset", "on", ">pw", "~*", "&*", "+@all", right,
                ];
                if master.command(&rules) == "OK" {
                    urls.push(format!("redis://u:pw@127.0.0.1:{}", master.port()));
                }
            }
            if urls.is_empty() {
                continue; // Redis 6 knows no rules for a subcommand
            }
            let locks = patient().masters(urls.clone()).build().unwrap();
            let others = patient().masters(urls).build().unwrap();
            assert_within(millis(700), right, async || {
                hand_over(&others, &locks).await
            })
            .await;
            close_at_once(&locks).await;
            assert_no_keys(&masters);
        }
    });
}

/// The user loses the right while connected. From then on, waiters ask again after short delays.
#[test]
fn a_user_that_loses_the_right_to_track_keys_polls() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let others = coordinator(patient(), &masters);
        acquire_on_all(&locks.mutex("r"))
            .await
            .release()
            .await
            .unwrap();
        for master in &masters {
            if master.command(&["ACL", "SETUSER", "default", "-client|caching"]) != "OK" {
                return; // Redis 6 knows no rules for a subcommand
            }
        }
        assert_within(WOKEN, "a release", async || {
            hand_over(&others, &locks).await
        })
        .await;
    });
}

/// A majority of masters tell the waiter of changes, and the others cannot.
#[test]
fn a_majority_of_masters_is_enough_to_wake_a_waiter() {
    on_each_version(3, async |_, masters| {
        let rules = [
            "ACL", "SETUSER", "default", "on", "nopass", "~*", "&*", "+@all", "-client",
        ];
        assert_eq!(masters[0].command(&rules), "OK");
        let locks = coordinator(patient(), &masters);
        let others = coordinator(patient(), &masters);
        assert_within(WOKEN, "a release", async || {
            let guard = acquire_on_all(&others.mutex("r")).await;
            let waiting = waiter(&locks);
            until_watched(&masters[1..]).await;
            let since = Instant::now();
            drop(guard);
            wait_of(waiting, since).await
        })
        .await;
    });
}
