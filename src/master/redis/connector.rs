//! Opens streams to servers.

#[cfg(feature = "tls")]
use std::sync::Arc;
#[cfg(any(feature = "sentinel", feature = "tls"))]
use std::time::Duration;
use std::time::Instant;

use super::{
    address::Address,
    wire::{Wire, connect_tcp},
};
use crate::master::{config::MasterConfig, dial_error::DialError};

/// The settings with which streams are opened.
#[derive(Clone)]
pub(super) struct Connector {
    now: fn() -> Instant,
    /// The time for a step of the dial, such as a handshake. It is over just before the connect
    /// timeout, so that the error names the step.
    #[cfg(any(feature = "sentinel", feature = "tls"))]
    pub(super) step_limit: Duration,
    #[cfg(feature = "tls")]
    tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Connector {
    pub(super) fn new(config: &MasterConfig) -> Self {
        Self {
            now: config.now,
            #[cfg(any(feature = "sentinel", feature = "tls"))]
            step_limit: config.connect_timeout * 15 / 16,
            #[cfg(feature = "tls")]
            tls: config.tls.clone(),
        }
    }

    pub(super) async fn connect(&self, address: &Address) -> Result<Wire, DialError> {
        match address {
            #[cfg(feature = "__internals")]
            Address::InProcess(_, connect) => Ok(Wire::new(connect())),
            // The dialer asks the Sentinels for an address, and connects to that.
            #[cfg(feature = "sentinel")]
            Address::Sentinels(_) => Err(DialError::Sentinel("they were not asked".to_owned())),
            Address::Tcp(host, port) => connect_tcp(host, *port, self.now).await.map(Wire::new),
            #[cfg(feature = "tls")]
            Address::Tls(host, port) => {
                let started = (self.now)();
                let stream = connect_tcp(host, *port, self.now).await?;
                let took = (self.now)().saturating_duration_since(started);
                let left = self.step_limit.saturating_sub(took);
                super::tls::connect(self.tls.clone(), host, stream, left).await
            }
            #[cfg(unix)]
            Address::Unix(path) => tokio::net::UnixStream::connect(path)
                .await
                .map(Wire::new)
                .map_err(DialError::Socket),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(DialError::Connect(std::io::Error::new(
                std::io::ErrorKind::Unsupported,
                "this system has no unix sockets",
            ))),
        }
    }
}
