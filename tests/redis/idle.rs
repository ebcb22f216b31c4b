//! Connections that servers close while nobody uses them, also while the process is frozen.

use std::{error::Error, sync::Barrier, thread, time::Duration};

use quorlock::{Builder, Coordinator, Guard, Renewal};
use testkit::captured_log::CapturedLog;
use tokio::{runtime::Runtime, time::sleep};
use tracing::Level;

use crate::common::*;

/// Longer than the silence after which the end of a stream is looked for.
pub(crate) const SILENCE: Duration = Duration::from_millis(1_100);

/// Closes all connections of clients. Returns when they are closed.
pub(crate) fn close_connections(masters: &[Server]) {
    for master in masters {
        master.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
}

/// Returns a builder whose response timeout a busy machine keeps, although it is not patient.
fn builder() -> Builder {
    patient().response_timeout(Duration::from_millis(500))
}

/// Returns a runtime that runs only while its thread waits for a future.
pub(crate) fn local_runtime() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap()
}

/// All calls that ask once.
const CALLS: [&str; 9] = [
    "available",
    "extend",
    "fair try_acquire",
    "inspect",
    "is_held",
    "ready",
    "release",
    "semaphore try_acquire",
    "try_acquire",
];

/// Each thread has a runtime that does not run while the servers close its connections, as if the
/// process were frozen. So nothing tells a call of the end of the connection.
#[test]
fn the_first_call_after_closed_connections_succeeds() {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(3);
    let barrier = Barrier::new(CALLS.len() + 1);
    let results = thread::scope(|scope| {
        let call_once = |call| {
            let runtime = local_runtime();
            let (locks, guard) = runtime.block_on(async {
                let locks = coordinator(builder(), &masters);
                let guard = acquire_on_all(&locks.mutex(call).renewal(Renewal::Off)).await;
                (locks, guard)
            });
            let guard = matches!(call, "extend" | "release").then_some(guard);
            barrier.wait();
            barrier.wait();
            let result = runtime.block_on(ask_once(call, &locks, guard));
            (call, result)
        };
        let threads = CALLS.map(|call| scope.spawn(move || call_once(call)));
        barrier.wait();
        thread::sleep(SILENCE);
        close_connections(&masters);
        barrier.wait();
        threads.map(|thread| thread.join().unwrap())
    });
    let failed: Vec<_> = results
        .into_iter()
        .filter(|(_, result)| result.is_err())
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

async fn ask_once(
    call: &str,
    locks: &Coordinator,
    guard: Option<Guard>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let lock = match call {
        "fair try_acquire" => locks.fair(call),
        "semaphore try_acquire" => locks.semaphore(call, 3).plain(),
        _ => locks.mutex(call),
    };
    match (call, guard) {
        ("extend", Some(guard)) => guard.extend(LONG).await?,
        ("release", Some(guard)) => guard.release().await?,
        ("available", _) => drop(locks.semaphore(call, 3).available_permits().await?),
        ("inspect", _) => drop(lock.inspect().await?),
        ("is_held", _) => assert!(!lock.is_held().await?),
        ("ready", _) => drop(locks.ready_within(Duration::ZERO).await?),
        _ => drop(lock.try_acquire().await?),
    }
    Ok(())
}
/// The servers close the connections while the process runs.
#[test]
fn a_connection_that_closes_while_idle_is_no_warning() {
    if server::only_urls() {
        return;
    }
    let (said, _listening) = CapturedLog::listen();
    let masters = server::masters(3);
    local_runtime().block_on(async {
        let locks = coordinator(builder(), &masters);
        acquire_on_all(&locks.mutex("warm"))
            .await
            .release()
            .await
            .unwrap();
        sleep(SILENCE).await;
        said.take();
        close_connections(&masters);
        let mut lines = Vec::new();
        until("three connections", async || {
            lines.extend(said.take());
            let back = lines
                .iter()
                .filter(|(_, line)| line.contains("message=connected"));
            (back.count() == 3).then_some(())
        })
        .await;
        assert!(
            lines.iter().all(|(level, _)| *level > Level::WARN),
            "{lines:#?}"
        );
        drop(locks.mutex("r").try_acquire().await.unwrap());
    });
}
