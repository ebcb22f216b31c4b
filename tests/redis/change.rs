//! A change of the masters, while a process with the old masters is stopped. It was believed gone,
//! and wakes up at the end.

use std::{env, io, mem, time::Duration};

use quorlock::{Coordinator, Reason};
use tokio::{task::block_in_place, time::sleep};

use crate::{common::*, process::Process};

const TTL: Duration = Duration::from_secs(1);

/// The wait before the first process with only new masters: the longest TTL with its drift, or
/// three seconds if that is shorter.
const WAIT: Duration = Duration::from_secs(3);

/// The user of the programs of each rollout: with the old masters, with both lists, and with the
/// new masters.
const NAMES: [&str; 3] = ["old", "joint", "new"];

/// An environment variable of the old process, which is a second run of the test: its masters.
const MASTERS: &str = "QUORLOCK_CHANGE_MASTERS";

fn open(masters: &[String], old_masters: &[String]) -> Coordinator {
    let settings = patient().response_timeout(TTL / 4).ttl(TTL).max_ttl(TTL);
    let settings = settings.masters(masters).old_masters(old_masters);
    settings.build().unwrap()
}

/// Its user is deleted on two of the three old masters, so a majority is missing.
#[test]
fn an_old_process_that_is_barred_gets_errors_only() {
    let test = "change::an_old_process_that_is_barred_gets_errors_only";
    if let Ok(masters) = env::var(MASTERS) {
        let masters: Vec<_> = masters.split(',').map(str::to_owned).collect();
        return run(wake_up_late(&masters));
    }
    with_masters(6, async |masters| {
        for master in &masters {
            for name in NAMES {
                let words = ["ACL", "SETUSER", name, "on", ">pw", "~*", "&*", "+@all"];
                assert_eq!(master.command(&words), "OK");
            }
        }
        let urls = NAMES.map(|user| {
            let url = |master: &Server| format!("redis://{user}:pw@127.0.0.1:{}", master.port());
            masters.iter().map(url).collect::<Vec<_>>()
        });
        let [old, joint, new] = &urls;
        let mut late = Process::start(test, [(MASTERS, old[..3].join(",").into())]);
        until_renewed(&masters[0]).await;
        late.pause();

        let joint = open(&joint[3..], &joint[..3]);
        let held = joint.mutex("r").acquire_within(TTL * 10).await.unwrap();
        held.release().await.unwrap();
        for master in &masters[..2] {
            assert_eq!(master.command(&["ACL", "DELUSER", "old"]), "1");
        }
        sleep(WAIT).await;
        let locks = open(&new[3..], &[]);
        let next = locks.mutex("r").acquire_within(TTL * 10).await.unwrap();
        joint.close().await;

        late.resume();
        late.write_line();
        block_in_place(|| late.finish());
        // This guard was valid at all times while the old process tried.
        assert!(next.is_valid());
        next.release().await.unwrap();
        locks.close().await;
    });
}

/// Waits until a master extends the lock. By then, the holder has its guard: one that is stopped
/// before it knows that it has won acquires the lock again.
async fn until_renewed(master: &Server) {
    let mut last = i64::MAX;
    until("a renewal", async || {
        let before = mem::replace(&mut last, pttl(master, "r"));
        (before > 0 && last > before).then_some(())
    })
    .await;
}

/// Holds the lock until it was stopped for so long that the lock is lost. Then tries to acquire it
/// again on the old masters, and fails if it gets it.
async fn wake_up_late(masters: &[String]) {
    let lock = open(masters, &[]).mutex("r");
    let held = lock.acquire_within(TTL * 10).await.unwrap();
    block_in_place(|| io::stdin().read_line(&mut String::new())).unwrap();
    assert!(!held.is_valid());
    drop(held);
    let mut last = String::new();
    for _ in 0..30 {
        let error = lock.try_acquire().await.unwrap_err();
        assert!(*error.reason() == Reason::NoQuorum, "{error}");
        last = error.to_string();
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(last.matches("WRONGPASS").count(), 2, "{last}");
    let late = lock.acquire_within(TTL).await.unwrap_err();
    assert!(late.to_string().contains("WRONGPASS"), "{late}");
}
