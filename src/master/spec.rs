//! A master as users give it, and the start of its supervisor.

use std::{fmt, future::Future, io, iter, pin::Pin, sync::Arc, time::Duration};

#[cfg(feature = "test-util")]
use quorlock_memory::MemoryMaster;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connect_error::ConnectError,
    redis::{self, MasterStream, Wire},
    shared::Shared,
    supervisor::{Port, supervise},
};
#[cfg(feature = "test-util")]
use crate::core::restart::ORIGIN_KEY;

/// One master, as given to [`Builder::master`](crate::Builder::master). It is made from a URL, or
/// from a
/// [`MemoryMaster`].
///
/// The forms of URLs are `redis://[user][:password@]host[:port][/db]`, `rediss://` for TLS (feature
/// `tls`), and `unix:///path[?db=n&user=..&pass=..]`. The schemes `valkey` and `valkeys` mean the
/// same as `redis` and `rediss`. A part of a login that has characters other than letters and
/// digits must be percent-encoded.
///
/// Databases of one server are not independent, so two URLs with the same host and port are an
/// error.
///
/// # Masters behind Sentinel
///
/// With the feature `sentinel`, the address of a master can come from Sentinels:
/// `redis+sentinel://[user][:password@]host[:port],host[:port]/service[/db]`. The parameters
/// `?sentinel_user=..&sentinel_password=..` are the login for the Sentinels, if they have one. With
/// `rediss+sentinel://`, the Sentinels and the masters expect TLS.
///
/// On every dial, all listed Sentinels (at most 16) are asked. A majority of them must name the
/// same address, so list all of them. The coordinator follows a failover by itself.
///
/// **A failover forgets the locks that had not been replicated**, because Redis replicates
/// asynchronously. The [quarantine](crate::Quarantine) therefore gives the new master no vote
/// for [`max_ttl`](crate::Builder::max_ttl). With three masters, locks survive one failover at a
/// time. Plain independent masters are better. The servers of one Sentinel service are one master,
/// and must never be listed as several. See
/// [`docs::operations`](crate::docs::operations#masters-behind-sentinel) for what you must ensure.
#[derive(Clone)]
pub struct MasterSpec(
    // `Builder::build` reports the reason why a master cannot be used, with the master's number.
    Result<redis::Endpoint, String>,
);

macro_rules! from_urls {
    ($($text:ty),+) => {
        $(impl From<$text> for MasterSpec {
            fn from(url: $text) -> Self {
                Self(redis::Endpoint::from_url(url.as_ref()))
            }
        })+
    };
}
from_urls!(&str, &&str, String, &String);

/// Reads a URL from a configuration file. A URL that cannot be used is no error here, because the
/// error of a parser might show the line, with the password in it.
/// [`Builder::build`](crate::Builder::build) reports such a URL.
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for MasterSpec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(feature = "test-util")]
impl From<MemoryMaster> for MasterSpec {
    fn from(memory: MemoryMaster) -> Self {
        Self::from(&memory)
    }
}

/// [`MemoryMaster::keys`] does not show the origin key, which this crate writes.
#[cfg(feature = "test-util")]
impl From<&MemoryMaster> for MasterSpec {
    fn from(memory: &MemoryMaster) -> Self {
        memory.hide(ORIGIN_KEY);
        let (server, process) = (memory.clone(), memory.process());
        let connect = move || -> redis::Connecting {
            Box::pin(std::future::ready(server.connect().map(Wire::of_given)))
        };
        let endpoint = redis::Endpoint::in_process(memory.address(), process, Arc::new(connect));
        Self(Ok(endpoint))
    }
}

impl fmt::Debug for MasterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address().unwrap_or_else(Arc::from))
    }
}

/// The future that serves one master. One task of a coordinator polls the futures of all masters.
pub(crate) type Supervisor = Pin<Box<dyn Future<Output = ()> + Send>>;

