//! Dials a server: connects, logs in, and asks whether the server restarted.

#[cfg(feature = "tls")]
use std::sync::Arc;
use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use super::{
    connection::RedisConnection,
    endpoint::{Address, Endpoint},
    greeting::Greeting,
    native_release::NativeRelease,
    resp::reply,
    restart_query::{self, Durability},
    wire::{Wire, connect_tcp},
    wire_error::WireError,
};
use crate::{
    core::restart::{Incarnation, RestartGuard},
    master::{
        config::MasterConfig,
        connection::{Dial, Dialled},
        dial_error::DialError,
        restart::RestartTracker,
    },
};

/// Opens connections to one server.
pub(in crate::master) struct Dialer {
    pub(super) endpoint: Endpoint,
    pub(super) master: usize,
    pub(super) tracker: RestartTracker,
    pub(super) now: fn() -> Instant,
    /// The time for a step of the dial that only a peer of another kind does not answer. The time
    /// is over just before the connect timeout, so that the error names the step.
    #[cfg(feature = "tls")]
    patience: Duration,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

/// A connection whose greeting was answered.
pub(super) struct LoggedIn {
    pub(super) wire: Wire,
    /// The time that the server took to answer the greeting.
    pub(super) round_trip: Duration,
    /// `true` if the server reports changes of keys.
    pub(super) reports_changes: bool,
    /// The command with which the server releases mutexes, if it has one.
    native: Option<NativeRelease>,
}

impl Dial for Dialer {
    type Connection = RedisConnection;

    async fn dial(&mut self) -> Result<Dialled<RedisConnection>, DialError> {
        let LoggedIn {
            mut wire,
            round_trip,
            reports_changes,
            native,
        } = self.log_in().await?;
        let found = self.incarnation(&self.tracker, &mut wire).await?;
        Ok(Dialled {
            connection: RedisConnection::new(wire, native),
            round_trip,
            reports_changes,
            age: found.and_then(|found| found.age),
        })
    }
}

impl Dialer {
    pub(in crate::master) fn new(endpoint: Endpoint, master: usize, config: &MasterConfig) -> Self {
        Self {
            master,
            tracker: config.restart_tracker.at(&endpoint.guard_name()),
            now: config.now,
            #[cfg(feature = "tls")]
            patience: config.connect_timeout * 15 / 16,
            #[cfg(feature = "tls")]
            tls: config.tls.clone(),
            endpoint,
        }
    }

    /// Connects to the server and sends the greeting.
    pub(super) async fn log_in(&self) -> Result<LoggedIn, DialError> {
        let mut wire = self.connect().await?;
        let Greeting { bytes, steps } = &self.endpoint.greeting;
        wire.out().extend_from_slice(bytes);
        let mut steps = steps.iter();
        let (mut reports_changes, mut native) = (true, None);
        let asked = (self.now)();
        let mut on_frame = |frame: &[u8]| {
            let step = steps.next();
            reports_changes &= step.is_none_or(|step| !step.is_refused_tracking(frame));
            native = native.or_else(|| step.and_then(|step| step.found_native(frame)));
            match step.map_or(Ok(()), |step| step.check(frame)) {
                Ok(()) if steps.len() > 0 => ControlFlow::Continue(()),
                result => ControlFlow::Break(result),
            }
        };
        let mut has_answered = false;
        let on_frame = |frame: &[u8]| {
            has_answered = true;
            on_frame(frame)
        };
        let answered = wire.answers(on_frame).await;
        answered.map_err(|error| self.no_greeting(error, has_answered))??;
        let round_trip = (self.now)().saturating_duration_since(asked);
        Ok(LoggedIn {
            wire,
            round_trip,
            reports_changes,
            native,
        })
    }

    /// Asks whether the server restarted. Must be called after the login, while no command is
    /// unanswered.
    pub(super) async fn incarnation(
        &self,
        tracker: &RestartTracker,
        wire: &mut Wire,
    ) -> Result<Option<Incarnation>, DialError> {
        if tracker.guard == RestartGuard::Off {
            return Ok(None);
        }
        let mut durability = Durability::Unasked;
        if tracker.expects_durable {
            // A script may not call CONFIG, so the settings need a separate question.
            Durability::ask(wire.out());
            durability = wire.answer(Durability::read).await?;
        }
        let query = tracker.query(self.master);
        restart_query::ask(tracker, &query, &durability, wire.out());
        let address = self.endpoint.address();
        let read = |frame: &[u8]| {
            let from = (&query, &*address);
            restart_query::read(tracker, from, &durability, &reply(frame))
        };
        wire.answer(read).await?
    }

    /// Returns the error of a dial that found no greeting. A server that expects TLS closes a plain
    /// connection, or answers with an alert.
    fn no_greeting(&self, error: WireError, has_answered: bool) -> DialError {
        match self.endpoint.address {
            Address::Tcp(..) if !has_answered => DialError::NoGreeting(error),
            // The server's alert says why, but it may be lost.
            #[cfg(feature = "tls")]
            Address::Tls(..) if !has_answered && error.is_unexplained() => {
                DialError::NoGreetingOverTls(error)
            }
            _ => error.into(),
        }
    }

    async fn connect(&self) -> Result<Wire, DialError> {
        match &self.endpoint.address {
            #[cfg(feature = "__internals")]
            Address::InProcess(_, connect) => Ok(Wire::new(connect())),
            Address::Tcp(host, port) => connect_tcp(host, *port).await.map(Wire::new),
            #[cfg(feature = "tls")]
            Address::Tls(host, port) => {
                let started = (self.now)();
                let stream = connect_tcp(host, *port).await?;
                let took = (self.now)().saturating_duration_since(started);
                let left = self.patience.saturating_sub(took);
                super::tls::connect(self.tls.clone(), host, stream, left).await
            }
            #[cfg(unix)]
            Address::Unix(path) => tokio::net::UnixStream::connect(path)
                .await
                .map(Wire::new)
                .map_err(DialError::Socket),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(DialError::Connect(std::io::Error::new(
                std::io::ErrorKind::Unsupported,
                "this system has no unix sockets",
            ))),
        }
    }
}
