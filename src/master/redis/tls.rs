//! TLS connections over TCP, for `rediss://` URLs.

use std::{
    io,
    sync::{Arc, LazyLock},
};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        AlertDescription, CertificateError, ClientConfig, Error, RootCertStore, crypto::ring,
        pki_types::ServerName,
    },
};

use super::wire::{Stream, Wire};
use crate::master::connect_error::ConnectError;

/// A configuration with the system's trusted roots, which are read once.
static SYSTEM: LazyLock<Result<Arc<ClientConfig>, String>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})"));
        return Err(format!(
            "the system has no trusted certificates{}: give some with ca_file or Builder::tls",
            why.unwrap_or_default()
        ));
    }
    // The crypto provider is named, because rustls has no default if two providers are compiled in.
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
});

/// Makes the handshake with `config`, or with the system's trusted roots if `config` is `None`.
pub(crate) async fn connect(
    config: Option<Arc<ClientConfig>>,
    host: &str,
    stream: TcpStream,
) -> Result<Wire, ConnectError> {
    let is_given = config.is_some();
    let config = config.map_or_else(|| SYSTEM.clone(), Ok);
    let config = config.map_err(ConnectError::Certificate)?;
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        ConnectError::Certificate("its host is not a name that a certificate can have".into())
    })?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|error| match tls_error(&error) {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) if is_given => {
            ConnectError::Certificate(NOT_GIVEN.to_owned())
        }
        _ => no_handshake(&error),
    });
    Ok(Wire::new(stream?))
}

/// The error if none of the authorities that are set has signed the server's certificate.
const NOT_GIVEN: &str = "its certificate is refused: the authority that signed it is not in ca_file or \
     Builder::tls; add that authority, or if it is there, the server's file lacks an intermediate \
     certificate";

const NO_TLS: &str = "if this port expects no TLS, use redis://";

fn no_handshake(error: &io::Error) -> ConnectError {
    ConnectError::Tls(match tls_error(error) {
        Some(Error::InvalidMessage(_)) => {
            return ConnectError::NoTls(format!("the answer is not TLS: {NO_TLS}"));
        }
        Some(error) => return failure(error),
        None if has_ended(error) => format!("closed during the TLS handshake: {NO_TLS}"),
        None => error.to_string(),
    })
}

impl From<io::Error> for ConnectError {
    /// With TLS 1.3, a server refuses the client's certificate only after the handshake.
    fn from(error: io::Error) -> Self {
        match tls_error(&error) {
            Some(error) => failure(error),
            None => Self::Wire(error),
        }
    }
}

fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Returns an error that says what is wrong, and what to do.
fn failure(error: &Error) -> ConnectError {
    use CertificateError::{NotValidYet, NotValidYetContext};
    let Some(advice) = advice(error) else {
        return match error {
            Error::PeerIncompatible(_) => ConnectError::NoTls(error.to_string()),
            error => ConnectError::Tls(error.to_string()),
        };
    };
    let text = match error {
        // The advice says why, in words for people.
        Error::InvalidCertificate(bad)
            if *bad == CertificateError::UnknownIssuer || is_other(bad, AUTHORITY) =>
        {
            format!("its certificate is refused: {advice}")
        }
        Error::InvalidCertificate(bad) => format!("its certificate is refused: {bad}; {advice}"),
        Error::AlertReceived(alert) => format!("the server refused TLS ({alert:?}): {advice}"),
        error => error.to_string(),
    };
    match error {
        // The certificate will be valid later. Perhaps this machine has just started, and its clock
        // is not set yet.
        Error::InvalidCertificate(NotValidYet | NotValidYetContext { .. }) => {
            ConnectError::Tls(text)
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) => ConnectError::NoTls(text),
        _ => ConnectError::Certificate(text),
    }
}

/// Returns what to do about a certificate that is refused.
fn advice(error: &Error) -> Option<&'static str> {
    use AlertDescription as Alert;
    use CertificateError as Bad;
    Some(match error {
        Error::InvalidCertificate(Bad::UnknownIssuer) => {
            "nothing that is trusted has signed it: trust the authority that signed it, with \
             ca_file or Builder::tls; none is set, so the environment variable SSL_CERT_FILE and the \
             system's certificates count; or the server's file lacks an intermediate certificate"
        }
        Error::InvalidCertificate(
            Bad::Expired
            | Bad::ExpiredContext { .. }
            | Bad::NotValidYet
            | Bad::NotValidYetContext { .. },
        ) => "renew it, or look at the clock of this machine",
        Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "use a host that it names in the URL, or add the host to it"
        }
        Error::InvalidCertificate(bad) if is_other(bad, "CertVersion") => {
            "the server needs one of X.509 version 3, which `openssl x509 -req` makes with -extfile"
        }
        Error::InvalidCertificate(bad) if is_other(bad, AUTHORITY) => {
            "the server needs another one: what `openssl req -x509` makes is that of an authority, \
             which signs the server's"
        }
        Error::InvalidCertificate(_) => "the server needs another one",
        Error::AlertReceived(Alert::CertificateRequired) => {
            "give the client a certificate with cert_file and key_file or Builder::tls"
        }
        // A server with TLS 1.2 sends these alerts, too, if the client has no certificate.
        Error::AlertReceived(Alert::HandshakeFailure) => {
            "it may want a certificate of the client, with cert_file and key_file or Builder::tls, \
             or another version of TLS, or a certificate whose key is not of P-521"
        }
        Error::AlertReceived(Alert::ProtocolVersion) => {
            "the server has only TLS 1.1 or older: allow TLS 1.2 or 1.3 (tls-protocols)"
        }
        Error::AlertReceived(
            Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::UnsupportedCertificate,
        ) => "it does not accept the client's certificate in cert_file or Builder::tls",
        _ => return None,
    })
}

/// The case of a certificate of an authority that a server shows as its own.
const AUTHORITY: &str = "CaUsedAsEndEntity";

/// Returns whether a certificate is refused for this reason, which is no case of its own in rustls.
/// One of the first version of X.509, which has no extensions, is an `UnsupportedCertVersion`.
fn is_other(bad: &CertificateError, reason: &str) -> bool {
    matches!(bad, CertificateError::Other(other) if format!("{other:?}").contains(reason))
}

impl Stream for TlsStream<TcpStream> {
    fn forget_unsent(&self) {
        self.get_ref().0.forget_unsent();
    }

    fn has_input(&self) -> bool {
        self.get_ref().0.has_input()
    }
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::OtherError;

    use super::*;
    use crate::core::view::DialRefusal;

    #[test]
    fn the_usual_reasons_are_not_in_the_words_of_rustls() {
        let authority = OtherError(Arc::new(io::Error::other(AUTHORITY)));
        for (bad, said) in [
            (CertificateError::UnknownIssuer, "refused: nothing that is"),
            (
                CertificateError::Other(authority),
                "refused: the server needs another one: what",
            ),
        ] {
            let refused = failure(&Error::InvalidCertificate(bad)).to_string();
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn a_certificate_that_is_not_valid_yet_is_worth_a_wait() {
        use CertificateError::{Expired, NotValidYet, UnknownIssuer};
        for (bad, refusal) in [
            (UnknownIssuer, Some(DialRefusal::Certificate)),
            (Expired, Some(DialRefusal::Certificate)),
            (NotValidYet, None),
        ] {
            let refused = failure(&Error::InvalidCertificate(bad.clone()));
            assert_eq!(refused.refusal(), refusal, "{bad:?}");
            assert!(refused.to_string().contains("look at the clock") == (bad != UnknownIssuer));
        }
    }
}
