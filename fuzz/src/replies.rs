//! Replies of hostile masters: every call returns in time, the load stays bounded, and once the
//! masters are honest, locks can be had again.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use arbitrary::{Arbitrary, Unstructured};
use quorlock::{Coordinator, MasterSpec, Quarantine};
use tokio::time::Instant;

use super::{
    hostile_master::{HostileMaster, Script},
    paused_runtime,
    session::{AnyQuarantine, Call, Task, within},
};

pub fn run(input: &[u8]) {
    if let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(input)) {
        paused_runtime().block_on(input.run());
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(20);
const TTL: Duration = Duration::from_millis(1_000);
/// The longest time until a master that became honest is dialled again.
const REDIAL: Duration = Duration::from_millis(1_300);
/// The most time that a call may take beyond its own limit: the first connection, and some rounds.
const BOUND: Duration = Duration::from_millis(600);

#[derive(Arbitrary, Debug)]
struct Input {
    quarantine: AnyQuarantine,
    masters: [Script; 3],
    tasks: [Vec<Call>; 2],
}

impl Input {
    async fn run(self) {
        let start = Instant::now();
        let mut number = 0;
        let masters = self.masters.map(|script| {
            number += 1;
            HostileMaster::new(number, script)
        });
        let locks = coordinator(self.quarantine.0, masters.each_ref().map(spec));
        let task = |number: usize| {
            let task = Task {
                locks: &locks,
                owner: locks.new_owner(),
                guards: Vec::new(),
                bound: BOUND,
            };
            task.make(&self.tasks[number])
        };
        tokio::join!(task(0), task(1));
        masters.iter().for_each(HostileMaster::repent);
        let fresh = locks.mutex("fresh");
        let acquired = within("recovery", 2 * REDIAL, fresh.acquire_within(REDIAL)).await;
        // With quarantine off, nothing that a master said before can keep it from voting.
        if let (Quarantine::Off, Err(error)) = (self.quarantine.0, &acquired) {
            panic!("the masters are honest: {error}");
        }
        drop(acquired);
        within("close", TTL + REDIAL, locks.close()).await;
        let seconds = start.elapsed().as_secs_f64();
        for master in &masters {
            let (connections, commands) = master.load();
            // The shortest pause between two dials is 20 ms.
            assert!(
                (connections as f64) < 2.0 + seconds * 60.0,
                "{connections} dials in {seconds} s"
            );
            assert!(commands < 5_000, "{commands} commands in {seconds} s");
        }
    }
}

/// Returns the master with an address of its own. A process remembers the servers that answered at
/// an address.
fn spec(master: &HostileMaster) -> MasterSpec {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    master.spec(&format!("hostile-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn coordinator(quarantine: Quarantine, masters: [MasterSpec; 3]) -> Coordinator {
    let locks = Coordinator::builder()
        .masters(masters)
        .response_timeout(RESPONSE_TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        .ttl(TTL)
        .max_ttl(TTL)
        .silent_waiter_timeout(TTL)
        .quarantine(quarantine);
    locks.build().expect("the settings are good")
}
