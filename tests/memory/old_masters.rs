//! Two lists of masters, while the masters are changed.

use quorlock::{
    ConfigError, Coordinator, Fault, MemoryMaster, Reason,
    health::MasterHealth,
    tools::{MasterList, Membership, Tally},
    votes::Vote,
};
use tokio::time::sleep;

use super::world::{millis, seconds};

fn masters<const N: usize>() -> [MemoryMaster; N] {
    [(); N].map(|()| MemoryMaster::new())
}

fn joint(new: &[MemoryMaster], old: &[MemoryMaster]) -> Coordinator {
    let builder = Coordinator::builder().masters(new).old_masters(old);
    builder.build().unwrap()
}

/// Returns the list of masters that takes the place of `old`, with another last master.
fn with_another(old: &[MemoryMaster]) -> Vec<MemoryMaster> {
    let mut new = old.to_vec();
    new.pop();
    new.push(MemoryMaster::new());
    new
}

fn inject(masters: &[MemoryMaster], fault: Fault) {
    for master in masters {
        master.inject(fault.clone());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_needs_a_majority_of_each_list() {
    let (old, new) = (masters::<3>(), masters::<3>());
    let locks = joint(&new, &old);
    assert_eq!((locks.master_count(), locks.quorum()), (6, 2));
    locks.all_ready_within(seconds(5)).await.unwrap();
    let guard = locks.mutex("r").acquire().await.unwrap();
    let granted = guard.all_votes().await;
    let granted = granted.tally(|row| row.vote == Some(&Vote::Grant));
    let expected = ["3 of 3 masters (need 2)", "3 of 3 old masters (need 2)"];
    assert_eq!(
        granted.iter().map(Tally::to_string).collect::<Vec<_>>(),
        expected
    );
    guard.release().await.unwrap();

    for (down, lacking) in [(&new, MasterList::Masters), (&old, MasterList::Old)] {
        inject(&down[..2], Fault::Down);
        sleep(seconds(1)).await;
        let tallies = locks.tally(MasterHealth::can_vote);
        let without: Vec<_> = tallies.iter().filter(|tally| !tally.has_quorum()).collect();
        assert_eq!(
            without.iter().map(|tally| tally.list).collect::<Vec<_>>(),
            [lacking]
        );
        let refused = locks.mutex("r").try_acquire().await.unwrap_err();
        assert!(*refused.reason() == Reason::NoQuorum, "{refused}");
        let text = format!("1 of 3 {lacking} voted (need 2)");
        assert!(refused.to_string().contains(&text), "{refused}");
        let not_ready = locks.ready_within(millis(100)).await.unwrap_err();
        let text = format!("1 of 3 {lacking} can vote (need 2)");
        assert!(not_ready.to_string().contains(&text), "{not_ready}");
        inject(down, Fault::None);
        sleep(seconds(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_both_lists_hears_of_a_release_by_either() {
    let old = masters::<3>();
    let new = with_another(&old);
    for programs in [[&old[..], &new[..]], [&new[..], &old[..]]] {
        let holder = Coordinator::new(programs[0]).unwrap();
        let locks = joint(&new, &old);
        locks.all_ready_within(seconds(5)).await.unwrap();
        for kind in ["mutex", "fair", "reader", "permit"] {
            let lock = |locks: &Coordinator| match kind {
                "fair" => locks.fair(kind),
                "reader" => locks.read_write(kind).write().plain(),
                "permit" => locks.semaphore(kind, 1).plain(),
                _ => locks.mutex(kind),
            };
            let guard = lock(&holder).acquire().await.unwrap();
            let waiter = tokio::spawn({
                let lock = lock(&locks);
                async move { lock.acquire().await.unwrap() }
            });
            sleep(millis(100)).await;
            assert!(!waiter.is_finished());
            guard.release().await.unwrap();
            let released = tokio::time::Instant::now();
            let guard = tokio::time::timeout(seconds(5), waiter)
                .await
                .unwrap()
                .unwrap();
            assert!(
                released.elapsed() < millis(100),
                "{kind} {:?}",
                released.elapsed()
            );
            assert!(lock(&holder).try_acquire().await.is_err());
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_lists_are_checked() {
    let old = masters::<3>();
    let new = with_another(&old);
    let locks = joint(&new, &old);
    let health = locks.health();
    let parts: Vec<_> = health.iter().map(|master| master.membership).collect();
    use Membership::{Joins, Leaves, Stays};
    assert_eq!(parts, [Stays, Stays, Joins, Leaves]);
    assert!(
        health[3].to_string().contains(" (leaves) "),
        "{}",
        health[3]
    );

    // The same lists are one, in any order.
    let mut turned = old.to_vec();
    turned.reverse();
    let locks = joint(&turned, &old);
    assert_eq!(locks.tally(|_| true).len(), 1);
    assert_eq!(joint(&old, &[]).tally(|_| true).len(), 1);

    let twice = [&old[0], &old[1], &old[0]];
    let error = Coordinator::builder()
        .masters(&new)
        .old_masters(twice)
        .build();
    assert!(
        matches!(
            error,
            Err(ConfigError::DuplicateMaster {
                first: 4,
                second: 6,
                ..
            })
        ),
        "{error:?}"
    );
    let none: [MemoryMaster; 0] = [];
    let error = Coordinator::builder()
        .masters(&none)
        .old_masters(&old)
        .build();
    assert!(matches!(error, Err(ConfigError::NoMasters)), "{error:?}");
    let many = [masters::<33>(), masters::<33>()];
    let error = Coordinator::builder()
        .masters(&many[0])
        .old_masters(&many[1])
        .build();
    assert!(
        matches!(
            &error,
            Err(ConfigError::OutOfRange { given, .. }) if given == "66 masters"
        ),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_has_lists_of_its_own_and_the_usual_quarantine() {
    let old = masters::<3>();
    let locks = joint(&with_another(&old), &old);
    assert_ne!(locks.lists_id(), Coordinator::new(&old).unwrap().lists_id());
    assert_eq!(locks.quarantine_length(), millis(60_602));
}

/// Each database of a server has keys of its own.
#[tokio::test]
async fn a_server_cannot_take_the_place_of_itself_with_another_database() {
    let urls = |database| ["a", "b", "c"].map(|host| format!("redis://{host}:1/{database}"));
    let builder = Coordinator::builder().masters(urls(1)).old_masters(urls(0));
    let error = builder.build().unwrap_err();
    let is_other = matches!(
        error,
        ConfigError::DuplicateInOtherDatabase {
            first: 1,
            second: 4,
            ..
        }
    );
    assert!(is_other, "{error}");
}

/// The masters of only one list know the holders.
#[tokio::test(start_paused = true)]
async fn a_free_permit_is_found_while_the_masters_change() {
    const PERMITS: usize = 10;
    let (old, new) = (masters::<3>(), masters::<3>());
    let locks = joint(&new, &old);
    for holders in [&old, &new] {
        let holders = Coordinator::new(holders).unwrap();
        for name in 0..8 {
            let lock = |locks: &Coordinator| locks.semaphore(format!("{name}"), PERMITS).plain();
            let mut held = Vec::new();
            for _ in 1..PERMITS {
                held.push(lock(&holders).acquire().await.unwrap());
            }
            let last = lock(&locks).acquire_within(seconds(10)).await.unwrap();
            assert!(lock(&holders).try_acquire().await.is_err());
            last.release().await.unwrap();
        }
    }
}
