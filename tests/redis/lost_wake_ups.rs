//! Hand-overs between clients while connections are killed at random. No waiter misses a release.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use quorlock::{Coordinator, Kind};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::common::*;

/// The longest wait of a client that hears of every release, with room for a busy machine.
const LONGEST: Duration = Duration::from_secs(10);
/// The shortest time between two polls. A client that misses a release waits for about this long.
const POLL: Duration = Duration::from_secs(30);

#[test]
fn no_wake_up_is_lost_with_a_connection() {
    on_each_version(5, async |version, masters| {
        hand_over(version, &masters, 500).await;
    });
}

#[test]
#[ignore = "takes long: ./dev servers; cargo test --release --test redis 100_000 -- --ignored --nocapture"]
fn no_wake_up_is_lost_in_100_000_hand_overs() {
    on_each_version(5, async |version, masters| {
        hand_over(version, &masters, 100_000).await;
    });
}

/// Hands a mutex over `count` times, and locks of the other kinds less often.
async fn hand_over(version: &str, masters: &[Server], count: usize) {
    for (kind, count) in [
        (Kind::Mutex, count),
        (Kind::Reentrant, count / 10),
        (Kind::Fair, count / 10),
    ] {
        let start = Instant::now();
        let relay = Relay::new(count);
        let mut clients = JoinSet::new();
        for number in 0..5 {
            let builder = patient()
                .poll_interval(POLL, POLL * 2)
                .waiter_timeout(POLL * 4);
            let (locks, relay) = (coordinator(builder, masters), relay.clone());
            clients.spawn(async move { relay.run(number, &locks, kind).await });
        }
        let mut kills = 0;
        let mut waits = Vec::new();
        while !clients.is_empty() {
            kills += kill_a_connection(masters);
            // Connections that are killed more often stay closed for most of the time.
            sleep(Duration::from_micros(rand::random_range(0..80_000))).await;
            if let Some(wait) = clients.try_join_next() {
                waits.push(wait.unwrap());
            }
        }
        let longest = waits.into_iter().max().unwrap();
        println!(
            "{version}: {count} hand-overs of a {kind} in {:.1?}, {kills} connections killed, \
             longest wait {longest:.1?}",
            start.elapsed()
        );
        assert_no_keys(masters);
    }
}

/// Clients that hand a lock around.
struct Relay {
    /// The number of hand-overs so far, and the client that has the lock or had it last.
    state: watch::Sender<(usize, Option<usize>)>,
    /// The number of hand-overs at which the relay ends.
    end: usize,
}

impl Relay {
    fn new(end: usize) -> Arc<Self> {
        let state = watch::Sender::new((0, None));
        Arc::new(Self { state, end })
    }

    /// Acquires and releases the lock until the relay is over. After each release, waits until
    /// another client has the lock. Returns the longest time for which the lock was asked for.
    async fn run(&self, client: usize, locks: &Coordinator, kind: Kind) -> Duration {
        let lock = lock_of_kind(kind, "r", locks, &locks.owner());
        let mut longest = Duration::ZERO;
        while !self.is_over() {
            let start = Instant::now();
            let guard = timeout(LONGEST, lock.acquire()).await;
            let guard = guard.expect("a client has missed a release").unwrap();
            longest = longest.max(start.elapsed());
            self.state
                .send_modify(|state| *state = (state.0 + 1, Some(client)));
            drop(guard);
            let mut state = self.state.subscribe();
            let is_next = |&(count, last): &_| last != Some(client) || count >= self.end;
            state.wait_for(is_next).await.unwrap();
        }
        locks.close().await;
        longest
    }

    fn is_over(&self) -> bool {
        self.state.borrow().0 >= self.end
    }
}

/// Kills one connection of a client. Returns the number of connections that were killed.
fn kill_a_connection(masters: &[Server]) -> usize {
    let master = &masters[rand::random_range(0..masters.len())];
    let list = master.command(&["CLIENT", "LIST"]);
    let ids: Vec<_> = list
        .lines()
        .filter(|line| !line.contains("cmd=client")) // the connection of this command
        .filter_map(|line| line.strip_prefix("id=")?.split_once(' '))
        .map(|(id, _)| id)
        .collect();
    if ids.is_empty() {
        return 0;
    }
    let id = ids[rand::random_range(0..ids.len())];
    let killed = master.command(&["CLIENT", "KILL", "ID", id]);
    killed.parse().unwrap()
}
