//! Fair locks: the queues on the masters, and the waiters in them.

use std::mem;

use quorlock::{Coordinator, Fault, MemoryMaster, Owner, Quarantine, Renewal};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::world::{NAME, REDIAL, World, delay, millis, seconds};

const QUEUE: &str = "quorlock:queue:{orders/42}";

/// The default silent-waiter timeout.
const WAITER_TIMEOUT: tokio::time::Duration = seconds(3);

/// Returns the owners in the queue of each master, in order.
fn queues(world: &World) -> Vec<Vec<String>> {
    let queue = |master: &MemoryMaster| {
        let tickets = master.queue(QUEUE);
        tickets
            .iter()
            .map(|ticket| ticket[17..].to_owned())
            .collect()
    };
    world.masters.iter().map(queue).collect()
}

/// Starts a task that waits for the lock. The task returns the time at which it got the lock.
fn waiter(locks: &Coordinator) -> (Owner, JoinHandle<Instant>) {
    let owner = locks.new_owner();
    let lock = locks.fair(NAME).owner(&owner);
    let task = tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        let at = Instant::now();
        guard.release().await.unwrap();
        at
    });
    (owner, task)
}

/// Puts a waiter into the queues. This waiter never polls again.
async fn dead_waiter(locks: &Coordinator) -> Owner {
    let owner = locks.new_owner();
    let lock = locks.fair(NAME).owner(&owner);
    let mut waiting = Box::pin(async move { lock.acquire().await });
    assert!(timeout(millis(10), waiting.as_mut()).await.is_err());
    mem::forget(waiting);
    owner
}

#[tokio::test(start_paused = true)]
async fn several_dead_waiters_delay_the_next_by_no_more_than_one() {
    for dead in [1, 3] {
        let world = World::new(3).await;
        let others = Coordinator::new(&world.masters).unwrap();
        let guard = world.locks.fair(NAME);
        let guard = guard.acquire().await.unwrap();
        for _ in 0..dead {
            dead_waiter(&others).await;
        }
        let (_, task) = waiter(&world.locks);
        sleep(millis(10)).await;
        let start = Instant::now();
        drop(guard);
        let took = timeout(seconds(60), task).await.unwrap().unwrap() - start;
        // The next waiter removes the dead waiters before it, at the latest when it polls.
        assert!(
            took > WAITER_TIMEOUT / 2 && took < WAITER_TIMEOUT * 4 / 3 + millis(50),
            "{took:?}"
        );
    }
}

/// The waiter steps aside after one of its attempts, and comes back for the last one.
#[tokio::test(start_paused = true)]
async fn an_error_counts_the_attempt_after_which_a_waiter_steps_aside() {
    let world = World::new(3).await;
    let lock = world.locks.fair(NAME).owner(&world.locks.new_owner());
    world.inject([Fault::Down, Fault::Down]);
    let error = lock.acquire_within(seconds(5)).await.unwrap_err();
    let attempts = error.attempts();
    world.clear_faults();
    sleep(REDIAL).await;
    let _guard = lock.try_acquire().await.unwrap();
    let fields = world.masters[0].hash(NAME).unwrap();
    let (_, number) = fields
        .iter()
        .find(|(field, _)| *field == "quorlock:fair")
        .unwrap();
    assert_eq!(number, &(attempts + 1).to_string());
}

#[tokio::test(start_paused = true)]
async fn a_master_that_restarts_empty_learns_the_order_again() {
    let world = World::new(3).await;
    let others = Coordinator::builder().quarantine(Quarantine::Off);
    let others = others.masters(&world.masters).build().unwrap();
    sleep(millis(1)).await;
    let guard = world.locks.fair(NAME);
    let guard = guard.acquire().await.unwrap();
    let (mut owners, mut tasks) = (Vec::new(), Vec::new());
    for n in 0..6 {
        let (owner, task) = waiter([&world.locks, &others][n % 2]);
        owners.push(owner.id().to_owned());
        tasks.push(task);
        sleep(millis(7)).await;
    }
    assert_eq!(queues(&world), vec![owners.clone(); 3]);
    for master in &world.masters {
        master.inject(Fault::Down);
        master.forget();
        sleep(WAITER_TIMEOUT).await;
        master.inject(Fault::None);
        sleep(seconds(10)).await; // the master is dialled, polled, and gets a renewal
        assert_eq!(queues(&world), vec![owners.clone(); 3]);
    }
    drop(guard);
    let mut last = Instant::now();
    for task in tasks {
        let at = timeout(seconds(1), task).await.unwrap().unwrap();
        assert!(at >= last, "out of order");
        last = at;
    }
    world.close().await;
}

