//! Dials a server: connects, logs in, and asks whether the server restarted.

use super::{
    connection::RedisConnection, endpoint::Endpoint, greeter::Greeter, resp::reply, restart_query,
};
use crate::{
    core::restart::{Loss, Quarantine},
    master::{
        config::MasterConfig, dial_error::DialError, health::LastHeard, observer::MasterObserver,
        restart::RestartTracker,
    },
};

/// Opens connections to one server.
pub(in crate::master) struct Dialer {
    greeter: Greeter,
    master: usize,
    tracker: RestartTracker,
    observer: MasterObserver,
    last_heard: LastHeard,
}

impl Dialer {
    pub(in crate::master) fn new(endpoint: Endpoint, master: usize, config: &MasterConfig) -> Self {
        let name = config.connection_name.to_string();
        let tracker = config.restart_tracker.clone();
        tracker.add(master, &endpoint.origin_name());
        Self {
            master,
            tracker,
            observer: config.health.observer(master).clone(),
            last_heard: config.health.last_heard(master),
            greeter: Greeter::new(endpoint, &name, config.connect_timeout, config.now),
        }
    }

    /// Opens a connection, within the connect timeout.
    pub(in crate::master) async fn dial(&self) -> Result<RedisConnection, DialError> {
        let dial = async {
            let mut connection = self.greeter.log_in().await?;
            connection.last_heard.push(self.last_heard.clone());
            connection.loss = self.loss(&mut connection).await?;
            Ok(connection)
        };
        self.greeter.in_time(dial).await
    }

    /// Asks whether the server may have lost locks. Must be called after the login, while no
    /// command is unanswered.
    async fn loss(&self, connection: &mut RedisConnection) -> Result<Option<Loss>, DialError> {
        let quarantine = self.tracker.quarantine;
        if quarantine == Quarantine::Off {
            return Ok(None);
        }
        let (known, asked) = self.tracker.known(self.master);
        let wire = &mut connection.wire;
        restart_query::ask(&known, quarantine, wire.out());
        let read = |frame: &[u8]| restart_query::read(&reply(frame), quarantine, &self.observer);
        let Some(found) = wire.answer(read).await?? else {
            return Ok(None);
        };
        let last_heard = self.tracker.meet(self.master, &found.run_id, asked)?;
        connection.last_heard.extend(last_heard);
        Ok(found.loss)
    }
}
