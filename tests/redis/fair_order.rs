//! The order in which waiters of many processes get a fair lock. Meanwhile, masters fail, or hear
//! of the waiters in different orders.

use std::time::Duration;

use testkit::proxy::Proxy;

use crate::{common::*, waiter_processes::*};

const PROCESSES: usize = 8;
const WAITERS: u32 = 25;

const JOB: Job = Job {
    waiters: WAITERS,
    every: millis(30),
    hold: millis(2),
    waiter_timeout: millis(3_000),
    ttl: LONG,
};

#[test]
fn waiters_of_eight_processes_are_served_in_the_order_of_their_tickets() {
    if WaiterProcesses::is_child() {
        return;
    }
    with_masters(5, async |masters| {
        let test =
            "fair_order::waiters_of_eight_processes_are_served_in_the_order_of_their_tickets";
        let watch = QueueWatch::start(&masters);
        let processes = WaiterProcesses::start(test, &vec![urls(&masters); PROCESSES], JOB);
        let mut served = processes.all().await;
        assert_one_at_a_time(&mut served);
        assert_in_order(&watch.stop(), &served, PROCESSES * WAITERS as usize);
        assert_no_keys(&masters);
    });
}

#[test]
fn masters_that_die_or_come_back_empty_change_no_order_that_a_majority_knows() {
    if WaiterProcesses::is_child() {
        return;
    }
    with_masters(5, async |mut masters| {
        let test =
            "fair_order::masters_that_die_or_come_back_empty_change_no_order_that_a_majority_knows";
        let watch = QueueWatch::start(&masters);
        let mut processes = WaiterProcesses::start(test, &vec![urls(&masters); PROCESSES], JOB);
        let mut served = Vec::new();
        while let Some(one) = processes.next().await {
            served.push(one);
            match served.len() {
                50 => {
                    watch.record_kill(0);
                    masters[0].kill();
                }
                // Master 0 is down, so at least three of the other four masters granted the lock to
                // its holder. At least two of these keep the lock when master 1 restarts. So no one
                // else gets a majority.
                100 => {
                    watch.record_kill(1);
                    masters[1].restart();
                    watch.record_restart(1);
                }
                _ => {}
            }
        }
        assert_one_at_a_time(&mut served);
        assert_in_order(&watch.stop(), &served, PROCESSES * WAITERS as usize);
        assert_no_keys(&masters[1..]);
    });
}

/// Fails if a waiter was overtaken although a majority of masters knew it.
#[track_caller]
fn assert_in_order(log: &QueueLog, served: &[Service], all: usize) {
    assert_eq!(served.len(), all);
    let overtakes = log.overtakes(served);
    println!(
        "{} overtakes, {} more of waiters that too few masters knew; {} pairs in order, {} waited",
        overtakes.broken.len(),
        overtakes.excused,
        overtakes.kept,
        overtakes.waited
    );
    assert!(overtakes.broken.is_empty(), "{:#?}", overtakes.broken);
    // If fewer waiters had to wait, the test would show nothing.
    assert!(overtakes.waited > all / 2 && overtakes.kept > all * all / 6);
}

#[test]
fn masters_that_hear_of_waiters_in_different_orders_leave_no_gap_longer_than_a_poll() {
    if WaiterProcesses::is_child() {
        return;
    }
    const FARTHEST: Duration = millis(80);
    const WAITER_TIMEOUT: Duration = millis(1_500);
    with_masters(5, async |masters| {
        let test = "fair_order::masters_that_hear_of_waiters_in_different_orders_leave_no_gap_longer_than_a_poll";
        // For each process, a different master is the farthest.
        let proxies: Vec<Vec<_>> = (0..4)
            .map(|process| {
                let steps = (process..).map(|step| FARTHEST / 4 * (step % 5));
                let near = masters.iter().zip(steps);
                near.map(|(master, delay)| Proxy::delay_requests(master.port(), delay))
                    .collect()
            })
            .collect();
        let urls = |proxies: &Vec<Proxy>| proxies.iter().map(Proxy::url).collect();
        let urls: Vec<_> = proxies.iter().map(urls).collect();
        let job = Job {
            waiters: 6,
            every: millis(7),
            hold: millis(5),
            waiter_timeout: WAITER_TIMEOUT,
            ttl: LONG,
        };
        let watch = QueueWatch::start(&masters);
        let mut served = WaiterProcesses::start(test, &urls, job).all().await;
        assert_one_at_a_time(&mut served);
        assert_in_order(&watch.stop(), &served, 24);
        let gaps = served.windows(2);
        let mut gaps: Vec<_> = gaps
            .map(|pair| Duration::from_micros(pair[1].acquired - pair[0].released))
            .collect();
        gaps.sort_unstable();
        let (median, longest) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        println!("gap between two services: {median:?} median, {longest:?} longest");
        // The release and the wake-up take a round trip, and the attempt takes another one.
        let most = WAITER_TIMEOUT / 3 + 2 * FARTHEST + SLACK;
        assert!(longest < most, "{gaps:?}");
        assert_no_keys(&masters);
    });
}

/// An allowance for a busy machine.
const SLACK: Duration = millis(100);
