//! The closed loop: a number of tasks, each with a key of its own. A task starts its next cycle as
//! soon as its last cycle has ended.

use std::future::Future;
use std::time::Duration;

use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use quorlock::{Coordinator, Guard};

use crate::stats::{CpuTime, Outcome, Recorder, Window};

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

/// The number of locks acquired or released at once.
pub const AT_ONCE: usize = 64;

/// The TTL that every contestant uses.
pub const TTL_MS: u64 = 10_000;

/// An asynchronous client that a bench measures.
pub trait Contestant: Sized + Send + Sync + 'static {
    /// The state of one task between its cycles.
    type Task: Send + 'static;

    fn connect(urls: &[String]) -> impl Future<Output = Result<Self>> + Send;

    fn task(&self, key: String) -> Self::Task;

    /// Acquires and releases once. No other task wants the key, so every failure is an error.
    fn cycle(task: &mut Self::Task) -> impl Future<Output = Result<()>> + Send;

    /// Closes the client. Returns when no command is in flight any more.
    fn close(self) -> impl Future<Output = Result<()>> + Send;
}

/// The durations of a run's warm-up and measurement.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    pub warm_up: Duration,
    pub measured: Duration,
}

impl Length {
    pub fn window(&self) -> Window {
        Window::starting_now(self.warm_up, self.measured)
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flavour {
    CurrentThread,
    MultiThread,
}

impl Flavour {
    pub const ALL: [Self; 2] = [Self::CurrentThread, Self::MultiThread];

    pub fn runtime(self) -> std::io::Result<tokio::runtime::Runtime> {
        match self {
            Self::CurrentThread => tokio::runtime::Builder::new_current_thread(),
            Self::MultiThread => {
                let mut builder = tokio::runtime::Builder::new_multi_thread();
                builder.worker_threads(2);
                builder
            }
        }
        .enable_all()
        .build()
    }
}

/// Connects, runs the loop and closes, on a runtime of its own.
pub fn run<C: Contestant>(
    flavour: Flavour,
    urls: &[String],
    width: usize,
    length: Length,
) -> Result<Outcome> {
    flavour.runtime()?.block_on(async {
        let client = C::connect(urls).await?;
        let outcome = closed_loop(&client, width, length).await?;
        client.close().await?;
        Ok(outcome)
    })
}

/// Runs the loop on a connected client.
pub async fn closed_loop<C: Contestant>(
    client: &C,
    width: usize,
    length: Length,
) -> Result<Outcome> {
    let window = length.window();
    let cpu = CpuTime::now();
    let tasks = (0..width).map(|i| {
        let task = client.task(key(i));
        tokio::spawn(repeat::<C>(task, Recorder::new(window)))
    });
    let recorders = try_join_all(tasks)
        .await?
        .into_iter()
        .collect::<Result<_>>()?;
    Ok(Outcome::new(window, cpu, recorders))
}

/// Returns the key of the i-th task.
pub fn key(i: usize) -> String {
    format!("peers/{i:04}")
}

async fn repeat<C: Contestant>(mut task: C::Task, mut recorder: Recorder) -> Result<Recorder> {
    loop {
        C::cycle(&mut task).await?;
        if !recorder.cycle_ended() {
            return Ok(recorder);
        }
    }
}

/// Acquires the lock of each name.
pub async fn take(
    locks: &Coordinator,
    names: impl ExactSizeIterator<Item = String>,
) -> Result<Vec<Guard>> {
    let take = |name| {
        let lock = locks.mutex(name);
        async move { lock.acquire().await }
    };
    let mut guards = Vec::with_capacity(names.len());
    let mut taken = stream::iter(names).map(take).buffer_unordered(AT_ONCE);
    while let Some(guard) = taken.try_next().await? {
        guards.push(guard);
    }
    Ok(guards)
}
