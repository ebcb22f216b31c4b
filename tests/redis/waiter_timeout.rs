//! The costs of waiters for a fair lock. Some of these waiters are gone, and others still wait.

use std::time::{Duration, Instant};

use quorlock::{Coordinator, Guard};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{common::*, waiter_processes::*};

/// The time limit for a hand-over on a busy machine. It is less than the shortest poll interval of
/// waiters with a waiter timeout of 2 s, which is 500 ms.
const WOKEN: Duration = millis(400);

fn waiter(locks: &Coordinator) -> JoinHandle<(Instant, Guard)> {
    let lock = locks.fair(LOCK, &locks.owner());
    tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        (Instant::now(), guard)
    })
}

/// Returns the time from `since` until the waiter got the lock, and the guard of the waiter.
async fn wait_of(waiter: JoinHandle<(Instant, Guard)>, since: Instant) -> (Duration, Guard) {
    let (at, guard) = timeout(TEST_TIMEOUT / 2, waiter).await.unwrap().unwrap();
    (at.saturating_duration_since(since), guard)
}

fn process(test: &str, masters: &[Server], job: Job) -> WaiterProcesses {
    WaiterProcesses::start(test, &[urls(masters)], job)
}

async fn held_by_all(locks: &Coordinator) -> Guard {
    acquire_on_all(&locks.fair(LOCK, &locks.owner())).await
}

