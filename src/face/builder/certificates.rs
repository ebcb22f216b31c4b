//! The files for TLS: the trusted authorities, and the certificate of this client.

use std::{path::Path, sync::Arc};

use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};

use super::shared_settings::{SharedSettings, wrong};
use crate::{core::config_error::ConfigError, master::MasterSpec};

/// Reads the files, which may be pipes, and gives their content to the masters. If no files are
/// named, the masters stay as they are.
pub(super) fn read(mut settings: SharedSettings) -> Result<SharedSettings, ConfigError> {
    let own = match (settings.cert_file.take(), settings.key_file.take()) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => return Err(wrong("a cert_file", "needs a key_file")),
        (None, Some(_)) => return Err(wrong("a key_file", "needs a cert_file")),
    };
    let Some(authorities) = settings.ca_file.take() else {
        let none = wrong("a cert_file", WITHOUT_AUTHORITIES);
        return own.map_or(Ok(settings), |_| Err(none));
    };
    // A `ca_file` without a master that uses TLS is an error. Otherwise, the connections would be
    // plain, and nobody would notice.
    let mut masters = settings.masters.iter().chain(&settings.leaving);
    if !masters.any(MasterSpec::uses_tls) {
        let reason = "needs a master with TLS: write rediss:// in the URLs";
        return Err(wrong("a ca_file", reason));
    }
    let settled = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("TLS", format!("cannot be used: {error}")))?
        .with_root_certificates(roots(&authorities)?);
    let config = match own {
        None => settled.with_no_client_auth(),
        Some((certificate, key)) => settled
            .with_client_auth_cert(chain(&certificate)?, secret(&key)?)
            .map_err(|error| {
                let files = format!("{} and {}", certificate.display(), key.display());
                wrong(files, format!("cannot be used together: {error}"))
            })?,
    };
    let config = Arc::new(config);
    Ok(settings.each_master(|master| master.tls(config.clone())))
}

fn roots(file: &Path) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    for authority in chain(file)? {
        roots.add(authority).map_err(|error| {
            let reason = format!("has a certificate that is not that of an authority: {error}");
            wrong(file.display().to_string(), reason)
        })?;
    }
    Ok(roots)
}

fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let chain = match CertificateDer::pem_file_iter(file).and_then(Iterator::collect) {
        Ok(chain) if Vec::is_empty(&chain) => Err(pem::Error::NoItemsFound),
        chain => chain,
    };
    chain.map_err(|error| unreadable(file, "certificate", &error))
}

fn secret(file: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let key = PrivateKeyDer::from_pem_file(file);
    key.map_err(|error| unreadable(file, "private key without a passphrase", &error))
}

/// Returns an error that shows no part of the content, which may be a key.
fn unreadable(file: &Path, what: &str, error: &pem::Error) -> ConfigError {
    let reason = match error {
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        _ => format!("has no {what} in PEM form"),
    };
    wrong(file.display().to_string(), reason)
}

const WITHOUT_AUTHORITIES: &str = "needs a ca_file: name a file with the authorities of the \
    masters, such as /etc/ssl/certs/ca-certificates.crt";
