//! The closed loop: a number of tasks, each with a key of its own, each starting its next cycle as
//! soon as the last one has ended.

use std::future::Future;
use std::time::Duration;

use futures::future::try_join_all;

use crate::stats::{CpuTime, Outcome, Recorder, Window};

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

/// The time to live every contestant asks for.
pub const TTL_MS: u64 = 10_000;

/// An asynchronous client that takes part.
pub trait Contestant: Sized + Send + Sync + 'static {
    /// What one task keeps between its cycles.
    type Task: Send + 'static;

    fn connect(urls: &[String]) -> impl Future<Output = Result<Self>> + Send;

    fn task(&self, key: String) -> Self::Task;

    /// Acquires and releases once. Nobody else wants the key, so anything but a lock is an error.
    fn cycle(task: &mut Self::Task) -> impl Future<Output = Result<()>> + Send;

    /// Returns when nothing is under way any more.
    fn close(self) -> impl Future<Output = Result<()>> + Send;
}

/// How long a run warms up and how long it counts.
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

    pub fn name(self) -> &'static str {
        match self {
            Self::CurrentThread => "current",
            Self::MultiThread => "multi",
        }
    }

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

/// Runs the loop on a client that is already connected.
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

/// The key of the i-th task.
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
