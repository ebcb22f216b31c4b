//! A connection to one master: quorlock's stream, with the commands of the `redis` crate.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use quorlock::{
    MasterSpec,
    tools::{ConnectError, without_user},
};
use redis::{
    AsyncConnectionConfig, Pipeline, RedisConnectionInfo, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::{task::AbortHandle, time::timeout};

use crate::{
    CheckSettings,
    cure::{after, said},
    programs::CHECK,
    report::Finding,
    table::{
        DOWN, LOGIN, NO_MASTER, NO_SERVICE, NO_TRUST, NOT_NOW, OLD, PROTECTED, REPLICA, SHARD,
    },
};

/// A reply, or the text of an error reply.
pub(crate) type Answer = Result<Value, String>;

/// An open connection. It never touches the origin key.
pub(crate) struct Link {
    connection: MultiplexedConnection,
    task: AbortHandle,
    limit: Duration,
}

impl Link {
    /// Connects and logs in, as every connection of a coordinator does. Or says why that fails.
    pub(crate) async fn open(master: &MasterSpec, shared: &CheckSettings) -> Result<Self, Finding> {
        let stream = master.connect(CHECK, shared.connect_timeout).await;
        let stream = stream.map_err(|error| refused(&error))?;
        let unlimited = AsyncConnectionConfig::new().set_response_timeout(None);
        // The stream is logged in already. Few users have the right to name their library.
        let login = RedisConnectionInfo::default().set_skip_set_lib_name();
        let opened = MultiplexedConnection::new_with_config(&login, stream, unlimited).await;
        let (connection, task) = opened.map_err(|error| DOWN.with(error.to_string()))?;
        Ok(Self {
            connection,
            task: spawn(task),
            limit: shared.response_timeout,
        })
    }

    /// Asks all `questions` at once. Returns one answer for each.
    pub(crate) async fn ask(&mut self, questions: &Pipeline) -> Result<Vec<Answer>, Finding> {
        let count = questions.len();
        let asking = self.connection.req_packed_commands(questions, 0, count);
        let replies = match timeout(self.limit, asking).await {
            Ok(replies) => {
                replies.map_err(|error| DOWN.with(format!("connection lost: {error}")))?
            }
            Err(_) => return Err(silent(self.limit)),
        };
        let answers = replies.into_iter().map(|reply| match reply {
            Value::ServerError(error) => {
                let detail = error.details().unwrap_or_default();
                Err(format!("{} {detail}", error.code()))
            }
            reply => Ok(reply),
        });
        Ok(answers.collect())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the task ends with its connection"
)]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(task).abort_handle()
}

/// Returns the finding about a master that gives no answer.
fn silent(limit: Duration) -> Finding {
    DOWN.with(format!("no answer in {limit:?}"))
}

/// Returns the finding about a master that cannot be reached, or refuses the login.
fn refused(error: &ConnectError) -> Finding {
    match error {
        ConnectError::At { error: inner, .. } => Finding {
            value: error.to_string(),
            ..refused(inner)
        },
        ConnectError::Busy(text) => after(NOT_NOW, &said(text), ""),
        ConnectError::Certificate(text) | ConnectError::NoTls(text) => NO_TRUST.with(text),
        ConnectError::IsSentinel | ConnectError::NotRedis(_) => NO_MASTER.with(error.to_string()),
        ConnectError::IsShard(_) => SHARD.with(error.to_string()),
        ConnectError::Service(text) => NO_SERVICE.with(text),
        ConnectError::Login(text) if text.starts_with("DENIED") => PROTECTED.with(text),
        ConnectError::Login(text) => LOGIN.with(without_user(text)),
        ConnectError::Database(text) => {
            let value = format!("refused the database {}", without_user(text));
            LOGIN
                .with(value)
                .fixed_by("use a lower number, or give its user +select")
        }
        ConnectError::NotAMaster { role } => REPLICA.with(role),
        ConnectError::NotRedis6(text) => OLD.with(without_user(text)),
        error => DOWN.with(error.to_string()),
    }
}

/// Returns the text of a reply. Long texts are not cut.
pub(crate) fn text(reply: &Value) -> String {
    redis::from_redis_value_ref(reply).unwrap_or_default()
}

pub(crate) fn map(reply: &Value) -> HashMap<String, String> {
    redis::from_redis_value_ref(reply).unwrap_or_default()
}

/// Returns the texts of a list, which need not be UTF-8.
pub(crate) fn bytes(reply: &Value) -> Vec<Vec<u8>> {
    redis::from_redis_value_ref(reply).unwrap_or_default()
}

/// Returns our wall clock, in microseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the clocks of the masters are compared with ours"
)]
pub(crate) fn wall_micros() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_micros() as u64
}
