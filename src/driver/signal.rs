//! Waking tasks that wait for a condition.

use std::{ops::ControlFlow, pin::pin, time::Instant};

use tokio::sync::Notify;

use super::{clock, select::first_of};
use crate::user_code::shielded;

/// Wakes tasks that wait for a condition, which each of them checks by itself.
#[derive(Debug, Default)]
pub(crate) struct Signal(Notify);

impl Signal {
    /// Makes every task that waits check its condition again. The caller must hold no mutex, as a
    /// waker is code of the program.
    pub(crate) fn notify(&self) {
        shielded(|| self.0.notify_waiters());
    }

    /// Waits until `check` breaks. `check` is called at once, and after it continued at the next
    /// signal, or at the instant that it returned if that is earlier.
    pub(crate) async fn wait<T>(
        &self,
        mut check: impl FnMut() -> ControlFlow<T, Option<Instant>>,
    ) -> T {
        loop {
            let mut signal = pin!(self.0.notified());
            signal.as_mut().enable(); // registers before the check, so that no signal is missed
            match check() {
                ControlFlow::Break(done) => return done,
                ControlFlow::Continue(None) => signal.await,
                ControlFlow::Continue(Some(at)) => first_of(signal, clock::sleep_until(at)).await,
            }
        }
    }

    /// Waits until `is_done`, or until `end`.
    pub(crate) async fn wait_until(&self, end: Instant, mut is_done: impl FnMut() -> bool) {
        self.wait(|| {
            if is_done() || clock::now() >= end {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(Some(end))
            }
        })
        .await;
    }
}
