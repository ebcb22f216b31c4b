//! Tests with a process of their own: the test binary once more, for this test alone.

use std::{
    env,
    future::Future,
    io::{self, Read},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::{Builder, Runtime};

/// Runs `body` in a process of its own, while no other test of this file does. Fails when it does
/// not end in `MOST`.
///
/// `test` is the path of the calling test.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    if env::var_os(ALONE).is_some() {
        return body();
    }
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut process = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(ALONE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (sender, output) = mpsc::channel();
    read_in_background(process.stdout.take(), sender.clone());
    read_in_background(process.stderr.take(), sender);
    let end = Instant::now() + MOST + length();
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
        None => panic!("{test} has not ended in {MOST:?}:\n{said}"),
        Some(status) => assert!(status.success() && said.contains("1 passed"), "{said}"),
    }
    print!("{said}");
}

/// How long the fuzz runs: `QUORLOCK_HOSTILE_SECONDS`, or 10 seconds.
pub(crate) fn length() -> Duration {
    let seconds = env::var("QUORLOCK_HOSTILE_SECONDS").ok();
    let seconds = seconds.map(|seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds.unwrap_or(10))
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

/// Runs `body` on two threads.
pub(crate) fn run(body: impl Future<Output = ()>) {
    multi_thread().block_on(body);
}

fn read_in_background(pipe: Option<impl Read + Send + 'static>, to: mpsc::Sender<String>) {
    thread::spawn(move || {
        let said = pipe.map(io::read_to_string);
        let _ = to.send(said.and_then(Result::ok).unwrap_or_default());
    });
}

/// Set in the process that a test has for itself.
const ALONE: &str = "QUORLOCK_HOSTILE_ALONE";
/// No test takes as long, however busy the machine is.
const MOST: Duration = Duration::from_secs(90);
