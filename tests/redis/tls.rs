//! TLS: servers with certificates, clients with and without them, and peers that speak no TLS.

use std::{
    io::Read,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use quorlock::{
    Builder, ConfigError, Coordinator, MasterSpec, Quarantine, Renewal,
    rustls::{
        ClientConfig, ConfigBuilder, RootCertStore, client::WantsClientCert, crypto::ring,
        pki_types::PrivatePkcs8KeyDer,
    },
    tools::DialRefusal,
};
use quorlock_check::check;
use testkit::certificates::{Authority, P521, Signed, VERSION_1, is_without_tls, tls_url};

use crate::{
    check::{found, shared},
    common::*,
    idle::{SILENCE, close_connections, local_runtime},
    impostors::impostor,
};

const HOST: &str = "127.0.0.1";

/// Returns the settings of a client that trusts this authority.
pub(crate) fn trusting(authority: &Authority) -> ClientConfig {
    trusting_all([authority]).with_no_client_auth()
}

/// Returns the settings of a client that trusts this authority and has a certificate.
fn trusting_with(authority: &Authority, own: &Signed) -> ClientConfig {
    let key = PrivatePkcs8KeyDer::from(own.key.serialize_der());
    let chain = vec![own.certificate.der().clone()];
    let settings = trusting_all([authority]).with_client_auth_cert(chain, key.into());
    settings.unwrap()
}

/// Returns the settings of a client that trusts all of `authorities`.
fn trusting_all<'a>(
    authorities: impl IntoIterator<Item = &'a Authority>,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.issuer.der().clone()).unwrap();
    }
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
}

/// Runs `test` with an authority. Skips the test if no server with TLS can be started.
fn with_authority(test: impl AsyncFnOnce(Authority)) {
    if !server::only_urls() && !is_without_tls() {
        run(test(Authority::new()));
    }
}

fn three(authority: &Authority, certificate: &Signed, clients: &str) -> Vec<Server> {
    let start = |_| authority.server(certificate, clients, &[]);
    (0..3).map(start).collect()
}

fn locks(builder: Builder, masters: &[Server]) -> Coordinator {
    builder
        .masters(masters.iter().map(tls_url))
        .build()
        .unwrap()
}

/// Returns a builder for locks with a short TTL.
fn renewing() -> Builder {
    patient().response_timeout(millis(400))
}

/// Waits until the coordinator knows that each master refuses a certificate, or is refused for its
/// own.
async fn until_refused(locks: &Coordinator) {
    until("every dial fails because of a certificate", async || {
        let mut health = locks.health().into_iter();
        health
            .all(|master| master.refusal == Some(DialRefusal::Certificate))
            .then_some(())
    })
    .await;
}

/// Checks that errors and the report of a check have this text.
async fn assert_explained(locks: &Coordinator, master: MasterSpec, expected: &str) {
    let said = refusal(locks).await;
    assert!(said.contains(expected), "{said}");
    assert_found(&[master], expected).await;
}

/// Checks that the report of a check has this text.
async fn assert_found(masters: &[MasterSpec], expected: &str) {
    let mut shared = shared(Quarantine::Off);
    shared.connect_timeout = millis(500);
    let report = check(masters, &[], &shared).await.unwrap().to_string();
    assert!(report.contains(expected), "{report}");
}

/// Checks that every kind of lock is acquired, renewed, waited for and released.
async fn assert_locks_work(locks: &Coordinator, masters: &[Server]) {
    let (mine, yours) = (locks.new_owner(), locks.new_owner());
    for kind in KINDS {
        let name = format!("{kind:?}");
        let lock = locks.of_kind(kind, &name, &mine).ttl(millis(1_500));
        let held = acquire_on_all(&lock.renewal(Renewal::UpTo(LONG))).await;
        let first = held.valid_until();
        let next = locks.of_kind(kind, &name, &yours);
        let waits = tokio::spawn(async move { next.acquire_within(TEST_TIMEOUT).await });
        until("a renewal", async || {
            (held.valid_until() > first).then_some(())
        })
        .await;
        held.release().await.unwrap();
        waits.await.unwrap().unwrap().release().await.unwrap();
    }
    until_released(masters, "Mutex").await;
}

