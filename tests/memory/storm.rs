//! Many tasks want the same locks, of all kinds at once. Futures are dropped at random polls, locks
//! are renewed and reentered, coordinators are closed, and masters fail at random. No call hangs,
//! no two owners hold a lock at the same time, and no lock is left on a master.
//!
//! A seed determines the actions, and is printed when a run fails.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, thread, time::Duration};

use quorlock::{
    __internals::has_owner, AcquireError, Coordinator, Fault, Guard, Kind, Lock, MemoryMaster,
    Owner, Renewal,
};
use testkit::{polled::polled, random::Random};
use tokio::{
    runtime,
    task::{JoinSet, LocalSet},
    time::{Instant, sleep, timeout},
};

use crate::world::{KINDS, delay, error, millis, seconds};

const TTL: Duration = millis(600);
const SEEDS: u64 = 6;

/// A lock of each kind, and a fenced one.
const LOCKS: usize = 2 * KINDS.len();

/// The valid guards of each name, by owner.
#[derive(Clone, Default)]
struct Held(Rc<RefCell<Guards>>);

type Guards = BTreeMap<String, Vec<(u64, Rc<Guard>)>>;

impl Held {
    fn add(&self, name: &str, owner: u64, guard: &Rc<Guard>) {
        let mut held = self.0.borrow_mut();
        let guards = held.entry(name.to_owned()).or_default();
        guards.push((owner, guard.clone()));
        let valid: Vec<_> = guards
            .iter()
            .filter(|(_, guard)| guard.is_valid())
            .map(|(owner, _)| *owner)
            .collect();
        assert!(
            valid.windows(2).all(|pair| pair[0] == pair[1]),
            "{name} is held by {valid:?}"
        );
    }

    fn remove(&self, name: &str, guard: &Rc<Guard>) {
        let mut held = self.0.borrow_mut();
        let guards = held.entry(name.to_owned()).or_default();
        guards.retain(|(_, other)| !Rc::ptr_eq(other, guard));
    }
}

#[derive(Clone)]
struct Task {
    locks: Coordinator,
    owners: Rc<Vec<Owner>>,
    number: u64,
    held: Held,
    faults: bool,
    end: Instant,
}

fn kind(number: usize) -> Kind {
    KINDS[number % KINDS.len()]
}

fn name(number: usize) -> String {
    let kind = kind(number);
    if number < KINDS.len() {
        kind.word().to_owned()
    } else {
        format!("fenced {}", kind.word())
    }
}

fn lock(locks: &Coordinator, owner: &Owner, number: usize) -> Lock {
    let lock = locks.of_kind(kind(number), name(number), owner).ttl(TTL);
    if number < KINDS.len() {
        lock
    } else {
        lock.fenced()
    }
}

impl Task {
    async fn run(self, mut random: Random) -> (u64, u64) {
        let (mut won, mut closed) = (0, 0);
        while Instant::now() < self.end {
            let which = random.index(self.owners.len());
            let number = random.index(LOCKS);
            let renewal = match random.below(4) {
                0 => Renewal::Off,
                1 => Renewal::UpTo(millis(random.below(2_000))),
                _ => Renewal::Unlimited,
            };
            let lock = lock(&self.locks, &self.owners[which], number).renewal(renewal);
            // A mutex has no owner, so each acquisition counts as an owner of its own.
            let owner = if has_owner(kind(number)) {
                (self.number / 100) * 100 + which as u64
            } else {
                1_000_000 + random.below(1 << 40)
            };
            match self.acquire(&lock, &mut random).await {
                Some(Ok(guard)) => {
                    won += 1;
                    let kind = kind(number);
                    self.keep(guard, owner, kind, renewal, &lock, &mut random)
                        .await;
                }
                Some(Err(AcquireError::Closed)) => {
                    closed += 1;
                    break;
                }
                Some(Err(_)) | None => {}
            }
            sleep(millis(random.below(20))).await;
        }
        (won, closed)
    }

    async fn acquire(
        &self,
        lock: &Lock,
        random: &mut Random,
    ) -> Option<Result<Guard, AcquireError>> {
        let polls = 1 + random.index(30);
        let limit = millis(random.below(400));
        match random.below(8) {
            0 => polled(polls, lock.acquire()).await,
            1 => polled(polls, lock.try_acquire()).await,
            2 => polled(polls, lock.acquire_within(limit)).await,
            3 => timeout(limit, lock.acquire()).await.ok(),
            4 => Some(lock.try_acquire().await),
            5 => {
                // Polls the future for a while, then not at all, then again.
                let mut acquire = Box::pin(lock.acquire());
                if let Ok(got) = timeout(limit, acquire.as_mut()).await {
                    return Some(got);
                }
                sleep(millis(random.below(3_000))).await;
                timeout(limit, acquire).await.ok()
            }
            6 => Some(lock.acquire_within(limit * 5).await),
            _ => {
                // Every waiter gets the lock in the end.
                let patience = if self.faults { 600 } else { 120 };
                let got = timeout(seconds(patience), lock.acquire()).await;
                Some(got.unwrap_or_else(|_| panic!("{lock:?} was never acquired")))
            }
        }
    }

