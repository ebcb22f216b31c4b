//! Masters that may have forgotten locks do not vote until those locks are over.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use quorlock::{
    Coordinator, Fault, LockKind, LockState, MasterSpec, MemoryMaster, Quarantine, Reason, Renewal,
    health::MasterState,
    tools::MasterView,
    votes::{Failure, Votes},
};
use tokio::time::{Instant, sleep, timeout};

use crate::world::*;

const TTL: Duration = seconds(10); // the default, and the longest TTL in these tests
/// The longest TTL and the allowance for clocks that differ.
const QUARANTINE: Duration = millis(10_102);
/// The longest pause before the first dial of a master after it was down.
const FIRST_REDIAL: Duration = millis(100);
const QUARANTINES: [Quarantine; 2] = [Quarantine::Observed, Quarantine::Strict];

/// Masters that all have a vote.
async fn world(masters: usize, quarantine: Quarantine) -> World {
    let world = World::with(masters, |b| b.quarantine(quarantine).max_ttl(TTL)).await;
    if quarantine == Quarantine::Strict {
        sleep(QUARANTINE).await; // new masters are in quarantine
    }
    world
}

/// Another coordinator of this process.
async fn coordinator(world: &World, quarantine: Quarantine) -> Coordinator {
    connect(&world.masters, quarantine).await
}

/// A coordinator of another process, which has never seen the masters.
async fn newcomer(world: &World, quarantine: Quarantine) -> Coordinator {
    let masters = world.masters.iter().map(MemoryMaster::for_another_process);
    connect(&masters.collect::<Vec<_>>(), quarantine).await
}

async fn connect(masters: &[MemoryMaster], quarantine: Quarantine) -> Coordinator {
    let builder = Coordinator::builder().quarantine(quarantine).max_ttl(TTL);
    let locks = builder.masters(masters).build().unwrap();
    sleep(millis(1)).await;
    locks
}

/// Restarts a master as after SIGKILL without persistence.
async fn restart_empty(master: &MemoryMaster) {
    master.inject(Fault::Down);
    sleep(millis(1)).await;
    master.forget();
    master.inject(Fault::None);
}

/// Returns the votes of all masters on one attempt.
async fn votes(locks: &Coordinator) -> Votes {
    match locks.mutex("another lock").try_acquire().await {
        Ok(guard) => {
            let votes = guard.all_votes().await;
            guard.release().await.unwrap();
            votes
        }
        Err(error) if error.is_mistake() => panic!("{error}"),
        Err(error) => error.votes().unwrap().clone(),
    }
}

/// Returns the time until `master` has a vote, or `None` if it has a vote now.
async fn quarantine_left(locks: &Coordinator, master: usize) -> Option<Duration> {
    match votes(locks).await.iter().nth(master).unwrap().failure() {
        Some(Failure::Quarantined { remaining: left }) => Some(*left),
        None => None,
        Some(failure) => panic!("{failure}"),
    }
}

/// Restarts a master empty, and waits for the new connection. Returns the time until the master has
/// a vote, or `None` if it has a vote now.
async fn restarted(world: &World, master: usize) -> Option<Duration> {
    restart_empty(&world.masters[master]).await;
    for _ in 0..FIRST_REDIAL.as_millis() {
        sleep(millis(1)).await;
        let votes = votes(&world.locks).await;
        match votes.iter().nth(master).unwrap().failure() {
            Some(Failure::Unreachable(_)) => {}
            Some(Failure::Quarantined { remaining: left }) => return Some(*left),
            _ => return None,
        }
    }
    panic!("the master is not connected after {FIRST_REDIAL:?}");
}

#[tokio::test(start_paused = true)]
async fn a_master_that_restarted_empty_votes_again_when_its_quarantine_is_over() {
    for quarantine in QUARANTINES {
        let world = world(3, quarantine).await;
        assert_eq!(quarantine_left(&world.locks, 0).await, None);
        let left = restarted(&world, 0).await.unwrap();
        assert!(
            left <= QUARANTINE && left >= QUARANTINE - millis(2),
            "{left:?}"
        );
        sleep(left - millis(2)).await;
        let left = quarantine_left(&world.locks, 0).await.unwrap();
        assert!(left <= millis(2), "{left:?}");
        sleep(millis(3)).await;
        assert_eq!(quarantine_left(&world.locks, 0).await, None);
        // A client that dials the master now counts the master's vote, too.
        let others = coordinator(&world, quarantine).await;
        assert_eq!(quarantine_left(&others, 0).await, None);
    }
}

