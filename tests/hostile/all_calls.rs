//! Every public call returns, whatever masters reply.

use std::env;

use testkit::{
    hostile::{all_calls::fuzz, process_stats},
    random::Random,
    server,
};

use crate::own_process::{fuzz_length, in_own_process, run};

/// `QUORLOCK_HOSTILE_SEED` repeats a run as far as possible, and `QUORLOCK_HOSTILE_SECONDS` makes
/// it longer.
#[test]
fn every_call_returns_whatever_masters_reply() {
    if server::only_urls() {
        return;
    }
    in_own_process(|| {
        process_stats::count_panics();
        let seed = env::var("QUORLOCK_HOSTILE_SEED").ok();
        let seed = seed.map_or_else(Random::fresh_seed, |seed| seed.parse().unwrap());
        let servers = server::masters(3);
        let before = process_stats::rss_mb();
        run(async {
            let fuzzed = fuzz(&servers, seed, fuzz_length()).await;
            let grown = process_stats::rss_mb() - before;
            println!("seed {seed}: {fuzzed:?}, {grown:.1} MB");
            assert_eq!(fuzzed.hung, [""; 0], "calls that hang; the seed is {seed}");
            assert_eq!(process_stats::panics(), 0, "panics; the seed is {seed}");
            assert!(grown < 64.0, "{grown} MB; the seed is {seed}");
            assert!(fuzzed.mutated > 20, "too few replies were falsified");
        });
    });
}