/// One of three masters is down, hangs, loses its replies, or is slow.
#[tokio::test(start_paused = true)]
async fn a_minority_of_faulty_masters_does_not_change_the_order() {
    for fault in [Fault::Down, Fault::Hang, Fault::Mute, delay(30), delay(70)] {
        let world = World::new(3).await;
        let guard = world.locks.fair(NAME);
        let guard = guard.acquire().await.unwrap();
        let mut tasks = Vec::new();
        for n in 0..6 {
            if n == 3 {
                world.masters[0].inject(fault.clone());
            }
            tasks.push(waiter(&world.locks).1);
            sleep(millis(150)).await;
        }
        let start = Instant::now();
        drop(guard);
        let mut last = start;
        for task in tasks {
            let at = timeout(seconds(3), task).await.unwrap().unwrap();
            assert!(at >= last, "{fault:?}: out of order");
            last = at;
        }
        assert!(last - start < seconds(2), "{fault:?}: {:?}", last - start);
        world.clear_faults();
        world.close().await;
        for master in &world.masters {
            assert_eq!(master.keys(), [""; 0], "{fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_waiter_keeps_its_position_and_asks_about_once_a_second() {
    let world = World::new(3).await;
    let lock = world.locks.fair(NAME);
    let guard = lock
        .renewal(Renewal::UpTo(seconds(7_200)))
        .acquire()
        .await
        .unwrap();
    let (mut owners, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (owner, task) = waiter(&world.locks);
        owners.push(owner.id().to_owned());
        tasks.push(task);
        sleep(millis(1)).await;
    }
    let before = world.commands()[0];
    for _ in 0..60 {
        sleep(seconds(60)).await;
        assert_eq!(queues(&world), vec![owners.clone(); 3]);
    }
    let asked = world.commands()[0] - before;
    // Each waiter polls every 0.75 to 1 s. The next waiter also asks for the next change with each
    // poll, and asks again after each renewal. The other commands are renewals.
    assert!(
        (3 * 3_600..4 * 4_800 + 3 * 1_200).contains(&asked),
        "{asked}"
    );
    drop(guard);
    for task in tasks {
        timeout(seconds(1), task).await.unwrap().unwrap();
    }
}

/// Whatever happens to the masters or to the waiter at the head, the others poll at most 4 times in
/// 3 s.
#[tokio::test(start_paused = true)]
async fn a_hundred_waiters_make_no_hot_loop() {
    for event in [
        "a dead head",
        "all up",
        "one came back empty",
        "two are down",
    ] {
        let world = World::new(5).await;
        let others = Coordinator::new(&world.masters).unwrap();
        let guard = world.locks.fair(NAME);
        let mut guard = Some(guard.acquire().await.unwrap());
        if event == "a dead head" {
            dead_waiter(&others).await;
        }
        for _ in 0..100 {
            waiter(&world.locks);
            sleep(millis(8)).await;
        }
        match event {
            "a dead head" => drop(guard.take()),
            "one came back empty" => world.masters[1].restart(),
            "two are down" => world.inject([Fault::Down, Fault::Down]),
            _ => {}
        }
        sleep(millis(100)).await;
        let before = world.commands();
        sleep(millis(1_900)).await;
        for (after, before) in world.commands().into_iter().zip(before).skip(2) {
            let each = (after - before) as f64 / 100.0 / 1.9;
            assert!(each < 1.5, "{event}: {each}");
        }
    }
}
