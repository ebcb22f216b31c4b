//! Waiters that cannot win step aside, and do not slow down other waiters.

use std::time::Duration;

use quorlock::{
    __internals::{fencing_token_of, plain},
    Coordinator, Fault, Lock, LockKind, MemoryMaster, Quarantine, Reason, Renewal,
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::world::{KINDS, NAME, delay, masters, millis, own, seconds, timed};

const QUEUE: &str = "quorlock:queue:{orders/42}";

async fn coordinator(masters: &[MemoryMaster], response_timeout: Duration) -> Coordinator {
    let builder = Coordinator::builder().quarantine(Quarantine::Off);
    let locks = builder.masters(masters).response_timeout(response_timeout);
    let locks = locks.build().unwrap();
    sleep(millis(1)).await;
    locks
}

fn fair(locks: &Coordinator) -> Lock {
    locks.fair(NAME)
}

/// Counts how often one client gets the lock in a minute, if it holds it for 10 ms each time.
async fn grants(locks: &Coordinator, kind: LockKind) -> u32 {
    let end = Instant::now() + seconds(60);
    let mut grants = 0;
    while Instant::now() < end {
        let lock = own(kind, locks);
        let Ok(Ok(guard)) = timeout(seconds(60), lock.acquire()).await else {
            continue;
        };
        grants += 1;
        sleep(millis(10)).await;
        guard.release().await.unwrap();
        sleep(millis(10)).await;
    }
    grants
}

/// Compares how often a near client gets the lock without and with a hopeless client, which cannot
/// win. The hopeless client waits without a limit, or repeatedly for a second.
async fn check_every_kind(near: &Coordinator, hopeless: &Coordinator) {
    for kind in KINDS {
        check_kind(near, hopeless, kind).await;
    }
}

async fn check_kind(near: &Coordinator, hopeless: &Coordinator, kind: LockKind) {
    let alone = grants(near, kind).await;
    assert!(alone > 100, "{alone}");
    for limit in [None, Some(seconds(1))] {
        let lock = own(kind, hopeless);
        let waiter = tokio::spawn(async move {
            match limit {
                None => drop(lock.acquire().await),
                Some(limit) => while lock.acquire_within(limit).await.is_err() {},
            }
        });
        sleep(millis(500)).await;
        let contended = grants(near, kind).await;
        // Pauses are random. On average, three quarters are left of a mutex.
        assert!(contended * 2 >= alone, "{contended} of {alone}, {limit:?}");
        assert!(!waiter.is_finished());
        waiter.abort();
        sleep(seconds(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_too_far_away_does_not_hold_up_others() {
    let masters = masters(3);
    let near = coordinator(&masters, millis(500)).await;
    let far = coordinator(&masters, millis(50)).await;
    masters.iter().for_each(|master| master.inject(delay(80)));
    check_every_kind(&near, &far).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_cut_off_from_a_majority_does_not_hold_up_others() {
    let masters = masters(5);
    let near = coordinator(&masters[..3], millis(50)).await;
    let part = [masters[0].clone(), masters[3].clone(), masters[4].clone()];
    let part = coordinator(&part, millis(50)).await;
    // Two masters stay up. They are a majority for the near client, but the other client has only
    // one of them.
    for master in &masters[2..] {
        master.inject(Fault::Down);
    }
    sleep(millis(10)).await;
    check_every_kind(&near, &part).await;
}

/// Two clients on the same three masters.
struct TwoClients {
    masters: Vec<MemoryMaster>,
    waiter: Coordinator,
    holder: Coordinator,
}

impl TwoClients {
    async fn new() -> Self {
        let masters = masters(3);
        Self {
            waiter: coordinator(&masters, millis(50)).await,
            holder: coordinator(&masters, millis(50)).await,
            masters,
        }
    }

    fn inject_into_two(&self, fault: &Fault) {
        for master in &self.masters[1..] {
            master.inject(fault.clone());
        }
    }

    /// Returns the tickets in the queue of each master.
    fn queues(&self) -> Vec<Vec<String>> {
        self.masters
            .iter()
            .map(|master| master.queue(QUEUE))
            .collect()
    }
}

/// The waiter returns to its queue position when a majority answers again.
#[tokio::test(start_paused = true)]
async fn a_waiter_steps_aside_while_it_cannot_win_and_comes_back_with_its_ticket() {
    for fault in [Fault::Down, Fault::Hang, delay(80)] {
        for is_fenced in [false, true] {
            let two = TwoClients::new().await;
            let fenced = |lock: Lock| {
                if is_fenced {
                    plain(lock.fenced())
                } else {
                    lock
                }
            };
            let held = fenced(fair(&two.holder).ttl(seconds(600)).renewal(Renewal::Off))
                .acquire()
                .await
                .unwrap();
            let lock = fenced(fair(&two.waiter));
            let task = tokio::spawn(async move { lock.acquire().await.unwrap() });
            sleep(seconds(2)).await;
            let queued = two.queues();
            assert!(queued[0].len() == 1 && queued.iter().all(|queue| *queue == queued[0]));
            two.inject_into_two(&fault);
            let start = Instant::now();
            // The next poll may come up to a third of the silent-waiter timeout later. The waiter
            // steps aside half a silent-waiter timeout after that poll.
            sleep_until(start + millis(1_400)).await;
            assert_eq!(two.queues()[0], queued[0], "{fault:?}");
            sleep_until(start + millis(2_800)).await;
            assert_eq!(two.queues()[0], [""; 0], "{fault:?}");
            let before = two.masters[0].commands();
            sleep_until(start + seconds(62)).await;
            let sent = two.masters[0].commands() - before;
            assert!(sent <= 60, "{fault:?}: {sent}");
            two.inject_into_two(&Fault::None);
            sleep(seconds(5)).await;
            assert_eq!(two.queues(), queued, "{fault:?}");
            held.release().await.unwrap();
            let (took, guard) = timed(task).await;
            assert!(took <= millis(20), "{took:?}");
            assert_eq!(fencing_token_of(&guard.unwrap(), NAME).is_some(), is_fenced);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_stepped_aside_stops_at_its_time_limit_and_at_close() {
    for fault in [Fault::Down, Fault::Hang, delay(80)] {
        let two = TwoClients::new().await;
        two.inject_into_two(&fault);
        let lock = fair(&two.waiter);
        let (took, error) = timed(lock.acquire_within(seconds(20))).await;
        let error = error.unwrap_err();
        assert!(*error.reason() == Reason::NoQuorum, "{error}");
        assert!(error.to_string().starts_with("gave up"), "{error}");
        assert!(
            took >= seconds(20) && took <= seconds(20) + millis(200),
            "{took:?}"
        );

        let task = tokio::spawn(async move { timed(lock.acquire()).await });
        sleep(seconds(20)).await;
        let closed = Instant::now();
        let closing = two.waiter.clone();
        tokio::spawn(async move { closing.close().await });
        let (_, error) = task.await.unwrap();
        assert!(matches!(&error, Err(error) if *error.reason() == Reason::Closed));
        assert!(closed.elapsed() <= millis(100), "{:?}", closed.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_stepped_aside_wins_when_another_task_of_its_owner_does() {
    let two = TwoClients::new().await;
    let owner = two.waiter.new_owner();
    let lock = two.waiter.fair(NAME).owner(&owner);
    two.inject_into_two(&delay(80));
    let waiter = lock.clone();
    let task = tokio::spawn(async move { waiter.acquire().await.unwrap() });
    sleep(seconds(10)).await;
    two.inject_into_two(&Fault::None);
    let guard = lock.try_acquire().await.unwrap();
    let (took, entered) = timed(task).await;
    assert!(took <= millis(1), "{took:?}");
    assert_eq!(entered.unwrap().depth(), 2);
    drop(guard);
}

/// No majority answers for longer than half a silent-waiter timeout, so the waiter steps aside.
/// Then just a majority comes back, and the waiter is in the queue again. The masters have
/// different delays, so a round may be lost before a majority has answered.
#[tokio::test(start_paused = true)]
async fn a_waiter_comes_back_to_the_queue_when_a_bare_majority_is_up() {
    for size in [3, 4, 5] {
        let masters = masters(size);
        let locks = coordinator(&masters, millis(50)).await;
        let others = coordinator(&masters, millis(50)).await;
        let held = fair(&others)
            .ttl(seconds(600))
            .renewal(Renewal::Off)
            .acquire()
            .await
            .unwrap();
        let back = |n: usize| masters[n].inject(delay(5 + 10 * n as u64));
        (0..size).for_each(back);
        let lock = fair(&locks);
        let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
        sleep(seconds(1)).await;
        masters[1..]
            .iter()
            .for_each(|master| master.inject(Fault::Down));
        sleep(seconds(4)).await;
        (1..=size / 2).for_each(back);
        sleep(seconds(60)).await;
        assert_eq!(masters[0].queue(QUEUE).len(), 1, "{size}");
        held.release().await.unwrap();
        drop(timeout(seconds(1), waiter).await.unwrap().unwrap());
    }
}

/// The TTL is too short for the distance to the masters: every grant arrives after its validity has
/// ended. The masters still answer within the response timeout.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_ttl_is_too_short_does_not_hold_up_others() {
    let masters = masters(3);
    masters.iter().for_each(|master| master.inject(delay(59)));
    let near = coordinator(&masters, millis(500)).await;
    let builder = Coordinator::builder().quarantine(Quarantine::Off);
    let builder = builder.masters(&masters).ttl(millis(60));
    let hopeless = builder.build().unwrap();
    sleep(seconds(1)).await;
    check_kind(&near, &hopeless, LockKind::Fair).await;
}
