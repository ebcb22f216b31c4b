//! A connection to one master, for programs that look at the master.

use std::time::Duration;

use crate::{
    driver::time::clock,
    master::{ConnectError, MasterSpec, MasterStream},
};

impl MasterSpec {
    /// Opens a connection to the master as a coordinator does, and logs in. It gives up after
    /// `limit`. `name` is what `CLIENT LIST` shows. A name with spaces or characters that are not
    /// ASCII is not used.
    ///
    /// The stream speaks RESP3, and the database is selected. Tracking of keys is on, with `OPTIN`,
    /// if the user may do that. A client of your own can use the stream, such as
    /// `redis::aio::MultiplexedConnection::new` with the `RedisConnectionInfo::default()`, which
    /// logs in no second time. For TLS with settings of your own, see [`tls`](Self::tls). The
    /// stream does not follow a failover that Sentinels announce later.
    ///
    /// This method executes nothing else. It does not ask whether the master restarted, so it hides
    /// no restart from the [quarantine](crate::Quarantine) of the next coordinator. A dropped
    /// future closes the connection.
    ///
    /// # Errors
    ///
    /// The reason, with the step that failed or took the time. Another attempt may succeed, unless
    /// the settings or the server must be changed first.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with timers.
    pub async fn connect(&self, name: &str, limit: Duration) -> Result<MasterStream, ConnectError> {
        self.dial(name, limit, clock::monotonic).await
    }
}
