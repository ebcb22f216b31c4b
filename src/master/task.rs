//! Helpers for futures that are polled by hand.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Instant,
};

use tokio::{
    task::yield_now,
    time::{Sleep, sleep},
};

/// Lets other tasks run, and lets the runtime handle its timers and sockets, before this task goes
/// on. A task that merely wakes itself may be polled many times before the runtime handles them.
/// If another thread of the runtime is at its timers and sockets, this task does not wait for it.
pub(super) fn poll_yield<T>(cx: &mut Context<'_>) -> Poll<T> {
    let _ = pin!(yield_now()).poll(cx);
    Poll::Pending
}

/// A timer that is reset only after it fired, or for an earlier deadline. Most replies come in
/// time, so it would be wasteful to reset the timer for each deadline.
pub(super) struct LazyTimer {
    now: fn() -> Instant,
    sleep: Option<Pin<Box<Sleep>>>,
    deadline: Option<Instant>,
}

impl LazyTimer {
    pub(super) fn new(now: fn() -> Instant) -> Self {
        Self {
            now,
            sleep: None,
            deadline: None,
        }
    }

    /// Resolves at `at`. If the timer is still set for an earlier deadline, waits for that first.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        loop {
            if self.deadline.is_none_or(|deadline| at < deadline) {
                self.set(at);
            }
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(cx));
            }
            self.deadline = None;
            if at <= (self.now)() {
                return Poll::Ready(());
            }
        }
    }

    fn set(&mut self, at: Instant) {
        let left = sleep(at.saturating_duration_since((self.now)()));
        match &mut self.sleep {
            Some(sleep) => sleep.set(left),
            None => self.sleep = Some(Box::pin(left)),
        }
        self.deadline = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use super::*;
    use crate::driver::time::clock;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_from_an_idle_time_does_not_count() {
        let (start, second) = (clock::monotonic(), Duration::from_secs(1));
        let mut timer = LazyTimer::new(clock::monotonic);
        poll_fn(|cx| {
            assert!(timer.poll(cx, start + second).is_pending());
            Poll::Ready(())
        })
        .await;
        sleep(3 * second).await;
        poll_fn(|cx| timer.poll(cx, start + 5 * second)).await;
        assert_eq!(clock::monotonic(), start + 5 * second);
    }
}