/// The runtime does not run while the servers close its connections. A message of TLS comes before
/// the end of the stream.
#[test]
fn the_first_call_after_closed_connections_succeeds() {
    if server::only_urls() || is_without_tls() {
        return;
    }
    let authority = Authority::new();
    let masters = three(&authority, &authority.sign(HOST), "no");
    let runtime = local_runtime();
    let locks = runtime.block_on(async {
        let locks = locks(renewing().tls(trusting(&authority)), &masters);
        let guard = acquire_on_all(&locks.mutex("r")).await;
        guard.release().await.unwrap();
        locks
    });
    thread::sleep(SILENCE);
    close_connections(&masters);
    let acquired = runtime.block_on(locks.mutex("r").try_acquire());
    runtime.block_on(async { drop(acquired.unwrap()) });
}

#[test]
fn servers_that_want_a_certificate_of_the_client_get_it() {
    with_authority(async |authority| {
        let masters = three(&authority, &authority.sign(HOST), "yes");
        let own = authority.sign("client");
        let locks = locks(renewing().tls(trusting_with(&authority, &own)), &masters);
        assert_locks_work(&locks, &masters).await;
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_client_without_its_certificate_is_told_so() {
    with_authority(async |authority| {
        let masters = three(&authority, &authority.sign(HOST), "yes");
        let without = locks(patient().tls(trusting(&authority)), &masters);
        let said = refusal(&without).await;
        for master in &masters {
            let expected = format!(
                "127.0.0.1:{} unreachable: the server refused TLS (CertificateRequired): give the \
                 client a certificate with cert_file and key_file or Builder::tls",
                master.port()
            );
            assert!(said.contains(&expected), "{said}");
        }
        until_refused(&without).await;

        let stranger = Authority::new().sign("client");
        let wrong = locks(
            patient().tls(trusting_with(&authority, &stranger)),
            &masters,
        );
        let said = refusal(&wrong).await;
        let expected = "it does not accept the client's certificate in cert_file or Builder::tls";
        assert_eq!(said.matches(expected).count(), 3, "{said}");
        until_refused(&wrong).await;
    });
}

#[test]
fn a_certificate_that_is_refused_is_explained() {
    with_authority(async |authority| {
        let strangers = Authority::new();
        for (certificate, trusted, expected) in [
            (
                authority.sign(HOST),
                &strangers,
                "refused: the authority that signed it is not in ca_file or Builder::tls; add that \
                 authority, or if it is there, the server's file lacks an intermediate certificate",
            ),
            (
                authority.sign("redis.example.com"),
                &authority,
                "use a host that it names in the URL",
            ),
            (
                authority.sign_expired(HOST),
                &authority,
                "renew it, or look at the clock of this machine",
            ),
        ] {
            let masters = [authority.server(&certificate, "no", &[])];
            let locks = locks(patient().tls(trusting(trusted)), &masters);
            let said = refusal(&locks).await;
            println!("{said}");
            let master = format!(
                "{HOST}:{} unreachable: its certificate is",
                masters[0].port()
            );
            assert!(said.contains(&master) && said.contains(expected), "{said}");
            until_refused(&locks).await;
            let spec = MasterSpec::from(tls_url(&masters[0])).tls(trusting(trusted));
            assert_found(&[spec], expected).await;
        }
    });
}

#[test]
fn a_server_with_unusual_tls_is_explained() {
    with_authority(async |authority| {
        let old = [authority.server(&authority.sign(HOST), "no", &["--tls-protocols", "TLSv1.1"])];
        for (masters, expected) in [
            (
                [authority.server_of(VERSION_1, &[])],
                "the server needs one of X.509 version 3, which `openssl x509 -req` makes with -extfile",
            ),
            (
                [authority.server_of(P521, &[])],
                "or a certificate whose key is not of P-521",
            ),
            (
                old,
                "the server has only TLS 1.1 or older: allow TLS 1.2 or 1.3 (tls-protocols)",
            ),
        ] {
            let said = refusal(&locks(patient().tls(trusting(&authority)), &masters)).await;
            assert!(said.contains(expected), "{said}");
        }
    });
}

/// No test changes the certificates of the system. It is sure not to trust this authority.
#[test]
fn without_settings_the_authority_of_the_system_counts() {
    with_authority(async |authority| {
        let masters = [authority.server(&authority.sign(HOST), "no", &[])];
        let said = refusal(&locks(patient(), &masters)).await;
        let is_explained = said.contains("nothing that is trusted has signed it: ")
            || said.contains("the system has no trusted certificates");
        assert!(is_explained, "{said}");
    });
}

#[test]
fn a_plain_url_of_a_port_with_tls_is_explained() {
    with_authority(async |authority| {
        let masters = [authority.server(&authority.sign(HOST), "no", &[])];
        let locks = patient().masters(urls(&masters)).build().unwrap();
        let master = MasterSpec::from(masters[0].url());
        assert_explained(&locks, master, "if this port expects TLS, use rediss://").await;
    });
}

#[test]
fn a_tls_url_of_a_plain_port_is_explained() {
    with_masters(1, async |masters| {
        let brisk = brisk().connect_timeout(millis(500)).tls(nothing_trusted());
        let locks = locks(brisk, &masters);
        let master = MasterSpec::from(tls_url(&masters[0])).tls(nothing_trusted());
        assert_explained(&locks, master, "if this port expects no TLS, use redis://").await;
    });
}

#[test]
fn a_server_that_never_answers_the_handshake_delays_no_call() {
    with_authority(async |authority| {
        let mut masters = three(&authority, &authority.sign(HOST), "no");
        masters.pop();
        let (keep, _kept) = std::sync::mpsc::channel();
        let silent = impostor(move |stream| drop(keep.send(stream)));
        let builder = patient().connect_timeout(millis(300));
        let locks = builder
            .tls(trusting(&authority))
            .masters(masters.iter().map(tls_url))
            .master(silent.replace("redis", "rediss"))
            .build()
            .unwrap();
        let start = Instant::now();
        let lock = locks.mutex("r");
        lock.try_acquire().await.unwrap().release().await.unwrap();
        let expected = "no connection in 300ms: waiting for 127.0.0.1:";
        until_votes(&lock, expected, |votes| {
            votes.to_string().contains(expected)
        })
        .await;
        assert!(start.elapsed() < Duration::from_secs(4));
        close_at_once(&locks).await;
    });
}

/// The answer to the handshake looks like the answer of a plain Redis server, or ends.
#[test]
fn a_server_that_answers_no_tls_is_explained() {
    with_masters(0, async |_| {
        let never = Some(DialRefusal::Tls);
        for (answer, refusal_kind) in [(&b"-ERR unknown command\r\n"[..], never), (b"", None)] {
            let plain = impostor(move |mut stream| {
                let _ = stream.read(&mut [0; 1024]);
                let _ = std::io::Write::write_all(&mut stream, answer);
            });
            let url = plain.replace("redis", "rediss");
            let locks = patient()
                .tls(nothing_trusted())
                .master(url)
                .build()
                .unwrap();
            let said = refusal(&locks).await;
            println!("{said}");
            let expected = "if this port expects no TLS, use redis://";
            assert!(said.contains(expected), "{said}");
            assert_eq!(locks.health()[0].refusal, refusal_kind);
        }
    });
}

#[test]
fn a_check_finds_nothing_wrong_with_tls() {
    with_authority(async |authority| {
        let masters = three(&authority, &authority.sign(HOST), "no");
        let encrypted = masters.iter().map(tls_url).map(MasterSpec::from);
        let encrypted: Vec<_> = encrypted.map(|one| one.tls(trusting(&authority))).collect();
        let sockets = masters.iter().map(Server::unix_url).map(MasterSpec::from);
        let sockets: Vec<_> = sockets.collect();
        let shared = shared(Quarantine::Off);
        let with_tls = check(&encrypted, &[], &shared).await.unwrap();
        let without = check(&sockets, &[], &shared).await.unwrap();
        assert_eq!(found(&with_tls), found(&without), "{with_tls}\n{without}");
    });
}

#[test]
fn tls_that_verifies_nothing_is_refused_before_anything_is_sent() {
    with_masters(0, async |_| {
        let refused = Coordinator::new(["rediss://127.0.0.1:1/#insecure"]).unwrap_err();
        let ConfigError::BadMaster { master: 1, reason } = &refused else {
            panic!("{refused}");
        };
        assert!(reason.contains("(#insecure) is not supported"), "{refused}");
    });
}

/// Returns settings with which no server is trusted.
fn nothing_trusted() -> ClientConfig {
    trusting_all([]).with_no_client_auth()
}

/// Otherwise all connections would be plain.
#[tokio::test]
async fn a_configuration_that_no_master_uses_is_refused() {
    let builder = patient().tls(nothing_trusted());
    let refused = builder.master("redis://127.0.0.1:1").build();
    assert_eq!(refused.unwrap_err(), ConfigError::UnusedTls);
}
