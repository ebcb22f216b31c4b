//! Connects to a server and logs in.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

#[cfg(feature = "sentinel")]
use super::sentinel::Inquiry;
use super::{
    address::Address, connection::RedisConnection, connector::Connector, endpoint::Endpoint,
    greeting::Greeting,
};
use crate::master::{
    connect_error::{ConnectError, Progress, in_time},
    wire_error::WireError,
};

/// Opens connections to one server, and logs in.
pub(in crate::master) struct Greeter {
    address: Address,
    greeting: Greeting,
    connector: Connector,
    progress: Progress,
}

impl Greeter {
    /// `name` is the name of each connection, and `limit` the time for one.
    pub(in crate::master) fn new(
        endpoint: Endpoint,
        name: &str,
        limit: Duration,
        now: fn() -> Instant,
    ) -> Self {
        Self {
            greeting: Greeting::new(&endpoint.settings, name),
            address: endpoint.address,
            connector: Connector {
                now,
                limit,
                #[cfg(feature = "tls")]
                tls: endpoint.tls,
            },
            progress: Progress::default(),
        }
    }

    /// Runs `dial`, which logs in, and gives it up when the time is over.
    pub(in crate::master) async fn in_time<T, E: From<ConnectError>>(
        &self,
        dial: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        in_time(self.connector.limit, &self.progress, dial).await
    }

    /// Connects to the server and sends the greeting. If the master has Sentinels, asks them for
    /// its address first.
    pub(in crate::master) async fn log_in(&self) -> Result<RedisConnection, ConnectError> {
        *self.progress.lock() = None;
        #[cfg(feature = "sentinel")]
        if let Address::Sentinels(sentinels) = &self.address {
            let mut inquiry = Inquiry::new(sentinels, &self.connector);
            let address = inquiry.locate().await?;
            let connection = self.log_in_at(&address).await;
            let mut connection = connection.map_err(|error| error.at(&address.text()))?;
            connection.moved = Some(Box::pin(inquiry.moved(address.text())));
            return Ok(connection);
        }
        self.log_in_at(&self.address).await
    }

    async fn log_in_at(&self, address: &Address) -> Result<RedisConnection, ConnectError> {
        let mut wire = self.connector.connect(address, &self.progress).await?;
        let Greeting { bytes, steps } = &self.greeting;
        wire.out().extend_from_slice(bytes);
        let mut steps = steps.iter();
        let (mut has_answered, mut reports_changes, mut native) = (false, true, None);
        let asked = (self.connector.now)();
        let on_frame = |frame: &[u8]| {
            has_answered = true;
            let step = steps.next();
            reports_changes &= step.is_none_or(|step| !step.is_refused_tracking(frame));
            native = native.or_else(|| step.and_then(|step| step.found_native(frame)));
            match step.map_or(Ok(()), |step| step.check(frame)) {
                Ok(()) if steps.len() > 0 => ControlFlow::Continue(()),
                result => ControlFlow::Break(result),
            }
        };
        let answered = wire.answers(on_frame).await;
        answered.map_err(|error| no_greeting(address, error, has_answered))??;
        let round_trip = (self.connector.now)().saturating_duration_since(asked);
        Ok(RedisConnection::new(
            wire,
            round_trip,
            reports_changes,
            native,
        ))
    }
}

/// Returns the error of a dial that found no greeting. A server that expects TLS closes a plain
/// connection, or answers with an alert.
fn no_greeting(address: &Address, error: WireError, has_answered: bool) -> ConnectError {
    match address {
        Address::Tcp(..) if !has_answered => ConnectError::NoGreeting(error),
        // The server's alert says why, but it may be lost.
        #[cfg(feature = "tls")]
        Address::Tls(..) if !has_answered && error.is_unexplained() => {
            ConnectError::NoGreetingOverTls(error)
        }
        _ => error.into(),
    }
}
