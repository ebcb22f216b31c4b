//! Certificates that the tests make, and servers that use them.

use std::{
    env, fs,
    path::PathBuf,
    process::{self, Command},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};

use crate::server::{Server, binary, skipped};

/// An authority that signs certificates. Its files are gone when the value is dropped.
pub struct Authority {
    pub issuer: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
}

/// A certificate with its key.
pub struct Signed {
    pub certificate: rcgen::Certificate,
    pub key: KeyPair,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = format!("quorlock-tls-{}", unique());
        params.distinguished_name.push(DnType::CommonName, &*name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = env::temp_dir().join(name);
        // A process with the same ID may have left it.
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("ca"), issuer.pem()).unwrap();
        Self { issuer, directory }
    }

    /// Signs a certificate for `host`.
    pub fn sign(&self, host: &str) -> Signed {
        self.sign_with(host, |_| {})
    }

    pub fn sign_expired(&self, host: &str) -> Signed {
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
    pub fn server(&self, certificate: &Signed, clients: &str, more: &[&str]) -> Server {
        let options = self.options(certificate, clients);
        let options = options
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied());
        Server::start_with(&options.collect::<Vec<_>>())
    }

    /// Starts a server as [`server`](Self::server) does, with a certificate and its key in one
    /// file.
    pub fn server_of(&self, pem: &str, more: &[&str]) -> Server {
        let file = self.write(pem);
        let file = file.to_str().unwrap();
        let options = [&["--tls-cert-file", file, "--tls-key-file", file], more].concat();
        self.server(&self.sign("replaced by these options"), "no", &options)
    }

    /// Writes a file, and returns it.
    pub fn write(&self, text: &str) -> PathBuf {
        let file = self.directory.join(unique());
        fs::write(&file, text).unwrap();
        file
    }

    /// Returns the options of such a server.
    pub fn options(&self, certificate: &Signed, clients: &str) -> Vec<String> {
        let files = [&self.files(certificate)[..], &[self.file()]].concat();
        let [public, secret, ca] = [0, 1, 2].map(|at| files[at].to_str().unwrap());
        let options = [
            ["--port", "0"],
            ["--tls-port", "{port}"],
            ["--tls-cert-file", public],
            ["--tls-key-file", secret],
            ["--tls-ca-cert-file", ca],
            ["--tls-auth-clients", clients],
        ];
        options
            .as_flattened()
            .iter()
            .map(|&word| word.to_owned())
            .collect()
    }

    /// Returns the file with the certificate of this authority.
    pub fn file(&self) -> PathBuf {
        self.directory.join("ca")
    }

    /// Writes a certificate and its key to files, and returns the files.
    pub fn files(&self, signed: &Signed) -> [PathBuf; 2] {
        let name = unique();
        let texts = [signed.certificate.pem(), signed.key.serialize_pem()];
        let files = ["pem", "key"].map(|end| self.directory.join(format!("{name}.{end}")));
        for (file, text) in files.iter().zip(texts) {
            fs::write(file, text).unwrap();
        }
        files
    }
}

/// A certificate of X.509 version 1, which has no extensions, and its key.
pub const VERSION_1: &str = include_str!("../certificates/v1.pem");
/// A certificate with a key of P-521, and that key.
pub const P521: &str = include_str!("../certificates/p521.pem");

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns a name that is unique in this process, and among the processes that are alive.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the URL of a server with TLS.
pub fn tls_url(server: &Server) -> String {
    format!("rediss://127.0.0.1:{}", server.port())
}

/// Returns whether the server program has no TLS. If so, prints a line to stderr.
pub fn is_without_tls() -> bool {
    static IS_WITHOUT: OnceLock<bool> = OnceLock::new();
    // In a mix of versions, the port decides the version.
    let is_without = *IS_WITHOUT.get_or_init(|| (0..8).any(|port| !has_tls(port)));
    if is_without {
        skipped("the server program is built without TLS");
    }
    is_without
}

/// Returns whether the server program asks for a certificate. The program ends at once, because it
/// gets none. The settings do not tell: a program without TLS may have the settings of TLS.
fn has_tls(port: u16) -> bool {
    let port = port.to_string();
    let options = ["--port", &port, "--tls-port", "1"];
    let output = Command::new(binary()).args(options).output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains("tls-cert-file")
}