/// The first holder has two of three masters. One of the two forgets the lock, and the third master
/// never held it.
#[tokio::test(start_paused = true)]
async fn a_second_holder_comes_after_the_first_has_ended_or_before_without_quarantine() {
    for quarantine in [Quarantine::Off, Quarantine::Observed, Quarantine::Strict] {
        for kind in KINDS {
            let world = world(3, quarantine).await;
            let others = coordinator(&world, quarantine).await;
            world.occupy([2], seconds(60));
            let first = own(kind, &world.locks).ttl(TTL).renewal(Renewal::Off);
            let first = first.try_acquire().await.unwrap();
            assert_eq!(first.all_votes().await.granted_count(), 2);
            sleep(millis(100)).await; // a semaphore asks the third master again, a few times
            world.masters[2].delete(NAME);
            restart_empty(&world.masters[1]).await;

            let second = own(kind, &others);
            let (took, second) = timed(timeout(seconds(60), second.acquire())).await;
            let _second = second.unwrap().unwrap();
            let is_two = first.is_valid();
            assert_eq!(
                is_two,
                quarantine == Quarantine::Off,
                "{quarantine:?} {kind:?} {took:?}"
            );
            // The wait is not much longer than the quarantine.
            assert!(
                took < QUARANTINE + seconds(2),
                "{quarantine:?} {kind:?} {took:?}"
            );
        }
    }
}

/// The first holder has two of three masters. One of the two takes over the data of a server that
/// lacks the lock, and keeps its connections. Nothing is sent to it meanwhile.
#[tokio::test(start_paused = true)]
async fn a_second_holder_comes_after_the_first_if_a_master_was_flushed_or_was_a_replica() {
    let flush: fn(&MemoryMaster, &MemoryMaster) = |master, _| master.forget();
    let resync: fn(&MemoryMaster, &MemoryMaster) = |master, replica| master.resync(replica);
    for (quarantine, lose) in [Quarantine::Off, QUARANTINES[0], QUARANTINES[1]]
        .into_iter()
        .flat_map(|quarantine| [(quarantine, flush), (quarantine, resync)])
    {
        let world = world(3, quarantine).await;
        let others = coordinator(&world, quarantine).await;
        sleep(seconds(1)).await;
        let replica = MemoryMaster::new();
        replica.resync(&world.masters[1]);
        world.occupy([2], seconds(60));
        let first = world.locks.mutex(NAME).renewal(Renewal::Off);
        let first = first.try_acquire().await.unwrap();
        assert_eq!(first.all_votes().await.granted_count(), 2);
        world.masters[2].delete(NAME);
        lose(&world.masters[1], &replica);
        assert_eq!(world.masters[1].get(NAME), None);

        let second = others.mutex(NAME).acquire_within(seconds(60)).await;
        let is_two = first.is_valid() && second.is_ok();
        assert_eq!(is_two, quarantine == Quarantine::Off, "{quarantine:?}");
        // The loss is no outage.
        for health in others.health() {
            assert_eq!((health.state, health.failures), (MasterState::Connected, 0));
        }
    }
}

/// A client that has never seen a master counts an empty master as new. A strict client quarantines
/// the master instead.
#[tokio::test(start_paused = true)]
async fn a_newcomer_that_only_observes_trusts_an_empty_master() {
    for (guard, is_two) in [(Quarantine::Observed, true), (Quarantine::Strict, false)] {
        let world = world(3, guard).await;
        world.occupy([2], seconds(60));
        let first = world.lock().ttl(TTL).try_acquire().await.unwrap();
        first.all_votes().await;
        world.masters[2].delete(NAME);
        restart_empty(&world.masters[1]).await;
        // The newcomer dials before the others dial again.
        let newcomer = newcomer(&world, guard).await;
        let second = newcomer.mutex(NAME).try_acquire().await;
        assert_eq!(second.is_ok() && first.is_valid(), is_two, "{guard:?}");
    }
}

