//! Futures that were polled once and are not polled any more. An example is a `&mut future` in a
//! `select!` in which another branch completes first.

use std::time::Duration;

use quorlock::{__internals as internals, Coordinator, Lock, Owner, Reason, Renewal};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::world::{NAME, World, error, millis, seconds, start, timed};

/// The default response timeout.
const RESPONSE_TIMEOUT: Duration = millis(50);

/// Returns one lock of each kind.
fn kinds() -> [fn(&Coordinator, &Owner) -> Lock; 3] {
    [
        |locks, _| locks.mutex(NAME),
        |locks, owner| locks.reentrant(NAME, owner),
        |locks, owner| locks.fair(NAME).owner(owner),
    ]
}

#[tokio::test(start_paused = true)]
async fn an_attempt_fails_while_another_task_of_its_owner_makes_one() {
    let plain = kinds().into_iter().skip(1).map(|kind| (kind, false));
    for (kind, is_fenced) in plain.clone().chain(plain.map(|(kind, _)| (kind, true))) {
        let world = World::new(3).await;
        let owner = world.locks.new_owner();
        let fenced = |lock: Lock| {
            if is_fenced {
                internals::plain(lock.fenced())
            } else {
                lock
            }
        };
        let first = fenced(kind(&world.locks, &owner));
        let mut first = Box::pin(first.acquire());
        start(first.as_mut()).await;
        let lock = fenced(kind(&world.locks, &owner));
        let (took, error) = timeout(seconds(3_600), timed(lock.try_acquire()))
            .await
            .unwrap();
        let error = error.unwrap_err();
        assert!(*error.reason() == Reason::OwnerBusy, "{error}");
        let rounds = if is_fenced { 5 } else { 3 };
        assert_eq!(took, rounds * RESPONSE_TIMEOUT, "{is_fenced}");
        let text = r#"could not lock "orders/42": another task of its owner is in the middle of an attempt, try again later"#;
        assert_eq!(error.to_string(), text);
        // The first attempt continues when it is polled again.
        drop(first.await.unwrap());
        drop(lock.try_acquire().await.unwrap());
    }
}

/// The waiters of a process contend one at a time. Some of the earlier waiters are not polled any
/// more.
#[tokio::test(start_paused = true)]
async fn a_waiter_takes_over_from_unpolled_ones() {
    for kind in &kinds()[..2] {
        let world = World::new(3).await;
        let others = Coordinator::new(&world.masters).unwrap();
        let held = kind(&others, &others.new_owner()).acquire().await.unwrap();
        let unpolled: Vec<_> = [(); 5]
            .map(|()| kind(&world.locks, &world.locks.new_owner()))
            .into_iter()
            .collect();
        let mut unpolled: Vec<_> = unpolled
            .iter()
            .map(|lock| Box::pin(lock.acquire()))
            .collect();
        for waiter in &mut unpolled {
            assert!(timeout(millis(50), waiter.as_mut()).await.is_err());
        }
        held.release().await.unwrap();
        let lock = kind(&world.locks, &world.locks.new_owner());
        let waiting = timeout(seconds(3_600), timed(lock.acquire()));
        let (took, guard) = waiting.await.unwrap();
        assert!(took <= seconds(5), "{took:?}");
        drop(guard.unwrap());
        // A waiter that was passed over once does not delay the others again.
        let wait = async {
            for _ in 0..20 {
                drop(lock.acquire().await.unwrap());
            }
        };
        let (took, ()) = timed(wait).await;
        assert!(took <= seconds(15), "{took:?}");
        // The unpolled waiters continue when they are polled again, one after the other.
        for waiter in unpolled {
            drop(timeout(seconds(10), waiter).await.unwrap().unwrap());
        }
    }
}