#[test]
fn a_killed_head_delays_the_next_waiter_by_the_waiter_timeout_at_most() {
    if WaiterProcesses::is_child() {
        return;
    }
    let waiter_timeout = millis(1_200);
    with_masters_alone(5, async |masters| {
        let test =
            "waiter_timeout::a_killed_head_delays_the_next_waiter_by_the_waiter_timeout_at_most";
        let locks = coordinator(with_waiter_timeout(waiter_timeout), &masters);
        let guard = held_by_all(&locks).await;
        let mut head = process(test, &masters, Job::forever(waiter_timeout));
        until_queued(&masters, 1).await;
        let next = waiter(&locks);
        until_queued(&masters, 2).await;
        head.kill();
        let since = Instant::now();
        guard.release().await.unwrap();
        let (took, guard) = wait_of(next, since).await;
        println!("a dead head of {waiter_timeout:?}: {took:?}");
        assert!(
            took > waiter_timeout / 3,
            "no waiter was in the way: {took:?}"
        );
        assert!(
            took < waiter_timeout + waiter_timeout / 3 + WOKEN,
            "{took:?}"
        );
        guard.release().await.unwrap();
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_waiter_that_waits_longer_than_the_waiter_timeout_keeps_its_position() {
    let waiter_timeout = millis(2_000);
    with_masters_alone(5, async |masters| {
        let locks = coordinator(with_waiter_timeout(waiter_timeout), &masters);
        let others = coordinator(with_waiter_timeout(waiter_timeout), &masters);
        let guard = held_by_all(&others).await;
        let first = waiter(&locks);
        until_queued(&masters, 1).await;
        let came = Instant::now();
        while came.elapsed() < waiter_timeout * 3 / 2 {
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
        close_at_once(&others).await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_waiter_that_died_in_the_middle_of_the_queue_delays_no_one() {
    if WaiterProcesses::is_child() {
        return;
    }
    let waiter_timeout = millis(2_000);
    with_masters_alone(5, async |masters| {
        let test = "waiter_timeout::a_waiter_that_died_in_the_middle_of_the_queue_delays_no_one";
        let locks = coordinator(with_waiter_timeout(waiter_timeout), &masters);
        let guard = held_by_all(&locks).await;
        let first = waiter(&locks);
        until_queued(&masters, 1).await;
        let mut middle = process(test, &masters, Job::forever(waiter_timeout));
        until_queued(&masters, 2).await;
        let last = waiter(&locks);
        until_queued(&masters, 3).await;
        middle.kill();
        let dead = |master: &Server| dead_at(master, "1") < micros();
        until("the end of a waiter timeout", async || {
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

/// Returns when the waiter at `position` in the queue of `master` counts as dead, in microseconds.
/// Positions count from 0.
fn dead_at(master: &Server, position: &str) -> u64 {
    let ticket = master.command(&["ZRANGE", QUEUE, position, position]);
    let millis = master.command(&["ZSCORE", DEADLINES, &ticket]);
    millis.parse::<u64>().unwrap() * 1_000
}

const WAITERS: u32 = 100;

/// The most requests per second that a waiter with the default waiter timeout may send to each
/// master. Such a waiter polls at most 4 times in 3 s.
const CALLS: f64 = 1.5;

/// Counts the script calls on all masters that are up.
fn calls(masters: &[Server]) -> u64 {
    let of = |master: &Server| master.calls(|command| command.starts_with("eval"));
    masters.iter().map(of).sum()
}

/// Returns how many requests each waiter sends to each of `masters` per second, while nothing
/// happens.
async fn calls_per_waiter(masters: &[Server], what: &str) -> f64 {
    let (before, since) = (calls(masters), Instant::now());
    sleep(millis(1_900)).await;
    let made = (calls(masters) - before) as f64 / since.elapsed().as_secs_f64();
    let each = made / f64::from(WAITERS) / masters.len() as f64;
    println!("{what}: {each:.2} calls per waiter, master and second");
    each
}

/// Starts 100 waiters that do not all poll at the same time. `others` is the number of waiters that
/// are in the queue already.
async fn start_hundred(
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
fn a_hundred_waiters_poll_no_more_than_they_must() {
    with_masters_alone(5, async |masters| {
        let locks = coordinator(with_waiter_timeout(millis(3_000)), &masters);
        let guard = held_by_all(&locks).await;
        let waiters = start_hundred(&locks, &masters, 0).await;
        let each = calls_per_waiter(&masters, "all up").await;
        assert!(each < CALLS, "{each}");
        assert!(
            each > 0.5,
            "the waiters do not keep their queue positions: {each}"
        );
        drop((waiters, guard));
    });
}

#[test]
fn a_master_that_came_back_empty_makes_no_hot_loop() {
    with_masters_alone(5, async |mut masters| {
        let locks = coordinator(with_waiter_timeout(millis(3_000)), &masters);
        let guard = held_by_all(&locks).await;
        let waiters = start_hundred(&locks, &masters, 0).await;
        masters[1].restart();
        until("a waiter that is queued there", async || {
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
    with_masters_alone(5, async |mut masters| {
        let locks = coordinator(with_waiter_timeout(millis(3_000)), &masters);
        let guard = held_by_all(&locks).await;
        let waiters = start_hundred(&locks, &masters, 0).await;
        masters[0].kill();
        masters[1].kill();
        let each = calls_per_waiter(&masters[2..], "two down").await;
        assert!(each < CALLS, "{each}");
        drop((waiters, guard));
    });
}

#[test]
fn a_dead_head_makes_no_hot_loop() {
    if WaiterProcesses::is_child() {
        return;
    }
    let waiter_timeout = millis(3_000);
    with_masters_alone(5, async |masters| {
        let locks = coordinator(with_waiter_timeout(waiter_timeout), &masters);
        let guard = held_by_all(&locks).await;
        let test = "waiter_timeout::a_dead_head_makes_no_hot_loop";
        let mut head = process(test, &masters, Job::forever(waiter_timeout));
        until_queued(&masters, 1).await;
        let waiters = start_hundred(&locks, &masters, 1).await;
        head.kill();
        guard.release().await.unwrap();
        // The dead waiter stays in the queues for at least two thirds of the waiter timeout.
        let each = calls_per_waiter(&masters, "a dead head").await;
        assert!(each < CALLS, "{each}");
        drop(waiters);
    });
}