    async fn keep(
        &self,
        guard: Guard,
        owner: u64,
        kind: Kind,
        renewal: Renewal,
        lock: &Lock,
        random: &mut Random,
    ) {
        let guard = Rc::new(guard);
        let name = guard.name().to_owned();
        self.held.add(&name, owner, &guard);
        for _ in 0..random.below(6) {
            match random.below(6) {
                0 => {
                    let _ = guard.extend(TTL + millis(random.below(300))).await;
                }
                1 => {
                    let polls = 1 + random.index(3);
                    let _ = polled(polls, guard.extend(TTL)).await;
                }
                2 if has_owner(kind) => {
                    // Acquires the lock once more, as another task of the owner would.
                    let inner = lock.acquire_within(millis(300));
                    if let Ok(inner) = inner.await {
                        let inner = Rc::new(inner);
                        self.held.add(&name, owner, &inner);
                        sleep(millis(random.below(50))).await;
                        self.held.remove(&name, &inner);
                    }
                }
                3 => sleep(millis(200)).await, // a third of the TTL: just when a renewal is due
                _ => sleep(millis(random.below(400))).await,
            }
            if !self.faults && renewal == Renewal::Unlimited {
                assert!(guard.is_valid(), "{name} was lost: {:?}", guard.state());
            }
        }
        self.held.remove(&name, &guard);
        let guard = Rc::into_inner(guard).unwrap();
        match random.below(3) {
            0 => drop(guard),
            1 => {
                let _ = guard.release().await;
            }
            _ => {
                let polls = random.index(3);
                let _ = polled(polls, guard.release()).await;
            }
        }
    }
}

async fn faults(masters: &[MemoryMaster], end: Instant, mut random: Random) {
    while Instant::now() < end {
        let fault = match random.below(8) {
            0 => Fault::Down,
            1 => Fault::Hang,
            2 => Fault::Mute,
            3 => error(),
            4 => delay(random.below(80)),
            _ => Fault::None,
        };
        masters[random.index(masters.len())].inject(fault);
        sleep(millis(random.below(150))).await;
    }
    for master in masters {
        master.inject(Fault::None);
    }
}

async fn jitter(masters: &[MemoryMaster], end: Instant, mut random: Random) {
    while Instant::now() < end {
        masters[random.index(masters.len())].inject(delay(random.below(6)));
        sleep(millis(random.below(50))).await;
    }
    for master in masters {
        master.inject(Fault::None);
    }
}

async fn run(seed: u64, with_faults: bool, closes: bool) -> u64 {
    let count = if seed.is_multiple_of(2) { 3 } else { 5 };
    let masters: Vec<_> = (0..count).map(|_| MemoryMaster::new()).collect();
    let end = Instant::now() + seconds(8);
    let held = Held::default();
    let all: Vec<_> = (0..3)
        .map(|_| {
            let locks = Coordinator::builder().masters(&masters).build().unwrap();
            let owners = Rc::new((0..3).map(|_| locks.owner()).collect::<Vec<_>>());
            (locks, owners)
        })
        .collect();
    let mut tasks = JoinSet::new();
    for (process, (locks, owners)) in all.iter().enumerate() {
        for number in 0..8 {
            let task = Task {
                locks: locks.clone(),
                owners: owners.clone(),
                number: process as u64 * 100 + number,
                held: held.clone(),
                faults: with_faults,
                end,
            };
            let random = Random::new(seed << 16 | task.number);
            tasks.spawn_local(task.run(random));
        }
    }
    let random = Random::new(seed << 16 | 0xffff);
    if closes {
        let (locks, _) = all[0].clone();
        tasks.spawn_local(async move {
            let when = Random::new(seed).below(6_000);
            sleep(millis(when)).await;
            // `close` waits for owed releases while other coordinators still hold locks.
            let closed = timeout(seconds(600), locks.close()).await;
            closed.expect("close hangs");
            (0, 0)
        });
    }
    let disturb = async {
        if with_faults {
            faults(&masters, end, random).await;
        } else {
            jitter(&masters, end, random).await;
        }
    };
    let mut won = 0;
    let joined = async {
        while let Some(done) = tasks.join_next().await {
            won += done.unwrap().0;
        }
    };
    tokio::join!(disturb, joined);
    for (locks, _) in &all {
        timeout(seconds(30), locks.close())
            .await
            .expect("close hangs");
    }
    sleep(seconds(10)).await;
    for master in &masters {
        let keys = master.keys(); // the counters of fencing tokens stay
        assert!(
            keys.iter().all(|key| !is_lock(key)),
            "left on a master: {keys:?}"
        );
    }
    won
}

