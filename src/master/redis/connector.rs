//! Opens streams to servers.

#[cfg(feature = "tls")]
use std::sync::Arc;
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::net::TcpStream;

use super::{
    address::Address,
    race::race,
    resolve::LOOKUPS,
    wire::{Wire, connect_tcp},
};
use crate::master::connect_error::{ConnectError, ConnectStep, Progress};

/// The settings with which streams are opened.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) now: fn() -> Instant,
    /// The time for a stream and the login.
    pub(super) limit: Duration,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Connector {
    /// Opens a stream. `progress` shows the current step. After this it is the wait for the login.
    pub(super) async fn connect(
        &self,
        address: &Address,
        progress: &Progress,
    ) -> Result<Wire, ConnectError> {
        let (wire, address) = match address {
            Address::Given(address, connect) => {
                let step = ConnectStep::Connect(address.to_string());
                *progress.lock() = Some(step.clone());
                let wire = connect().await;
                let wire = wire.map_err(|error| ConnectError::Failed(step, error))?;
                (wire, address.to_string())
            }
            // The greeter asks the Sentinels for an address, and connects to that.
            #[cfg(feature = "sentinel")]
            Address::Sentinels(_) => {
                return Err(ConnectError::Sentinel("they were not asked".to_owned()));
            }
            Address::Tcp(host, port) => {
                let (stream, address) = self.connect_tcp(host, *port, progress).await?;
                (Wire::new(stream), address.to_string())
            }
            #[cfg(feature = "tls")]
            Address::Tls(host, port) => {
                let (stream, address) = self.connect_tcp(host, *port, progress).await?;
                *progress.lock() = Some(ConnectStep::Tls(address.to_string()));
                let wire = super::tls::connect(self.tls.clone(), host, stream).await?;
                (wire, address.to_string())
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await;
                let stream = stream.map_err(ConnectError::Socket)?;
                (Wire::new(stream), address.text().to_string())
            }
            #[cfg(not(unix))]
            Address::Unix(_) => {
                let error = std::io::ErrorKind::Unsupported;
                let error = std::io::Error::new(error, "this system has no unix sockets");
                return Err(ConnectError::Socket(error));
            }
        };
        *progress.lock() = Some(ConnectStep::Login(address));
        Ok(wire)
    }

    /// Connects to one of the addresses of a host. Returns the stream and that address.
    async fn connect_tcp(
        &self,
        host: &str,
        port: u16,
        progress: &Progress,
    ) -> Result<(TcpStream, SocketAddr), ConnectError> {
        const MOST_NAMED: usize = 3;
        let step = ConnectStep::Lookup(host.to_owned());
        *progress.lock() = Some(step.clone());
        let addresses = LOOKUPS.resolve(host, port, self.now).await;
        let addresses = addresses.map_err(|error| ConnectError::Failed(step, error))?;
        let mut named: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        if named.len() > MOST_NAMED {
            named.truncate(MOST_NAMED);
            named.push("others".to_owned());
        }
        let step = ConnectStep::Connect(named.join(", "));
        *progress.lock() = Some(step.clone());
        let stream = race(&addresses, connect_tcp).await;
        stream.map_err(|error| ConnectError::Failed(step, error))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;
    use crate::{driver::time::clock, master::connect_error::in_time};

    #[tokio::test]
    async fn an_error_names_the_step_and_the_address() {
        let connector = Connector {
            now: clock::monotonic,
            limit: Duration::from_secs(1),
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
