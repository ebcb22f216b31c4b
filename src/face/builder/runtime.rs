//! The runtime on which a coordinator lives.

use std::task::{Context, Poll, Waker};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::{
        coop::{has_budget_remaining, poll_proceed},
        try_id,
    },
};

use crate::{core::config_error::ConfigError, driver::time::Timers};

/// Returns the current runtime, if it can renew locks.
pub(super) fn current() -> Result<Handle, ConfigError> {
    let runtime = Handle::try_current().map_err(|_| ConfigError::NoRuntime)?;
    // A runtime of another flavor has threads of its own, which drive it.
    if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread && !is_in_task() {
        return Err(ConfigError::IdleRuntime);
    }
    if !Timers::are_enabled() {
        return Err(ConfigError::NoRuntime);
    }
    Ok(runtime)
}

/// Returns whether this thread runs a task of tokio, `spawn_blocking`, or the future of a
/// `block_on`.
///
/// Such a future has no ID. But like every task, it may do a limited amount of work in one poll.
/// Code outside of tasks has no limit.
fn is_in_task() -> bool {
    try_id().is_some() || has_limit()
}

/// Returns whether tokio limits the work of the code that runs now. Uses up no work.
fn has_limit() -> bool {
    /// More than any limit: tokio's is 128.
    const UNITS: usize = 1 << 20;
    let mut cx = Context::from_waker(Waker::noop());
    // When `_units` is dropped, the task gets all its units back, because `made_progress` is never
    // called on `_units`.
    let Poll::Ready(_units) = poll_proceed(&mut cx) else {
        return true;
    };
    (0..UNITS).any(|_| {
        if let Poll::Ready(unit) = poll_proceed(&mut cx) {
            unit.made_progress();
        }
        !has_budget_remaining()
    })
}
