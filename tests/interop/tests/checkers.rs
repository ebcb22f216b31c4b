//! Every check of a run finds its violation.

use std::fmt::Debug;

use quorlock_interop::page::Page;
use quorlock_interop::pair::{Extent, Pair, wake_ups};
use quorlock_interop::{Failure, Outcome, peers, scenarios};
use testkit::server::masters;

#[test]
fn every_check_finds_the_faults_of_a_lock() {
    let masters = masters(5);
    let (ours, faulty) = (peers::ours("reentrant", "{name}"), peers::faulty());
    let pair = Pair {
        ours: &ours,
        ours_that_polls: &ours,
        peer: &faulty,
        masters: &masters,
    };
    let length = Extent::QUICK.clash;
    assert_violation(pair.both_ways(scenarios::exclusion));
    assert_violation(pair.both_ways(scenarios::late_release));
    assert_violation(pair.both_ways(scenarios::hold_counts));
    assert_violation(pair.mismatch(&peers::ours("mutex", "{name}")));
    assert_violation(wake_ups(&ours, &faulty, &masters, 1));
    assert_violation(
        pair.count(length, length / 100)
            .and_then(|count| count.check()),
    );
    pair.must_clash(length).unwrap();
}

#[test]
fn a_lock_under_another_key_is_found() {
    let masters = masters(3);
    let pair = Pair {
        ours: &peers::ours("reentrant", "{name}"),
        ours_that_polls: &peers::ours("reentrant", "{name}"),
        peer: &peers::ours("reentrant", "redlock:{name}"),
        masters: &masters,
    };
    let other_kind = peers::ours("mutex", "{name}");
    let failures = pair.findings(&other_kind, true, Extent::QUICK).failures();
    assert_eq!(failures.len(), 7, "{failures:?}");
    let is_violation = |failure: &String| failure.contains("VIOLATION");
    assert!(failures.iter().all(is_violation), "{failures:?}");
}

#[test]
fn a_run_without_other_libraries_fails() {
    let page = Page::new(&[], Extent::QUICK);
    assert_eq!(page.failures(), ["no other library ran"]);
}

/// If two locks exclude each other, this is a failure where a clash is expected.
#[test]
fn a_clash_that_does_not_come_is_a_failure() {
    let masters = masters(3);
    let ours = peers::ours("mutex", "{name}");
    let pair = Pair {
        ours: &ours,
        ours_that_polls: &ours,
        peer: &ours,
        masters: &masters,
    };
    let result = pair.must_clash(Extent::QUICK.clash);
    assert!(matches!(result, Err(Failure::Breakdown(_))), "{result:?}");
}

fn assert_violation<T: Debug>(result: Outcome<T>) {
    assert!(matches!(result, Err(Failure::Violation(_))), "{result:?}");
}
