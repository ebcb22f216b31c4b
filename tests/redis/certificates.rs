//! Certificates that the tests make, and servers that use them.

use std::{fs, path::PathBuf, sync::Arc};

use quorlock::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};

use crate::common::*;

/// An authority that signs certificates. Its files are gone when the value is dropped.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
}

/// A certificate with its key.
pub(crate) struct Signed {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = format!("authority {:016x}", rand::random::<u64>());
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let name = format!("quorlock-tls-{:016x}", rand::random::<u64>());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("ca"), issuer.pem()).unwrap();
        Self { issuer, directory }
    }

    /// Signs a certificate for `host`.
    pub(crate) fn sign(&self, host: &str) -> Signed {
        self.sign_with(host, |_| {})
    }

    pub(crate) fn sign_expired(&self, host: &str) -> Signed {
        self.sign_with(host, |params| {
            params.not_before = date_time_ymd(2019, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 1);
        })
    }

    fn sign_with(&self, host: &str, change: impl Fn(&mut CertificateParams)) -> Signed {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Signed { certificate, key }
    }

    /// Starts a server that shows `certificate` and has no port without TLS. `clients` says whether
    /// clients need certificates of this authority: `yes` or `no`.
    pub(crate) fn server(&self, certificate: &Signed, clients: &str, more: &[&str]) -> Server {
        let options = self.options(certificate, clients);
        let options = options
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied());
        Server::start_with(&options.collect::<Vec<_>>())
    }

    /// Returns the options of such a server.
    pub(crate) fn options(&self, certificate: &Signed, clients: &str) -> Vec<String> {
        let name = format!("{:016x}", rand::random::<u64>());
        let file = |end: &str, text: String| {
            let path = self.directory.join(format!("{name}.{end}"));
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let public = file("pem", certificate.certificate.pem());
        let secret = file("key", certificate.key.serialize_pem());
        let ca = self.file();
        let options = [
            ["--port", "0"],
            ["--tls-port", "{port}"],
            ["--tls-cert-file", &public],
            ["--tls-key-file", &secret],
            ["--tls-ca-cert-file", ca.to_str().unwrap()],
            ["--tls-auth-clients", clients],
        ];
        options
            .as_flattened()
            .iter()
            .map(|&word| word.to_owned())
            .collect()
    }

    /// Returns the settings of a client that trusts this authority.
    pub(crate) fn trusted(&self) -> ClientConfig {
        trusting([self]).with_no_client_auth()
    }

    /// Returns the settings of a client that trusts this authority and has a certificate.
    pub(crate) fn trusted_with(&self, own: &Signed) -> ClientConfig {
        let key = PrivatePkcs8KeyDer::from(own.key.serialize_der());
        let chain = vec![own.certificate.der().clone()];
        let settings = trusting([self]).with_client_auth_cert(chain, key.into());
        settings.unwrap()
    }

    /// Returns the file with the certificate of this authority.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.join("ca")
    }

    fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns the settings of a client that trusts all of `authorities`.
pub(crate) fn trusting<'a>(
    authorities: impl IntoIterator<Item = &'a Authority>,
) -> quorlock::rustls::ConfigBuilder<ClientConfig, quorlock::rustls::client::WantsClientCert> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.der()).unwrap();
    }
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
}

/// Returns the URL of a server with TLS.
pub(crate) fn tls_url(server: &Server) -> String {
    format!("rediss://127.0.0.1:{}", server.port())
}

/// Returns whether the server program has no TLS. If so, prints a line to stderr.
pub(crate) fn is_without_tls() -> bool {
    let is_without = Server::start()
        .command(&["CONFIG", "GET", "tls-port"])
        .is_empty();
    if is_without {
        skipped("the server program is built without TLS");
    }
    is_without
}
