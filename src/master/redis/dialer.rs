//! Dials a server: connects, logs in, and asks whether the server restarted.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use super::{
    address::Address, connection::RedisConnection, connector::Connector, endpoint::Endpoint,
    greeting::Greeting, native_release::NativeRelease, resp::reply, restart_query, wire::Wire,
    wire_error::WireError,
};
#[cfg(feature = "sentinel")]
use super::{connection::Moved, sentinel::Inquiry};
use crate::{
    core::restart::{Incarnation, Quarantine},
    master::{
        config::MasterConfig,
        dial_error::{DialError, Progress},
        observer::MasterObserver,
        restart::RestartTracker,
        session::connection::{Dial, Dialled},
    },
};

/// Opens connections to one server.
pub(in crate::master) struct Dialer {
    pub(super) endpoint: Endpoint,
    pub(super) master: usize,
    pub(super) tracker: RestartTracker,
    observer: MasterObserver,
    pub(super) now: fn() -> Instant,
    connector: Connector,
    pub(in crate::master) progress: Progress,
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
    /// Resolves when the server is no longer the master.
    #[cfg(feature = "sentinel")]
    moved: Option<Moved>,
}

impl Dial for Dialer {
    type Connection = RedisConnection;

    async fn dial(&mut self) -> Result<Dialled<RedisConnection>, DialError> {
        let LoggedIn {
            mut wire,
            round_trip,
            reports_changes,
            native,
            #[cfg(feature = "sentinel")]
            moved,
        } = self.log_in().await?;
        let found = self.incarnation(&self.tracker, &mut wire).await?;
        let connection = RedisConnection::new(wire, native);
        #[cfg(feature = "sentinel")]
        let connection = connection.until(moved);
        Ok(Dialled {
            connection,
            round_trip,
            reports_changes,
            loss: found.and_then(|found| found.loss),
        })
    }

    fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

impl Dialer {
    pub(in crate::master) fn new(
        mut endpoint: Endpoint,
        master: usize,
        config: &MasterConfig,
    ) -> Self {
        endpoint
            .greeting
            .name_connection(&config.connection_name.text());
        Self {
            master,
            tracker: config.restart_tracker.at(&endpoint.origin_name()),
            observer: config.health.observer(master).clone(),
            now: config.now,
            connector: Connector::new(config),
            progress: Progress::default(),
            endpoint,
        }
    }

    /// Connects to the server and sends the greeting. If the master has Sentinels, asks them for
    /// its address first.
    pub(super) async fn log_in(&self) -> Result<LoggedIn, DialError> {
        self.progress.reach(None);
        #[cfg(feature = "sentinel")]
        if let Address::Sentinels(sentinels) = &self.endpoint.address {
            let mut inquiry = Inquiry::new(sentinels, &self.connector);
            let place = inquiry.locate().await?;
            let address = inquiry.address_of(&place);
            let logged_in = self.log_in_at(&address).await;
            let mut logged_in = logged_in.map_err(|error| error.at(&place))?;
            logged_in.moved = Some(Box::pin(inquiry.moved(place)));
            return Ok(logged_in);
        }
        self.log_in_at(&self.endpoint.address).await
    }

    async fn log_in_at(&self, address: &Address) -> Result<LoggedIn, DialError> {
        let mut wire = self.connector.connect(address, &self.progress).await?;
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
        answered.map_err(|error| no_greeting(address, error, has_answered))??;
        let round_trip = (self.now)().saturating_duration_since(asked);
        Ok(LoggedIn {
            wire,
            round_trip,
            reports_changes,
            native,
            #[cfg(feature = "sentinel")]
            moved: None,
        })
    }

    /// Asks whether the server restarted. Must be called after the login, while no command is
    /// unanswered.
    pub(super) async fn incarnation(
        &self,
        tracker: &RestartTracker,
        wire: &mut Wire,
    ) -> Result<Option<Incarnation>, DialError> {
        if tracker.quarantine == Quarantine::Off {
            return Ok(None);
        }
        let query = tracker.query(self.master);
        restart_query::ask(tracker, &query, wire.out());
        let read =
            |frame: &[u8]| restart_query::read(tracker, &query, &self.observer, &reply(frame));
        wire.answer(read).await?
    }
}

/// Returns the error of a dial that found no greeting. A server that expects TLS closes a plain
/// connection, or answers with an alert.
fn no_greeting(address: &Address, error: WireError, has_answered: bool) -> DialError {
    match address {
        Address::Tcp(..) if !has_answered => DialError::NoGreeting(error),
        // The server's alert says why, but it may be lost.
        #[cfg(feature = "tls")]
        Address::Tls(..) if !has_answered && error.is_unexplained() => {
            DialError::NoGreetingOverTls(error)
        }
        _ => error.into(),
    }
}