/// Only one waiter contends at a time, even if there are many waiters and some are not polled.
#[tokio::test(start_paused = true)]
async fn the_masters_are_asked_no_more_often_when_waiters_are_not_polled() {
    let mut sent = Vec::new();
    for unpolled in [0, 20] {
        let world = World::new(3).await;
        let others = Coordinator::new(&world.masters).unwrap();
        let held = others.mutex(NAME).acquire().await.unwrap();
        let lock = world.locks.mutex(NAME);
        let mut waiters: Vec<_> = (0..unpolled).map(|_| Box::pin(lock.acquire())).collect();
        for waiter in &mut waiters {
            assert!(timeout(millis(50), waiter.as_mut()).await.is_err());
        }
        let mut tasks = JoinSet::new();
        for _ in 0..50 {
            let lock = lock.clone();
            tasks.spawn(async move { lock.acquire().await.map(drop) });
        }
        sleep(seconds(10)).await;
        let before = world.commands()[0];
        sleep(seconds(100)).await;
        sent.push(world.commands()[0] - before);
        drop(held);
    }
    // Waiters that are passed over cost about a sixth more. If two waiters contended at a time, the
    // masters would be asked twice as often.
    assert!(sent[1] <= sent[0] * 3 / 2, "{sent:?}");
}

/// The contending waiter is not polled any more. The lock is released long before the waiter's next
/// planned attempt. The waiter does not respond to the release, so it is passed over 2 s later.
#[tokio::test(start_paused = true)]
async fn an_unpolled_waiter_is_passed_over_soon_after_a_release() {
    for kind in &kinds()[..2] {
        let hour = seconds(3_600);
        let world = World::with(3, |builder| {
            builder.ttl(seconds(60)).poll_interval(hour..=hour)
        })
        .await;
        let others = Coordinator::new(&world.masters).unwrap();
        let held = kind(&others, &others.new_owner())
            .ttl(seconds(60))
            .renewal(Renewal::Off);
        let held = held.acquire().await.unwrap();
        let first = kind(&world.locks, &world.locks.new_owner());
        let mut first = Box::pin(first.acquire());
        assert!(timeout(millis(500), first.as_mut()).await.is_err());
        let lock = kind(&world.locks, &world.locks.new_owner());
        let next = tokio::spawn(async move { timed(lock.acquire()).await });
        sleep(millis(100)).await;
        held.release().await.unwrap();
        let (took, next) = next.await.unwrap();
        drop(next.unwrap());
        assert!(took <= seconds(3), "{took:?}");
    }
}

/// The waiting task runs again only long after its limit, for example because the machine was
/// suspended. The lock has become free meanwhile.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_polled_long_after_its_limit_makes_its_last_attempt() {
    for kind in kinds() {
        let world = World::new(3).await;
        let others = Coordinator::new(&world.masters).unwrap();
        let held = kind(&others, &others.new_owner()).acquire().await.unwrap();
        let lock = kind(&world.locks, &world.locks.new_owner());
        let mut waiting = Box::pin(lock.acquire_within(seconds(1)));
        assert!(timeout(millis(500), waiting.as_mut()).await.is_err());
        held.release().await.unwrap();
        sleep(seconds(2)).await;
        let guard = timeout(seconds(1), waiting).await.unwrap();
        drop(guard.expect("the lock is free, and no other task of the owner wants it"));
    }
}

/// A task that cannot reenter waits before it tries again. Meanwhile, the lock becomes free. The
/// task must not keep its place before others, or the permit of its owner, without using them.
#[tokio::test(start_paused = true)]
async fn a_task_that_could_not_reenter_holds_up_no_one() {
    for kind in &kinds()[1..] {
        let hour = seconds(3_600);
        let world = World::with(3, |builder| builder.retry_delay(hour..=hour)).await;
        let others = Coordinator::new(&world.masters).unwrap();
        let held = kind(&others, &others.new_owner()).acquire().await.unwrap();
        let owner = world.locks.new_owner();
        let lock = kind(&world.locks, &owner);
        let [first, second] = [(); 2].map(|()| lock.clone());
        let first = tokio::spawn(async move { first.acquire().await });
        sleep(millis(20)).await;
        let mut second = Box::pin(async move { second.acquire().await });
        assert!(timeout(millis(20), second.as_mut()).await.is_err());
        held.release().await.unwrap();
        let first = first.await.unwrap().unwrap();
        world.inject_all(&error());
        assert!(timeout(millis(200), second.as_mut()).await.is_err());
        let second = tokio::spawn(async move { second.await.map(drop) });
        sleep(millis(20)).await;
        world.clear_faults();
        first.release().await.unwrap();
        let third = kind(&world.locks, &world.locks.new_owner());
        let (took, third) = timeout(hour * 2, timed(third.acquire())).await.unwrap();
        drop(third.unwrap());
        assert!(took <= millis(100), "{took:?}");
        second.await.unwrap().unwrap();
    }
}
