//! Wakes tasks that wait for a condition.

use std::{ops::ControlFlow, pin::pin};

use futures::future::select;
use tokio::sync::Notify;

use crate::{
    core::time::lease::LeaseTime,
    driver::time::{clock, timers::Timers},
};

/// A signal for tasks that wait for a condition. Each task checks its condition itself.
#[derive(Debug, Default)]
pub(crate) struct Signal(Notify);

impl Signal {
    /// Makes every task that waits check its condition again. The caller must hold no mutex,
    /// because a waker runs code of the program.
    pub(crate) fn notify(&self) {
        self.0.notify_waiters();
    }

    /// Waits until `check` returns `Break`. Calls `check` at once, and then again after every
    /// signal. If `check` returns `Continue` with an instant, also calls `check` at that instant.
    /// Returns `None` if it cannot wait for that instant, because the timers have ended.
    pub(crate) async fn wait<T>(
        &self,
        timers: &Timers,
        mut check: impl FnMut() -> ControlFlow<T, Option<LeaseTime>>,
    ) -> Option<T> {
        loop {
            let mut signal = pin!(self.0.notified());
            signal.as_mut().enable(); // registers before the check, to miss no signal
            match check() {
                ControlFlow::Break(done) => return Some(done),
                ControlFlow::Continue(None) => signal.await,
                ControlFlow::Continue(Some(_)) if timers.have_ended() => return None,
                ControlFlow::Continue(Some(at)) => {
                    select(signal, pin!(timers.sleep_until(at))).await;
                }
            }
        }
    }

    /// Waits until `is_done` returns `true`, until `end`, or until the timers have ended.
    pub(crate) async fn wait_until(
        &self,
        end: LeaseTime,
        timers: &Timers,
        mut is_done: impl FnMut() -> bool,
    ) {
        self.wait(timers, || {
            if is_done() || clock::now() >= end {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(Some(end))
            }
        })
        .await;
    }
}
