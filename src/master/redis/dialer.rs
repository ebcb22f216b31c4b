//! Dials a server: connects, logs in, and asks whether the server restarted.

use super::{
    connection::RedisConnection,
    endpoint::Endpoint,
    greeter::{Greeter, LoggedIn},
    resp::reply,
    restart_query,
    wire::Wire,
};
use crate::{
    core::restart::{Incarnation, Quarantine},
    master::{
        config::MasterConfig,
        connect_error::Progress,
        dial_error::DialError,
        observer::MasterObserver,
        restart::RestartTracker,
        session::connection::{Dial, Dialled},
    },
};

/// Opens connections to one server.
pub(in crate::master) struct Dialer {
    pub(in crate::master) greeter: Greeter,
    pub(super) master: usize,
    pub(super) tracker: RestartTracker,
    observer: MasterObserver,
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
        } = self.greeter.log_in().await?;
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
        self.greeter.progress.clone()
    }
}

impl Dialer {
    pub(in crate::master) fn new(endpoint: Endpoint, master: usize, config: &MasterConfig) -> Self {
        let name = config.connection_name.to_string();
        Self {
            master,
            tracker: config.restart_tracker.at(&endpoint.origin_name()),
            observer: config.health.observer(master).clone(),
            greeter: Greeter::new(endpoint, &name, config.connect_timeout, config.now),
        }
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
