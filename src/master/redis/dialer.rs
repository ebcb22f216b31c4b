//! Dials a server: connects, logs in, and asks whether the server restarted.

use super::{
    connection::RedisConnection, endpoint::Endpoint, greeter::Greeter, resp::reply, restart_query,
    wire::Wire,
};
use crate::{
    core::restart::{Loss, Quarantine},
    master::{
        config::MasterConfig, dial_error::DialError, observer::MasterObserver,
        restart::RestartTracker,
    },
};

/// Opens connections to one server.
pub(in crate::master) struct Dialer {
    greeter: Greeter,
    master: usize,
    tracker: RestartTracker,
    observer: MasterObserver,
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

    /// Opens a connection, within the connect timeout.
    pub(in crate::master) async fn dial(&self) -> Result<RedisConnection, DialError> {
        let dial = async {
            let mut logged_in = self.greeter.log_in().await?;
            let loss = self.loss(&mut logged_in.wire).await?;
            Ok(RedisConnection::new(logged_in, loss))
        };
        self.greeter.in_time(dial).await
    }

    /// Asks whether the server may have lost locks. Must be called after the login, while no
    /// command is unanswered.
    async fn loss(&self, wire: &mut Wire) -> Result<Option<Loss>, DialError> {
        let tracker = &self.tracker;
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
