//! Links with a latency of their own between a coordinator and memory masters.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use quorlock::{MasterSpec, MemoryMaster};
use testkit::random::Random;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    sync::mpsc,
    time::{Instant, sleep_until},
};

/// The time that bytes take in one direction: for each piece, a random one between two bounds. A
/// change holds for all links that share the latency, also for open connections.
#[derive(Debug)]
pub(crate) struct Latency {
    least: AtomicU64,
    most: AtomicU64,
    /// The number of times that the network has forgotten all connections.
    forgotten: AtomicU64,
}

impl Latency {
    pub(crate) fn of_round_trip(round_trip: Duration) -> Arc<Self> {
        Self::one_way(round_trip / 2, round_trip / 2)
    }

    pub(crate) fn one_way(least: Duration, most: Duration) -> Arc<Self> {
        Arc::new(Self {
            least: micros(least).into(),
            most: micros(most).into(),
            forgotten: AtomicU64::new(0),
        })
    }

    pub(crate) fn set_round_trip(&self, round_trip: Duration) {
        let one_way = micros(round_trip / 2);
        self.least.store(one_way, Relaxed);
        self.most.store(one_way, Relaxed);
    }

    /// Loses what passes over the present connections from now on, and closes none of them.
    pub(crate) fn forget(&self) {
        self.forgotten.fetch_add(1, Relaxed);
    }

    fn draw(&self, random: &mut Random) -> Duration {
        let (least, most) = (self.least.load(Relaxed), self.most.load(Relaxed));
        Duration::from_micros(least + random.below(most.saturating_sub(least) + 1))
    }
}

/// Returns a master that a process reaches over links with this latency.
pub(crate) fn linked(master: &MemoryMaster, latency: &Arc<Latency>, seed: u64) -> MasterSpec {
    let (master, latency) = (master.clone(), latency.clone());
    let dials = AtomicU64::new(seed);
    let port = master.address().rsplit(':').next().unwrap().to_owned();
    MasterSpec::with_connector(&format!("redis://linked{port}:1"), move || {
        let (stream, latency) = (master.connect(), latency.clone());
        let seed = dials.fetch_add(2, Relaxed);
        async move {
            let (from_master, to_master) = split(stream?);
            let (client, ours) = duplex(256 * 1024);
            let (from_client, to_client) = split(ours);
            delay(from_client, to_master, latency.clone(), seed);
            delay(from_master, to_client, latency, seed + 1);
            Ok::<_, io::Error>(client)
        }
    })
}

/// Passes on what comes from one stream to another, in order, each piece after the latency.
fn delay(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    latency: Arc<Latency>,
    seed: u64,
) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        let mut random = Random::new(seed);
        let mut last = Instant::now();
        let mut bytes = vec![0; 64 * 1024];
        let born = latency.forgotten.load(Relaxed);
        while let Ok(length @ 1..) = from.read(&mut bytes).await {
            last = last.max(Instant::now() + latency.draw(&mut random));
            if latency.forgotten.load(Relaxed) != born {
                continue;
            }
            if sender.send((last, bytes[..length].to_vec())).is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some((at, bytes)) = receiver.recv().await {
            sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}
