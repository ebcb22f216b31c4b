//! Masters that answer the first command after the greeting with bytes that never end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quorlock::{Coordinator, Quarantine};

use super::fake_server::{Fake, Peer};

/// What a flooding master sends without end.
#[derive(Clone, Copy, Debug)]
pub enum Flood {
    /// The text of one reply.
    Bytes,
    /// Messages of a channel to which nobody subscribed.
    Messages,
    /// Replies to commands that nobody sent.
    Replies,
    /// Reports that a key has changed.
    Reports,
}

impl Flood {
    pub const ALL: [Self; 4] = [Self::Bytes, Self::Messages, Self::Replies, Self::Reports];

    fn text(self) -> Vec<u8> {
        const LENGTH: usize = 1024 * 1024;
        let piece: &[u8] = match self {
            Self::Bytes => b"$1048576000\r\n",
            Self::Messages => b">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n0\r\n",
            Self::Replies => b"+OK\r\n",
            Self::Reports => b">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\nflood\r\n",
        };
        match self {
            Self::Bytes => [piece, &vec![b'x'; LENGTH]].concat(),
            Self::Messages | Self::Replies | Self::Reports => piece.repeat(LENGTH / piece.len()),
        }
    }
}

/// Counts the floods.
#[derive(Debug, Default)]
pub struct Floods {
    begun: AtomicUsize,
    cut_short: AtomicUsize,
}

impl Floods {
    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns the number of floods that the client cut short.
    pub fn cut_short(&self) -> usize {
        self.cut_short.load(Ordering::Relaxed)
    }

    /// Answers the greeting, waits for a command, and then floods for `length`.
    pub fn serve(&self, peer: &mut Peer, flood: Flood, length: Duration) {
        if peer.greet().is_none() {
            return;
        }
        self.begun.fetch_add(1, Ordering::Relaxed);
        let (text, end) = (flood.text(), Instant::now() + length);
        while Instant::now() < end {
            if peer.say(&text).is_none() {
                self.cut_short.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// Waits for a lock on five masters that all flood, again and again for `span`. Returns the number
/// of waits, and the longest time by which a wait exceeded its limit.
pub async fn over_limit(flood: Flood, span: Duration) -> (usize, Duration) {
    let limit = Duration::from_millis(400);
    let floods = Arc::new(Floods::default());
    let masters: Vec<_> = (0..5)
        .map(|_| {
            let floods = floods.clone();
            Fake::tcp(move |peer| floods.serve(peer, flood, Duration::from_secs(600)))
        })
        .collect();
    let locks = Coordinator::builder()
        .masters(masters.iter().map(Fake::url))
        .quarantine(Quarantine::Off)
        .ttl(Duration::from_secs(1))
        .build()
        .unwrap();
    let lock = locks.mutex("flood");
    let (begin, mut waits, mut longest) = (Instant::now(), 0, Duration::ZERO);
    while begin.elapsed() < span {
        let start = Instant::now();
        let acquired = lock.acquire_within(limit).await;
        longest = longest.max(start.elapsed().saturating_sub(limit));
        waits += 1;
        // Some of the endless replies look like those of a good master.
        drop(acquired);
    }
    assert!(floods.begun() > 0, "nothing was flooded");
    locks.close().await;
    (waits, longest)
}
