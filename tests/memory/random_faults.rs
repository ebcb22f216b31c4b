//! Clients act at random on masters that fail at random. There are never two valid guards of one
//! name, and no key is left in the end.
//!
//! A seed determines the actions of clients and masters, and is printed when a run fails. The seed
//! does not determine the crate's own delays and tokens.

use std::{cell::RefCell, rc::Rc, thread, time::Duration};

use quorlock::{Coordinator, Fault, Guard, Lock, MemoryMaster, Renewal};
use testkit::random::Random;
use tokio::{
    runtime,
    time::{Instant, sleep, timeout},
};

use crate::world::{delay, error, millis};

const CLIENTS: usize = 3;
const LONGEST_TTL: u64 = 1_500;
const MASTERS: usize = 5;
const NAMES: [&str; 2] = ["one", "other"];
const RUN: Duration = Duration::from_secs(5);
const SEEDS: u64 = 40;

#[test]
fn no_two_clients_hold_a_lock_at_once_whatever_happens() {
    let (mut won, mut extended) = (0, 0);
    for seed in 0..SEEDS {
        let _print = PrintOnPanic(seed);
        let runtime = runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let seen = runtime.block_on(run(seed));
        won += seen.won;
        extended += seen.extended;
    }
    // If every attempt failed, the test would find no error and show nothing.
    assert!(
        won > 20 * SEEDS && extended > 20 * SEEDS,
        "{won} won, {extended} extended"
    );
}

async fn run(seed: u64) -> Seen {
    let masters: Vec<_> = (0..MASTERS).map(|_| MemoryMaster::new()).collect();
    let stage = Stage {
        end: Instant::now() + RUN,
        guards: RefCell::default(),
        seen: RefCell::default(),
    };
    let locks = [(); CLIENTS].map(|()| Coordinator::new(&masters).unwrap());
    let client = |number: usize| {
        stage.client(
            number,
            &locks[number],
            Random::new(seed << 8 | number as u64),
        )
    };
    tokio::join!(
        client(0),
        client(1),
        client(2),
        stage.faults(&masters, Random::new(seed << 8 | 0xff))
    );

    for master in &masters {
        master.inject(Fault::None);
    }
    let longest = millis(LONGEST_TTL);
    for locks in locks {
        // A pending release ends with the TTL, but its end is noticed only at the next dial.
        timeout(longest + millis(1_100), locks.close())
            .await
            .unwrap();
    }
    // A master that comes back may execute late commands. Their keys expire within the longest TTL.
    sleep(longest + millis(1)).await;
    for master in &masters {
        assert_eq!(master.keys(), [""; 0]);
    }
    stage.seen.into_inner()
}

/// The state shared by the clients of a run.
#[derive(Debug)]
struct Stage {
    end: Instant,
    /// The guard that each client holds.
    guards: RefCell<[Option<Rc<Guard>>; CLIENTS]>,
    seen: RefCell<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    won: u64,
    extended: u64,
}

impl Stage {
    async fn client(&self, number: usize, locks: &Coordinator, mut random: Random) {
        while Instant::now() < self.end {
            let name = NAMES[random.below(NAMES.len() as u64) as usize];
            let ttl = millis(100 + random.below(LONGEST_TTL - 100));
            let lock = locks.mutex(name).ttl(ttl).renewal(Renewal::Off);
            if let Some(guard) = acquire(&lock, &mut random).await {
                self.seen.borrow_mut().won += 1;
                self.guards.borrow_mut()[number] = Some(Rc::new(guard));
                self.check();
                self.keep_for_a_while(number, &mut random).await;
                self.give_up(number, &mut random).await;
            }
            self.pause(&mut random, 50).await;
        }
    }

    async fn keep_for_a_while(&self, number: usize, random: &mut Random) {
        let guard = self.guards.borrow()[number].clone().unwrap();
        for _ in 0..random.below(5) {
            let ttl = millis(100 + random.below(LONGEST_TTL - 100));
            match random.below(6) {
                0..=2 => {
                    let extended = guard.extend(ttl).await.is_ok();
                    self.seen.borrow_mut().extended += u64::from(extended);
                }
                3 => {
                    let _ = timeout(millis(random.below(60)), guard.extend(ttl)).await;
                }
                _ => self.pause(random, 300).await,
            }
            self.check();
        }
    }

    async fn give_up(&self, number: usize, random: &mut Random) {
        let guard = self.guards.borrow_mut()[number].take().unwrap();
        let guard = Rc::into_inner(guard).unwrap();
        match random.below(3) {
            0 => drop(guard),
            1 => drop(timeout(millis(random.below(60)), guard.release()).await),
            _ => drop(guard.release().await),
        }
    }

    async fn faults(&self, masters: &[MemoryMaster], mut random: Random) {
        while Instant::now() < self.end {
            self.pause(&mut random, 150).await;
            let master = &masters[random.below(masters.len() as u64) as usize];
            master.inject(match random.below(16) {
                0 => Fault::Down,
                1 => Fault::Hang,
                2 => Fault::Mute,
                3 => error(),
                4 => delay(random.below(200)),
                5..=7 => delay(random.below(50)),
                _ => Fault::None,
            });
        }
    }

    async fn pause(&self, random: &mut Random, most: u64) {
        sleep(millis(random.below(most))).await;
        self.check();
    }

    fn check(&self) {
        let guards = self.guards.borrow();
        for name in NAMES {
            let guards = guards.iter().flatten();
            let holders = guards.filter(|guard| guard.name() == name && guard.is_valid());
            assert!(holders.count() <= 1, "two hold {name:?}: {self:?}");
        }
    }
}

/// Acquires the lock in one of several ways. Some of these ways drop the future halfway.
async fn acquire(lock: &Lock, random: &mut Random) -> Option<Guard> {
    let limit = millis(random.below(300));
    match random.below(4) {
        0 => lock.try_acquire().await.ok(),
        1 => timeout(limit, lock.acquire()).await.ok()?.ok(),
        2 => timeout(millis(random.below(60)), lock.try_acquire())
            .await
            .ok()?
            .ok(),
        _ => lock.acquire_within(limit).await.ok(),
    }
}

struct PrintOnPanic(u64);

impl Drop for PrintOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}
