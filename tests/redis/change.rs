//! A change of the masters, while a process with the old masters is stopped. It was believed gone,
//! and wakes up at the end.

use std::{env, io, time::Duration};

use quorlock::{AcquireError, Builder, Coordinator};
use tokio::{task::block_in_place, time::sleep};

use crate::{common::*, process::Process};

const TTL: Duration = Duration::from_secs(1);

/// The wait before the first process with only new masters: the longest TTL with its drift, or
/// three seconds if that is shorter.
const WAIT: Duration = Duration::from_secs(3);

const NAMES: [&str; 3] = ["old", "joint", "new"];

/// Environment variables of the old process, which is a second run of a test.
const MASTERS: &str = "QUORLOCK_CHANGE_MASTERS";
const IS_BARRED: &str = "QUORLOCK_CHANGE_BARRED";

fn builder() -> Builder {
    patient().node_timeout(TTL / 4).ttl(TTL).max_ttl(TTL)
}

/// Returns the masters' URLs with the user that the programs of one rollout have.
fn urls_of(user: &str, masters: &[Server]) -> Vec<String> {
    let url = |master: &Server| format!("redis://{user}:pw@127.0.0.1:{}", master.port());
    masters.iter().map(url).collect()
}

#[test]
fn an_old_process_that_wakes_up_after_the_change_overlaps() {
    change("an_old_process_that_wakes_up_after_the_change_overlaps", 0);
}

#[test]
fn an_old_process_that_is_barred_on_too_few_masters_overlaps() {
    let test = "an_old_process_that_is_barred_on_too_few_masters_overlaps";
    change(test, 1);
}

#[test]
fn an_old_process_that_is_barred_gets_errors_only() {
    change("an_old_process_that_is_barred_gets_errors_only", 2);
}

/// Changes three masters while an old process is stopped, and deletes its user on `barred` of the
/// old masters. Two make it certain that a majority is missing.
fn change(test: &str, barred: usize) {
    if let Ok(masters) = env::var(MASTERS) {
        return run(wake_up_late(
            &masters,
            env::var(IS_BARRED).unwrap() == "true",
        ));
    }
    with_masters(6, async |masters| {
        for master in &masters {
            for name in NAMES {
                let words = ["ACL", "SETUSER", name, "on", ">pw", "~*", "&*", "+@all"];
                assert_eq!(master.command(&words), "OK");
            }
        }
        let (old, new) = masters.split_at(3);
        let mut late = Process::start(
            &format!("change::{test}"),
            [
                (MASTERS, urls_of("old", old).join(",").into()),
                (IS_BARRED, (barred == 2).to_string().into()),
            ],
        );
        until_held(old).await;
        late.pause();

        let joint = builder()
            .masters(urls_of("joint", new))
            .leaving(urls_of("joint", old));
        let joint = joint.build().unwrap();
        let lock = joint.mutex("r");
        let held = lock.acquire_within(TTL * 10).await.unwrap();
        held.release().await.unwrap();
        for master in &old[..barred] {
            assert_eq!(master.command(&["ACL", "DELUSER", "old"]), "1");
        }
        sleep(WAIT).await;
        let locks = builder().masters(urls_of("new", new)).build().unwrap();
        let next = locks.mutex("r").acquire_within(TTL * 10).await.unwrap();
        joint.close().await;

        late.resume();
        late.write_line();
        if barred < 2 {
            until_held(&old[1..]).await;
            assert!(next.is_valid());
            late.write_line();
        }
        block_in_place(|| late.finish());
        // This guard was valid at all times while the old process tried.
        assert!(next.is_valid());
        next.release().await.unwrap();
        locks.close().await;
    });
}

/// Waits until two masters of `masters` hold the lock.
async fn until_held(masters: &[Server]) {
    until("a held lock", async || {
        let held = masters.iter().filter(|master| pttl(master, "r") > 0);
        (held.count() >= 2).then_some(())
    })
    .await;
}

/// Holds the lock until it was stopped for so long that the lock is lost. Then acquires it again,
/// or fails to, on the old masters.
async fn wake_up_late(masters: &str, is_barred: bool) {
    let locks = builder().masters(masters.split(',')).build().unwrap();
    let held = locks.mutex("r").acquire_within(TTL * 10).await.unwrap();
    until_told();
    assert!(!held.is_valid());
    drop(held);
    if is_barred {
        return get_errors(&locks).await;
    }
    let again = locks.mutex("r").acquire_within(TTL * 10).await.unwrap();
    until_told();
    assert!(again.is_valid());
    again.release().await.unwrap();
}

/// Tries to acquire the lock for a while, and fails if it gets it.
async fn get_errors(locks: &Coordinator) {
    let lock = locks.mutex("r");
    let mut last = String::new();
    for _ in 0..30 {
        let error = lock.try_acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        last = error.to_string();
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(last.matches("WRONGPASS").count(), 2, "{last}");
    let late = lock.acquire_within(TTL).await.unwrap_err();
    assert!(late.to_string().contains("WRONGPASS"), "{late}");
}

fn until_told() {
    block_in_place(|| io::stdin().read_line(&mut String::new())).unwrap();
}
