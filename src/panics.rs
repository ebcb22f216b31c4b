//! Panics that must not spread: those of code of the program (wakers, `tracing` subscribers,
//! metrics recorders), and those of tokio, whose timers panic outside of a runtime.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

/// Runs `step`, which may call code of the program. Returns the panic, if there is one.
///
/// Few places need this function. Elsewhere, a panic may end a task of a coordinator, which closes
/// the coordinator. Every open vote is cast before that, so that no call waits forever.
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
