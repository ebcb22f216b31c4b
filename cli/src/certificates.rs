//! The files of a set for TLS: the trusted authorities, and the certificate of this client.

use std::{path::Path, sync::Arc};

use quorlock::{
    MasterSpec,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject},
        },
    },
};

use crate::{configuration::Settings, exit::Exit, failure::Failure};

/// Returns what the files say. `None` if the set names none: then the authorities of the system
/// count, and the client has no certificate.
pub(crate) fn read(settings: &Settings) -> Result<Option<Arc<ClientConfig>>, Failure> {
    let own = own_files(settings)?;
    let Some(authorities) = &settings.ca_file else {
        return own.map_or(Ok(None), |_| Err(wrong(WITHOUT_AUTHORITIES)));
    };
    // Otherwise, the connections would be plain, and nobody would notice.
    if !settings.all_masters().any(MasterSpec::uses_tls) {
        return Err(wrong(
            "the set has a ca_file, but no master with TLS; write rediss:// in the URLs",
        ));
    }
    let settled = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?
        .with_root_certificates(roots(authorities)?);
    let config = match own {
        None => settled.with_no_client_auth(),
        Some([certificate, key]) => settled
            .with_client_auth_cert(chain(certificate)?, secret(key)?)
            .map_err(|error| {
                wrong(format!(
                    "the key in {} does not belong to the certificate in {}: {error}",
                    key.display(),
                    certificate.display()
                ))
            })?,
    };
    Ok(Some(Arc::new(config)))
}

/// Returns the files with the certificate of this client and its key.
fn own_files(settings: &Settings) -> Result<Option<[&Path; 2]>, Failure> {
    match (&settings.cert_file, &settings.key_file) {
        (Some(certificate), Some(key)) => Ok(Some([certificate, key])),
        (Some(_), None) => Err(wrong("the set has a cert_file; add its key_file")),
        (None, Some(_)) => Err(wrong("the set has a key_file; add its cert_file")),
        (None, None) => Ok(None),
    }
}

fn roots(file: &Path) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    for authority in chain(file)? {
        roots.add(authority).map_err(|error| {
            let file = file.display();
            wrong(format!(
                "a certificate in {file} is not that of an authority: {error}"
            ))
        })?;
    }
    Ok(roots)
}

fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
    match read() {
        Ok(chain) if chain.is_empty() => Err(unreadable(file, "certificate", None)),
        Ok(chain) => Ok(chain),
        Err(error) => Err(unreadable(file, "certificate", Some(&error))),
    }
}

fn secret(file: &Path) -> Result<PrivateKeyDer<'static>, Failure> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| {
        let what = "private key without a passphrase";
        unreadable(file, what, Some(&error))
    })
}

/// Says nothing of the content, which may be a key.
fn unreadable(file: &Path, what: &str, error: Option<&pem::Error>) -> Failure {
    let file = file.display();
    match error {
        Some(pem::Error::Io(error)) => wrong(format!("cannot read {file}: {error}")),
        _ => wrong(format!("{file} has no {what} in PEM form")),
    }
}

fn wrong(sentence: impl Into<String>) -> Failure {
    Failure::new(Exit::Configuration, sentence)
}

const WITHOUT_AUTHORITIES: &str = "the set has a cert_file and no ca_file; name a file with the \
    authorities of the masters, such as ca_file = \"/etc/ssl/certs/ca-certificates.crt\"";
