//! TLS connections over TCP, for `rediss://` URLs.

use std::sync::{Arc, LazyLock};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};

use super::wire::{Stream, Wire, connect_tcp};
use crate::master::dial_error::DialError;

/// A configuration with the system's trusted roots, which are read once.
static SYSTEM: LazyLock<Result<Arc<ClientConfig>, String>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err("the system has no trusted certificates: give some with Builder::tls".into());
    }
    // The crypto provider is named, because rustls has no default if two providers are compiled in.
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
});

/// Connects with `config`, or with the system's trusted roots if `config` is `None`.
pub(in crate::master) async fn connect(
    config: Option<Arc<ClientConfig>>,
    host: &str,
    port: u16,
) -> Result<Wire, DialError> {
    let config = config.map_or_else(|| SYSTEM.clone(), Ok);
    let config = config.map_err(DialError::Tls)?;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| DialError::Tls("its host is not a name that a certificate can have".into()))?;
    TlsConnector::from(config)
        .connect(name, connect_tcp(host, port).await?)
        .await
        .map(Wire::new)
        .map_err(|error| DialError::Tls(error.to_string()))
}

impl Stream for TlsStream<TcpStream> {
    fn forget_unsent(&self) {
        self.get_ref().0.forget_unsent();
    }
}
