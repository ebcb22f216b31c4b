//! Waiting for a lock that another client holds, with the paused clock.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use quorlock::{
    __internals::plain, Coordinator, Fault, Guard, LockKind, MemoryMaster, Reason, Renewal,
};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::world::*;

/// The longest time between two polls of a subscribed waiter, plus a little time for the attempt.
const POLL: Duration = millis(1_600);

/// Returns a coordinator that acts as another process.
async fn another(masters: &[MemoryMaster]) -> Coordinator {
    let locks = Coordinator::new(masters).unwrap();
    sleep(millis(1)).await;
    locks
}

/// Starts a task that waits for the lock. The task returns the time at which it got the lock, and
/// the guard.
fn waiter(locks: &Coordinator) -> JoinHandle<(Instant, Guard)> {
    let lock = locks.mutex(NAME);
    tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        (Instant::now(), guard)
    })
}

/// Returns how long `waiter` takes from now.
async fn wait_of(waiter: JoinHandle<(Instant, Guard)>) -> Duration {
    let now = Instant::now();
    let (at, guard) = timeout(seconds(30), waiter).await.unwrap().unwrap();
    guard.release().await.unwrap();
    at.saturating_duration_since(now)
}

#[tokio::test(start_paused = true)]
async fn a_release_in_another_process_wakes_a_waiter_at_once() {
    for masters in [1, 3, 5] {
        let world = World::new(masters).await;
        let others = another(&world.masters).await;
        // A waiter that has polled a few times may pause for up to 10 ms before its next attempt.
        for (wait, most) in [(100, 1), (450, 1), (3_000, 11)] {
            let guard = world.locks.mutex(NAME).acquire().await.unwrap();
            let waiting = waiter(&others);
            sleep(millis(wait)).await;
            drop(guard);
            let took = wait_of(waiting).await;
            assert!(took <= millis(most), "{masters} masters: {took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_wakes_a_waiter_at_once_with_a_minority_down() {
    let world = World::new(5).await;
    let others = another(&world.masters).await;
    world.inject([Fault::Down, Fault::Hang]);
    for round in 1..=20 {
        let guard = world.locks.mutex(NAME).acquire().await.unwrap();
        let waiting = waiter(&others);
        sleep(millis(333)).await;
        drop(guard);
        let took = wait_of(waiting).await;
        let gives_way = round % 6 == 0;
        let allowed = if gives_way { 12 } else { 1 };
        assert!(took <= millis(allowed), "{round}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_of_one_process_are_served_in_their_order() {
    let world = World::new(3).await;
    let guard = world.locks.mutex(NAME).acquire().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in 0..20 {
        let (lock, served) = (world.locks.mutex(NAME), served.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            served.lock().unwrap().push(n);
            sleep(millis(30)).await;
            guard.release().await.unwrap();
        }));
        sleep(millis(3)).await;
    }
    drop(guard);
    let start = Instant::now();
    for task in tasks {
        timeout(seconds(30), task).await.unwrap().unwrap();
    }
    assert_eq!(*served.lock().unwrap(), Vec::from_iter(0..20));
    // Each waiter is woken by the one before it.
    assert!(start.elapsed() < millis(20 * 40), "{:?}", start.elapsed());
}

/// At its deadline, a waiter makes a last attempt out of turn. The waiter whose turn it is still
/// hears of the release.
#[tokio::test(start_paused = true)]
async fn a_last_attempt_out_of_turn_does_not_make_the_next_waiter_deaf() {
    let hour = seconds(3_600);
    let world = World::with(3, |builder| {
        builder.poll_interval(hour..=hour).ttl(seconds(60))
    })
    .await;
    let others = another(&world.masters).await;
    let guard = others.mutex(NAME).acquire().await.unwrap();
    let waiting = waiter(&world.locks);
    sleep(millis(100)).await;
    let late = world.locks.mutex(NAME).acquire_within(millis(200)).await;
    assert!(
        matches!(&late, Err(error) if error.to_string().starts_with("gave up")),
        "{late:?}"
    );
    drop(guard);
    let took = wait_of(waiting).await;
    assert!(took <= millis(11), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unannounced_release_is_noticed_within_the_poll_interval() {
    for (least, most) in [(20, 30), (200, 300), (5_000, 6_000)] {
        let set = |builder: quorlock::Builder| builder.poll_interval(millis(least)..=millis(most));
        let world = World::with(3, set).await;
        world.occupy(0..3, seconds(600));
        let waiting = waiter(&world.locks);
        sleep(millis(4_000)).await;
        let before = world.commands();
        world.masters.iter().for_each(|master| master.delete(NAME));
        let took = wait_of(waiting).await;
        assert!(took <= millis(most + 1), "{took:?}");
        // The waiter polls for four seconds, with three commands per poll.
        assert!(before[0] <= 4_000 / least * 3 + 10, "{before:?}");
    }
}

/// The attempt has taken the lock, but it is dropped or fails without knowing this. Other clients
/// may have been refused meanwhile.
#[tokio::test(start_paused = true)]
async fn taking_back_an_attempt_without_a_result_wakes_other_waiters() {
    for is_dropped in [true, false] {
        let world = World::new(3).await;
        let others = another(&world.masters).await;
        world.occupy(0..3, seconds(600));
        let waiting = waiter(&others);
        // By then, the waiter has subscribed and tried again. It does not poll for the next 500 ms.
        sleep(millis(20)).await;
        world.masters.iter().for_each(|master| master.delete(NAME));
        let lock = world.lock();
        let mut attempt = Box::pin(lock.try_acquire());
        world.inject_all(&if is_dropped { delay(20) } else { Fault::Mute });
        start(attempt.as_mut()).await;
        sleep(millis(10)).await;
        if is_dropped {
            drop(attempt); // while its commands are on their way
            sleep(millis(15)).await;
            assert_eq!(world.holders(), ["mine"; 3]);
        } else {
            assert_eq!(world.holders(), ["mine"; 3]);
            world.clear_faults(); // the connections break, and the replies are lost
            let error = attempt.await.unwrap_err();
            assert!(*error.reason() == Reason::NoQuorum, "{error}");
        }
        let took = wait_of(waiting).await;
        assert!(took <= millis(300), "dropped: {is_dropped}, after {took:?}");
    }
}

/// A client of Redisson holds the lock on three of five masters. Every attempt is granted the lock
/// on the other two, and releases it. The release must publish a message for Redisson's waiters.
#[tokio::test(start_paused = true)]
async fn waiters_are_not_woken_by_grants_that_lost_rounds_give_back() {
    let world = World::new(5).await;
    let others = another(&world.masters).await;
    for master in &world.masters[..3] {
        master.set_hash(NAME, [("theirs:1", "1")], None);
    }
    let waiting = [&world.locks, &others].map(|locks| {
        let lock = locks.reentrant(NAME, &locks.new_owner());
        tokio::spawn(async move { lock.acquire().await })
    });
    sleep(seconds(1)).await;
    let before = world.commands();
    sleep(seconds(20)).await;
    for (before, after) in before.into_iter().zip(world.commands()) {
        // There are two waiters for twenty seconds. Each waiter makes at most two attempts per
        // second, with two commands each.
        assert!(
            after - before <= 2 * 20 * 2 * 2,
            "{} commands",
            after - before
        );
    }
    waiting.iter().for_each(JoinHandle::abort);
}

/// The holder is killed just after it has won, after many renewals, or during a renewal. The waiter
/// gets the lock soon after the keys are gone from a majority.
#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_lock_of_a_killed_holder_when_its_ttl_ends() {
    let kinds = KINDS.map(|kind| (kind, 9_000));
    let lives = [30, 1_000, 3_297, 3_302, 3_310, 60_000].map(|lived| (LockKind::Mutex, lived));
    for (kind, lived) in kinds.into_iter().chain(lives) {
        let world = World::new(3).await;
        world.inject([delay(2), delay(5), delay(8)]);
        killed_after(millis(lived), &world.masters, async |locks| {
            let lock = own(kind, &locks);
            let _guard = lock.acquire().await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
        world.clear_faults();
        let mut ttls: Vec<_> = world.ttls().into_iter().flatten().collect();
        ttls.sort_unstable();
        assert!(ttls.len() == 3 && ttls[0] > seconds(6), "{kind}: {ttls:?}");
        let next = own(kind, &world.locks);
        let (took, guard) = timed(next.acquire_within(seconds(30))).await;
        drop(guard.unwrap());
        // A key still exists in the millisecond in which it expires. A poll just before that fails,
        // and a short pause follows.
        let is_soon = ttls[1] < took && took <= ttls[1] + millis(40);
        assert!(is_soon, "{kind} {lived} ms: {took:?} of {ttls:?}");
    }
}

/// The release is executed, but its message is lost. Then the connections break and are made again.
#[tokio::test(start_paused = true)]
async fn a_message_lost_with_its_connection_does_not_delay_the_waiter() {
    for wait in [200, 450, 2_000] {
        let world = World::new(3).await;
        let others = another(&world.masters).await;
        let guard = others.mutex(NAME).acquire().await.unwrap();
        let waiting = waiter(&world.locks);
        sleep(millis(wait)).await;
        world.inject_all(&Fault::Mute);
        drop(guard);
        sleep(millis(1)).await;
        assert_eq!(world.holders(), [""; 3]);
        world.clear_faults();
        let took = wait_of(waiting).await;
        // The client dials the masters and asks again. An attempt without a quorum may come first.
        assert!(took <= millis(350), "{took:?}");
    }
}

/// On each master, the release of the holder comes after the attempt of the waiter, and before the
/// command that takes the attempt back. The first master keeps the key of a client that was killed.
#[tokio::test(start_paused = true)]
async fn late_answers_that_the_lock_is_free_wake_a_waiter() {
    for lags in [&[2, 2, 16][..], &[2, 2, 2, 16], &[2, 2, 2, 16, 16]] {
        let world = World::new(lags.len()).await;
        world.occupy(0..lags.len(), seconds(600));
        world.inject(lags.iter().copied().map(delay));
        let waiting = waiter(&world.locks);
        let start = Instant::now();
        for (master, lag) in world.masters.iter().zip(lags).skip(1) {
            sleep_until(start + millis(lag + 1)).await;
            master.delete(NAME);
        }
        let took = wait_of(waiting).await;
        assert!(took < millis(100), "{lags:?}: {took:?}");
    }
}

/// The first waiter is not polled for so long that the second takes over. Then the first is polled
/// again, and learns that its attempt failed on all masters.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_lost_its_turn_takes_no_events_from_the_next() {
    let world = World::new(3).await;
    let others = another(&world.masters).await;
    let lock = others.mutex(NAME);
    world.inject_all(&error());
    let mut first = pin!(lock.acquire());
    assert!(timeout(Duration::ZERO, first.as_mut()).await.is_err()); // posts its attempt
    sleep(millis(10)).await;
    world.clear_faults();
    let guard = world.locks.mutex(NAME).acquire().await.unwrap();
    let second = waiter(&others);
    sleep(seconds(5)).await;
    assert!(timeout(millis(300), first.as_mut()).await.is_err());
    drop(guard);
    let took = wait_of(second).await;
    assert!(took <= millis(101), "{took:?}"); // it gives way to others, and needs no poll
    drop(first.await.unwrap());
}

/// A client that has met rivals asks the agreed master first, even in the first attempt of a new
/// waiter. The report of that master alone wakes the waiter.
#[tokio::test(start_paused = true)]
async fn a_new_waiter_for_a_contested_lock_asks_one_master_and_hears_from_it() {
    let world = World::new(5).await;
    let others = another(&world.masters).await;
    world.occupy(0..2, seconds(60));
    world.occupy([2], millis(5));
    // The first attempt splits the vote.
    drop(others.mutex(NAME).acquire().await.unwrap());
    world.masters[..2]
        .iter()
        .for_each(|master| master.delete(NAME));
    let guard = world.locks.mutex(NAME).acquire().await.unwrap();
    guard.all_votes().await;
    let before = world.commands();
    let waiting = waiter(&others);
    sleep(millis(100)).await;
    let asked = world.commands().into_iter().zip(before);
    assert_eq!(asked.filter(|(after, before)| after > before).count(), 1);
    drop(guard);
    let took = wait_of(waiting).await;
    assert!(took <= millis(4), "{took:?}"); // it gives way to others
}

/// The reports of a renewal wake a waiter while the key is missing on one master. The waiter must
/// not take that master, not even for a moment: the renewal is about to put the key back there.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_a_renewal_wakes_keeps_off_a_lost_key() {
    let pairs = (0..5).flat_map(|lost| (0..5).map(move |early| (lost, early)));
    for (lost, early) in pairs.filter(|(lost, early)| lost != early) {
        for kind in [LockKind::Mutex, LockKind::Reentrant] {
            let world = World::new(5).await;
            let guard = own(kind, &world.locks);
            let guard = guard.acquire().await.unwrap();
            world.masters[lost].delete(NAME);
            // A poll at the moment of the renewal would take the master.
            let locks = Coordinator::builder().masters(&world.masters);
            let locks = locks.poll_interval(seconds(60)..=seconds(60)).build();
            let locks = locks.unwrap();
            sleep(millis(1)).await;
            let waiting = own(kind, &locks);
            let waiting = tokio::spawn(async move { drop(waiting.acquire().await.unwrap()) });
            sleep(millis(300)).await;
            // One master reports the renewal early. The waiter is refused, and would give the
            // master without the key back, only after the renewal has been there.
            world.inject((0..5).map(|master| match master {
                _ if master == lost => Fault::None,
                _ if master == early => delay(1),
                _ => delay(5),
            }));
            // Renewals come every 3.3 s.
            sleep(seconds(4)).await;
            let ttls = world.ttls();
            let is_back = ttls.iter().all(Option::is_some);
            assert!(is_back, "{kind} {lost} {early}: {ttls:?}");
            assert!(guard.is_valid() && !waiting.is_finished());
            drop(guard);
            timeout(seconds(9), waiting).await.unwrap().unwrap();
        }
    }
}

/// Acquires the lock again and again until `end`. Returns how often.
async fn acquisitions(locks: Coordinator, hold: Duration, rest: Duration, end: Instant) -> u32 {
    let mut count = 0;
    while Instant::now() < end {
        let guard = locks.mutex(NAME).acquire().await.unwrap();
        count += 1;
        sleep(hold).await;
        drop(guard);
        sleep(rest).await;
    }
    count
}

/// The tasks of one process want the lock all the time. A task of another process wants it, too.
#[tokio::test(start_paused = true)]
async fn the_tasks_of_one_process_do_not_keep_the_lock_from_others() {
    for (tasks, hold, rest) in [(2, 5, 2), (2, 20, 5), (2, 50, 10), (3, 5, 2), (3, 50, 60)] {
        let world = World::new(3).await;
        world.inject_all(&delay(1));
        let outside = another(&world.masters).await;
        let end = Instant::now() + seconds(20);
        let run = |locks: &Coordinator| {
            tokio::spawn(acquisitions(locks.clone(), millis(hold), millis(rest), end))
        };
        let inside: Vec<_> = (0..tasks).map(|_| run(&world.locks)).collect();
        let outside = run(&outside).await.unwrap();
        let mut all = outside;
        for task in inside {
            all += task.await.unwrap();
        }
        assert!(
            outside * 20 >= all,
            "{tasks} {hold} {rest}: {outside} of {all}"
        );
    }
}

/// Another program writes a key of this name on one master, again and again. The other masters are
/// free, so a waiter that asks this master first must not rely on it.
#[tokio::test(start_paused = true)]
async fn one_master_that_always_refuses_does_not_keep_a_waiter_from_the_others() {
    for (bad, millis_between) in (0..3).flat_map(|bad| [150, 300, 450].map(|every| (bad, every))) {
        let world = World::new(3).await;
        let others = another(&world.masters).await;
        // The first attempt splits the vote, so the client knows of rivals.
        world.occupy([0], seconds(60));
        world.occupy([1], millis(5));
        drop(others.mutex(NAME).acquire().await.unwrap());
        world.masters[0].delete(NAME);
        let guard = world.locks.mutex(NAME).acquire().await.unwrap();
        let waiting = waiter(&others);
        sleep(millis(50)).await;
        let master = world.masters[bad].clone();
        let writing = tokio::spawn(async move {
            loop {
                master.set(NAME, "another program's", None);
                sleep(millis(millis_between)).await;
            }
        });
        sleep(millis(100)).await;
        drop(guard);
        let took = wait_of(waiting).await;
        writing.abort();
        // The waiter asks all masters once in a poll interval, with its next attempt.
        let most = POLL + millis(millis_between);
        assert!(took <= most, "{bad} {millis_between}: {took:?}");
    }
}

/// A client that died has left its key on one master. Whichever master that is, calls do not wait
/// for the end of the key.
#[tokio::test(start_paused = true)]
async fn a_key_that_was_left_on_one_master_delays_no_call() {
    for left_on in 0..3 {
        let world = World::new(3).await;
        world.inject_all(&delay(1));
        world.occupy([left_on], seconds(20));
        for _ in 0..20 {
            let (took, guard) = timed(world.locks.mutex(NAME).acquire()).await;
            assert!(took <= millis(10), "{left_on}: {took:?}");
            guard.unwrap().release().await.unwrap();
        }
    }
}

/// The tasks of one process seldom give way to no one. Later calls take one round trip, but for
/// the eighth.
#[tokio::test(start_paused = true)]
async fn tasks_of_one_process_are_no_rivals_to_each_other() {
    let world = World::new(3).await;
    world.inject_all(&delay(1));
    let mut tasks = JoinSet::new();
    let end = Instant::now() + seconds(10);
    for _ in 0..8 {
        let lock = world.locks.mutex(NAME);
        tasks.spawn(async move {
            let mut acquired = 0;
            while Instant::now() < end {
                let guard = lock.acquire().await.unwrap();
                sleep(millis(1)).await;
                drop(guard);
                acquired += 1;
            }
            acquired
        });
    }
    let acquired: u32 = tasks.join_all().await.iter().sum();
    assert!(acquired > 4_900, "{acquired} in 10 s, each held for 1 ms");
    sleep(seconds(1)).await;
    for _ in 0..7 {
        let (took, guard) = timed(world.locks.mutex(NAME).acquire()).await;
        assert!(took <= millis(1), "{took:?}");
        guard.unwrap().release().await.unwrap();
    }
}

/// The waiters of this coordinator poll, and are told of nothing, also if their own process holds
/// the lock.
#[tokio::test(start_paused = true)]
async fn waiters_that_poll_are_served_give_up_and_are_closed_in_time() {
    for kind in [LockKind::Mutex, LockKind::Reentrant] {
        let world = World::new(3).await;
        let locks = Coordinator::builder().masters(&world.masters);
        let locks = locks.poll_only(true);
        let locks = locks
            .retry_delay(millis(100)..=millis(200))
            .build()
            .unwrap();
        let ours = own(kind, &locks);
        let holders = [&world.locks, &locks].map(|locks| own(kind, locks));
        for other in &holders {
            let mut waits = Vec::new();
            for _ in 0..9 {
                let held = other.acquire().await.unwrap();
                let (took, result) = timed(ours.acquire_within(millis(500))).await;
                assert!(result.is_err() && took <= millis(510), "{kind}: {took:?}");
                let waiting = tokio::spawn({
                    let ours = ours.clone();
                    async move { drop(ours.acquire().await.unwrap()) }
                });
                sleep(seconds(1)).await;
                drop(held);
                waits.push(timed(waiting).await.0);
                sleep(millis(10)).await;
            }
            let longest = waits.iter().max().unwrap();
            assert!((millis(50)..=millis(201)).contains(longest), "{waits:?}");
        }
        let _held = holders[0].acquire().await.unwrap();
        let waiting = tokio::spawn(async move { ours.acquire().await });
        sleep(seconds(1)).await;
        let (took, _) = timed(async { tokio::join!(locks.close(), waiting) }).await;
        assert!(took <= millis(10), "{kind}: {took:?}");
    }
}

/// The first waiter in the queues gives up while the lock is held. The next one hears of that, and
/// is ready when the lease of the holder, which is dead, ends.
#[tokio::test(start_paused = true)]
async fn the_next_waiter_is_ready_when_the_first_gives_up() {
    for (kind, first_reads, next_reads) in [
        (LockKind::Fair, false, false),
        (LockKind::ReadWrite, false, false),
        (LockKind::ReadWrite, false, true),
        (LockKind::ReadWrite, true, false),
        (LockKind::ReadWrite, true, true),
        (LockKind::Semaphore, false, false),
    ] {
        for gives_up_at in [300, 900, 1_500, 1_990] {
            let world = World::new(3).await;
            world.inject_all(&delay(1));
            let dead = another(&world.masters).await;
            let (first, next) = (another(&world.masters).await, another(&world.masters).await);
            let wait = |locks: &Coordinator, reads, renewal, within| {
                let (owner, limit) = (locks.new_owner(), millis(within));
                let lock = match kind {
                    LockKind::Fair => locks.fair(NAME).owner(&owner),
                    LockKind::ReadWrite if reads => {
                        plain(locks.read_write(NAME).owner(&owner).read())
                    }
                    LockKind::ReadWrite => locks.read_write(NAME).owner(&owner).write().plain(),
                    _ => locks.semaphore(NAME, 1).plain(),
                };
                let lock = lock.ttl(seconds(2)).renewal(renewal);
                async move { lock.acquire_within(limit).await }
            };
            let held = wait(&dead, false, Renewal::Off, 100).await.unwrap();
            let from = Instant::now();
            let first = tokio::spawn(wait(&first, first_reads, Renewal::Off, gives_up_at));
            sleep(millis(20)).await;
            drop(wait(&next, next_reads, Renewal::Off, 9_000).await.unwrap());
            let took = from.elapsed();
            assert!(
                took <= millis(2_030),
                "{kind} {first_reads} {next_reads} {gives_up_at}: {took:?}"
            );
            assert!(first.await.unwrap().is_err());
            drop(held);
        }
    }
}

/// The holder has three of five masters. The other two are free. One of the three stops just before
/// the release, so only two masters call the waiter, but four are free.
#[tokio::test(start_paused = true)]
async fn a_waiter_in_queues_asks_when_a_majority_is_free() {
    for fault in [Fault::Down, Fault::Hang] {
        for kind in [LockKind::Fair, LockKind::ReadWrite, LockKind::Semaphore] {
            let world = World::new(5).await;
            let others = another(&world.masters).await;
            let late = [3, 4].map(|master: usize| &world.masters[master]);
            late.iter().for_each(|master| master.inject(Fault::Down));
            sleep(millis(5)).await;
            let held = others
                .of_kind(kind, NAME, &others.new_owner())
                .renewal(Renewal::Off);
            let held = held.ttl(seconds(60)).acquire().await.unwrap();
            world.clear_faults();
            sleep(seconds(3)).await;
            let lock = world.locks.of_kind(kind, NAME, &world.locks.new_owner());
            let waiting = tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                (Instant::now(), guard)
            });
            sleep(millis(5_300)).await;
            world.masters[2].inject(fault.clone());
            let start = Instant::now();
            drop(held);
            let (at, _guard) = timeout(seconds(70), waiting).await.unwrap().unwrap();
            assert!(
                at - start < millis(100),
                "{kind} {fault:?}: {:?}",
                at - start
            );
        }
    }
}
