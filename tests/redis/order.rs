//! Who gets a fair lock first, on real servers: waiters of many processes, and masters that fail or hear of them
//! in different orders.

use std::time::Duration;

use crate::{common::*, crowd::*, proxy::Proxy};

const PROCESSES: usize = 8;
const WAITERS: u32 = 25;

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

const JOB: Job = Job {
    waiters: WAITERS,
    every: millis(30),
    hold: millis(2),
    patience: millis(3_000),
    ttl: LONG,
};

#[test]
fn waiters_of_eight_processes_are_served_in_the_order_of_their_tickets() {
    if Crowd::is_one() {
        return;
    }
    with_masters(5, async |masters| {
        let test = "order::waiters_of_eight_processes_are_served_in_the_order_of_their_tickets";
        let watch = Watch::start(&masters);
        let crowd = Crowd::start(test, &vec![urls(&masters); PROCESSES], JOB);
        let mut served = crowd.all().await;
        assert_one_at_a_time(&mut served);
        assert_in_order(&watch.stop(), &served, PROCESSES * WAITERS as usize);
        assert_no_keys(&masters);
    });
}

#[test]
fn masters_that_die_or_come_back_empty_change_no_order_that_a_majority_knows() {
    if Crowd::is_one() {
        return;
    }
    with_masters(5, async |mut masters| {
        let test =
            "order::masters_that_die_or_come_back_empty_change_no_order_that_a_majority_knows";
        let watch = Watch::start(&masters);
        let mut crowd = Crowd::start(test, &vec![urls(&masters); PROCESSES], JOB);
        let mut served = Vec::new();
        while let Some(one) = crowd.next().await {
            served.push(one);
            match served.len() {
                50 => {
                    watch.ends(0);
                    masters[0].kill();
                }
                // Whoever holds the lock now has it from a majority of the other four.
                100 => {
                    watch.ends(1);
                    masters[1].restart();
                    watch.begins(1);
                }
                _ => {}
            }
        }
        assert_one_at_a_time(&mut served);
        assert_in_order(&watch.stop(), &served, PROCESSES * WAITERS as usize);
        assert_no_keys(&masters[1..]);
    });
}

/// Fails if anybody was overtaken of whom a majority had heard.
#[track_caller]
fn assert_in_order(log: &Log, served: &[Served], all: usize) {
    assert_eq!(served.len(), all);
    let overtakes = log.overtakes(served);
    println!(
        "{} overtakes, {} more of whom too few had heard; {} pairs in order, {} waited",
        overtakes.broken.len(),
        overtakes.excused,
        overtakes.kept,
        overtakes.waited
    );
    assert!(overtakes.broken.is_empty(), "{:#?}", overtakes.broken);
    // Or this says nothing.
    assert!(overtakes.waited > all / 2 && overtakes.kept > all * all / 6);
}

#[test]
fn masters_that_hear_of_waiters_in_different_orders_leave_no_gap_longer_than_a_poll() {
    if Crowd::is_one() {
        return;
    }
    const FARTHEST: Duration = millis(80);
    const PATIENCE: Duration = millis(1_500);
    with_masters(5, async |masters| {
        let test = "order::masters_that_hear_of_waiters_in_different_orders_leave_no_gap_longer_than_a_poll";
        // Each process has another master that is the farthest.
        let proxies: Vec<Vec<_>> = (0..4)
            .map(|process| {
                let steps = (process..).map(|step| FARTHEST / 4 * (step % 5));
                let near = masters.iter().zip(steps);
                near.map(|(master, delay)| Proxy::start(master.port(), delay))
                    .collect()
            })
            .collect();
        let urls = |proxies: &Vec<Proxy>| proxies.iter().map(Proxy::url).collect();
        let urls: Vec<_> = proxies.iter().map(urls).collect();
        let job = Job {
            waiters: 6,
            every: millis(7),
            hold: millis(5),
            patience: PATIENCE,
            ttl: LONG,
        };
        let watch = Watch::start(&masters);
        let mut served = Crowd::start(test, &urls, job).all().await;
        assert_one_at_a_time(&mut served);
        assert_in_order(&watch.stop(), &served, 24);
        let gaps = served.windows(2);
        let mut gaps: Vec<_> = gaps
            .map(|pair| Duration::from_micros(pair[1].acquired - pair[0].released))
            .collect();
        gaps.sort_unstable();
        let (median, longest) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        println!("{median:?} between two as a rule, {longest:?} at most");
        // There with the release and back with the call, and there and back with the question.
        let most = PATIENCE / 3 + 2 * FARTHEST + SLACK;
        assert!(longest < most, "{gaps:?}");
        assert_no_keys(&masters);
    });
}

/// For what a busy machine takes.
const SLACK: Duration = millis(100);
