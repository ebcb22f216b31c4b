//! A connection as a supervisor uses it.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::{Session, Transmit};
use crate::{
    core::restart::Loss,
    master::{connect_error::Progress, dial_error::DialError},
};

/// Opens connections to one master.
pub(crate) trait Dial: Send + 'static {
    type Connection: Connection;

    /// Opens a connection. The caller limits the time for it.
    fn dial(&mut self)
    -> impl Future<Output = Result<Dialled<Self::Connection>, DialError>> + Send;

    /// Returns where a dial shows the stage that it has reached.
    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// A connection that was just opened.
pub(crate) struct Dialled<C> {
    pub(crate) connection: C,
    /// The time that the master took to answer the first request.
    pub(crate) round_trip: Duration,
    /// `true` if the master reports changes of keys over this connection.
    pub(crate) reports_changes: bool,
    /// The loss of locks, if there is a sign of any.
    pub(crate) loss: Option<Loss>,
}

/// An open connection. Replies come in the order of sends.
pub(crate) trait Connection: Transmit + Send {
    /// Drops the bytes that were not sent. The master then never receives them. Called before a
    /// connection to a silent master is closed.
    fn give_up(&mut self) {}

    /// Writes and reads as much as possible, and hands each reply to `session`. Resolves with the
    /// reason when the connection breaks.
    fn poll(&mut self, cx: &mut Context<'_>, session: &mut Session) -> Poll<Arc<str>>;
}
