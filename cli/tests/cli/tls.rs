//! Masters with TLS: certificates of a private authority, with and without those of the client.

use std::{fs, path::PathBuf, process::Command};

use testkit::{
    certificates::{Authority, P521, Signed, VERSION_1, is_without_tls, tls_url},
    server::Server,
};

use crate::support::{Running, assert_free, configure, ended, run, with};

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
        configure(self.servers[0].directory(), &urls, more)
    }

    /// Returns the program with a configuration like that of [`file`](Self::file).
    fn quorlock(&self, more: &str, words: &str) -> Command {
        let words = format!("--config {} {words}", self.file(more).display());
        let mut command = with(&[], &words);
        command
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
        let quorlock = |words| self.quorlock(more, words);
        ended(&mut quorlock("run a -- printenv QUORLOCK_LOCK"))
            .gives(0, "a\n")
            .in_lines(0);
        assert_free(&self.servers, "a");

        let holder = Running::held(&mut quorlock("hold a"));
        let status = ended(&mut quorlock("status a")).is(75).in_lines(0);
        status.begins("a  held as a mutex by ");
        holder.terminated().is(0);
        let doctor = ended(&mut quorlock("doctor")).is(0).in_lines(0);
        doctor
            .shows("those of the profile \"cron\" in ")
            .shows("3 masters; ");
    }

    /// Checks that no command works, and that all give `advice`.
    fn refuse(&self, more: &str, advice: &str) {
        // A program that waits for the masters would wait forever.
        for words in ["run -n a -- echo ran", "run a -- echo ran", "hold a"] {
            ended(&mut self.quorlock(more, words))
                .gives(78, "")
                .first_says("quorlock: cannot lock \"a\": 127.0.0.1:")
                .says(advice)
                .in_lines(1);
        }
        let status = ended(&mut self.quorlock(more, "status --json a")).is(78);
        // Two votes decide. The third may come later.
        assert!(
            status.out.matches(advice).count() >= 2,
            "{advice}: {status}"
        );
        ended(&mut self.quorlock(more, "doctor"))
            .is(3)
            .tells(advice)
            .tells("no connection to it works")
            .hides("Builder"); // words of the library
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
        command.env("QUORLOCK_MASTERS", urls.join(","));
        ended(command.env("SSL_CERT_FILE", masters.authority.file())).is(0);
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
    let advice = format!("the authority that signed it is not in {file}; add that authority, or ");
    masters.refuse(&masters.trusts(&stranger), &advice);
    // A certificate of a server is no authority.
    let [own, _] = stranger.files(&stranger.sign("127.0.0.1"));
    let advice = format!("the authority that signed it is not in {}; ", own.display());
    masters.refuse(&format!("ca_file = {own:?}"), &advice);
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
        let mut ended = ended(command.env("QUORLOCK_PASSWORD", password)).is(code);
        for secret in &secrets {
            ended = ended.hides(secret).omits(secret);
        }
    }
}

#[test]
fn files_that_cannot_be_used_are_a_wrong_configuration() {
    let Some(masters) = Masters::start("no", &[]) else {
        return;
    };
    let authority = &masters.authority;
    let path = |path: PathBuf| path.display().to_string();
    let own = || authority.files(&authority.sign("client")).map(path);
    let ([cert, key], [_, other]) = (own(), own());
    let (cert, key) = (&*cert, &*key);
    let write = |text: &str| path(authority.write(text));
    let trusted = authority.file();
    let marked = format!("\u{feff}{}", fs::read_to_string(&trusted).unwrap());
    let (ca, empty, marked) = (&*path(trusted), &*write(""), &*write(&marked));
    let (version_1, p521) = (&*write(VERSION_1), &*write(P521));
    for (files, expected) in [
        (["no.pem", "", ""], "no.pem cannot be read: No such file"),
        ([empty, "", ""], "has no certificate in PEM form"),
        ([key, "", ""], "has no certificate in PEM form"),
        (["", cert, key], "a cert_file needs a ca_file"),
        ([ca, cert, ""], "a cert_file needs a key_file"),
        ([ca, "", key], "a key_file needs a cert_file"),
        (
            [ca, cert, cert],
            "has no private key without a passphrase in PEM form",
        ),
        ([ca, cert, &other], "cannot be used together: "),
        (
            [marked, "", ""],
            "begins with a byte order mark, as some editors write it: remove it",
        ),
        (
            [ca, version_1, version_1],
            "it must be of X.509 version 3, which `openssl x509 -req` makes with -extfile",
        ),
        (
            [ca, p521, p521],
            "the key must be of RSA, P-256, P-384 or Ed25519",
        ),
    ] {
        let lines = ["ca_file", "cert_file", "key_file"].into_iter().zip(files);
        let lines = lines.filter(|(_, file)| !file.is_empty());
        let lines: String = lines
            .map(|(name, file)| format!("{name} = {file:?}\n"))
            .collect();
        let ended = ended(&mut masters.quorlock(&lines, "run a -- echo ran"));
        ended.gives(78, "").says(expected).in_lines(1);
    }

    // The connections would not be those that the files are for.
    let plain = masters.file(&masters.trusts(authority));
    let text = fs::read_to_string(&plain).unwrap();
    fs::write(&plain, text.replace("rediss:", "redis:")).unwrap();
    run(&[], &format!("run --config {} a -- true", plain.display()))
        .is(78)
        .says("a ca_file needs a master with TLS: write rediss://");
}
