//! Addresses without a usable master. The server there sends other data, hangs up at once, or lacks
//! scripts.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use quorlock::{DialRefusal, Lock, MasterState};

use crate::{
    check::{check_for, shared},
    common::*,
};

/// Listens on a port of its own and passes each connection to `serve`. Returns the URL.
///
/// The thread waits for connections until the process ends.
pub(crate) fn impostor(serve: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().flatten().for_each(serve));
    format!("redis://127.0.0.1:{port}")
}

/// Checks that locks work with two good masters and one impostor, and that no call waits for the
/// impostor.
async fn assert_costs_nothing(masters: &[Server], impostor: String, reason: &str) {
    let locks = brisk()
        .node_timeout(Duration::from_secs(2))
        .masters(urls(masters))
        .master(impostor)
        .build()
        .unwrap();
    let lock = locks.mutex("r");
    let start = Instant::now();
    cycles(&lock).await;
    assert!(start.elapsed() < Duration::from_secs(2));

    let votes = until_votes(&lock, reason, |votes| votes.to_string().contains(reason)).await;
    assert!(is_unreachable(&votes, 2));
    let start = Instant::now();
    cycles(&lock).await;
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(votes.granted_count(), 2);
}

async fn cycles(lock: &Lock) {
    for _ in 0..10 {
        let guard = lock.try_acquire().await.unwrap();
        guard.extend(LONG).await.unwrap();
        guard.release().await.unwrap();
    }
}

/// Each impostor, and a part of the reason that its vote shows.
#[test]
fn a_server_that_is_no_master_costs_nothing() {
    with_masters(2, async |masters| {
        let http = impostor(|mut stream| {
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        });
        // The server reads nothing, so the client may see a reset or an end of the stream.
        let rude = impostor(drop);
        let talker = impostor(|mut stream| {
            let _ = stream.write_all(b"$9999999\r\n");
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        });
        for (url, reason) in [
            (http, "is this a Redis server?"),
            (rude, "127.0.0.1"),
            (talker, "a reply without end"),
        ] {
            assert_costs_nothing(&masters, url, reason).await;
        }
    });
}

/// Each answer to the login, and what the health says of it.
#[test]
fn health_says_which_servers_can_never_be_masters() {
    let login = Some(DialRefusal::Login);
    let other = Some(DialRefusal::OtherServer);
    with_masters(0, async |_| {
        for (answer, expected) in [
            ("-upstream failure\r\n", None),
            ("-ERR Connection timed out\r\n", None),
            ("-BUSY Redis is busy running a script\r\n", None),
            ("-CLUSTERDOWN The cluster is down\r\n", None),
            ("-LOADING Redis is loading the dataset in memory\r\n", None),
            ("%1\r\n+role\r\n+replica\r\n", None),
            ("-WRONGPASS invalid username-password pair\r\n", login),
            ("-NOPERM User x has no permissions\r\n", login),
            ("-DENIED Redis is running in protected mode\r\n", login),
            ("-ERR Client sent AUTH, but no password is set\r\n", login),
            ("-ERR unknown command 'HELLO'\r\n", other),
            ("-NOPROTO unsupported protocol version\r\n", other),
            ("%1\r\n+mode\r\n+sentinel\r\n", other),
            ("HTTP/1.1 400 Bad Request\r\n\r\n", other),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", None),
        ] {
            let url = impostor(move |mut stream| {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
                let _ = io::copy(&mut stream, &mut io::sink());
            });
            let locks = patient().master(url).build().unwrap();
            let health = until("a failed dial", async || {
                let health = locks.health().remove(0);
                matches!(health.state, MasterState::Down(_)).then_some(health)
            })
            .await;
            assert_eq!(health.refusal, expected, "{answer}: {health}");
        }
    });
}

/// Passes everything on to a server, until a command has the text of a script.
fn without_scripts(port: u16) -> String {
    impostor(move |mut client| {
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (mut answers, mut to_client) =
            (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut answers, &mut to_client));
        thread::spawn(move || {
            let mut bytes = [0; 1 << 16];
            while let Ok(count @ 1..) = client.read(&mut bytes) {
                let is_script = bytes[..count].windows(6).any(|part| part == b"\nEVAL\r");
                if is_script || server.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            io::copy(&mut client, &mut io::sink())
        });
    })
}

/// The text of the script of a check gets no reply.
#[test]
fn a_check_tells_that_an_answer_is_missing() {
    with_masters(1, async |masters| {
        let master = without_scripts(masters[0].port());
        let mut shared = shared(quorlock::Quarantine::Off);
        shared.node_timeout = Duration::from_millis(100);
        let report = check_for(&shared, &[master]).await.to_string();
        assert!(report.contains("no answer in"), "{report}");
    });
}
