//! Opens streams to servers.

#[cfg(feature = "tls")]
use std::sync::Arc;
#[cfg(feature = "sentinel")]
use std::time::Duration;
use std::{net::SocketAddr, time::Instant};

use tokio::net::TcpStream;

use super::{
    address::Address,
    race::race,
    resolve::LOOKUPS,
    wire::{Wire, connect_tcp},
};
use crate::master::{
    config::MasterConfig,
    dial_error::{DialError, Progress, Stage},
};

/// The settings with which streams are opened.
#[derive(Clone)]
pub(super) struct Connector {
    now: fn() -> Instant,
    /// The time for the questions to the Sentinels. It is over just before the connect timeout, so
    /// that the error says what each of them answered.
    #[cfg(feature = "sentinel")]
    pub(super) sentinel_limit: Duration,
    #[cfg(feature = "tls")]
    tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Connector {
    pub(super) fn new(config: &MasterConfig) -> Self {
        Self {
            now: config.now,
            #[cfg(feature = "sentinel")]
            sentinel_limit: config.connect_timeout * 15 / 16,
            #[cfg(feature = "tls")]
            tls: config.tls.clone(),
        }
    }

    /// Opens a stream. Shows in `progress` what takes the time, also after that.
    pub(super) async fn connect(
        &self,
        address: &Address,
        progress: &Progress,
    ) -> Result<Wire, DialError> {
        match address {
            #[cfg(feature = "__internals")]
            Address::InProcess(_, connect) => Ok(Wire::new(connect())),
            // The dialer asks the Sentinels for an address, and connects to that.
            #[cfg(feature = "sentinel")]
            Address::Sentinels(_) => Err(DialError::Sentinel("they were not asked".to_owned())),
            Address::Tcp(host, port) => {
                let (stream, address) = self.connect_tcp(host, *port, progress).await?;
                progress.reach(Stage::Login(address.to_string()));
                Ok(Wire::new(stream))
            }
            #[cfg(feature = "tls")]
            Address::Tls(host, port) => {
                let (stream, address) = self.connect_tcp(host, *port, progress).await?;
                progress.reach(Stage::Tls(address.to_string()));
                let wire = super::tls::connect(self.tls.clone(), host, stream).await?;
                progress.reach(Stage::Login(address.to_string()));
                Ok(wire)
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                progress.reach(Stage::Login(address.text().to_string()));
                let stream = tokio::net::UnixStream::connect(path).await;
                stream.map(Wire::new).map_err(DialError::Socket)
            }
            #[cfg(not(unix))]
            Address::Unix(_) => Err(DialError::Socket(std::io::Error::new(
                std::io::ErrorKind::Unsupported,
                "this system has no unix sockets",
            ))),
        }
    }

    /// Connects to one of the addresses of a host. Returns the stream and that address.
    async fn connect_tcp(
        &self,
        host: &str,
        port: u16,
        progress: &Progress,
    ) -> Result<(TcpStream, SocketAddr), DialError> {
        const MOST_NAMED: usize = 3;
        let stage = Stage::Lookup(host.to_owned());
        progress.reach(stage.clone());
        let addresses = LOOKUPS.resolve(host, port, self.now).await;
        let addresses = addresses.map_err(|error| DialError::Failed(stage, error))?;
        let mut named: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        if named.len() > MOST_NAMED {
            named.truncate(MOST_NAMED);
            named.push("others".to_owned());
        }
        let stage = Stage::Connect(named.join(", "));
        progress.reach(stage.clone());
        let stream = race(&addresses, connect_tcp).await;
        stream.map_err(|error| DialError::Failed(stage, error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpSocket;

    use super::*;
    use crate::{driver::time::clock, master::dial_error::in_time};

    #[tokio::test]
    async fn an_error_names_the_step_and_the_address() {
        let connector = Connector {
            now: clock::monotonic,
            #[cfg(feature = "sentinel")]
            sentinel_limit: Duration::MAX,
            #[cfg(feature = "tls")]
            tls: None,
        };
        let socket = || {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
            let port = socket.local_addr().unwrap().port();
            (socket, port)
        };
        let ((full, silent), (_bound, closed)) = (socket(), socket());
        let _full = full.listen(1).unwrap();
        let progress = Progress::default();
        let error = async |host: &str, port| {
            let address = Address::Tcp(host.to_owned(), port);
            let connect = connector.connect(&address, &progress);
            let connected = in_time(Duration::from_millis(200), &progress, connect).await;
            connected.map(drop).map_err(|error| error.to_string())
        };
        while error("127.0.0.1", silent).await.is_ok() {} // until the queue is full
        for (host, port, expected) in [
            (
                "127.0.0.1",
                silent,
                format!("no connection in 200ms: connecting to 127.0.0.1:{silent}"),
            ),
            (
                "127.0.0.1",
                closed,
                format!("connecting to 127.0.0.1:{closed}: Connection refused"),
            ),
            ("a..b", 7, "looking up \"a..b\": ".to_owned()),
        ] {
            let error = error(host, port).await.unwrap_err();
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
