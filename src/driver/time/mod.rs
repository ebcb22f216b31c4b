//! Timers.

use std::{
    future::poll_fn,
    ops::ControlFlow,
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{Either, select};
use tokio::{runtime::Handle, sync::watch};

use crate::{clock, core::time::LeaseTick, home::HomeProcess, panics::caught};

/// Timers on the runtime of a coordinator, for futures that another executor may poll, or that
/// outlive the runtime. In both cases, tokio's own sleeps would panic.
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
    /// because it panicked. It also counts as ended after a fork. After that,
    /// [`sleep_until`](Self::sleep_until) returns at once.
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

    /// Waits for an `event`, until `end` at the latest. The event is polled first, so that a task
    /// that runs again long after `end` still gets an event that has come.
    pub(crate) async fn until<T>(
        &self,
        end: LeaseTick,
        event: impl Future<Output = T>,
    ) -> Option<T> {
        match select(pin!(event), pin!(self.sleep_until(end))).await {
            Either::Left((event, _)) => Some(event),
            Either::Right(_) => None,
        }
    }

    /// Returns whether the current runtime has timers. If it has none, tokio panics. This function
    /// catches the panic, after the program's panic hook has shown tokio's advice.
    pub(crate) fn are_enabled() -> bool {
        caught(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
    }

    /// Waits until `check` returns `Break`. Calls `check` at each poll, and at the instant that it
    /// returned, or earlier. Whatever else may change its result must wake the task. Returns `None`
    /// if the timers have ended.
    pub(crate) async fn wait<T>(
        &self,
        mut check: impl FnMut(&Context<'_>) -> ControlFlow<T, LeaseTick>,
    ) -> Option<T> {
        let mut end = None;
        loop {
            let checked = poll_fn(|cx| {
                if self.home.is_parent() {
                    return Poll::Ready(None); // the check may lock a mutex
                }
                match check(cx) {
                    ControlFlow::Continue(at) if end.is_some_and(|end| end <= at) => Poll::Pending,
                    flow => Poll::Ready(Some(flow)),
                }
            });
            let flow = match end {
                None => checked.await,
                Some(_) if self.have_ended() => return None,
                Some(at) => match select(pin!(checked), pin!(self.sleep_until(at))).await {
                    Either::Left((flow, _)) => flow,
                    Either::Right(_) => {
                        end = None;
                        continue;
                    }
                },
            };
            match flow? {
                ControlFlow::Break(done) => return Some(done),
                ControlFlow::Continue(at) => end = Some(at),
            }
        }
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
