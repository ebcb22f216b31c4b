//! Connections that end after a short time do not stop a client whose masters work.

use std::{sync::Arc, time::Duration};

use quorlock::Coordinator;
use testkit::{
    hostile::{
        process_stats::Log,
        short_lived::{Killer, locks_per_second},
    },
    server,
};

use crate::own_process::{in_own_process, run};

#[test]
fn locks_go_on_while_connections_are_killed() {
    if server::only_urls() {
        return;
    }
    in_own_process(|| {
        let log = Log::listen();
        let masters = Arc::new(server::masters(5));
        run(async {
            let locks = Coordinator::builder()
                .masters(masters.iter().map(server::Server::url))
                .build()
                .unwrap();
            let before = locks_per_second(&locks, 4).await;
            let _killer = Killer::start(masters.clone(), Duration::from_millis(250));
            let during = locks_per_second(&locks, 8).await;
            println!("{before:?}, then {during:?} locks per second");
            // The first seconds are left out: the pauses between dials would grow there.
            let [before, during] = [median(&before), median(&during[2..])];
            assert!(during * 10 >= before * 4, "{during}, undisturbed {before}");
            // One for each master, although each connection breaks.
            assert!(log.warnings() <= masters.len(), "{}", log.lines());
        });
    });
}

fn median(counts: &[u64]) -> u64 {
    let mut counts = counts.to_vec();
    counts.sort_unstable();
    counts[counts.len() / 2]
}
