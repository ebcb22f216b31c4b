//! Dials a server: connects, logs in, and asks whether the server restarted.

use std::sync::Arc;

use super::{
    connection::RedisConnection, encode::encode, endpoint::Endpoint, greeter::Greeter, resp::reply,
};
use crate::{
    clock,
    core::{
        kind::script::ORIGIN,
        protocol::command::Reply,
        restart::{DataLoss, Incarnation, ORIGIN_KEY, Quarantine, origin_arguments},
        vote::server_error::ServerError,
    },
    machine::out::MasterEvent,
    master::{
        config::MasterConfig,
        connect_error::{ConnectError, DialError},
        observer::MasterObserver,
        restart::RunIds,
        shared::Shared,
    },
};

/// Opens connections to one server.
pub(crate) struct Dialer {
    greeter: Greeter,
    machine: Arc<Shared>,
    master: usize,
    pub(in crate::master) config: MasterConfig,
    run_ids: RunIds,
}

impl Dialer {
    pub(crate) fn new(
        endpoint: Endpoint,
        master: usize,
        config: &MasterConfig,
        machine: &Arc<Shared>,
    ) -> Self {
        let name = config.connection_name.to_string();
        Self {
            machine: machine.clone(),
            master,
            config: config.clone(),
            run_ids: RunIds::of(&endpoint.origin_name()),
            greeter: Greeter::new(endpoint, &name, config.session.connect_timeout),
        }
    }

    /// Opens a connection, within the connect timeout. Returns the connection, and the loss of data
    /// if the server may have lost locks.
    pub(crate) async fn dial(&self) -> Result<(RedisConnection, Option<DataLoss>), DialError> {
        let dial = async {
            let mut connection = self.greeter.log_in().await?;
            let last_heard = self.machine.health.last_heard(self.master);
            connection.last_heard.push(last_heard);
            let loss = self.loss(&mut connection).await?;
            Ok((connection, loss))
        };
        self.greeter.in_time(dial).await
    }

    /// Asks whether the server may have lost locks. Must be called after the login, while no
    /// command is unanswered.
    async fn loss(&self, connection: &mut RedisConnection) -> Result<Option<DataLoss>, DialError> {
        let (config, health) = (&self.config, &self.machine.health);
        let quarantine = config.session.quarantine;
        if quarantine == Quarantine::Off {
            return Ok(None);
        }
        let asked = clock::monotonic();
        let known = self.run_ids.known(asked);
        let wire = &mut connection.wire;
        ask(&known, quarantine, wire.out());
        let observer = health.observer(self.master);
        let answer = |frame: &[u8]| read(&reply(frame), quarantine, observer);
        let answer = wire.answer(answer).await;
        let Some(found) = answer.map_err(ConnectError::from)?? else {
            return Ok(None);
        };
        // This check comes first, so a dial that met the server of another master does not change
        // the known run ids. They show a restart once the right server is met again.
        let same = |other| DialError::SameServer(health.observer(other).address().clone());
        let met = config.servers.meet(self.master, &found.run_id);
        met.map_err(same)?;
        let last_heard = self
            .run_ids
            .meet(&found.run_id, asked, clock::monotonic())?;
        connection.last_heard.push(last_heard);
        Ok(found.loss)
    }
}

/// Appends to `out` the question whether the server restarted. The script `lua/shared/origin.lua`
/// answers the question.
fn ask(known: &[(String, u64)], quarantine: Quarantine, out: &mut Vec<u8>) {
    let arguments = origin_arguments(known, quarantine);
    let mut words = vec!["EVAL", ORIGIN.text(), "1", ORIGIN_KEY];
    words.extend(arguments.iter().map(String::as_str));
    let words: Vec<_> = words.into_iter().map(str::as_bytes).collect();
    encode(out, &words);
}

/// Reads the answer to [`ask`]. Returns `None` if the server denies the question and `quarantine`
/// is not strict.
fn read(
    reply: &Reply<'_>,
    quarantine: Quarantine,
    observer: &MasterObserver,
) -> Result<Option<Incarnation>, DialError> {
    const NONSENSE: &str = "its answer makes no sense";
    let why = match reply {
        Reply::Text(text) => match Incarnation::parse(text) {
            Some(found) => return Ok(Some(found)),
            None => NONSENSE,
        },
        Reply::Error(error) => error,
        Reply::Int(_) | Reply::Nil | Reply::Ok | Reply::Other => NONSENSE,
    };
    let kind = ServerError::of(why);
    if kind.is_denial() && quarantine != Quarantine::Strict {
        let why = why.into();
        observer.on(&MasterEvent::OriginDenied { why });
        return Ok(None);
    }
    let why = why.to_owned();
    Err(match kind {
        ServerError::Loading => ConnectError::Busy(why).into(),
        ServerError::Moved => ConnectError::IsShard(why).into(),
        kind if kind.is_denial() => DialError::RightsMissing { why },
        _ => DialError::RestartUnknown { why },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::vote::lists::Membership;

    /// The error texts are those of Redis 6 and 7, and of Valkey.
    #[test]
    fn a_denied_question_fails_the_dial_only_under_strict() {
        let denied = [
            "NOPERM this user has no permissions to run the 'eval' command",
            "ERR The user executing the script can't run this command or subcommand script: 9f, on @user_script:1.",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
            "ERR ACL failure in script: User lock has no permissions to run the 'info' command script: 9f",
            "ERR unknown command 'EVAL'",
            "ERR Unknown Redis command called from script script: 9f",
            "ERR This Redis command is not allowed from script",
            "ERR its INFO has no run_id",
        ];
        let passing = [
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script.",
            "MISCONF Errors writing to the AOF file: No space left on device script: 9f",
            "OOM command not allowed when used memory > 'maxmemory'. script: 9f, on @user_script:1.",
            "READONLY You can't write against a read only replica. script: 9f",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "ERR the origin key is of another type and cannot be deleted",
        ];
        let denied = denied.map(|error| (error, true));
        for (error, is_denied) in denied
            .into_iter()
            .chain(passing.map(|error| (error, false)))
        {
            let answer = |quarantine| {
                let reply = Reply::Error(error.into());
                let observer = MasterObserver::new(None, "m".into(), Membership::Stays);
                read(&reply, quarantine, &observer)
            };
            assert_eq!(answer(Quarantine::Observed).is_ok(), is_denied, "{error}");
            let refused = answer(Quarantine::Strict).unwrap_err();
            let is_typed = matches!(refused, DialError::RightsMissing { .. });
            assert_eq!(is_typed, is_denied, "{refused}");
            let text = refused.to_string();
            assert!(text.contains(error), "{text}");
            assert_eq!(text.contains("+hset"), is_denied, "{text}");
        }
    }
}
