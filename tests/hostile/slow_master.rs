//! A slow or silent master gets no more load than the other masters, and the client's memory stays
//! bounded.

use std::time::Duration;

use quorlock::{Coordinator, Quarantine};
use testkit::{
    hostile::{
        fake_server::Fake,
        load::Load,
        process_stats::{self, Log},
    },
    proxy::Proxy,
    server::{self, Server},
};
use tokio::time::sleep;

use crate::own_process::{beside_others, in_own_process, run};

/// One of five masters has a round trip of 200 ms.
#[test]
fn a_master_slower_than_the_node_timeout_gets_no_more_commands_than_the_others() {
    if server::only_urls() {
        return;
    }
    in_own_process(|| {
        let log = Log::listen();
        let masters = server::masters(5);
        let proxy = Proxy::delay(masters[4].port(), Duration::from_millis(100));
        let lock_commands =
            |server: &Server| server.calls(|command| matches!(command, "set" | "eval" | "evalsha"));
        run(async {
            let locks = Coordinator::builder()
                .masters(masters[..4].iter().map(Server::url))
                .master(proxy.url())
                .response_timeout(Duration::from_millis(50))
                .ttl(Duration::from_secs(30))
                .build()
                .unwrap();
            let load = Load::start(&locks, 500, None);
            // Pending releases pile up in the first period.
            sleep(PERIOD).await;
            let before: Vec<_> = masters.iter().map(lock_commands).collect();
            sleep(PERIOD).await;
            let counts: Vec<_> = masters.iter().map(lock_commands).collect();
            let (won, failed) = (load.won(), load.failed());
            load.stop().await;
            let counts: Vec<_> = counts
                .iter()
                .zip(before)
                .map(|(now, then)| now - then)
                .collect();
            let healthy = counts[..4].iter().sum::<u64>() as f64 / 4.0;
            let ratio = counts[4] as f64 / healthy;
            let warnings = log.warnings_about(&proxy.url());
            println!("{won} locks, {failed} failed; commands {counts:?}, ratio {ratio:.2}");
            println!(
                "{warnings} warnings about the slow master:\n{}",
                log.lines()
            );
            assert!(ratio <= 1.1, "{ratio}: {counts:?}");
            assert!(warnings <= 1, "{warnings} warnings:\n{}", log.lines());
            assert!(won > 4 * failed, "{won} locks, {failed} failed");
        });
    });
}

/// The master is dialled several times, and every dial succeeds.
#[test]
fn a_master_that_greets_and_hangs_up_is_one_outage() {
    beside_others(|| {
        if server::only_urls() {
            return;
        }
        let log = Log::listen();
        let masters = server::masters(2);
        let hostile = Fake::tcp(|peer| drop(peer.greet()));
        run(async {
            let locks = Coordinator::builder()
                .masters(masters.iter().map(Server::url))
                .master(hostile.url())
                .quarantine(Quarantine::Off)
                .build()
                .unwrap();
            drop(locks.mutex("a").try_acquire().await.unwrap());
            sleep(Duration::from_secs(6)).await;
            let (dials, warnings) = (hostile.connections(), log.warnings_about(&hostile.url()));
            println!("{dials} dials, {warnings} warnings:\n{}", log.lines());
            assert_eq!(warnings, 1);
            // The pause between dials grows up to a second.
            assert!((3..40).contains(&dials), "{dials}");
        });
    });
}

/// The master answers the greeting, then reads all commands and answers none.
#[test]
fn a_master_that_never_answers_takes_no_unbounded_memory() {
    in_own_process(|| {
        let log = Log::listen();
        let silent = Fake::tcp(|peer| {
            if peer.greet().is_some() {
                peer.swallow();
            }
        });
        let fakes = [Fake::honest(Duration::ZERO), Fake::honest(Duration::ZERO)];
        run(async {
            let locks = Coordinator::builder()
                .masters(fakes.iter().map(Fake::url))
                .master(silent.url())
                .quarantine(Quarantine::Off)
                .build()
                .unwrap();
            let load = Load::start(&locks, 0, Some(Duration::from_secs(600)));
            // After this many locks, the number of pending releases for one master is at its limit.
            load.reach(HALF, MOST).await;
            let (before, first) = (process_stats::rss_mb(), load.won());
            load.reach(first + HALF, MOST).await;
            let grown = process_stats::rss_mb() - before;
            let (won, failed) = (load.won(), load.failed());
            println!(
                "{won} locks ({first} before), {failed} failed; {before:.1} MB, then {grown:.1} MB more"
            );
            let warnings = log.warnings_about(&silent.url());
            println!(
                "{warnings} warnings about the silent master:\n{}",
                log.lines()
            );
            load.stop().await;
            assert!(won >= HALF, "only {won} locks");
            // Without a bound, memory would grow by 50 MB.
            assert!(grown < 10.0, "{grown} MB more in {} locks", won - first);
            assert!(warnings <= 1, "{warnings} warnings:\n{}", log.lines());
        });
    });
}

const PERIOD: Duration = Duration::from_secs(4);
const HALF: u64 = 40_000;
const MOST: Duration = Duration::from_secs(20);
