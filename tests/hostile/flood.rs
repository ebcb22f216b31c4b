//! One of three masters sends messages without end. Calls on the other masters are not delayed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use quorlock::{Coordinator, RestartGuard};
use tokio::{runtime::Runtime, time::timeout};

use crate::{
    own_process::{current_thread, in_own_process, multi_thread},
    servers,
    support::fake_server::{Fake, Peer},
};

#[test]
fn a_flood_over_tcp_delays_no_call_on_one_thread() {
    in_own_process(
        "flood::a_flood_over_tcp_delays_no_call_on_one_thread",
        || {
            check_no_delay(&current_thread(), Over::Tcp);
        },
    );
}

#[test]
fn a_flood_over_tcp_delays_no_call_on_two_threads() {
    in_own_process(
        "flood::a_flood_over_tcp_delays_no_call_on_two_threads",
        || {
            check_no_delay(&multi_thread(), Over::Tcp);
        },
    );
}

#[test]
fn a_flood_over_a_unix_socket_delays_no_call_on_one_thread() {
    in_own_process(
        "flood::a_flood_over_a_unix_socket_delays_no_call_on_one_thread",
        || check_no_delay(&current_thread(), Over::Unix),
    );
}

#[test]
fn a_flood_over_a_unix_socket_delays_no_call_on_two_threads() {
    in_own_process(
        "flood::a_flood_over_a_unix_socket_delays_no_call_on_two_threads",
        || check_no_delay(&multi_thread(), Over::Unix),
    );
}

/// Checks that calls return long before the flood ends. Also checks that the connection to the
/// flooding master is given up.
fn check_no_delay(runtime: &Runtime, over: Over) {
    if servers::only_urls() {
        return;
    }
    let masters = servers::masters(2);
    let floods = Arc::new(Floods::default());
    let hostile = {
        let floods = floods.clone();
        let serve = move |peer: &mut Peer| floods.serve(peer);
        match over {
            Over::Tcp => Fake::tcp(serve),
            Over::Unix => Fake::unix(serve),
        }
    };
    let urls = masters.iter().map(servers::Server::url);
    runtime.block_on(async {
        let locks = Coordinator::builder()
            .masters(urls.chain([hostile.url()]))
            .restart_guard(RestartGuard::Off)
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

#[derive(Debug, Default)]
struct Floods {
    begun: AtomicUsize,
    cut_short: AtomicUsize,
}

impl Floods {
    fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns the number of floods that the client cut short.
    fn cut_short(&self) -> usize {
        self.cut_short.load(Ordering::Relaxed)
    }

    /// Answers the greeting, and then sends valid messages but no replies.
    fn serve(&self, peer: &mut Peer) {
        if peer.greet().is_none() {
            return;
        }
        self.begun.fetch_add(1, Ordering::Relaxed);
        let messages = b">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n0\r\n".repeat(30_000);
        let end = Instant::now() + FLOOD;
        while Instant::now() < end {
            if peer.say(&messages).is_none() {
                self.cut_short.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }
}

const NODE_TIMEOUT: Duration = Duration::from_millis(50);
const FLOOD: Duration = Duration::from_secs(12);
const ROUNDS: usize = 10;
