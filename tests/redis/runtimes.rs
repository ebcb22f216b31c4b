//! Guards and coordinators outside the runtime of their connections.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use quorlock::{AcquireError, ConfigError, Coordinator};
use tokio::time::sleep;

use crate::common::*;

#[test]
fn a_guard_can_be_dropped_in_a_plain_thread() {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(3);
    let runtime = runtime();
    let (locks, guard) = runtime.block_on(async {
        let locks = coordinator(patient(), &masters);
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        (locks, guard)
    });
    thread::spawn(move || drop(guard)).join().unwrap();
    runtime.block_on(locks.close());
    assert_no_keys(&masters);
}

/// A current-thread runtime stands still while no thread blocks on it. The drop of the guard must
/// not wait for this runtime.
#[test]
fn a_guard_can_be_dropped_while_its_runtime_stands_still() {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(3);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (locks, guard) = runtime.block_on(async {
        let locks = coordinator(patient(), &masters);
        let guard = acquire_on_all(&locks.mutex("r")).await;
        (locks, guard)
    });
    drop(guard);
    assert_eq!(masters[0].command(&["EXISTS", "r"]), "1");
    runtime.block_on(locks.close());
    assert_no_keys(&masters);
}

#[test]
fn guards_outlive_their_runtime_without_harm() {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(3);
    let first = runtime();
    let (locks, guards) = first.block_on(async {
        let locks = coordinator(patient(), &masters);
        let mut guards = Vec::new();
        for name in ["dropped", "released", "extended"] {
            guards.push(locks.mutex(name).try_acquire().await.unwrap());
        }
        (locks, guards)
    });
    drop(first);

    run(async {
        let [dropped, released, extended] = <[_; 3]>::try_from(guards).unwrap();
        drop(dropped);
        let unconfirmed = released.release().await.unwrap_err();
        assert!(unconfirmed.to_string().contains("closed"), "{unconfirmed}");
        let unconfirmed = extended.extend(LONG).await.unwrap_err();
        assert!(unconfirmed.to_string().contains("closed"), "{unconfirmed}");

        let acquired = locks.mutex("r").try_acquire().await;
        assert!(matches!(acquired, Err(AcquireError::Closed)));
        let start = Instant::now();
        locks.close().await;
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "no release can be delivered any more"
        );
    });
}

/// The tasks that hold the lock, wait for it, or wait for its loss end with the runtime. Keys whose
/// releases cannot be delivered any more expire with the TTL.
#[test]
fn guards_and_waiters_end_with_their_runtime() {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(3);
    let ttl = Duration::from_millis(1_500);
    let theirs = runtime();
    theirs.block_on(async {
        let locks = coordinator(patient().node_timeout(ttl / 2).ttl(ttl), &masters);
        let guard = acquire_on_all(&locks.mutex("r")).await;
        for _ in 0..3 {
            let lock = locks.mutex("r");
            tokio::spawn(async move { drop(lock.acquire().await) });
        }
        tokio::spawn(async move { drop(guard.lost().await) });
        sleep(ttl / 5).await;
        masters.iter().for_each(Server::pause);
        sleep(ttl / 2).await; // a renewal is under way by then
    });
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        drop(theirs);
        let _ = sender.send(());
    });
    assert!(
        ended.recv_timeout(TEST_TIMEOUT / 4).is_ok(),
        "the runtime does not end"
    );
    masters.iter().for_each(Server::resume);
    run(async {
        let locks = coordinator(patient(), &masters);
        let lock = locks.mutex("r");
        let guard = lock.acquire_within(ttl * 2).await.unwrap();
        guard.release().await.unwrap();
        close_at_once(&locks).await;
        // A resumed master executes the late renewal. Its key expires a TTL after that.
        until("the end of the last TTL", async || {
            let keys = masters.iter().map(|master| master.command(&["KEYS", "*"]));
            keys.into_iter().all(|keys| keys.is_empty()).then_some(())
        })
        .await;
    });
}

/// The commands are under way when the runtime ends. The tasks that wait for their answers are on
/// another runtime.
#[test]
fn a_runtime_that_ends_leaves_no_call_waiting() {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(3);
    let theirs = runtime();
    let (locks, guard) = theirs.block_on(async {
        let locks = coordinator(patient().node_timeout(TEST_TIMEOUT), &masters);
        let guard = acquire_on_all(&locks.mutex("held")).await;
        (locks, guard)
    });
    for master in &masters {
        assert_eq!(master.command(&["CLIENT", "PAUSE", "60000", "WRITE"]), "OK");
    }
    run(async {
        let asked = tokio::spawn(async move { locks.mutex("r").try_acquire().await.map(drop) });
        let extended = tokio::spawn(async move { guard.extend(LONG).await });
        until("the commands at the masters", async || {
            masters.iter().all(holds_back_a_command).then_some(())
        })
        .await;
        theirs.shutdown_background();
        assert!(matches!(
            asked.await.unwrap(),
            Err(AcquireError::NoQuorum { .. })
        ));
        assert!(extended.await.unwrap().is_err());
    });
}

fn holds_back_a_command(master: &Server) -> bool {
    let clients = master.command(&["CLIENT", "LIST"]);
    let mut words = clients.split_whitespace();
    words.any(|word| {
        word.strip_prefix("flags=")
            .is_some_and(|flags| flags.contains('b'))
    })
}

#[test]
fn a_coordinator_needs_a_runtime() {
    let built = Coordinator::new(["redis://127.0.0.1:1"]).map(drop);
    assert_eq!(built, Err(ConfigError::NoRuntime));
}
