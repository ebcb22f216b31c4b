//! Every public call returns, whatever masters reply.

use std::env;

use crate::{
    alone::{alone, length, run},
    servers,
    support::{calls::fuzz, gauge, random::Random},
};

/// `QUORLOCK_HOSTILE_SEED` repeats a run, as far as the machine does; `QUORLOCK_HOSTILE_SECONDS`
/// makes it longer.
#[test]
fn every_call_returns_whatever_masters_reply() {
    if servers::only_urls() {
        return;
    }
    alone("calls::every_call_returns_whatever_masters_reply", || {
        gauge::count_panics();
        let seed = env::var("QUORLOCK_HOSTILE_SEED").ok();
        let seed = seed.map_or_else(Random::fresh_seed, |seed| seed.parse().unwrap());
        let servers = servers::masters(3);
        let before = gauge::rss_mb();
        run(async {
            let fuzzed = fuzz(&servers, seed, length()).await;
            let grown = gauge::rss_mb() - before;
            println!("seed {seed}: {fuzzed:?}, {grown:.1} MB");
            assert_eq!(fuzzed.hung, [""; 0], "calls that hang; the seed is {seed}");
            assert_eq!(gauge::panics(), 0, "panics; the seed is {seed}");
            assert!(grown < 64.0, "{grown} MB; the seed is {seed}");
            assert!(fuzzed.mutated > 50, "hardly anything was falsified");
        });
    });
}
