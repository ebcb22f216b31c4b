//! Runs each test in a process of its own: the test binary starts itself again for one test.

use std::{
    any::type_name,
    env,
    future::Future,
    process::{Command, Stdio},
    sync::{PoisonError, RwLock},
    thread,
    time::{Duration, Instant},
};

use testkit::child_output::output_of;
use tokio::runtime::{Builder, Runtime};

/// Runs `body` in a process of its own, while no other test runs. Fails if the process does not end
/// within `TIME_LIMIT`.
///
/// `body` is a closure in the test, and so has its path.
pub(crate) fn in_own_process<F: FnOnce()>(body: F) {
    if env::var_os(ALONE).is_some() {
        return body();
    }
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    start(type_name::<F>());
}

/// Runs `body` like [`in_own_process`], maybe while other such tests run. This function is for
/// tests that mostly wait.
pub(crate) fn beside_others<F: FnOnce()>(body: F) {
    if env::var_os(ALONE).is_some() {
        return body();
    }
    let _with_others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    start(type_name::<F>());
}

static MACHINE: RwLock<()> = RwLock::new(());

/// Runs a test in a process of its own. `body` is the name of a closure in it.
fn start(body: &str) {
    let path = body.split("::").skip(1);
    let path: Vec<_> = path.take_while(|part| !part.starts_with('{')).collect();
    let test = &*path.join("::");
    let mut process = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(ALONE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = output_of(&mut process);
    let end = Instant::now() + TIME_LIMIT;
    let status = loop {
        if let Some(status) = process.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > end {
            process.kill().unwrap();
            process.wait().unwrap();
            break None;
        }
        thread::sleep(Duration::from_millis(10));
    };
    let said: String = output.iter().collect();
    match status {
        None => panic!("{test} has not ended within {TIME_LIMIT:?}:\n{said}"),
        Some(status) => assert!(status.success() && said.contains("1 passed"), "{said}"),
    }
    print!("{said}");
}

pub(crate) fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) fn multi_thread() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Runs `body` on a runtime with two threads.
pub(crate) fn run(body: impl Future<Output = ()>) {
    multi_thread().block_on(body);
}

/// Set in the process that runs one test.
const ALONE: &str = "QUORLOCK_HOSTILE_ALONE";
/// The limit for one test, however busy the machine is.
const TIME_LIMIT: Duration = Duration::from_secs(90);
