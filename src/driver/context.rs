//! The parts of a coordinator that a claim uses.

use std::sync::Arc;

use super::{masters::Masters, renew::renewer::Renewer, waiting::local_waiters::LocalWaiters};

/// The parts of a coordinator that a claim uses. Dropping this value ends the background tasks of
/// the coordinator.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) masters: Masters,
    pub(crate) renewer: Arc<Renewer>,
    pub(crate) local_waiters: LocalWaiters,
}

impl Drop for Context {
    fn drop(&mut self) {
        self.renewer.close();
    }
}
