//! Addresses without a usable master.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
};

use quorlock::{health::MasterState, tools::DialRefusal};

use crate::common::*;

/// Listens on a port of its own and passes each connection to `serve`. Returns the URL.
///
/// The thread waits for connections until the process ends.
pub(crate) fn impostor(serve: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().flatten().for_each(serve));
    format!("redis://127.0.0.1:{port}")
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
