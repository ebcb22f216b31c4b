//! Clocks and timers, and a signal for tasks that wait.

use std::{future::poll_fn, ops::ControlFlow, pin::pin, task::Poll, time::Duration};

use futures::future::select;
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
};

use crate::{
    clock,
    core::time::tick::LeaseTick,
    home::HomeProcess,
    panics::{caught, shielded},
};

/// Timers on the runtime of a coordinator, for futures that another executor may poll, or that
/// outlive the runtime. In both cases, tokio's own sleeps would panic.
#[derive(Debug)]
pub(crate) struct Timers {
    runtime: Handle,
    /// The sender of this channel is dropped when the tasks of the coordinator end. They end before
    /// the runtime's own timers do.
    alive: watch::Receiver<()>,
    pub(crate) home: HomeProcess,
}

impl Timers {
    /// Returns timers that end when the sender of `alive` is dropped.
    pub(crate) fn new(runtime: &Handle, alive: watch::Receiver<()>) -> Self {
        Self {
            runtime: runtime.clone(),
            alive,
            home: HomeProcess::this(),
        }
    }

    /// Returns whether the task of the coordinator has ended, because its runtime has shut down or
    /// because it panicked. It also counts as ended after a fork. After that, [`sleep_until`](Self::sleep_until) returns at once.
    pub(crate) fn have_ended(&self) -> bool {
        self.alive.has_changed().is_err() || self.home.is_parent()
    }

    /// Sleeps until `at` on the clock of [`clock::now`], or until the timers have ended. A caller
    /// that sleeps in a loop must check whether the timers have ended.
    pub(crate) async fn sleep_until(&self, at: LeaseTick) {
        while let Some(time) = clock::next_sleep(at)
            && !self.have_ended()
        {
            // Few calls sleep. The box keeps the futures of all calls small.
            Box::pin(self.sleep(time)).await;
        }
    }

    /// Returns whether the current runtime has timers. If it has none, tokio panics. This function
    /// catches the panic, after the program's panic hook has shown tokio's advice.
    pub(crate) fn are_enabled() -> bool {
        caught(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
    }

    async fn sleep(&self, time: Duration) {
        let sleep = {
            let _inside = self.runtime.enter();
            tokio::time::sleep(time)
        };
        let (mut sleep, mut alive) = (pin!(sleep), self.alive.clone());
        // Tokio panics if another thread shuts the runtime down meanwhile.
        let sleep = poll_fn(|cx| caught(|| sleep.as_mut().poll(cx)).unwrap_or(Poll::Ready(())));
        // The end of the timers is polled first, because a runtime that shuts down may wake the
        // sleep too late.
        select(pin!(alive.changed()), pin!(sleep)).await;
    }
}

/// Sleeps until `at` on the clock of [`clock::now`]. Only tasks on the coordinator's runtime may call this
/// function.
pub(crate) async fn sleep_until(at: LeaseTick) {
    while let Some(time) = clock::next_sleep(at) {
        tokio::time::sleep(time).await;
    }
}

/// A signal for tasks that wait for a condition. Each task checks its condition itself.
#[derive(Debug, Default)]
pub(crate) struct Signal(Notify);

impl Signal {
    /// Makes every task that waits check its condition again. The caller must hold no mutex,
    /// because a waker runs code of the program. A panic of a waker is no matter of the caller.
    pub(crate) fn notify(&self) {
        shielded(|| self.0.notify_waiters());
    }

    /// Waits until `check` returns `Break`. Calls `check` at once, and then again after every
    /// signal. If `check` returns `Continue` with an instant, also calls `check` at that instant.
    /// Returns `None` if there is such an instant, but the timers have ended.
    pub(crate) async fn wait<T>(
        &self,
        timers: &Timers,
        check: impl FnMut() -> ControlFlow<T, Option<LeaseTick>>,
    ) -> Option<T> {
        Self::wait_for(&self.0, timers, check).await
    }

    /// Waits as [`wait`](Self::wait) does, for a signal that the machine gives.
    pub(crate) async fn wait_for<T>(
        signal: &Notify,
        timers: &Timers,
        mut check: impl FnMut() -> ControlFlow<T, Option<LeaseTick>>,
    ) -> Option<T> {
        loop {
            let mut signal = pin!(signal.notified());
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
        end: LeaseTick,
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
