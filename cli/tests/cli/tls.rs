//! Masters with TLS: certificates of a private authority, with and without those of the client.

use std::{fs, path::PathBuf, process::Command};

use nix::sys::signal::Signal;
use testkit::{
    certificates::{Authority, P521, Signed, VERSION_1, is_without_tls, tls_url},
    server::Server,
};

use crate::support::{Running, assert_free, ended, with};

/// Three masters that have no port without TLS.
struct Masters {
    authority: Authority,
    servers: Vec<Server>,
}

impl Masters {
    /// Starts them. `clients` says whether clients need certificates: `yes` or `no`. Returns `None`
    /// if the server program has no TLS.
    fn start(clients: &str, more: &[&str]) -> Option<Self> {
        if is_without_tls() {
            return None;
        }
        let authority = Authority::new();
        let own = authority.sign("127.0.0.1");
        let start = |_| authority.server(&own, clients, more);
        let servers = (0..3).map(start).collect();
        Some(Self { authority, servers })
    }

    /// Writes a configuration with these masters, and with `more` lines. Returns its path.
    fn file(&self, more: &str) -> PathBuf {
        let urls: Vec<_> = self.servers.iter().map(tls_url).collect();
        let text = format!("[set.locks]\nmasters = {urls:?}\n{more}\n");
        let path = self.servers[0].directory().join("quorlock.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// Returns the program with a configuration like that of [`file`](Self::file).
    fn quorlock(&self, more: &str, words: &str) -> Command {
        let words = format!("--config {} {words}", self.file(more).display());
        let mut command = with(&[], &words);
        command
            .env_remove("QUORLOCK_MASTERS")
            .env_remove("SSL_CERT_FILE")
            .env_remove("SSL_CERT_DIR");
        command
    }

    fn trusts(&self, authority: &Authority) -> String {
        format!("ca_file = {:?}", authority.file())
    }

    /// Returns the lines that trust the authority of the masters, and show `own` to them.
    fn shows(&self, own: &Signed) -> String {
        let [certificate, key] = self.authority.files(own);
        let trusted = self.trusts(&self.authority);
        format!("{trusted}\ncert_file = {certificate:?}\nkey_file = {key:?}")
    }

    /// Checks that the commands work, and that nothing is left.
    fn serve(&self, more: &str) {
        let (status, out, err) = ended(&mut self.quorlock(more, "run a -- printenv QUORLOCK_LOCK"));
        assert_eq!((status, &*out, &*err), (0, "a\n", ""));
        assert_free(&self.servers, "a");

        let mut holder = Running::start(&mut self.quorlock(more, "hold a"));
        assert!(holder.line().starts_with("held "));
        let (status, shown, err) = ended(&mut self.quorlock(more, "status a"));
        assert_eq!((status, &*err), (75, ""), "{shown}");
        assert!(shown.starts_with("a  held as a mutex by "), "{shown}");
        holder.signal(Signal::SIGTERM);
        assert_eq!(holder.ended().0.code(), Some(0));

        let (status, shown, err) = ended(&mut self.quorlock(more, "doctor"));
        assert_eq!((status, &*err), (0, ""), "{shown}");
        assert!(
            shown.contains("those of the set \"locks\" in ") && shown.contains("3 masters; "),
            "{shown}"
        );
    }

    /// Checks that no command works, and that all give `advice`.
    fn refuse(&self, more: &str, advice: &str) {
        // A program that waits for the masters would wait forever.
        for words in ["run -n a -- echo ran", "run a -- echo ran", "hold a"] {
            let (status, out, err) = ended(&mut self.quorlock(more, words));
            assert_eq!((status, &*out), (78, ""), "{words}: {err}");
            assert!(
                err.starts_with("quorlock: cannot lock \"a\": 127.0.0.1:"),
                "{err}"
            );
            assert!(err.contains(advice) && err.lines().count() == 1, "{err}");
        }
        let (status, shown, _) = ended(&mut self.quorlock(more, "status --json a"));
        assert_eq!(status, 78, "{shown}");
        // Two votes decide. The third may come later.
        assert!(shown.matches(advice).count() >= 2, "{advice}: {shown}");
        let (status, shown, _) = ended(&mut self.quorlock(more, "doctor"));
        assert_eq!(status, 3, "{shown}");
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for text in [advice, "no connection to it works"] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        assert!(!shown.contains("Builder"), "words of the library: {shown}");
    }
}

#[test]
fn an_authority_of_your_own_is_named_by_the_set() {
    let Some(masters) = Masters::start("no", &[]) else {
        return;
    };
    masters.serve(&masters.trusts(&masters.authority));

    // Next to the configuration, as a password file.
    let beside = masters.servers[0].directory().join("ca.pem");
    fs::copy(masters.authority.file(), beside).unwrap();
    masters.serve("ca_file = \"ca.pem\"");
}

#[test]
fn an_authority_of_your_own_is_named_by_the_environment() {
    let Some(masters) = Masters::start("no", &[]) else {
        return;
    };
    let urls: Vec<_> = masters.servers.iter().map(tls_url).collect();
    for words in ["run a -- true", "status a"] {
        let mut command = with(&[], words);
        command
            .env("QUORLOCK_MASTERS", urls.join(","))
            .env("SSL_CERT_FILE", masters.authority.file());
        assert_eq!(ended(&mut command).0, 0);
    }
}

#[test]
fn masters_that_want_a_certificate_of_the_client_get_it() {
    let Some(masters) = Masters::start("yes", &[]) else {
        return;
    };
    masters.serve(&masters.shows(&masters.authority.sign("client")));

    let without = masters.trusts(&masters.authority);
    let advice = "(CertificateRequired): give the client a certificate with cert_file and key_file";
    masters.refuse(&without, advice);
    let stranger = Authority::new();
    let foreign = masters.shows(&stranger.sign("client"));
    masters.refuse(
        &foreign,
        "it does not accept the client's certificate in cert_file",
    );
}

#[test]
fn an_authority_that_is_not_trusted_is_explained() {
    let Some(masters) = Masters::start("no", &[]) else {
        return;
    };
    let stranger = Authority::new();
    // The file that is in use.
    let file = stranger.file().display().to_string();
    let advice = format!("trust the authority that signed it, with {file}; if none is set, ");
    masters.refuse(&masters.trusts(&stranger), &advice);
}

#[test]
fn a_certificate_for_another_host_is_explained() {
    if is_without_tls() {
        return;
    }
    let authority = Authority::new();
    let other = authority.sign("redis.example.com");
    let start = |_| authority.server(&other, "no", &[]);
    let servers = (0..3).map(start).collect();
    let masters = Masters { authority, servers };
    let advice = "use a host that it names in the URL, or add the host to it";
    masters.refuse(&masters.trusts(&masters.authority), advice);
}

#[test]
fn a_master_with_another_certificate_is_a_failed_vote() {
    let Some(mut masters) = Masters::start("no", &[]) else {
        return;
    };
    let stranger = Authority::new();
    masters.servers[2] = stranger.server(&stranger.sign("127.0.0.1"), "no", &[]);
    let trusted = masters.trusts(&masters.authority);
    let (status, out, err) =
        ended(&mut masters.quorlock(&trusted, "run a -- printenv QUORLOCK_VOTES"));
    assert_eq!((status, &*out), (0, "2/3\n"), "{err}");
    let (status, shown, _) = ended(&mut masters.quorlock(&trusted, "status a"));
    assert_eq!(status, 0, "{shown}");
    assert_eq!(shown.matches("no answer: ").count(), 1, "{shown}");
    let (status, shown, _) = ended(&mut masters.quorlock(&trusted, "doctor"));
    assert_eq!(status, 3, "{shown}");
}

#[test]
fn no_secret_is_shown() {
    /// No other test has these: `ps` shows the servers that other tests start.
    const PASSWORD: &str = "tls-secret";
    const WRONG: &str = "tls-mistyped";
    let Some(masters) = Masters::start("yes", &["--requirepass", PASSWORD]) else {
        return;
    };
    let own = masters.authority.sign("client");
    let shows = masters.shows(&own);
    let key = own.key.serialize_pem();
    let secrets: Vec<_> = key
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .chain([PASSWORD, WRONG])
        .collect();
    let [_, key] = masters.authority.files(&own);
    let swapped = format!(
        "{}\ncert_file = {key:?}\nkey_file = {key:?}",
        masters.trusts(&masters.authority)
    );
    for (more, password, words, code) in [
        (&shows, PASSWORD, "run -v a -- ps axww -o args=", 0),
        (&shows, WRONG, "run -v -n a -- true", 78),
        (&shows, WRONG, "status a", 78),
        (&shows, WRONG, "doctor", 3),
        (&swapped, PASSWORD, "run -v -n a -- true", 78),
    ] {
        let mut command = masters.quorlock(more, words);
        let (status, out, err) = ended(command.env("QUORLOCK_PASSWORD", password));
        assert_eq!(status, code, "{words}: {err}");
        for secret in &secrets {
            assert!(!out.contains(secret) && !err.contains(secret), "{out}{err}");
        }
    }
}

#[test]
fn files_that_cannot_be_used_are_a_wrong_configuration() {
    let Some(masters) = Masters::start("no", &[]) else {
        return;
    };
    let authority = &masters.authority;
    let ca = masters.trusts(authority);
    let [certificate, key] = authority.files(&authority.sign("client"));
    let [_, other] = authority.files(&authority.sign("client"));
    let empty = authority.write("");
    let [version_1, p521] = [VERSION_1, P521].map(|pem| authority.write(pem));
    let marked = fs::read_to_string(authority.file()).unwrap();
    let marked = authority.write(&format!("\u{feff}{marked}"));
    for (more, expected) in [
        (
            "ca_file = \"missing.pem\"".to_owned(),
            "missing.pem cannot be read: No such file",
        ),
        (
            format!("ca_file = {empty:?}"),
            "has no certificate in PEM form",
        ),
        (
            format!("ca_file = {key:?}"),
            "has no certificate in PEM form",
        ),
        (
            format!("cert_file = {certificate:?}\nkey_file = {key:?}"),
            "a cert_file needs a ca_file",
        ),
        (
            format!("{ca}\ncert_file = {certificate:?}"),
            "a cert_file needs a key_file",
        ),
        (
            format!("{ca}\nkey_file = {key:?}"),
            "a key_file needs a cert_file",
        ),
        (
            format!("{ca}\ncert_file = {certificate:?}\nkey_file = {certificate:?}"),
            "has no private key without a passphrase in PEM form",
        ),
        (
            format!("{ca}\ncert_file = {certificate:?}\nkey_file = {other:?}"),
            "cannot be used together: ",
        ),
        (
            format!("ca_file = {marked:?}"),
            "begins with a byte order mark, as some editors write it: remove it",
        ),
        (
            format!("{ca}\ncert_file = {version_1:?}\nkey_file = {version_1:?}"),
            "it must be of X.509 version 3, which `openssl x509 -req` makes with -extfile",
        ),
        (
            format!("{ca}\ncert_file = {p521:?}\nkey_file = {p521:?}"),
            "the key must be of RSA, P-256, P-384 or Ed25519",
        ),
    ] {
        let (status, out, err) = ended(&mut masters.quorlock(&more, "run a -- echo ran"));
        assert_eq!((status, &*out), (78, ""), "{more}: {err}");
        assert!(
            err.contains(expected) && err.lines().count() == 1,
            "{expected}: {err}"
        );
    }

    // The connections would not be those that the files are for.
    let plain = masters.file(&ca);
    let text = fs::read_to_string(&plain).unwrap();
    fs::write(&plain, text.replace("rediss:", "redis:")).unwrap();
    let words = format!("run --config {} a -- true", plain.display());
    let (status, _, err) = ended(with(&[], &words).env_remove("QUORLOCK_MASTERS"));
    assert_eq!(status, 78, "{err}");
    let expected = "a ca_file needs a master with TLS: write rediss://";
    assert!(err.contains(expected), "{err}");
}
