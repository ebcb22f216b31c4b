//! Runs the fuzz targets on the inputs in `fuzz/corpus`, and the replies of hostile masters on random
//! inputs, too. `./dev fuzz` looks for new inputs.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the targets run as tests"
)]

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use testkit::{hostile::process_stats, random::Random};

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a library in fuzz/")]
mod targets;

#[test]
fn configuration() {
    replay("configuration", targets::configuration::run);
}

#[test]
fn replies() {
    replay("replies", targets::replies::run);
}

/// Each input has a seed of its own, which is shown if the target fails.
#[test]
fn random_replies() {
    process_stats::count_panics();
    let (before, end) = (
        process_stats::rss_mb(),
        Instant::now() + Duration::from_secs(5),
    );
    while Instant::now() < end {
        let seed = Random::fresh_seed();
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let length = random.below(4_000);
        let input: Vec<_> = (0..length).map(|_| random.number() as u8).collect();
        targets::replies::run(&input);
        assert_eq!(process_stats::panics(), 0, "panics that the crate caught");
    }
    let grown = process_stats::rss_mb() - before;
    assert!(grown < 64.0, "{grown} MB");
}

#[test]
fn resp() {
    replay("resp", targets::resp::run);
}

#[test]
fn urls() {
    replay("urls", targets::urls::run);
}

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    let mut inputs: Vec<_> = fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(inputs.len() > 5, "only {} inputs", inputs.len());
    for input in inputs {
        println!("{}", input.display()); // shown if the target fails
        run(&fs::read(input).unwrap());
    }
}
