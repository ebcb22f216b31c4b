//! Streams that the program opens, and connections for the program's own questions.

use std::{
    env, fs,
    future::pending,
    io::{self, Write as _},
    os::unix::net::UnixListener,
    process,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use quorlock::{
    Coordinator, MasterSpec,
    tools::{ConnectError, ConnectStep, MasterStream},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::TcpStream,
    task::yield_now,
    time::timeout,
};

use crate::common::*;

/// The name of a host that only the tunnel knows.
const URL: &str = "redis://db-1.internal:6379/3";

#[test]
fn a_lock_is_held_over_given_streams() {
    with_masters(1, async |mut masters| {
        let (opened, port) = (Arc::new(AtomicUsize::new(0)), masters[0].port());
        let counted = opened.clone();
        let spec = MasterSpec::with_connector(URL, move || {
            counted.fetch_add(1, Ordering::Relaxed);
            TcpStream::connect(("127.0.0.1", port))
        });
        assert_eq!(&*spec.address().unwrap(), "db-1.internal:6379");
        let locks = patient().master(spec).build().unwrap();
        let guard = locks.mutex("r").acquire().await.unwrap();
        assert_eq!(masters[0].command(&["DBSIZE"]), "0");
        assert_eq!(
            masters[0]
                .command(&["INFO", "keyspace"])
                .matches("db3")
                .count(),
            1
        );
        guard.release().await.unwrap();
        masters[0].restart();
        until("another stream", async || {
            (opened.load(Ordering::Relaxed) > 1).then_some(())
        })
        .await;
        locks.close().await;
    });
}

#[test]
fn an_error_names_the_step_of_a_dial_over_a_given_stream() {
    run(async {
        let limit = millis(100);
        let (refused, silent) = (MasterSpec::with_connector(URL, refuse), connecting());
        let mute = MasterSpec::with_connector(URL, async || Ok(mute()));
        for (spec, expected) in [
            (refused, "connecting to db-1.internal:6379: no route"),
            (
                silent,
                "no connection in 100ms: connecting to db-1.internal:6379",
            ),
            (
                mute,
                "no connection in 100ms: waiting for db-1.internal:6379 to answer the first commands",
            ),
        ] {
            let error = spec.connect("check", limit).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
            let locks = brisk().connect_timeout(limit).master(spec).build().unwrap();
            let error = locks
                .ready_within(Duration::from_secs(1))
                .await
                .unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    });
}

/// The runtime often learns of the answer only after the write has failed.
#[test]
fn the_reason_of_a_server_that_closes_a_unix_socket_at_once_is_told() {
    run(async {
        let path = env::temp_dir().join(format!("quorlock-{}-full.sock", process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let reason = b"-ERR max number of clients reached\r\n";
                stream.unwrap().write_all(reason).unwrap();
            }
        });
        let spec = MasterSpec::from(format!("unix://{}", path.display()));
        for _ in 0..200 {
            let error = spec.connect("check", Duration::from_secs(5)).await;
            let error = error.unwrap_err();
            assert!(matches!(error, ConnectError::Busy(_)), "{error}");
        }
        fs::remove_file(path).unwrap();
    });
}

async fn refuse() -> io::Result<TcpStream> {
    Err(io::Error::other("no route"))
}

fn connecting() -> MasterSpec {
    MasterSpec::with_connector(URL, pending::<io::Result<TcpStream>>)
}

/// Returns a stream on which nobody answers.
fn mute() -> DuplexStream {
    let (ours, theirs) = duplex(64);
    tokio::spawn(async move {
        pending::<()>().await;
        drop(theirs);
    });
    ours
}

#[test]
fn a_url_that_says_how_to_connect_is_refused_with_a_given_stream() {
    for (url, reason) in [
        ("redis://a:x", "the port in its URL is not a number"),
        ("rediss://a", "the streams to it are given"),
        ("redis+sentinel://a/s", "the streams to it are given"),
        ("http://a", "the streams to it are given"),
    ] {
        let error = Coordinator::new([MasterSpec::with_connector(url, refuse)]).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn a_connection_for_questions_is_logged_in_and_leaves_no_trace() {
    with_masters(1, async |masters| {
        let (master, limit) = (&masters[0], Duration::from_secs(5));
        let added = master.command(&["ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all"]);
        assert_eq!(added, "OK");
        let spec = MasterSpec::from(master.url()).login("ann", "pw");
        let mut stream = spec.connect("who-asks", limit).await.unwrap();
        let clients = ask(&mut stream, "*2\r\n$6\r\nCLIENT\r\n$4\r\nINFO\r\n").await;
        assert!(clients.starts_with('='), "not RESP3: {clients}");
        for part in [" name=who-asks ", " db=0 ", " user=ann "] {
            assert!(clients.contains(part), "{part}: {clients}");
        }
        assert_eq!(ask(&mut stream, "*1\r\n$6\r\nDBSIZE\r\n").await, ":0\r\n");

        let wrong = MasterSpec::from(master.url()).login("ann", "no");
        let error = wrong.connect("who-asks", limit).await.unwrap_err();
        assert!(matches!(error, ConnectError::Login(_)), "{error}");
        let down = Server::reserve();
        let closed = MasterSpec::from(down.url());
        let error = closed.connect("who-asks", limit).await.unwrap_err();
        let ConnectError::Failed(ConnectStep::Connect(_), error) = error else {
            panic!("{error}");
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

async fn ask(stream: &mut MasterStream, command: &str) -> String {
    stream.write_all(command.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4_096];
    let read = timeout(Duration::from_secs(5), stream.read(&mut answer));
    let length = read.await.expect("an answer").unwrap();
    answer.truncate(length);
    String::from_utf8(answer).unwrap()
}

/// A server may push something just after it has answered the greeting.
#[test]
fn bytes_that_come_with_the_greeting_are_read_first() {
    const PUSH: &[u8] = b">2\r\n+invalidate\r\n_\r\n";
    run(async {
        let spec = MasterSpec::with_connector(URL, async || {
            let (ours, mut theirs) = duplex(4_096);
            tokio::spawn(async move {
                let mut greeting = vec![0; 4_096];
                while theirs.read(&mut greeting).await? > 0 {
                    yield_now().await;
                    // HELLO, SELECT, two for tracking, two for the release of mutexes, the name.
                    let answers =
                        b"%1\r\n+role\r\n+master\r\n+OK\r\n+OK\r\n+OK\r\n-ERR\r\n-ERR\r\n+OK\r\n";
                    theirs.write_all(&[answers, PUSH, b"+PO"].concat()).await?;
                    theirs.write_all(b"NG\r\n").await?;
                }
                io::Result::Ok(())
            });
            Ok(ours)
        });
        let mut stream = spec.connect("check", Duration::from_secs(5)).await.unwrap();
        let mut read = vec![0; PUSH.len() + 7];
        stream.read_exact(&mut read[..3]).await.unwrap();
        stream.read_exact(&mut read[3..]).await.unwrap();
        assert_eq!(read, [PUSH, b"+PONG\r\n"].concat());
    });
}
