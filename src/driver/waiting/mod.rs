//! The waiters of this coordinator, and what wakes them.

pub(in crate::driver) mod called_waiter;
pub(in crate::driver) mod local_waiters;

use parking_lot::Mutex;

use crate::{
    core::vote::MasterSet,
    driver::time::Signal,
    machine::listeners::{Listener, Topic},
};

/// The events that a waiter has heard of since its attempt began.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heard: Mutex<Heard>,
    /// Notified after each event.
    signal: Signal,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    /// The masters that have called the waiter.
    pub(crate) called: MasterSet,
    /// The masters on which the lock has changed, or may have changed.
    pub(crate) changed: MasterSet,
    /// `true` if a guard of this process has released the lock, or if the coordinator has been
    /// closed.
    pub(crate) is_released: bool,
}

impl Events {
    pub(crate) fn note_release(&self) {
        self.heard.lock().is_released = true;
        self.signal.notify();
    }

    /// Forgets what was heard before the attempt that begins now.
    pub(crate) fn forget(&self) {
        *self.heard.lock() = Heard::default();
    }

    pub(crate) fn heard(&self) -> Heard {
        *self.heard.lock()
    }
}

impl Listener for Events {
    fn on_news(&self, master: usize, topic: &Topic) {
        {
            let mut heard = self.heard.lock();
            match topic {
                Topic::Key(_) => heard.changed.insert(master),
                Topic::Turn(_) => heard.called.insert(master),
            }
        }
        self.signal.notify();
    }
}
