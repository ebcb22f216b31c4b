//! The wrapper for async types, and the background thread.

use std::{
    error::Error,
    fmt, io,
    ops::Deref,
    pin::pin,
    sync::{
        Arc,
        mpsc::{self, SyncSender},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use tokio::{
    runtime::{self, EnterGuard, Handle},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::coop::poll_proceed,
    time::timeout,
};

use crate::{
    core::{config_error::ConfigError, error::BlockingError},
    driver::questions::health_events::HealthEvents,
};

/// An async type, wrapped for [code without async](super). It dereferences to the async type.
#[derive(Clone)]
#[must_use = "it does nothing when it is dropped at once, except that a guard releases its lock: \
              bind it, as in `let _guard = ..`, and not to `_`"]
pub struct Blocking<T> {
    pub(super) inner: T,
    pub(super) thread: BackgroundThread,
}

impl<T> Deref for Blocking<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A handle of a thread with a runtime. The timers of blocked calls use the runtime. If
/// `build_blocking` started the thread, the tasks of the new coordinator also run on the runtime.
///
/// The runtime is created and dropped on its own thread, because dropping a runtime in async code
/// panics.
#[derive(Clone)]
pub(super) struct BackgroundThread {
    runtime: Handle,
    /// Sends streams of health events to the thread. The thread ends when all these streams have
    /// ended and the last clone of this handle is dropped.
    pub(super) last_work: UnboundedSender<HealthEvents>,
}

impl BackgroundThread {
    pub(super) fn start() -> Result<Self, ConfigError> {
        let (last_work, waits_for) = unbounded_channel();
        let (sender, started) = mpsc::channel();
        let spawned = thread::Builder::new()
            .name("quorlock".to_owned())
            .spawn(move || run(waits_for, &sender));
        let started = spawned.and_then(|_| started.recv().map_err(io::Error::other)?);
        let runtime = started.map_err(no_thread)?;
        Ok(Self { runtime, last_work })
    }

    /// Makes the calling thread use the runtime for new tasks and timers.
    pub(super) fn enter(&self) -> Result<EnterGuard<'_>, BlockingError> {
        match Handle::try_current() {
            Err(error) if error.is_thread_local_destroyed() => Err(BlockingError),
            Ok(_) | Err(_) => Ok(self.runtime.enter()),
        }
    }

    /// Wraps `inner`, so that its calls block and use this background thread.
    pub(super) fn view<T>(&self, inner: T) -> Blocking<T> {
        Blocking {
            inner,
            thread: self.clone(),
        }
    }

    /// Blocks until `future` is done.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, BlockingError> {
        let _entered = self.enter()?;
        block_on(future)
    }

    /// Blocks until `future` is done, for at most `limit`.
    pub(super) fn wait_within<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Result<Option<T>, BlockingError> {
        self.wait(async { timeout(limit, future).await.ok() })
    }
}

pub(super) fn no_thread(error: impl Error) -> ConfigError {
    ConfigError::NoThread {
        reason: error.to_string(),
    }
}

/// Runs the thread, and sends a handle of its runtime to `started`.
fn run(mut waits_for: UnboundedReceiver<HealthEvents>, started: &mpsc::Sender<io::Result<Handle>>) {
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let _ = started.send(Ok(runtime.handle().clone()));
    runtime.block_on(async {
        while let Some(mut events) = waits_for.recv().await {
            // The stream ends after the supervisors have delivered everything.
            while events.next().await.is_some() {}
        }
    });
}

/// Polls `future` on this thread until it is done. In an async task, drops `future` without polling
/// it.
///
/// Unlike tokio's functions that block, this function never panics.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, BlockingError> {
    if is_in_task() {
        return Err(BlockingError);
    }
    let mut future = pin!(future);
    // `thread::park` is not used here: other code on this thread may take the token of a wake-up.
    let (sender, woken) = mpsc::sync_channel(1);
    let waker = Waker::from(Arc::new(WakeUp(sender)));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(output);
        }
        let _ = woken.recv();
    }
}

/// Returns whether this thread is polling an async task of tokio.
///
/// Tokio limits the work of a task in one poll. It sets no limit on threads that may block: plain
/// threads, and threads in `spawn_blocking` or `block_in_place`. So a thread that reaches a limit
/// is polling a task.
fn is_in_task() -> bool {
    /// This number exceeds every limit, because tokio keeps the limit in a byte.
    const UNITS: usize = 256;
    let mut cx = Context::from_waker(Waker::noop());
    // When `_units` is dropped, the task gets all its units back, because `made_progress` is never
    // called on `_units`.
    let Poll::Ready(_units) = poll_proceed(&mut cx) else {
        return true;
    };
    (0..UNITS).any(|_| match poll_proceed(&mut cx) {
        Poll::Ready(unit) => {
            unit.made_progress();
            false
        }
        Poll::Pending => true,
    })
}

/// Wakes a thread that is blocked.
struct WakeUp(SyncSender<()>);

impl Wake for WakeUp {
    fn wake(self: Arc<Self>) {
        let _ = self.0.try_send(()); // one wake-up that is not taken yet is enough
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[test]
    fn the_thread_ends_after_its_last_handle_is_dropped() {
        let thread = BackgroundThread::start().unwrap();
        let task = thread.runtime.spawn(pending::<()>());
        let other = thread.clone();
        drop(thread);
        let still_runs = other.wait(other.runtime.spawn(async {}));
        assert!(still_runs.unwrap().is_ok());
        drop(other);
        let ended = block_on(task).unwrap();
        assert!(ended.unwrap_err().is_cancelled());
    }
}
