//! Catches panics that must not spread. They come from code of the program (wakers, `tracing`
//! subscribers, metrics recorders), or from timers of tokio, which panic outside of a runtime.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

/// Runs `step`, which may call code of the program. Returns the panic, if there is one.
///
/// Few places need this function. Elsewhere, a panic may end the task of a coordinator. The end of
/// the task closes the coordinator, but every open vote is cast first, so that no call waits
/// forever.
pub(crate) fn caught<T>(step: impl FnOnce() -> T) -> thread::Result<T> {
    catch_unwind(AssertUnwindSafe(step))
}

/// Runs `step`, which may call code of the program, and ignores a panic. Dropping the caught panic
/// may run code of the program, too.
pub(crate) fn shielded(step: impl FnOnce()) {
    if let Err(panic) = caught(step) {
        let _ = caught(|| drop(panic));
    }
}