fn is_lock(key: &str) -> bool {
    (0..LOCKS).any(|number| key == name(number))
        || key.starts_with("quorlock:queue")
        || key.starts_with("quorlock:deadlines")
}

struct PrintOnPanic(u64);

impl Drop for PrintOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

fn runs(with_faults: bool, closes: bool) {
    let first = std::env::var("STORM_SEED").ok();
    let first = first.and_then(|seed| seed.parse().ok());
    let seeds = first.map_or(0..SEEDS, |seed: u64| seed..seed + 1);
    let mut won = 0;
    for seed in seeds {
        let _print = PrintOnPanic(seed);
        let runtime = runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        won += LocalSet::new().block_on(&runtime, run(seed, with_faults, closes));
    }
    eprintln!("{won} won");
    assert!(won > 20 * SEEDS || first.is_some());
}

#[test]
fn a_storm_of_tasks_leaves_nothing_behind() {
    runs(false, false);
}

#[test]
fn a_storm_on_masters_that_fail_leaves_nothing_behind() {
    runs(true, false);
}

#[test]
fn a_storm_ends_when_the_coordinator_is_closed() {
    runs(false, true);
}

#[test]
fn a_storm_on_masters_that_fail_ends_when_the_coordinator_is_closed() {
    runs(true, true);
}

/// Runs in real time and on several threads. No task waits for another forever.
#[test]
#[ignore = "takes half a minute"]
fn a_storm_on_several_threads_ends() {
    on_several_threads(false);
}

#[test]
#[ignore = "takes half a minute"]
fn a_storm_on_several_threads_and_masters_that_fail_ends() {
    on_several_threads(true);
}

fn on_several_threads(with_faults: bool) {
    let (done, is_done) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(on_threads(with_faults));
        done.send(()).unwrap();
    });
    is_done
        .recv_timeout(seconds(120))
        .expect("a deadlock, or a panic");
}

async fn on_threads(with_faults: bool) {
    use std::sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    };
    let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
    let end = Instant::now() + seconds(20);
    let inside: Arc<[AtomicI64; LOCKS]> = Arc::default();
    let won = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    let mut all = Vec::new();
    for process in 0..3_u64 {
        let locks = Coordinator::builder().masters(&masters).build().unwrap();
        all.push(locks.clone());
        let owners: Vec<_> = (0..3).map(|_| locks.owner()).collect();
        for number in 0..12 {
            let (locks, owners) = (locks.clone(), owners.clone());
            let (inside, won) = (inside.clone(), won.clone());
            tasks.spawn(async move {
                let mut random = Random::new(process << 8 | number);
                while Instant::now() < end {
                    let which = random.index(owners.len());
                    let number = random.index(LOCKS);
                    let lock = lock(&locks, &owners[which], number).ttl(seconds(4));
                    let polls = 1 + random.index(12);
                    let got = match random.below(6) {
                        0 => polled(polls, lock.acquire()).await,
                        1 => polled(polls, lock.acquire_within(millis(30))).await,
                        2 => Some(lock.try_acquire().await),
                        _ => {
                            let got = timeout(seconds(60), lock.acquire()).await;
                            Some(got.expect("a lock was never acquired"))
                        }
                    };
                    if matches!(got, Some(Err(AcquireError::Closed))) {
                        break;
                    }
                    let Some(Ok(guard)) = got else { continue };
                    won.fetch_add(1, SeqCst);
                    let owner = 1 + (process * 3 + which as u64) as i64;
                    if !has_owner(kind(number)) && !with_faults {
                        assert_eq!(inside[number].swap(owner, SeqCst), 0);
                    }
                    match random.below(4) {
                        0 => drop(polled(1, guard.extend(seconds(4))).await),
                        1 => drop(guard.extend(seconds(4)).await),
                        2 => tokio::task::yield_now().await,
                        _ => sleep(millis(random.below(3))).await,
                    }
                    if !has_owner(kind(number)) && !with_faults {
                        assert!(guard.is_valid());
                        inside[number].store(0, SeqCst);
                    }
                    match random.below(3) {
                        0 => drop(guard),
                        1 => drop(guard.release().await),
                        _ => drop(polled(1, guard.release()).await),
                    }
                }
            });
        }
    }
    let closing = all[0].clone();
    if with_faults {
        let (masters, faults_end) = (masters.clone(), end);
        tasks.spawn(async move { faults(&masters, faults_end, Random::new(1)).await });
        tasks.spawn(async move {
            sleep(seconds(10)).await;
            timeout(seconds(60), closing.close()).await.unwrap();
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    for locks in all {
        timeout(seconds(30), locks.close()).await.unwrap();
    }
    eprintln!("{} won on threads", won.load(SeqCst));
}
