//! Calls of the user's code from tasks of this crate: wakers and `tracing` subscribers.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

/// Runs `step`, which may call code of the program. Returns the panic, if it panics.
pub(crate) fn caught<T>(step: impl FnOnce() -> T) -> thread::Result<T> {
    catch_unwind(AssertUnwindSafe(step))
}

/// Runs `user_code`. This code may call this crate, and it may panic.
///
/// A panic of the user's code ends here. The user's panic hook has reported the panic by then. It
/// is not reported again, because that report could panic as well.
///
/// The caller must hold no mutex that protects the state of this crate.
pub(crate) fn shielded(user_code: impl FnOnce()) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(user_code)) else {
        return;
    };
    // Dropping the panic's payload runs the user's code, too.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(panic);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic_any(Self);
        }
    }

    #[test]
    fn a_panic_ends_here() {
        let mut reached = 0;
        shielded(|| reached += 1);
        shielded(|| {
            reached += 1;
            panic!("a subscriber");
        });
        shielded(|| {
            reached += 1;
            panic_any(Bomb);
        });
        assert_eq!(reached, 3);
    }
}