impl MasterSpec {
    /// Returns a master to which `connect` opens streams, for example through a tunnel. `connect`
    /// is called for each dial. Its future is dropped if it takes longer than the
    /// [`connect_timeout`](crate::Builder::connect_timeout).
    ///
    /// The URL, `redis://` or `unix://`, has the login and the database. It also names the master:
    /// give each server the same URL in all programs, because programs tell masters apart by their
    /// URLs. A stream that is dropped should not deliver what it still holds, so that no late
    /// command arrives. This crate cannot ask the system whether a stream of `connect` has ended.
    /// So if a stream ends while this process stands still, the next command may still be written
    /// to that stream, and fail at this master.
    ///
    /// `connect` and the streams run in the task that serves all masters of a coordinator. So they
    /// must not block, and if they panic, the coordinator is closed.
    ///
    /// ```
    /// use std::io;
    /// use quorlock::{Coordinator, MasterSpec};
    /// use tokio::{io::{AsyncReadExt, AsyncWriteExt}, net::TcpStream};
    ///
    /// /// Opens a tunnel through an HTTP proxy.
    /// async fn tunnel(host: &str) -> io::Result<TcpStream> {
    ///     let mut stream = TcpStream::connect("proxy.example.com:3128").await?;
    ///     stream.set_nodelay(true)?; // commands are small, and must not wait for each other
    ///     let ask = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    ///     stream.write_all(ask.as_bytes()).await?;
    ///     let mut answer = Vec::new();
    ///     while !answer.ends_with(b"\r\n\r\n") {
    ///         answer.push(stream.read_u8().await?);
    ///     }
    ///     match answer.starts_with(b"HTTP/1.1 200") {
    ///         true => Ok(stream),
    ///         false => Err(io::Error::other("the proxy refused the tunnel")),
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let masters = ["10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"].map(|host| {
    ///     MasterSpec::with_connector(&format!("redis://{host}"), move || tunnel(host))
    /// });
    /// let locks = Coordinator::new(masters)?;
    /// # Ok(()) }
    /// ```
    pub fn with_connector<F, S>(url: &str, connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        Self::from_wire(url, move || {
            let stream = connect();
            Box::pin(async { stream.await.map(Wire::of_given) })
        })
    }

    /// Returns a master to which `connect` opens wires. Unless a user gave the stream in a wire,
    /// that stream can say whether it has ended.
    pub(crate) fn from_wire(
        url: &str,
        connect: impl Fn() -> redis::Connecting + Send + Sync + 'static,
    ) -> Self {
        Self(redis::Endpoint::through(Arc::new(connect), url))
    }

    /// Returns the masters in a list of URLs, such as the value of an environment variable. Commas
    /// and white space separate the URLs: see [`split`](Self::split).
    /// [`Builder::build`](crate::Builder::build) reports a URL that cannot be used, and an empty
    /// list.
    ///
    /// ```
    /// use quorlock::MasterSpec;
    ///
    /// let masters = MasterSpec::list("redis://10.0.0.1, redis://10.0.0.2,redis://10.0.0.3");
    /// assert_eq!(masters.len(), 3);
    /// ```
    pub fn list(urls: &str) -> Vec<Self> {
        Self::split(urls).into_iter().map(Self::from).collect()
    }

    /// Returns the URLs in a list, as they are written there. Commas and white space separate them.
    ///
    /// A part of the list without `://` belongs to the URL before it, because passwords and lists
    /// of Sentinels may contain commas. A tab or a line break in a URL must be percent-encoded. If
    /// there is no URL between two commas, before the first or after the last, an empty text stands
    /// for it, which [`Builder::build`](crate::Builder::build) refuses: perhaps a variable in the
    /// list has no value.
    #[doc(hidden)]
    pub fn split(urls: &str) -> Vec<&str> {
        let is_separator = |c: char| c == ',' || c.is_whitespace();
        let starts = urls.match_indices("://").map(|(at, _)| {
            let before = urls[..at].trim_end_matches(|c| !is_separator(c));
            before.len()
        });
        let bounds: Vec<_> = [0].into_iter().chain(starts).chain([urls.len()]).collect();
        let parts = bounds.windows(2).flat_map(|ends| {
            let part = &urls[ends[0]..ends[1]];
            let (url, after) = part.split_at(part.trim_end_matches(is_separator).len());
            let is_between = !url.is_empty() && ends[1] < urls.len();
            let missing = after.matches(',').count().saturating_sub(is_between.into());
            let url = Some(url.trim_start_matches(is_separator)).filter(|url| !url.is_empty());
            url.into_iter().chain(iter::repeat_n("", missing))
        });
        parts.collect()
    }

    /// Returns whether the connections to this master are encrypted.
    #[cfg(feature = "tls")]
    #[doc(hidden)]
    pub fn uses_tls(&self) -> bool {
        matches!(&self.0, Ok(endpoint) if endpoint.address.clone().tls().is_some())
    }

    /// Sets the login of a Redis master whose URL has no password. The text of the password need
    /// not be percent-encoded. A user in the URL takes precedence over `user`, which is empty for
    /// the default user. The login is not for Sentinels, but for the master behind them.
    ///
    /// ```
    /// use quorlock::MasterSpec;
    ///
    /// let password = "a/b@c"; // for example from a file
    /// let masters = MasterSpec::list("redis://10.0.0.1, redis://10.0.0.2");
    /// let masters = masters.into_iter().map(|master| master.login("locks", password));
    /// ```
    #[must_use]
    pub fn login(self, user: &str, password: &str) -> Self {
        Self(self.0.map(|endpoint| endpoint.login(user, password)))
    }

    /// Sets the TLS configuration of a `rediss://` master that has none yet. This configuration
    /// takes precedence over [`Builder::tls`](crate::Builder::tls), which is for all masters.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, config: impl Into<Arc<tokio_rustls::rustls::ClientConfig>>) -> Self {
        if let Ok(endpoint) = &mut self.0
            && let Some(tls) = endpoint.address.tls()
        {
            tls.get_or_insert_with(|| config.into());
        }
        self
    }

    /// Returns the address without secrets, or the reason why the master cannot be used. Two
    /// masters with the same address are the same server.
    pub fn address(&self) -> Result<Arc<str>, String> {
        let endpoint = self.0.as_ref().map_err(String::clone)?;
        Ok(endpoint.address())
    }

    /// Returns the address, or the reason why the master cannot be used with its present settings.
    pub(crate) fn usable_address(&self) -> Result<Arc<str>, String> {
        const NO_PASSWORD: &str = "its URL has a user and no password: \
            give the password in the URL, or with password_file, QUORLOCK_PASSWORD or \
            MasterSpec::login";
        match &self.0 {
            Ok(endpoint) if endpoint.lacks_password() => Err(NO_PASSWORD.to_owned()),
            _ => self.address(),
        }
    }

    /// Returns the name of the user, if the URL or [`login`](Self::login) has one.
    #[doc(hidden)]
    pub fn user(&self) -> Option<&str> {
        self.0.as_ref().ok()?.settings.username()
    }

    #[cfg(feature = "serde")]
    pub(crate) fn has_password(&self) -> bool {
        self.0.as_ref().is_ok_and(redis::Endpoint::has_password)
    }

    /// Returns the number of the database on the server.
    #[doc(hidden)]
    pub fn database(&self) -> i64 {
        self.0.as_ref().map_or(0, |endpoint| endpoint.settings.db())
    }

    /// Opens a connection to the master as a coordinator does, and logs in. Gives up after `limit`.
    /// `name` is the name of the connection that `CLIENT LIST` shows. If `name` has a space or a
    /// character that is not ASCII, the connection has no name.
    ///
    /// The stream speaks RESP3, and the database is selected. If the user has the right to track
    /// keys, tracking is on, with `OPTIN`. A client of your own can use the stream, for example
    /// `redis::aio::MultiplexedConnection::new`. With `RedisConnectionInfo::default()`, that client
    /// does not log in a second time. For TLS with settings of your own, see [`tls`](Self::tls).
    /// The stream does not follow a failover that Sentinels announce later.
    ///
    /// This method sends no other commands. It does not ask whether the master restarted, so the
    /// [quarantine](crate::Quarantine) of the next coordinator still notices a restart. Dropping
    /// the future closes the connection.
    ///
    /// # Errors
    ///
    /// The reason why there is no connection. The error names the step that failed, or that was not
    /// done within `limit`. Another attempt may succeed, unless the settings or the server must be
    /// changed first.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with timers.
    #[doc(hidden)]
    pub async fn connect(&self, name: &str, limit: Duration) -> Result<MasterStream, ConnectError> {
        self.usable_address().map_err(ConnectError::BadMaster)?;
        let endpoint = self.0.clone().map_err(ConnectError::BadMaster)?;
        let dialer = redis::Dialer::new(endpoint, name.to_owned(), limit);
        Ok(dialer.connect().await?.into())
    }

    /// Returns the supervisor of this master in `machine`. `master` is the number of the master, and
    /// `name` is the name of each connection.
    pub(crate) fn open(self, master: usize, name: String, machine: &Arc<Shared>) -> Supervisor {
        match self.0 {
            Ok(endpoint) => {
                let limit = machine.config.connect_timeout;
                let dialer = redis::Dialer::new(endpoint, name, limit);
                let machine = machine.clone();
                Box::pin(supervise(dialer, Port { machine, master }))
            }
            Err(_) => Box::pin(async {}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_and_no_url_is_changed() {
        for (list, urls) in [
            ("", &[][..]),
            (" \n", &[]),
            (" , ", &[""]),
            (",redis://a", &["", "redis://a"]),
            ("redis://a,\n", &["redis://a", ""]),
            (
                "redis://a,,redis://b ,, , redis://c",
                &["redis://a", "", "redis://b", "", "", "redis://c"],
            ),
            ("redis://a", &["redis://a"]),
            (
                "redis://a,redis://b\u{a0}redis://c\n",
                &["redis://a", "redis://b", "redis://c"],
            ),
            (
                "redis://u:a,,b@c, redis://d",
                &["redis://u:a,,b@c", "redis://d"],
            ),
            ("redis://u:a b@c", &["redis://u:a b@c"]),
            (
                "redis+sentinel://a,b/s,unix:///a  b/s",
                &["redis+sentinel://a,b/s", "unix:///a  b/s"],
            ),
            (
                "g=redis://a h:2=redis://b",
                &["g=redis://a", "h:2=redis://b"],
            ),
            ("a b redis://c", &["a b", "redis://c"]),
            ("redis://u:x://y@a", &["redis://u:x://y@a"]),
        ] {
            assert_eq!(MasterSpec::split(list), urls, "{list}");
            assert_eq!(MasterSpec::list(list).len(), urls.len(), "{list}");
        }
    }
}
