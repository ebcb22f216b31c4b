//! Blocks a thread until a future is done.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use tokio::task::coop::poll_proceed;

use crate::core::error::BlockingError;

/// Polls `future` on this thread until it is done. Drops it unpolled in an async task.
///
/// Unlike the functions of tokio that block, this one panics nowhere.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, BlockingError> {
    if is_in_task() {
        return Err(BlockingError);
    }
    let mut future = pin!(future);
    let parker = Arc::new(Parker {
        thread: thread::current(),
        is_woken: AtomicBool::new(false),
    });
    let waker = Waker::from(parker.clone());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(output);
        }
        parker.park();
    }
}

/// Returns whether this thread is polling an async task of tokio.
///
/// Tokio limits the work of a task in one poll. Threads that may block have no such limit: plain
/// threads, and those in `spawn_blocking` or `block_in_place`. So the limit tells them apart.
fn is_in_task() -> bool {
    /// More than the limit, which tokio keeps in a byte.
    const UNITS: usize = 256;
    let mut cx = Context::from_waker(Waker::noop());
    // Gives back the units of the task when it is dropped, because it did not make progress.
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

/// A thread that waits for a wake-up.
struct Parker {
    thread: Thread,
    /// Other code on this thread may use up the thread's own token.
    is_woken: AtomicBool,
}

impl Parker {
    fn park(&self) {
        while !self.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
