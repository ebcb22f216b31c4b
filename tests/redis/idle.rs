//! Connections that break while nobody uses them: because a server closes them, because something
//! on the way forgets them, or while the process is frozen.

use std::{
    env,
    error::Error,
    io, mem,
    process::Command,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use quorlock::{Builder, Coordinator, Guard, Renewal};
use testkit::{captured_log::CapturedLog, proxy::Proxy};
use tokio::{runtime::Runtime, task::block_in_place, time::sleep};
use tracing::Level;

use crate::{common::*, process::Process};

/// Longer than the silence after which the end of a stream is looked for.
pub(crate) const SILENCE: Duration = Duration::from_millis(1_100);

/// Closes all connections of clients. Returns when they are closed.
pub(crate) fn close_connections(masters: &[Server]) {
    for master in masters {
        master.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
}

/// Returns a builder whose node timeout a busy machine keeps, although it is not patient.
fn builder() -> Builder {
    patient().node_timeout(Duration::from_millis(500))
}

#[test]
fn an_idle_connection_is_kept_alive() {
    with_masters(1, async |masters| {
        let locks = coordinator(patient(), &masters);
        locks.ready(TEST_TIMEOUT).await.unwrap();
        assert_kept_alive(&masters[0]);
    });
}

/// Fails if a connection of this process to `master` has no timer for keepalive, or one of more
/// than a minute.
#[track_caller]
pub(crate) fn assert_kept_alive(master: &Server) {
    let address = format!("127.0.0.1:{}", master.port());
    let start = Instant::now();
    loop {
        let listed = Command::new("ss")
            .args(["-tnoH", "state", "established", "dst", &address])
            .output();
        let Ok(listed) = listed else {
            return skipped("there is no program ss");
        };
        let listed = String::from_utf8(listed.stdout).unwrap();
        if !listed.is_empty() && listed.lines().all(shows_keepalive) {
            return;
        }
        // While data is on the way, a connection shows the timer for sending it again.
        assert!(start.elapsed() < SILENCE, "{address}: {listed:?}");
    }
}

/// Returns whether a line of `ss` has a timer for keepalive of at most a minute. In its first
/// moment, a timer of 60 s is `1min`, and then less than `60sec`.
fn shows_keepalive(line: &str) -> bool {
    let timer = line.split_once("timer:(keepalive,");
    let left = timer.and_then(|(_, timer)| timer.split(',').next());
    left.is_some_and(|left| left == "1min" || !left.contains("min"))
}

#[test]
fn the_timers_that_ss_shows_are_told_apart() {
    for (timer, expected) in [
        ("keepalive,1min,0", true),
        ("keepalive,59sec,0", true),
        ("keepalive,9.120ms,0", true),
        ("keepalive,1min1sec,0", false),
        ("keepalive,2min,0", false),
        ("on,200ms,0", false),
    ] {
        let line = format!("0 0 127.0.0.1:5 127.0.0.1:6 timer:({timer})");
        assert_eq!(shows_keepalive(&line), expected, "{timer}");
    }
    assert!(!shows_keepalive("0 0 127.0.0.1:5 127.0.0.1:6"));
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
        "fair try_acquire" => locks.fair(call, &locks.owner()),
        "available" | "semaphore try_acquire" => locks.semaphore(call, 3),
        _ => locks.mutex(call),
    };
    match (call, guard) {
        ("extend", Some(guard)) => guard.extend(LONG).await?,
        ("release", Some(guard)) => guard.release().await?,
        ("available", _) => drop(lock.available().await?),
        ("inspect", _) => drop(lock.inspect().await?),
        ("is_held", _) => assert!(!lock.is_held().await?),
        ("ready", _) => drop(locks.ready(Duration::ZERO).await?),
        _ => drop(lock.try_acquire().await?),
    }
    Ok(())
}

/// An environment variable of the process that is frozen. That process is a second run of the test.
const MASTERS: &str = "QUORLOCK_FROZEN_MASTERS";
const FREEZES: usize = 10;

#[test]
fn a_process_that_was_frozen_acquires_at_the_first_call() {
    if let Ok(masters) = env::var(MASTERS) {
        return run(acquire_when_told(masters));
    }
    with_masters(3, async |masters| {
        let test = "idle::a_process_that_was_frozen_acquires_at_the_first_call";
        let mut frozen = Process::start(test, [(MASTERS, urls(&masters).join(",").into())]);
        for attempt in 0..FREEZES {
            let acquired = format!("attempt-{attempt}");
            let made = |master: &Server| master.command(&["EXISTS", &acquired]) == "1";
            until("an attempt", async || {
                masters.iter().all(made).then_some(())
            })
            .await;
            frozen.pause();
            sleep(SILENCE).await;
            close_connections(&masters);
            frozen.write_line();
            frozen.resume();
        }
        block_in_place(|| frozen.finish());
    });
}

async fn acquire_when_told(masters: String) {
    let builder = builder().renewal(Renewal::Off);
    let locks = builder.masters(masters.split(',')).build().unwrap();
    drop(acquire_on_all(&locks.mutex("warm")).await);
    let mut failed = Vec::new();
    for attempt in 0..=FREEZES {
        let lock = locks.mutex(format!("attempt-{attempt}"));
        match lock.try_acquire().await {
            Ok(guard) => {
                guard.settled().await;
                mem::forget(guard);
            }
            Err(error) => {
                failed.push(error.to_string());
                mem::forget(acquire_on_all(&lock).await);
            }
        }
        if attempt < FREEZES {
            block_in_place(|| io::stdin().read_line(&mut String::new())).unwrap();
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
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

/// A call that is sent into a forgotten connection fails, and says for how long the connection was
/// silent. The next one has a new connection.
#[test]
fn a_forgotten_connection_costs_one_call() {
    with_masters(3, async |masters| {
        let limit = Duration::from_secs(1);
        let proxies: Vec<_> = masters
            .iter()
            .map(|master| Proxy::forgetful(master.port(), limit))
            .collect();
        let locks = builder().masters(proxies.iter().map(Proxy::url));
        let locks = locks.build().unwrap();
        let lock = locks.mutex("r");
        acquire_on_all(&lock).await.release().await.unwrap();
        sleep(limit * 3 / 2).await;
        let error = lock.try_acquire().await.unwrap_err().to_string();
        let silent = "no answer in 500ms on a connection that was silent for ";
        assert!(error.contains(silent), "{error}");
        lock.try_acquire().await.unwrap().release().await.unwrap();
    });
}
