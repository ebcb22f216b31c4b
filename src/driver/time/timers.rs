//! The timers of a coordinator.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use futures::future::select;
use tokio::{runtime::Handle, sync::watch};

use super::clock;
use crate::{core::time::lease::LeaseTime, user_code::caught};

/// Timers on the runtime of a coordinator, for futures that another executor may poll, or that
/// outlive the runtime. Then tokio's own sleeps would panic.
#[derive(Debug)]
pub(crate) struct Timers {
    runtime: Handle,
    /// Its sender is dropped when the tasks of the coordinator end, and so before the runtime's own
    /// timers.
    alive: watch::Receiver<()>,
}

impl Timers {
    /// Returns timers that end when the sender of `alive` is dropped.
    pub(crate) fn new(runtime: &Handle, alive: watch::Receiver<()>) -> Self {
        let runtime = runtime.clone();
        Self { runtime, alive }
    }

    /// Returns whether the tasks of the coordinator have ended, because its runtime has shut down
    /// or because one of them panicked. Then nothing sleeps any more.
    pub(crate) fn have_ended(&self) -> bool {
        self.alive.has_changed().is_err()
    }

    /// Sleeps until `at` on the clock of [`clock::now`], or until the timers have ended. A caller
    /// that sleeps in a loop must look whether they have.
    pub(crate) async fn sleep_until(&self, at: LeaseTime) {
        while let Some(time) = clock::next_sleep(at)
            && !self.have_ended()
        {
            self.sleep(time).await;
        }
    }

    /// Returns whether the current runtime has timers. If it has none, tokio reports how to enable
    /// them, by a panic that ends here.
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
        // The end comes first: a runtime that shuts down may wake no sleep for long.
        select(pin!(alive.changed()), pin!(sleep)).await;
    }
}
