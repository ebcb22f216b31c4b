//! Helpers for futures that are polled by hand.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Instant,
};

use tokio::{
    task::yield_now,
    time::{Sleep, sleep_until},
};

/// Lets other tasks run, and lets the runtime handle its timers and sockets, before this task goes
/// on. A task that merely wakes itself may be polled many times before the runtime handles them.
pub(super) fn poll_yield<T>(cx: &mut Context<'_>) -> Poll<T> {
    let _ = pin!(yield_now()).poll(cx);
    Poll::Pending
}

/// A timer that is reset only after it fired, or for an earlier deadline. Most replies come in
/// time, so it would be wasteful to reset the timer for each deadline.
#[derive(Default)]
pub(super) struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    is_armed: bool,
}

impl LazyTimer {
    /// Resolves at `at`, or earlier if the timer is still set for an earlier deadline. Returns the
    /// instant for which the timer was set.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<Instant> {
        let at = tokio::time::Instant::from_std(at);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if !self.is_armed || at < sleep.deadline() {
            sleep.as_mut().reset(at);
            self.is_armed = true;
        }
        ready!(sleep.as_mut().poll(cx));
        self.is_armed = false;
        Poll::Ready(sleep.deadline().into_std())
    }
}
