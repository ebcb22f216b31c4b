//! The timers of a coordinator. They work on any executor.

use std::{
    future::{pending, poll_fn},
    pin::{Pin, pin},
    sync::mpsc,
    task::{Context, Poll},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    runtime::{Builder, Handle},
    task::{AbortHandle, JoinHandle, yield_now},
};

use super::clock;
use crate::user_code::shielded;

/// Timers on the runtime of a coordinator. A future that sleeps by them may be polled by any
/// executor, and may outlive the runtime. Tokio's own sleeps would panic there.
#[derive(Debug)]
pub(crate) struct Timers {
    runtime: Handle,
    /// A task that ends with the runtime, and not before the last sleep.
    task: AbortHandle,
}

impl Timers {
    pub(crate) fn new(runtime: &Handle, task: AbortHandle) -> Self {
        let runtime = runtime.clone();
        Self { runtime, task }
    }

    /// Sleeps until `at` on the clock of [`clock::now`].
    pub(crate) async fn sleep_until(&self, at: Instant) {
        clock::sleep_until_by(at, |time| self.sleep(time)).await;
    }

    /// Returns whether the current runtime has timers. If it has none, tokio reports how to enable
    /// them, by a panic that ends here.
    pub(crate) fn are_enabled() -> bool {
        let mut are_enabled = false;
        shielded(|| {
            drop(tokio::time::sleep(Duration::ZERO));
            are_enabled = true;
        });
        are_enabled
    }

    async fn sleep(&self, time: Duration) {
        let is_inside = Handle::try_current().is_ok_and(|now| now.id() == self.runtime.id());
        let has_fired = if is_inside {
            let mut sleep = pin!(tokio::time::sleep(time));
            poll_fn(|cx| {
                let mut polled = Poll::Ready(false);
                if !self.task.is_finished() {
                    // Tokio panics if another thread shuts the runtime down meanwhile.
                    shielded(|| polled = sleep.as_mut().poll(cx).map(|()| true));
                }
                polled
            })
            .await
        } else {
            let sleep = async move { tokio::time::sleep(time).await };
            TimerTask(self.runtime.spawn(sleep)).await
        };
        if !has_fired {
            sleep_on_thread(time).await;
        }
    }
}

/// A task that sleeps. Its output is `false` if the runtime has shut down. It ends when dropped.
struct TimerTask(JoinHandle<()>);

impl Future for TimerTask {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        Pin::new(&mut self.0).poll(cx).map(|ended| ended.is_ok())
    }
}

impl Drop for TimerTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sleeps on a thread that all coordinators of this process share, because the runtime has shut
/// down. The locks that are held then are still lost in time, and waiters find the coordinator
/// closed.
async fn sleep_on_thread(time: Duration) {
    match timer_thread() {
        Some(thread) => {
            TimerTask(thread.spawn(async move { tokio::time::sleep(time).await })).await;
        }
        None => yield_now().await, // there are too many threads: the caller looks at the clock
    }
}

/// Returns the runtime of the thread, which runs on. Starts it if it does not run yet.
fn timer_thread() -> Option<Handle> {
    static THREAD: Mutex<Option<Handle>> = Mutex::new(None);
    let mut thread = THREAD.lock();
    if thread.is_none() {
        let (sender, started) = mpsc::channel();
        let run = move || {
            // Built here, because tokio panics if a runtime is dropped in a task.
            if let Ok(runtime) = Builder::new_current_thread().enable_time().build() {
                let _ = sender.send(runtime.handle().clone());
                runtime.block_on(pending::<()>());
            }
        };
        let named = thread::Builder::new().name("quorlock-timer".to_owned());
        named.spawn(run).ok()?;
        *thread = started.recv().ok();
    }
    thread.clone()
}
