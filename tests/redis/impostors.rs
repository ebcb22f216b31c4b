//! Addresses without a usable master. The server there is silent, sends other data, hangs up at
//! once, or is a replica.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use quorlock::{AcquireError, Coordinator, Lock};

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

#[test]
fn a_master_that_never_answers_costs_nothing() {
    with_masters(2, async |masters| {
        let (keep, _kept) = std::sync::mpsc::channel();
        let silent = impostor(move |stream| drop(keep.send(stream)));
        assert_costs_nothing(&masters, silent, "no connection in 200ms").await;
    });
}

/// Nothing was ever sent to this master, so it has no pending release.
#[test]
fn close_does_not_wait_for_a_master_that_never_answered() {
    with_masters(2, async |masters| {
        let (keep, _kept) = std::sync::mpsc::channel();
        let silent = impostor(move |stream| drop(keep.send(stream)));
        let locks = brisk()
            .masters(urls(&masters))
            .master(silent)
            .build()
            .unwrap();
        lock_once(&locks).await;
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_server_that_speaks_http_costs_nothing() {
    with_masters(2, async |masters| {
        let http = impostor(|mut stream| {
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        });
        assert_costs_nothing(&masters, http, "is this a Redis server?").await;
    });
}

#[test]
fn a_server_that_hangs_up_at_once_costs_nothing() {
    with_masters(2, async |masters| {
        // The server reads nothing, so the client may see a reset or an end of the stream.
        let rude = impostor(drop);
        assert_costs_nothing(&masters, rude, "127.0.0.1").await;
    });
}

#[test]
fn a_server_that_sends_without_end_costs_nothing() {
    with_masters(2, async |masters| {
        let talker = impostor(|mut stream| {
            let _ = stream.write_all(b"$9999999\r\n");
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        });
        assert_costs_nothing(&masters, talker, "a reply without end").await;
    });
}

#[test]
fn an_attempt_waits_for_a_majority_of_impostors_no_longer_than_the_connect_timeout() {
    with_masters(1, async |masters| {
        let (keep, _kept) = std::sync::mpsc::channel();
        let silent = [(); 2].map(|()| {
            let keep = keep.clone();
            impostor(move |stream| drop(keep.send(stream)))
        });
        let locks = Coordinator::builder()
            .quarantine(quorlock::Quarantine::Off)
            .node_timeout(Duration::from_millis(100))
            .connect_timeout(Duration::from_millis(500))
            .masters(urls(&masters))
            .masters(silent)
            .build()
            .unwrap();
        let start = Instant::now();
        let refused = locks.mutex("r").try_acquire().await.unwrap_err();
        assert!(
            matches!(&refused, AcquireError::NoQuorum { .. }),
            "{refused}"
        );
        assert!(
            refused
                .to_string()
                .contains("no connection in 500ms: waiting for 127.0.0.1:"),
            "{refused}"
        );
        assert!(start.elapsed() < Duration::from_secs(5));
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_replica_has_no_vote() {
    with_masters(3, async |masters| {
        let port = masters[0].port().to_string();
        assert_eq!(masters[2].command(&["REPLICAOF", "127.0.0.1", &port]), "OK");
        let locks = coordinator(patient(), &masters);
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        let votes = guard.settled().await;
        assert_eq!(votes.granted_count(), 2);
        assert!(is_unreachable(&votes, 2), "{votes}");
        assert!(votes.to_string().contains("not a master"), "{votes}");
        guard.release().await.unwrap();
        locks.close().await;
    });
}

#[test]
fn a_master_that_becomes_a_replica_loses_its_vote_and_gets_it_back() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let lock = locks.mutex("r");
        acquire_on_all(&lock).await.release().await.unwrap();

        let port = masters[0].port().to_string();
        assert_eq!(masters[2].command(&["REPLICAOF", "127.0.0.1", &port]), "OK");
        let guard = lock.acquire_within(TEST_TIMEOUT).await.unwrap();
        let votes = guard.settled().await;
        assert_eq!(
            (votes.granted_count(), votes.failed_count()),
            (2, 1),
            "{votes}"
        );
        assert!(
            is_rejected(&votes, 2, "READONLY") || is_unreachable(&votes, 2),
            "{votes}"
        );
        guard.release().await.unwrap();

        assert_eq!(masters[2].command(&["REPLICAOF", "NO", "ONE"]), "OK");
        until_votes(&lock, "three votes", |votes| votes.granted_count() == 3).await;
        locks.close().await;
        assert_no_keys(&masters);
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
