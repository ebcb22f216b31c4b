//! Dials a server: connects, logs in, and asks whether the server restarted.

use super::{
    connection::RedisConnection, endpoint::Endpoint, greeter::Greeter, resp::reply, restart_query,
};
use crate::{
    core::restart::{Loss, Quarantine},
    master::{config::MasterConfig, dial_error::DialError, restart::run_ids::RunIds},
};

/// Opens connections to one server.
pub(in crate::master) struct Dialer {
    greeter: Greeter,
    master: usize,
    config: MasterConfig,
    run_ids: RunIds,
}

impl Dialer {
    pub(in crate::master) fn new(endpoint: Endpoint, master: usize, config: &MasterConfig) -> Self {
        let name = config.connection_name.to_string();
        Self {
            master,
            config: config.clone(),
            run_ids: RunIds::of(&endpoint.origin_name()),
            greeter: Greeter::new(endpoint, &name, config.connect_timeout, config.now),
        }
    }

    /// Opens a connection, within the connect timeout. Returns it with the loss of locks, if there
    /// is a sign of any.
    pub(in crate::master) async fn dial(
        &self,
    ) -> Result<(RedisConnection, Option<Loss>), DialError> {
        let dial = async {
            let mut connection = self.greeter.log_in().await?;
            let last_heard = self.config.health.last_heard(self.master);
            connection.last_heard.push(last_heard);
            let loss = self.loss(&mut connection).await?;
            Ok((connection, loss))
        };
        self.greeter.in_time(dial).await
    }

    /// Asks whether the server may have lost locks. Must be called after the login, while no
    /// command is unanswered.
    async fn loss(&self, connection: &mut RedisConnection) -> Result<Option<Loss>, DialError> {
        let (config, now) = (&self.config, self.config.now);
        let quarantine = config.restart_tracker.quarantine;
        if quarantine == Quarantine::Off {
            return Ok(None);
        }
        let asked = now();
        let known = self.run_ids.known(asked);
        let wire = &mut connection.wire;
        restart_query::ask(&known, quarantine, wire.out());
        let observer = config.health.observer(self.master);
        let read = |frame: &[u8]| restart_query::read(&reply(frame), quarantine, observer);
        let Some(found) = wire.answer(read).await?? else {
            return Ok(None);
        };
        // A refusal keeps the run ids: the master's own server may come back without its locks.
        config.restart_tracker.meet(self.master, &found.run_id)?;
        let last_heard = self.run_ids.meet(&found.run_id, asked, now())?;
        connection.last_heard.push(last_heard);
        Ok(found.loss)
    }
}