/// Any coordinator of the process may have seen the master.
#[tokio::test(start_paused = true)]
async fn a_process_knows_a_master_that_one_of_its_coordinators_has_seen() {
    for kind in KINDS {
        let world = world(3, Quarantine::Observed).await;
        let gone = coordinator(&world, Quarantine::Observed).await;
        drop(gone);
        world.occupy([2], seconds(60));
        let first = own(kind, &world.locks).ttl(TTL).renewal(Renewal::Off);
        let first = first.try_acquire().await.unwrap();
        assert_eq!(first.all_votes().await.granted_count(), 2);
        world.masters[2].delete(NAME);
        restart_empty(&world.masters[1]).await;
        // The new coordinator dials the master before the holder's coordinator does.
        let made_anew = coordinator(&world, Quarantine::Observed).await;
        let second = own(kind, &made_anew);
        assert!(second.try_acquire().await.is_err(), "{kind}");
        assert!(first.is_valid());
        let left = quarantine_left(&made_anew, 1).await.unwrap();
        assert!(QUARANTINE.abs_diff(left) <= millis(5), "{left:?}");
    }
}

/// The first coordinator writes a new record to the master. The other coordinators still quarantine
/// the master.
#[tokio::test(start_paused = true)]
async fn all_coordinators_of_a_process_quarantine_a_forgetful_master() {
    for quarantine in QUARANTINES {
        let world = world(3, quarantine).await;
        let others = coordinator(&world, quarantine).await;
        let left = restarted(&world, 0).await.unwrap();
        let seen = Instant::now();
        for wait in [FIRST_REDIAL, seconds(3)] {
            sleep(wait).await;
            let late = coordinator(&world, quarantine).await;
            for locks in [&others, &late] {
                let theirs = quarantine_left(locks, 0).await.unwrap();
                let over = seen.elapsed() + theirs;
                assert!(over.abs_diff(left) <= millis(3), "{quarantine:?} {over:?}");
            }
        }
    }
}

