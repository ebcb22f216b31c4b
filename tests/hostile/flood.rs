//! Masters that send without end. If one of three masters does so, calls on the others are not
//! delayed. If all masters do so, calls return soon after their limits.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use quorlock::{Coordinator, Quarantine};
use testkit::{
    hostile::{
        fake_server::{Fake, Peer},
        floods::{Flood, Floods, over_limit},
    },
    server,
};
use tokio::{runtime::Runtime, time::timeout};

use crate::own_process::{current_thread, in_own_process, multi_thread};

#[test]
fn a_flood_over_tcp_delays_no_call_on_one_thread() {
    in_own_process(|| {
        check_no_delay(&current_thread(), Over::Tcp);
    });
}

#[test]
fn a_flood_over_a_unix_socket_delays_no_call_on_two_threads() {
    in_own_process(|| check_no_delay(&multi_thread(), Over::Unix));
}

#[test]
fn calls_return_soon_after_their_limit_on_one_thread() {
    in_own_process(|| check_limits(&current_thread()));
}

#[test]
fn calls_return_soon_after_their_limit_on_two_threads() {
    in_own_process(|| check_limits(&multi_thread()));
}

/// All masters flood. The bound is generous, because this process also runs the masters.
fn check_limits(runtime: &Runtime) {
    for flood in Flood::ALL {
        let (waits, over) = runtime.block_on(over_limit(flood, Duration::from_secs(1)));
        println!("{flood:?}: {waits} waits, at most {over:?} over the limit");
        assert!(over < Duration::from_secs(5), "{flood:?}: {over:?}");
    }
}

/// Checks that calls return long before the flood ends. Also checks that the connection to the
/// flooding master is given up.
fn check_no_delay(runtime: &Runtime, over: Over) {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(2);
    let floods = Arc::new(Floods::default());
    let hostile = {
        let floods = floods.clone();
        let serve = move |peer: &mut Peer| floods.serve(peer, Flood::Messages, FLOOD);
        match over {
            Over::Tcp => Fake::tcp(serve),
            Over::Unix => Fake::unix(serve),
        }
    };
    let urls = masters.iter().map(server::Server::url);
    runtime.block_on(async {
        let locks = Coordinator::builder()
            .masters(urls.chain([hostile.url()]))
            .quarantine(Quarantine::Off)
            .node_timeout(NODE_TIMEOUT)
            .ttl(FLOOD / 4)
            .build()
            .unwrap();
        let lock = locks.mutex("a");
        let start = Instant::now();
        let mut longest = Duration::ZERO;
        let mut won = 0;
        let mut calls = 0;
        while (floods.cut_short() == 0 || calls < ROUNDS) && start.elapsed() < FLOOD {
            let begin = Instant::now();
            if let Ok(guard) = lock.try_acquire().await {
                won += 1;
                let _ = guard.release().await;
            }
            drop(lock.inspect().await);
            longest = longest.max(begin.elapsed());
            calls += 1;
        }
        println!(
            "{calls} rounds of calls, {won} locks, the longest round {longest:?}; {} floods, {} of them cut short after {:?}",
            floods.begun(),
            floods.cut_short(),
            start.elapsed()
        );
        assert!(floods.cut_short() > 0, "the flood was read until its end");
        assert!(longest < FLOOD / 3, "a round of calls took {longest:?}");
        assert!(won > 0, "no lock in {calls} rounds");
        timeout(FLOOD, locks.close()).await.unwrap();
    });
}

#[derive(Clone, Copy, Debug)]
enum Over {
    Tcp,
    Unix,
}

const NODE_TIMEOUT: Duration = Duration::from_millis(50);
const FLOOD: Duration = Duration::from_secs(12);
const ROUNDS: usize = 10;
