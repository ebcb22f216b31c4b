//! What waiters of a fair lock cost who are not there any more, and those who are.

use std::time::{Duration, Instant};

use quorlock::{AcquireError, Coordinator, Guard};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{common::*, crowd::*};

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// What a busy machine may take for a hand-over, and less than any poll here.
const WOKEN: Duration = millis(250);

fn waiter(locks: &Coordinator) -> JoinHandle<(Instant, Guard)> {
    let lock = locks.fair(LOCK, &locks.owner());
    tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        (Instant::now(), guard)
    })
}

/// How long after `since` the waiter got the lock, and the lock.
async fn wait_of(waiter: JoinHandle<(Instant, Guard)>, since: Instant) -> (Duration, Guard) {
    let (at, guard) = timeout(PATIENCE / 2, waiter).await.unwrap().unwrap();
    (at.saturating_duration_since(since), guard)
}

fn process(test: &str, masters: &[Server], job: Job) -> Crowd {
    Crowd::start(test, &[urls(masters)], job)
}

async fn held_by_all(locks: &Coordinator) -> Guard {
    acquire_on_all(&locks.fair(LOCK, &locks.owner())).await
}

#[test]
fn a_head_that_is_killed_delays_the_next_by_the_patience_at_most() {
    if Crowd::is_one() {
        return;
    }
    let patience = millis(1_200);
    with_masters(5, async |masters| {
        let test = "patience::a_head_that_is_killed_delays_the_next_by_the_patience_at_most";
        let locks = coordinator(with_patience(patience), &masters);
        let guard = held_by_all(&locks).await;
        let mut head = process(test, &masters, Job::forever(patience));
        until_queued(&masters, 1).await;
        let next = waiter(&locks);
        until_queued(&masters, 2).await;
        head.kill();
        let since = Instant::now();
        guard.release().await.unwrap();
        let (took, guard) = wait_of(next, since).await;
        println!("a dead head of {patience:?}: {took:?}");
        assert!(took > patience / 3, "nobody was in the way: {took:?}");
        assert!(took < patience + patience / 3 + WOKEN, "{took:?}");
        guard.release().await.unwrap();
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

#[test]
fn who_waits_for_longer_than_the_patience_keeps_the_place() {
    let patience = millis(1_000);
    with_masters(5, async |masters| {
        let locks = coordinator(with_patience(patience), &masters);
        let others = coordinator(with_patience(patience), &masters);
        let guard = held_by_all(&others).await;
        let first = waiter(&locks);
        until_queued(&masters, 1).await;
        let came = Instant::now();
        while came.elapsed() < patience * 3 / 2 {
            for master in &masters {
                let left = dead_at(master, "0").saturating_sub(micros());
                assert!(
                    left > 300_000,
                    "about to count as dead, after {:?}",
                    came.elapsed()
                );
            }
            sleep(millis(50)).await;
        }
        let second = waiter(&others);
        until_queued(&masters, 2).await;
        let since = Instant::now();
        guard.release().await.unwrap();
        let (took, guard) = wait_of(first, since).await;
        assert!(!second.is_finished() && took < WOKEN, "{took:?}");
        guard.release().await.unwrap();
        wait_of(second, since).await.1.release().await.unwrap();
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_holder_that_is_killed_is_succeeded_when_its_ttl_is_over() {
    if Crowd::is_one() {
        return;
    }
    let patience = millis(20_000); // so that nobody polls meanwhile
    with_masters(5, async |masters| {
        let test = "patience::a_holder_that_is_killed_is_succeeded_when_its_ttl_is_over";
        let locks = coordinator(with_patience(patience), &masters);
        let job = Job {
            ttl: millis(1_800),
            ..Job::forever(patience)
        };
        let mut holder = process(test, &masters, job);
        until("a holder", async || {
            masters.iter().all(|m| pttl(m, LOCK) > 0).then_some(())
        })
        .await;
        let next = waiter(&locks);
        until_queued(&masters, 1).await;
        holder.kill();
        let since = Instant::now();
        let mut left: Vec<_> = masters.iter().map(|m| pttl(m, LOCK)).collect();
        left.sort_unstable();
        let (took, guard) = wait_of(next, since).await;
        let over = |place: usize| Duration::from_millis(left[place].unsigned_abs());
        println!("{:?} after the TTL", took.saturating_sub(over(2)));
        assert!(took + millis(20) > over(2), "{took:?}, {left:?}");
        assert!(took < over(4) + WOKEN, "{took:?}, {left:?}");
        guard.release().await.unwrap();
        close_at_once(&locks).await;
        // On the last ones the TTL of who was killed may not be over yet.
        until("no key", async || {
            masters.iter().all(|m| pttl(m, LOCK) == -2).then_some(())
        })
        .await;
        assert_no_keys(&masters);
    });
}

#[test]
fn who_has_died_in_the_middle_of_the_queue_delays_nobody() {
    if Crowd::is_one() {
        return;
    }
    let patience = millis(1_500);
    with_masters(5, async |masters| {
        let test = "patience::who_has_died_in_the_middle_of_the_queue_delays_nobody";
        let locks = coordinator(with_patience(patience), &masters);
        let guard = held_by_all(&locks).await;
        let first = waiter(&locks);
        until_queued(&masters, 1).await;
        let mut middle = process(test, &masters, Job::forever(patience));
        until_queued(&masters, 2).await;
        let last = waiter(&locks);
        until_queued(&masters, 3).await;
        middle.kill();
        let dead = |master: &Server| dead_at(master, "1") < micros();
        until("the end of a patience", async || {
            masters.iter().all(dead).then_some(())
        })
        .await;
        until_queued(&masters, 3).await;
        let since = Instant::now();
        guard.release().await.unwrap();
        let (took_first, guard) = wait_of(first, since).await;
        let since = Instant::now();
        guard.release().await.unwrap();
        let (took_last, guard) = wait_of(last, since).await;
        println!("{took_first:?} to the first, {took_last:?} past the dead one");
        assert!(
            took_first < WOKEN && took_last < WOKEN,
            "{took_first:?}, {took_last:?}"
        );
        guard.release().await.unwrap();
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// When the waiter at a place, from 0, of the queue of `master` counts as dead, in microseconds.
fn dead_at(master: &Server, place: &str) -> u64 {
    let ticket = master.command(&["ZRANGE", QUEUE, place, place]);
    let millis = master.command(&["ZSCORE", DEADLINES, &ticket]);
    millis.parse::<u64>().unwrap() * 1_000
}

/// Waits until there is no queue on any of `masters`, and says for how long.
async fn until_no_queue(masters: &[Server]) -> Duration {
    let since = Instant::now();
    until("no queue", async || {
        let is_gone = |master: &Server| master.command(&["EXISTS", QUEUE, DEADLINES]) == "0";
        masters.iter().all(is_gone).then_some(())
    })
    .await;
    since.elapsed()
}

#[test]
fn who_gives_up_or_is_dropped_leaves_every_queue_at_once() {
    with_masters(5, async |masters| {
        let locks = coordinator(with_patience(millis(6_000)), &masters);
        let others = coordinator(with_patience(millis(6_000)), &masters);
        let guard = held_by_all(&others).await;
        let lock = locks.fair(LOCK, &locks.owner());
        let giving_up = tokio::spawn(async move { lock.acquire_within(millis(400)).await });
        until_queued(&masters, 1).await;
        let refused = giving_up.await.unwrap();
        assert!(
            matches!(refused, Err(AcquireError::Deadline { .. })),
            "{refused:?}"
        );
        let took = until_no_queue(&masters).await;
        assert!(took < WOKEN, "given up: {took:?}");
        for _ in 0..3 {
            let waiting = waiter(&locks);
            until_queued(&masters, 1).await;
            waiting.abort();
            let took = until_no_queue(&masters).await;
            assert!(took < WOKEN, "dropped: {took:?}");
        }
        guard.release().await.unwrap();
        close_at_once(&others).await;
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

#[test]
fn who_is_killed_is_in_no_queue_after_twice_the_patience() {
    if Crowd::is_one() {
        return;
    }
    let patience = millis(800);
    with_masters(5, async |masters| {
        let test = "patience::who_is_killed_is_in_no_queue_after_twice_the_patience";
        let locks = coordinator(with_patience(patience), &masters);
        let guard = held_by_all(&locks).await;
        let job = Job {
            waiters: 5,
            ..Job::forever(patience)
        };
        let mut crowd = process(test, &masters, job);
        until_queued(&masters, 5).await;
        crowd.kill();
        let took = until_no_queue(&masters).await;
        println!("gone in {took:?}");
        assert!(took < 2 * patience + WOKEN, "{took:?}");
        guard.release().await.unwrap();
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

const WAITERS: u32 = 100;

/// What waiters with the default patience ask one master in a second, each, at most: they poll 4 times in 3 s at
/// most.
const CALLS: f64 = 1.5;

/// Calls of scripts on all masters that are up.
fn calls(masters: &[Server]) -> u64 {
    let of = |master: &Server| {
        let stats = master.command(&["INFO", "commandstats"]);
        let scripts = stats
            .lines()
            .filter(|line| line.starts_with("cmdstat_eval"));
        let count = |line: &str| -> Option<u64> {
            let (_, calls) = line.split_once("calls=")?;
            calls.split(',').next()?.parse().ok()
        };
        scripts.filter_map(count).sum::<u64>()
    };
    masters.iter().map(of).sum()
}

/// What each waiter asks of each of `masters` in a second, while nothing happens.
async fn calls_per_waiter(masters: &[Server], what: &str) -> f64 {
    let (before, since) = (calls(masters), Instant::now());
    sleep(millis(1_900)).await;
    let made = (calls(masters) - before) as f64 / since.elapsed().as_secs_f64();
    let each = made / f64::from(WAITERS) / masters.len() as f64;
    println!("{what}: {each:.2} calls per waiter, master and second");
    each
}

/// Waiters who do not poll all at the same time, behind `others` that are in the queue.
async fn hundred(
    locks: &Coordinator,
    masters: &[Server],
    others: usize,
) -> Vec<JoinHandle<(Instant, Guard)>> {
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        waiters.push(waiter(locks));
        sleep(millis(8)).await;
    }
    until_queued(masters, others + WAITERS as usize).await;
    waiters
}

#[test]
fn a_hundred_waiters_ask_no_more_than_they_must() {
    with_masters(5, async |masters| {
        let locks = coordinator(with_patience(millis(3_000)), &masters);
        let guard = held_by_all(&locks).await;
        let waiters = hundred(&locks, &masters, 0).await;
        let each = calls_per_waiter(&masters, "all up").await;
        assert!(each < CALLS, "{each}");
        assert!(each > 0.9, "they do not keep their places: {each}");
        drop((waiters, guard));
    });
}

#[test]
fn a_master_that_came_back_empty_makes_no_hot_loop() {
    with_masters(5, async |mut masters| {
        let locks = coordinator(with_patience(millis(3_000)), &masters);
        let guard = held_by_all(&locks).await;
        let waiters = hundred(&locks, &masters, 0).await;
        masters[1].restart();
        until("one who is queued there", async || {
            (masters[1].command(&["ZCARD", QUEUE]) != "0").then_some(())
        })
        .await;
        let each = calls_per_waiter(&masters, "one came back empty").await;
        assert!(each < CALLS, "{each}");
        drop((waiters, guard));
    });
}

#[test]
fn a_minority_that_is_down_makes_no_hot_loop() {
    with_masters(5, async |mut masters| {
        let locks = coordinator(with_patience(millis(3_000)), &masters);
        let guard = held_by_all(&locks).await;
        let waiters = hundred(&locks, &masters, 0).await;
        masters[0].kill();
        masters[1].kill();
        let each = calls_per_waiter(&masters[2..], "two down").await;
        assert!(each < CALLS, "{each}");
        drop((waiters, guard));
    });
}

#[test]
fn a_dead_head_makes_no_hot_loop() {
    if Crowd::is_one() {
        return;
    }
    let patience = millis(3_000);
    with_masters(5, async |masters| {
        let locks = coordinator(with_patience(patience), &masters);
        let guard = held_by_all(&locks).await;
        let test = "patience::a_dead_head_makes_no_hot_loop";
        let mut head = process(test, &masters, Job::forever(patience));
        until_queued(&masters, 1).await;
        let waiters = hundred(&locks, &masters, 1).await;
        head.kill();
        guard.release().await.unwrap();
        // It lives on in the queues for two thirds of the patience at least.
        let each = calls_per_waiter(&masters, "a dead head").await;
        assert!(each < CALLS, "{each}");
        drop(waiters);
    });
}
