//! Tells a process from those that are forked from it.

use std::process;

/// The process that has the tasks of a coordinator. A fork copies no thread but its own. So in a
/// process that was forked from this one, the tasks do not run, and a mutex that one of the missing
/// threads had locked stays locked forever. There, every call must return before it locks a mutex.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HomeProcess(u32);

impl HomeProcess {
    /// Returns the process that calls this function.
    pub(crate) fn this() -> Self {
        Self(process::id())
    }

    /// Returns whether this process was forked from the one that has the tasks.
    pub(crate) fn is_parent(self) -> bool {
        process::id() != self.0
    }
}
