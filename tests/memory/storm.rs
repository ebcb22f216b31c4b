//! Many tasks on several threads want the same locks, of all kinds at once, in real time. Futures
//! are dropped at random polls, coordinators are closed, and masters fail at random. No call hangs,
//! and no two hold a lock at the same time. What one thread does in any order, the simulator shows.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use quorlock::{
    __internals::{is_reentrant, plain},
    Coordinator, Fault, Lock, LockKind, MemoryMaster, Owner, Reason,
};
use testkit::{polled::polled, random::Random};
use tokio::{
    runtime,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::world::{KINDS, delay, error, masters, millis, seconds};

const LASTS: Duration = seconds(4);

/// A lock of each kind, and a fenced one.
const LOCKS: usize = 2 * KINDS.len();

fn kind(number: usize) -> LockKind {
    KINDS[number % KINDS.len()]
}

fn name(number: usize) -> String {
    let kind = kind(number);
    if number < KINDS.len() {
        kind.as_str().to_owned()
    } else {
        format!("fenced {}", kind.as_str())
    }
}

fn lock(locks: &Coordinator, owner: &Owner, number: usize) -> Lock {
    let lock = locks.of_kind(kind(number), name(number), owner);
    if number < KINDS.len() {
        lock
    } else {
        plain(lock.fenced())
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

#[test]
fn a_storm_on_several_threads_ends() {
    on_several_threads(false);
}

#[test]
fn a_storm_on_several_threads_and_masters_that_fail_ends() {
    on_several_threads(true);
}

fn on_several_threads(with_faults: bool) {
    let (done, is_done) = mpsc::channel();
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
    let masters = masters(3);
    let end = Instant::now() + LASTS;
    let inside: Arc<[AtomicI64; LOCKS]> = Arc::default();
    let won = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    let mut all = Vec::new();
    for process in 0..3_u64 {
        let locks = Coordinator::builder().masters(&masters).build().unwrap();
        all.push(locks.clone());
        let owners: Vec<_> = (0..3).map(|_| locks.new_owner()).collect();
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
                    if matches!(&got, Some(Err(error)) if *error.reason() == Reason::Closed) {
                        break;
                    }
                    let Some(Ok(guard)) = got else { continue };
                    won.fetch_add(1, SeqCst);
                    let owner = 1 + (process * 3 + which as u64) as i64;
                    if !is_reentrant(kind(number)) && !with_faults {
                        assert_eq!(inside[number].swap(owner, SeqCst), 0);
                    }
                    match random.below(4) {
                        0 => drop(polled(1, guard.extend(seconds(4))).await),
                        1 => drop(guard.extend(seconds(4)).await),
                        2 => tokio::task::yield_now().await,
                        _ => sleep(millis(random.below(3))).await,
                    }
                    if !is_reentrant(kind(number)) && !with_faults {
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
            sleep(LASTS / 2).await;
            timeout(seconds(60), closing.close()).await.unwrap();
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    for locks in all {
        timeout(seconds(30), locks.close()).await.unwrap();
    }
    assert!(won.load(SeqCst) > 100);
}