/// A server at another address restarts and then gets the address of a master. A coordinator of
/// this process still has its connection to the server before, from which it has heard meanwhile.
#[tokio::test(start_paused = true)]
async fn a_coordinator_knows_when_others_of_its_process_last_heard_from_the_server_before() {
    let servers = [MemoryMaster::new(), MemoryMaster::new()];
    let current = Arc::<AtomicUsize>::default();
    let coordinator = async || {
        let (servers, current) = (servers.clone(), current.clone());
        let dial = move || ready(servers[current.load(Ordering::Relaxed)].connect());
        let spec = MasterSpec::with_connector("redis://moved", dial);
        let locks = Coordinator::builder().max_ttl(TTL).master(spec);
        let locks = locks.build().unwrap();
        sleep(millis(1)).await;
        locks
    };
    let early = coordinator().await;
    let other_program = [servers[1].for_another_process()];
    let _other_program = connect(&other_program, Quarantine::Observed).await;
    sleep(2 * QUARANTINE).await;
    servers[1].restart();
    sleep(2 * QUARANTINE).await;
    assert_eq!(quarantine_left(&early, 0).await, None);
    current.store(1, Ordering::Relaxed);
    sleep(seconds(1)).await;
    let late = coordinator().await;
    let left = quarantine_left(&late, 0).await.unwrap();
    assert!(left > QUARANTINE - millis(10), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_majority_in_quarantine_is_its_own_error_and_says_when_it_ends() {
    for (restarts, decisive) in [(3, 0), (4, 1), (5, 2)] {
        let world = world(5, Quarantine::Observed).await;
        let mut ends = Vec::new();
        for master in 0..restarts {
            let left = restarted(&world, master).await.unwrap();
            ends.push(Instant::now() + left);
            sleep(seconds(1)).await;
        }
        let refused = world.lock().try_acquire().await.unwrap_err();
        let text = refused.to_string();
        let Reason::Quarantined {
            remaining: left, ..
        } = *refused.reason()
        else {
            panic!("{text}");
        };
        let votes = refused.votes().unwrap();
        assert_eq!(votes.failed_count(), restarts);
        assert!(text.contains("may have forgotten locks"), "{text}");
        let expected = ends[decisive] - Instant::now();
        assert!(
            left.abs_diff(expected) <= millis(2),
            "{left:?} {expected:?}"
        );

        let (took, guard) = timed(world.lock().acquire()).await;
        assert!(guard.unwrap().is_valid());
        assert!(
            took >= left - millis(2) && took <= left + millis(500),
            "{took:?} {left:?}"
        );
    }
}

/// While no majority can vote, a waiter sends nothing. Only a waiter for a fair lock polls, to keep
/// its position in the queue.
#[tokio::test(start_paused = true)]
async fn a_waiter_asks_again_when_a_majority_has_left_quarantine() {
    for (kind, most) in [
        (LockKind::Mutex, 8),
        (LockKind::Reentrant, 8),
        (LockKind::Fair, 48),
    ] {
        let world = world(3, Quarantine::Observed).await;
        restarted(&world, 0).await.unwrap();
        restarted(&world, 1).await.unwrap();
        let left = quarantine_left(&world.locks, 0).await.unwrap();
        let commands = world.masters[2].commands();
        let waiting = own(kind, &world.locks);
        let (took, guard) = timed(waiting.acquire()).await;
        assert!(
            took >= left - millis(2) && took <= left + millis(500),
            "{kind:?}: {took:?} {left:?}"
        );
        assert!(guard.unwrap().is_valid());
        let commands = world.masters[2].commands() - commands;
        assert!(commands <= most, "{kind:?}: {commands}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_dial_that_ends_in_quarantine_fails_the_attempt_at_once() {
    let world = World::new(3).await;
    world.inject_all(&delay(10));
    let builder = Coordinator::builder().quarantine(Quarantine::Strict);
    let builder = builder.max_ttl(TTL).response_timeout(millis(500));
    let locks = builder.masters(&world.masters).build().unwrap();
    let (took, refused) = timed(locks.mutex(NAME).try_acquire()).await;
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused.reason(), Reason::Quarantined { remaining: left, .. } if *left >= QUARANTINE - millis(30)),
        "{refused}"
    );
    assert!(took <= millis(35), "{took:?}"); // the time of the dial and of the release
    assert_eq!(world.holders(), [""; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_master_refuses_extensions_but_takes_releases_and_inspections() {
    for quarantine in QUARANTINES {
        let world = world(3, quarantine).await;
        let held = world.guard().await;
        held.all_votes().await;
        let token = world.masters[0].get(NAME).unwrap();
        restarted(&world, 0).await.unwrap();
        // Writes the key that a snapshot would have restored.
        world.masters[0].set(NAME, token, Some(seconds(60)));

        held.extend(TTL).await.unwrap();
        let votes = held.all_votes().await;
        let failure = votes.iter().next().unwrap().failure();
        assert!(
            matches!(failure, Some(Failure::Quarantined { .. })),
            "{votes}"
        );
        let seen = world.lock().inspect().await.unwrap();
        assert_eq!(seen.votes.granted_count(), 3, "{}", seen.votes);
        held.release().await.unwrap();
        sleep(millis(1)).await;
        assert_eq!(world.holders(), [""; 3]);
    }
}

/// One master knows the lock, and the two that forgot it give no one else a vote.
#[tokio::test(start_paused = true)]
async fn a_lock_that_a_majority_forgot_is_held_until_it_is_released() {
    for kind in KINDS {
        let world = world(3, Quarantine::Strict).await;
        let held = own(kind, &world.locks).ttl(TTL).renewal(Renewal::Off);
        let guard = held.try_acquire().await.unwrap();
        guard.all_votes().await;
        let look = own(kind, &world.locks);
        for master in 0..2 {
            restarted(&world, master).await.unwrap();
        }
        assert!(guard.is_valid(), "{kind}");
        assert!(look.is_held().await.unwrap(), "{kind}");
        let seen = look.inspect().await.unwrap();
        let view = seen.views().last().unwrap();
        assert_eq!(view, MasterView::Held(seen.holders.clone()), "{kind}");
        assert!(seen.is_split(), "{kind}");
        look.try_acquire().await.unwrap_err();

        guard.release().await.unwrap();
        sleep(millis(1)).await;
        assert!(!look.is_held().await.unwrap(), "{kind}");
        let permits = world.locks.semaphore(NAME, 3);
        assert_eq!(permits.available_permits().await.unwrap(), 0, "{kind}");
        sleep(QUARANTINE).await;
        assert_eq!(permits.available_permits().await.unwrap(), 3, "{kind}");
        drop(look.try_acquire().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_renewed_without_a_quarantined_master_and_put_back_afterwards() {
    for quarantine in QUARANTINES {
        let world = world(3, quarantine).await;
        let held = world.locks.mutex(NAME).try_acquire().await.unwrap();
        let left = restarted(&world, 0).await.unwrap();
        sleep(left - millis(2)).await;
        assert_eq!(world.holders(), ["", "mine", "mine"]);
        assert!(held.is_valid());
        sleep(millis(2) + renewal()).await;
        assert_eq!(world.holders(), ["mine"; 3]);
        assert_eq!(held.state(), LockState::Held);
    }
}

/// The longest time until a renewal has put a key back.
fn renewal() -> Duration {
    valid(TTL) / 3 + millis(10)
}
