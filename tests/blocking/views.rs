//! Blocking views of async coordinators.

use std::{thread, time::Duration};

use quorlock::{AcquireError, Coordinator, MemoryMaster};
use tokio::{
    runtime::{Builder, Runtime},
    task::spawn_blocking,
};

use crate::common::*;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn connected(masters: &[MemoryMaster]) -> Coordinator {
    let locks = patient().masters(masters).build().unwrap();
    locks.all_ready(LIMIT).await.unwrap();
    locks
}

#[test]
fn a_view_shares_everything() {
    runtime().block_on(async {
        let masters = masters();
        let locks = connected(&masters).await;
        let view = locks.blocking().unwrap();
        let owner = locks.owner();
        let guard = locks.reentrant("r", &owner).acquire().await.unwrap();

        let job = move || {
            let inner = view.reentrant("r", &owner).try_acquire().unwrap();
            assert_eq!(inner.depth(), 2);
            let theirs = view.reentrant("r", &view.owner());
            assert!(matches!(
                theirs.try_acquire(),
                Err(AcquireError::Contended { .. })
            ));
            view
        };
        let view = spawn_blocking(job).await.unwrap();

        let theirs = view.reentrant("r", &view.owner());
        let waiter = spawn_blocking(move || theirs.acquire_within(LIMIT));
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap().unwrap();
        drop(guard); // in async code
        locks.close().await;
        assert!(have_no_keys(&masters));
        let closed = spawn_blocking(move || view.mutex("r").acquire().map(drop));
        assert!(matches!(closed.await.unwrap(), Err(AcquireError::Closed)));
    });
}

#[test]
fn a_view_whose_runtime_is_gone_does_not_wait() {
    let masters = masters();
    let theirs = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let locks = theirs.block_on(connected(&masters));
    let view = locks.blocking().unwrap();
    let owner = view.owner();
    let guards = [
        view.mutex("r"),
        view.reentrant("s", &view.owner()),
        view.fair("t", &view.owner()),
    ]
    .map(|lock| lock.acquire().unwrap());
    let locks = [
        view.mutex("r"),
        view.reentrant("s", &owner),
        view.fair("t", &owner),
    ];
    thread::scope(|scope| {
        let waits = locks
            .each_ref()
            .map(|lock| scope.spawn(|| lock.acquire().map(drop)));
        until("a waiter in the queue", || {
            locks[2].inspect().unwrap().queue == [owner.id()]
        });
        theirs.shutdown_timeout(Duration::from_secs(1));
        for wait in waits {
            let ended = wait.join().unwrap();
            assert!(matches!(ended, Err(AcquireError::Closed)), "{ended:?}");
        }
    });
    for guard in guards {
        assert!(guard.release().is_err());
    }
    assert!(matches!(locks[0].try_acquire(), Err(AcquireError::Closed)));
    assert!(locks[0].inspect().is_err());
    assert!(
        !view.close_within(LIMIT).unwrap(),
        "nothing delivers releases"
    );
}

/// The limit is one of the view's own thread.
#[test]
fn a_view_whose_runtime_stands_still_closes_in_time() {
    let masters = masters();
    let theirs = runtime();
    let (locks, guard) = theirs.block_on(async {
        let locks = connected(&masters).await;
        let guard = locks.mutex("r").acquire().await.unwrap();
        (locks, guard)
    });
    let view = locks.blocking().unwrap();
    drop(guard);
    assert!(!view.close_within(Duration::from_millis(50)).unwrap());
    drop(theirs);
}
