//! The files for TLS: the trusted authorities, and the certificate of this client.

use std::{fs, path::Path, sync::Arc};

use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
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
    let mut masters = settings.masters.iter().chain(&settings.old_masters);
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
                let why = format!("cannot be used together: {error}");
                let advice = advice(&why).unwrap_or_default();
                wrong(files, why + advice)
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

/// Returns what to do about a certificate or a key of this client. Rustls has no cases for these
/// errors, only texts.
fn advice(error: &str) -> Option<&'static str> {
    let texts = [
        (
            "UnsupportedCertVersion",
            "; it must be of X.509 version 3, which `openssl x509 -req` makes with -extfile",
        ),
        (
            "parse private key",
            "; the key must be of RSA, P-256, P-384 or Ed25519",
        ),
    ];
    let found = texts.into_iter().find(|(text, _)| error.contains(text));
    found.map(|(_, advice)| advice)
}

/// Reads a file. A parser of PEM would skip the first part of a file with a byte order mark.
fn content(file: &Path) -> Result<Vec<u8>, ConfigError> {
    let place = || file.display().to_string();
    let content = fs::read(file);
    let content = content.map_err(|error| wrong(place(), format!("cannot be read: {error}")))?;
    if content.starts_with("\u{feff}".as_bytes()) {
        let reason = "begins with a byte order mark, as some editors write it: remove it";
        return Err(wrong(place(), reason));
    }
    Ok(content)
}

fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let content = content(file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    chain.ok_or_else(|| lacks(file, "certificate"))
}

fn secret(file: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let key = PrivateKeyDer::from_pem_slice(&content(file)?);
    key.map_err(|_| lacks(file, "private key without a passphrase"))
}

/// Returns an error that shows no part of the content, which may be a key.
fn lacks(file: &Path, what: &str) -> ConfigError {
    wrong(
        file.display().to_string(),
        format!("has no {what} in PEM form"),
    )
}

const WITHOUT_AUTHORITIES: &str = "needs a ca_file: name a file with the authorities of the \
    masters, such as /etc/ssl/certs/ca-certificates.crt";
