//! `quorlock bench`.

use nix::sys::signal::Signal;
use testkit::server::{Server, masters};

use crate::support::{Running, ended, until, with};

#[test]
fn a_bench_leaves_nothing() {
    let masters = masters(3);
    let (status, shown, error) = ended(&mut with(&masters, "bench --time 300ms --tasks 4"));
    assert_eq!((status, &*error), (0, ""));
    assert!(shown.starts_with("3 masters, 4 tasks: "), "{shown}");
    assert!(shown.ends_with("  no failures\n"), "{shown}");
    for master in &masters {
        assert_eq!(master.command(&["KEYS", "*"]), "quorlock:guard");
    }
}

#[test]
fn a_bench_that_is_interrupted_leaves_nothing() {
    let masters = masters(3);
    let bench = Running::start(&mut with(&masters, "bench --time 1h"));
    until("it has begun", || {
        masters[0].calls(|name| name == "set") > 10
    });
    bench.signal(Signal::SIGTERM);
    assert_eq!(bench.ended().0.code(), Some(143));
    for master in &masters {
        assert_eq!(master.command(&["KEYS", "*"]), "quorlock:guard");
    }
}

#[test]
fn a_bench_says_how_many_of_its_cycles_failed() {
    let mut masters = masters(3);
    let bench = Running::start(&mut with(&masters, "bench --time 1s"));
    until("it has begun", || {
        masters[0].calls(|name| name == "set") > 10
    });
    masters[..2].iter_mut().for_each(Server::kill);
    let (status, shown, _) = bench.ended();
    assert_eq!(status.code(), Some(1), "{shown}");
    let numbers = |line: &str| -> Vec<u64> {
        let words = line.split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let first = shown.lines().next().unwrap_or_default();
    let worked = numbers(first.split("cycles/s, ").nth(1).unwrap_or_default())[0];
    let failed: Vec<_> = shown
        .lines()
        .filter(|line| line.contains(" cycles failed: "))
        .map(numbers)
        .collect();
    let sum: u64 = failed.iter().map(|numbers| numbers[0]).sum();
    assert!(sum > 0, "{shown}");
    for numbers in failed {
        assert_eq!(numbers[1], worked + sum, "{shown}");
    }
}

#[test]
fn a_bench_without_masters_fails() {
    let mut masters = masters(3);
    masters.iter_mut().for_each(Server::kill);
    let (status, _, error) = ended(&mut with(&masters, "bench --time 1s"));
    assert_eq!(status, 69);
    assert!(error.contains("only 0 of 3 masters can vote"), "{error}");
}
