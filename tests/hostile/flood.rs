//! Masters that answer the first command after the greeting with bytes that never end. If one of
//! three masters does so, calls on the others are not delayed. If all masters do so, calls return
//! soon after their limits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use quorlock::{Coordinator, Quarantine};
use testkit::{hostile::fake_server::Fake, server};
use tokio::time::timeout;

use crate::own_process::{current_thread, in_own_process};

/// Each call returns long before the flood ends, and the connection to the flooding master is given
/// up.
#[test]
fn a_flood_delays_no_call() {
    if server::only_urls() {
        return;
    }
    in_own_process(|| {
        let masters = server::masters(2);
        let floods = Arc::<Floods>::default();
        let hostile = floods.master(MESSAGES);
        let urls = masters.iter().map(server::Server::url);
        current_thread().block_on(async {
            let locks = Coordinator::builder()
                .masters(urls.chain([hostile.url()]))
                .quarantine(Quarantine::Off)
                .response_timeout(Duration::from_millis(50))
                .ttl(FLOOD / 4)
                .build()
                .unwrap();
            let lock = locks.mutex("a");
            let start = Instant::now();
            let (mut longest, mut won, mut calls) = (Duration::ZERO, 0, 0);
            let cut_short = || floods.cut_short.load(Ordering::Relaxed);
            while (cut_short() == 0 || calls < 10) && start.elapsed() < FLOOD {
                let begin = Instant::now();
                if let Ok(guard) = lock.try_acquire().await {
                    won += 1;
                    let _ = guard.release().await;
                }
                drop(lock.inspect().await);
                longest = longest.max(begin.elapsed());
                calls += 1;
            }
            println!("{calls} rounds of calls, {won} locks, the longest round {longest:?}");
            assert!(cut_short() > 0, "the flood was read until its end");
            assert!(longest < FLOOD / 3, "a round of calls took {longest:?}");
            assert!(won > 0, "no lock in {calls} rounds");
            timeout(FLOOD, locks.close()).await.unwrap();
        });
    });
}

/// All masters flood. The bound is generous, because this process also runs the masters.
#[test]
fn calls_return_soon_after_their_limit() {
    in_own_process(|| {
        for piece in [
            MESSAGES,
            b"+OK\r\n",                                          // replies to no command
            b">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\nflood\r\n", // reports of changes
            b"$1048576000\r\n",                                  // one reply
        ] {
            let over = current_thread().block_on(over_limit(piece));
            let piece = piece.escape_ascii();
            println!("{piece}: at most {over:?} over the limit");
            assert!(over < Duration::from_secs(5), "{piece}: {over:?}");
        }
    });
}

/// Waits for a lock on five masters that all flood, again and again for a second. Returns the
/// longest time by which a wait exceeded its limit.
async fn over_limit(piece: &'static [u8]) -> Duration {
    let limit = Duration::from_millis(400);
    let floods = Arc::<Floods>::default();
    let masters = [(); 5].map(|()| floods.master(piece));
    let locks = Coordinator::builder()
        .masters(masters.iter().map(Fake::url))
        .quarantine(Quarantine::Off)
        .ttl(Duration::from_secs(1))
        .build()
        .unwrap();
    let lock = locks.mutex("flood");
    let (begin, mut longest) = (Instant::now(), Duration::ZERO);
    while begin.elapsed() < Duration::from_secs(1) {
        let start = Instant::now();
        // Some of the endless replies look like those of a good master.
        drop(lock.acquire_within(limit).await);
        longest = longest.max(start.elapsed().saturating_sub(limit));
    }
    assert!(floods.begun.load(Ordering::Relaxed) > 0, "nothing flooded");
    locks.close().await;
    longest
}

/// Counts the floods, and those that the client cut short.
#[derive(Default)]
struct Floods {
    begun: AtomicUsize,
    cut_short: AtomicUsize,
}

impl Floods {
    /// Starts a master that answers the greeting, waits for a command, and then sends `piece` again
    /// and again. A piece that begins a long text is sent once.
    fn master(self: &Arc<Self>, piece: &'static [u8]) -> Fake {
        const LENGTH: usize = 1024 * 1024;
        let text = match piece {
            [b'$', ..] => [piece, &vec![b'x'; LENGTH]].concat(),
            _ => piece.repeat(LENGTH / piece.len()),
        };
        let floods = self.clone();
        Fake::tcp(move |peer| {
            if peer.greet().is_none() {
                return;
            }
            floods.begun.fetch_add(1, Ordering::Relaxed);
            let end = Instant::now() + FLOOD;
            while Instant::now() < end {
                if peer.say(&text).is_none() {
                    floods.cut_short.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        })
    }
}

/// Messages of a channel to which nobody subscribed.
const MESSAGES: &[u8] = b">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n0\r\n";
const FLOOD: Duration = Duration::from_secs(12);
