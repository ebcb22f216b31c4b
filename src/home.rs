//! Tells a process from those that are forked from it.

/// The process that has the tasks of a coordinator. A fork copies no thread but its own. So in a
/// process that was forked from this one, the tasks do not run, and a mutex that one of the missing
/// threads had locked stays locked forever. There, every call must return before it locks a mutex.
#[derive(Clone, Debug)]
pub(crate) struct HomeProcess(forkguard::Guard);

impl HomeProcess {
    pub(crate) fn this() -> Self {
        Self(forkguard::new())
    }

    /// Returns whether this process was forked from the one that has the tasks. Only a fork by the
    /// C library counts, which calls the handlers of the program: see `pthread_atfork`.
    pub(crate) fn is_parent(&self) -> bool {
        self.0.clone().detected_fork()
    }
}
