//! The shares of processes that want one mutex, with regular holds and pauses.

use std::time::Duration;

use quorlock::{Coordinator, MemoryMaster};
use testkit::random::Random;
use tokio::{
    runtime,
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    links::{Latency, linked},
    world::{masters, millis, seconds},
};

/// What a process does again and again: it acquires the lock, holds it, and pauses, each for some
/// milliseconds.
#[derive(Clone, Copy)]
struct Process {
    hold: u64,
    pause: u64,
    /// `true` if the times are random, from half of the given ones to three halves.
    is_random: bool,
    /// The time at which the process comes.
    comes_at: u64,
}

/// The times in one direction in microseconds.
const LATENCIES: [(u64, u64); 4] = [(0, 0), (300, 300), (100, 900), (2_000, 6_000)];

/// Returns a process for each of these pauses. All hold the lock for the same time.
fn processes(hold: u64, pauses: &[u64], is_random: bool) -> Vec<Process> {
    let process = |&pause| Process {
        hold,
        pause,
        is_random,
        comes_at: 0,
    };
    pauses.iter().map(process).collect()
}

/// Returns the acquisitions of each process within this time, and the longest wait.
async fn contest(
    processes: &[Process],
    (least, most): (u64, u64),
    lasts: Duration,
    seed: u64,
) -> (Vec<usize>, Duration) {
    let masters = masters(3);
    let latency = Latency::one_way(Duration::from_micros(least), Duration::from_micros(most));
    let mut tasks = JoinSet::new();
    for (number, &process) in (1..).zip(processes) {
        let seed = seed * 100 + number;
        let links = masters.iter().zip(0..);
        let linked = links.map(|(master, i)| linked(master, &latency, seed * 1_000 + i * 100));
        let locks = match most {
            0 => Coordinator::new(masters.iter().map(MemoryMaster::for_another_process)),
            _ => Coordinator::new(linked),
        };
        let locks = locks.unwrap();
        tasks.spawn(async move {
            locks.all_ready_within(seconds(3)).await.unwrap();
            let mut random = Random::new(seed);
            let end = Instant::now() + lasts;
            let (mut count, mut longest) = (0, Duration::ZERO);
            sleep(millis(number * 7 + process.comes_at)).await;
            while Instant::now() < end {
                let start = Instant::now();
                let acquired = timeout_at(end, locks.mutex("r").acquire()).await;
                longest = longest.max(start.elapsed());
                let Ok(guard) = acquired else { break };
                let mut time = |time| match process.is_random {
                    true => millis(time / 2 + random.below(time + 1)),
                    false => millis(time),
                };
                sleep(time(process.hold)).await;
                drop(guard.unwrap());
                sleep(time(process.pause)).await;
                count += 1;
            }
            (number, count, longest)
        });
    }
    let mut all = tasks.join_all().await;
    all.sort_unstable();
    let longest = all.iter().map(|(.., longest)| *longest).max().unwrap();
    (
        all.into_iter().map(|(_, count, _)| count).collect(),
        longest,
    )
}

/// Runs `task` in virtual time.
fn block_on<T>(task: impl Future<Output = T>) -> T {
    let mut runtime = runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(task)
}

/// Fails unless each process gets at least half of an equal share, and no wait is longer than three
/// times the time that all processes need to hold the lock once and to pause, or six times if one
/// of them does not pause.
fn check(processes: &[Process], at: &[(u64, u64)], lasts: Duration, seed: u64) {
    let cycle = processes.iter().map(|process| process.hold + process.pause);
    // A process that does not pause gets the lock eight times before it looks for others.
    let is_greedy = processes.iter().any(|process| process.pause < 5);
    let times = if is_greedy { 6 } else { 3 };
    let bound = millis(cycle.max().unwrap() * processes.len() as u64 * times);
    for &latency in at {
        let (counts, longest) = block_on(contest(processes, latency, lasts, seed));
        let total: usize = counts.iter().sum();
        let equal = total as f64 / processes.len() as f64;
        let share = *counts.iter().min().unwrap() as f64 / equal;
        let shown = format!("{seed}, {latency:?}: {counts:?}, least share {share:.2}, {longest:?}");
        println!("{shown}");
        assert!(
            share >= 0.5 && longest <= bound,
            "{shown}, allowed {bound:?}"
        );
    }
}

#[test]
fn the_third_process_with_regular_holds_gets_its_share() {
    check(
        &processes(1_000, &[100, 100, 500], false),
        &LATENCIES,
        seconds(90),
        1,
    );
    check(
        &processes(1_000, &[500; 3], false),
        &LATENCIES[..2],
        seconds(90),
        2,
    );
    check(
        &processes(200, &[20, 50, 100], false),
        &LATENCIES,
        seconds(20),
        3,
    );
}

#[test]
fn of_five_processes_with_short_or_random_holds_each_gets_its_share() {
    check(
        &processes(20, &[20; 5], false),
        &LATENCIES[..3],
        seconds(5),
        1,
    );
    check(
        &processes(100, &[50; 5], true),
        &LATENCIES[..3],
        seconds(20),
        2,
    );
}

/// At the longest latency, a hand-over takes as long as a hold, so the bound would not count.
#[test]
fn a_process_that_does_not_pause_leaves_the_others_their_shares() {
    check(
        &processes(20, &[0; 3], false),
        &LATENCIES[..3],
        seconds(5),
        1,
    );
    check(
        &processes(50, &[0, 20, 20], false),
        &LATENCIES[..3],
        seconds(5),
        2,
    );
    check(
        &processes(50, &[1, 20, 20], false),
        &LATENCIES[..3],
        seconds(5),
        3,
    );
}

/// The longer a process has had the lock alone, the more rarely it looks for others.
#[test]
fn a_process_that_comes_late_gets_the_lock_from_one_that_does_not_pause() {
    for (hold, latency) in [(20, LATENCIES[1]), (20, LATENCIES[2]), (100, LATENCIES[1])] {
        let mut processes = processes(hold, &[0; 2], false);
        processes[1].comes_at = 30_000;
        let (counts, longest) = block_on(contest(&processes, latency, seconds(90), 1));
        assert!(longest < seconds(30), "{hold}: {counts:?}, {longest:?}");
    }
}

/// A process that has won a lock many times looks for others. It must not do so for each lock.
#[test]
fn locks_that_nobody_else_wants_cost_no_wait() {
    block_on(async {
        let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new())).unwrap();
        locks.all_ready_within(seconds(3)).await.unwrap();
        let start = Instant::now();
        for number in 0..6_000 {
            drop(locks.mutex(format!("r/{number}")).acquire().await.unwrap());
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
}
