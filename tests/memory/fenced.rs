//! Fencing tokens during failures: they grow from holder to holder, and stay the same for one
//! holder.

use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(feature = "serde")]
use quorlock::FencingToken;
use quorlock::{
    __internals::fencing_token_of, Coordinator, Fault, FencedGuard, Lock, LockKind, Reason,
};
use tokio::time::sleep;

use crate::world::{KINDS, World, delay, lock, millis, said, seconds, timed};

const COUNTER: &str = "quorlock:fence:{orders/42}";

/// While a holder lacks one master, a waiter gets the lock there for a moment, which raises the
/// counter. The holder still gets its key back, so it survives the loss of another master.
#[tokio::test(start_paused = true)]
async fn a_lock_is_put_back_where_a_waiter_has_raised_the_counter() {
    for kind in KINDS {
        let world = World::new(3).await;
        let others = Coordinator::new(&world.masters).unwrap();
        world.masters[2].inject(Fault::Down);
        sleep(seconds(1)).await;
        let guard = fenced(kind, &world.locks).acquire().await.unwrap();
        let waiter = fenced(kind, &others);
        let waiter = tokio::spawn(async move { waiter.acquire().await });
        sleep(seconds(1)).await;
        world.clear_faults();
        sleep(seconds(60)).await;
        let votes = guard.all_votes().await;
        assert_eq!(votes.granted_count(), 3, "{kind}: {votes}");
        world.masters[0].inject(Fault::Down);
        sleep(seconds(60)).await;
        assert!(guard.is_valid(), "{kind}");
        waiter.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn counters_ahead_of_the_clock_cost_exactly_one_more_round() {
    for kind in KINDS {
        for (ahead, by, rounds) in [
            (2, 500_000, 1),
            (3, 500_000, 2),
            (5, 500_000, 2),
            (2, 10_000_000, 1), // far outside the window of candidates
            (3, 10_000_000, 2),
            (5, 10_000_000, 2),
        ] {
            let world = World::new(5).await;
            let guard = fenced(kind, &world.locks).acquire().await.unwrap();
            let counter = u64::from(guard.token()) + by;
            guard.release().await.unwrap();
            for master in &world.masters[..ahead] {
                master.set(COUNTER, counter.to_string(), None);
            }
            let guard = fenced(kind, &world.locks).acquire().await.unwrap();
            assert_eq!(guard.rounds(), rounds, "{kind} {ahead}: {}", guard.votes());
            let token = u64::from(guard.token());
            // Several may win a semaphore, so each offers a bit more than the least candidate.
            let most = if kind == LockKind::Semaphore && by < 1_000_000 {
                4_096
            } else {
                1
            };
            let is_just_above = (1..=most).contains(&token.saturating_sub(counter));
            assert_eq!(is_just_above, rounds == 2, "{token}, {counter}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn extension_renewal_and_healing_keep_the_token() {
    for kind in KINDS {
        let world = World::new(3).await;
        let guard = fenced(kind, &world.locks).acquire().await.unwrap();
        let token = guard.token();
        guard.extend(seconds(20)).await.unwrap();
        assert_eq!(guard.token(), token);
        for master in &world.masters {
            master.forget();
            sleep(seconds(30)).await; // several renewals
            assert_eq!(guard.token(), token);
            assert_eq!(said(&guard.all_votes().await), ["granted"; 3]);
            let counter = master.get(COUNTER).unwrap();
            assert_eq!(counter.parse(), Ok(u64::from(token)), "{kind}");
        }
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_reentry_has_the_token_of_the_lock() {
    for kind in [LockKind::Reentrant, LockKind::Fair] {
        let world = World::new(3).await;
        let owner = world.locks.new_owner();
        let plain = lock(kind, &world.locks, &owner);
        let lock = plain.clone().fenced();
        let outer = lock.acquire().await.unwrap();
        let inner = [
            lock.try_acquire().await.unwrap().into(),
            lock.acquire().await.unwrap().into(),
            plain.acquire().await.unwrap(),
        ];
        for guard in &inner {
            assert_eq!(fencing_token_of(guard, guard.name()), Some(outer.token()));
        }
        let last = u64::from(outer.token());
        for guard in inner {
            guard.release().await.unwrap();
        }
        outer.release().await.unwrap();
        larger(
            &lock.acquire().await.unwrap(),
            last,
            "the lock was acquired anew",
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_holds_the_lock_without_a_token_cannot_get_one() {
    for kind in [LockKind::Reentrant, LockKind::Fair] {
        let world = World::new(3).await;
        let owner = world.locks.new_owner();
        let plain = lock(kind, &world.locks, &owner);
        let lock = plain.clone().fenced();
        let guard = plain.acquire().await.unwrap();
        let commands = world.commands();
        for refused in [
            lock.try_acquire().await,
            lock.acquire().await,
            lock.acquire_within(seconds(1)).await,
        ] {
            assert!(
                matches!(&refused, Err(error) if *error.reason() == Reason::NotFenced),
                "{refused:?}"
            );
        }
        assert_eq!(world.commands(), commands);
        assert_eq!(
            (guard.depth(), fencing_token_of(&guard, guard.name())),
            (1, None)
        );
        assert!(guard.is_valid());
        guard.release().await.unwrap();
        larger(&lock.acquire().await.unwrap(), 0, "the lock was free");
    }
}

/// An attempt whose candidates are refused may take five rounds. Another task of the owner waits
/// for its end.
#[tokio::test(start_paused = true)]
async fn a_task_waits_for_all_ballots_of_another_task_of_its_owner() {
    for kind in [LockKind::Reentrant, LockKind::Fair] {
        let world = World::new(3).await;
        let owner = world.locks.new_owner();
        let lock = lock(kind, &world.locks, &owner).fenced();
        world.inject_all(&delay(45)); // almost the response timeout
        let raise_counters = async {
            for hours in 1..5 {
                let counter = micros_since_1970() + hours * 3_600_000_000;
                for master in &world.masters {
                    master.set(COUNTER, counter.to_string(), None);
                }
                sleep(millis(46)).await;
            }
        };
        let attempt = || timed(lock.try_acquire());
        let (first, second, ()) = tokio::join!(attempt(), attempt(), raise_counters);
        assert!(first.0 > millis(150), "{kind}: {first:?}");
        assert!(first.1.is_err(), "{kind}: {first:?}");
        let is_busy = matches!(&second.1, Err(error) if *error.reason() == Reason::OwnerBusy);
        assert!(!is_busy, "{kind}: {second:?}");
    }
}

fn micros_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

#[cfg(feature = "serde")]
#[test]
fn a_token_is_a_number_in_json() {
    let token = FencingToken::from((1 << 53) - 1);
    let text = serde_json::to_string(&token).unwrap();
    assert_eq!(text, "9007199254740991");
    assert_eq!(serde_json::from_str::<FencingToken>(&text).unwrap(), token);
    assert_eq!(i64::from(token), (1 << 53) - 1);
    assert_eq!(i64::from(FencingToken::from(u64::MAX)), i64::MAX);
}

/// Returns the token of `guard`, which must be larger than `last`.
#[track_caller]
fn larger(guard: &FencedGuard, last: u64, when: &str) -> u64 {
    let token = u64::from(guard.token());
    assert!(token > last, "{when}: {token}, and {last} before");
    assert!(token < 1 << 53);
    token
}

#[track_caller]
fn plain(kind: LockKind, locks: &Coordinator) -> Lock {
    lock(kind, locks, &locks.new_owner())
}

fn fenced(kind: LockKind, locks: &Coordinator) -> Lock<FencedGuard> {
    plain(kind, locks).fenced()
}
