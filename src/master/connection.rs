//! A connection to a master of either kind, as its supervisor uses it.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    dial_error::DialError,
    in_flight::{InFlight, Transmit},
};

/// Opens connections to one master.
pub(super) trait Dial: Send + 'static {
    type Connection: Connection;

    /// Opens a connection. The supervisor sets the deadline.
    fn dial(&mut self)
    -> impl Future<Output = Result<Dialled<Self::Connection>, DialError>> + Send;
}

/// A connection that was just opened.
pub(super) struct Dialled<C> {
    pub(super) connection: C,
    /// The time that the master took to answer the first request.
    pub(super) round_trip: Duration,
    /// The time since the master may have forgotten locks, or `None` if nothing suggests that it
    /// did.
    pub(super) age: Option<Duration>,
}

/// An open connection. Replies come in the order of sends.
pub(super) trait Connection: Transmit + Send {
    /// Drops the bytes that were not sent, so that the master never receives them. Called before a
    /// connection to a silent master is closed.
    fn give_up(&mut self) {}

    /// Writes and reads as much as possible, and hands each reply to `in_flight`. Resolves when the
    /// connection is broken, with the reason.
    fn poll(&mut self, cx: &mut Context<'_>, in_flight: &mut InFlight<'_>) -> Poll<Arc<str>>;
}
