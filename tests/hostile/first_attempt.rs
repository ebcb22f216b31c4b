//! A fresh process gets a free lock at its first attempt, however far away its masters are.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::mpsc,
    time::{Duration, Instant},
};

use quorlock::Coordinator;
use testkit::{
    hostile::{
        fake_server::Fake,
        first_attempt::{count_wins, far_away, first_attempt},
    },
    proxy::Proxy,
    server::{self, Server, skipped},
};
use tokio::{net::TcpSocket, time::timeout};

use crate::own_process::{current_thread, in_own_process, run};

#[test]
fn a_free_lock_is_won_at_the_first_attempt_however_far_the_masters_are() {
    if server::only_urls() {
        return;
    }
    in_own_process(|| {
        let masters = server::masters(5);
        for each_way in [0, 8, 20, 60] {
            let proxies = far_away(&masters, Duration::from_millis(each_way));
            let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
            run(async {
                let (won, why) = count_wins(&urls, ROUNDS).await;
                assert_eq!(won, ROUNDS, "{each_way} ms each way: {why}");
            });
        }
    });
}

/// Each attempt is made in a new process.
#[test]
fn a_fresh_process_gets_a_free_lock_at_the_first_attempt() {
    if server::only_urls() {
        return;
    }
    const URLS: &str = "QUORLOCK_HOSTILE_FIRST";
    if let Ok(urls) = std::env::var(URLS) {
        return current_thread().block_on(async {
            let builder = Coordinator::builder().masters(urls.split(','));
            first_attempt(builder, "a").await.unwrap();
        });
    }
    in_own_process(|| {
        let masters = server::masters(5);
        let proxies = far_away(&masters, Duration::from_millis(20));
        let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
        for _ in 0..ROUNDS {
            let process = std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "first_attempt::a_fresh_process_gets_a_free_lock_at_the_first_attempt",
                ])
                .arg("--nocapture")
                .env(URLS, urls.join(","))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&process.stderr);
            assert!(process.status.success(), "{said}");
        }
    });
}

#[test]
fn a_first_inspection_is_answered_by_distant_masters() {
    if server::only_urls() {
        return;
    }
    in_own_process(|| {
        let masters = server::masters(5);
        let proxies = far_away(&masters, Duration::from_millis(20));
        let coordinator = || {
            let urls = proxies.iter().map(Proxy::url);
            Coordinator::new(urls).unwrap()
        };
        run(async {
            for round in 0..ROUNDS {
                let name = format!("a{round}");
                assert!(!coordinator().mutex(&name).is_held().await.unwrap());
                let holder = coordinator();
                let guard = holder.mutex(&name).try_acquire().await.unwrap();
                assert!(
                    coordinator()
                        .mutex(&name)
                        .inspect()
                        .await
                        .unwrap()
                        .is_held()
                );
                guard.extend(Duration::from_secs(10)).await.unwrap();
            }
        });
    });
}

/// The master accepts connections and sends nothing.
#[test]
fn the_first_attempt_does_not_wait_for_a_silent_master() {
    in_own_process(|| {
        let (keep, _kept) = mpsc::channel();
        let silent = Fake::tcp(move |peer| {
            peer.swallow();
            let _ = keep.send(());
        });
        run(check_no_wait_for(silent.url()));
    });
}

/// Packets to this master are dropped, so no connection is ever made.
#[test]
fn the_first_attempt_does_not_wait_for_an_unreachable_master() {
    in_own_process(|| {
        run(async {
            let Some((port, _kept)) = full_listener().await.unwrap() else {
                skipped("this system does not drop packets to a full listener");
                return;
            };
            check_no_wait_for(format!("redis://127.0.0.1:{port}")).await;
        });
    });
}

/// Checks that no call waits for the fifth master, at `url`, while four masters answer. A call that
/// waits would take the whole connect timeout.
async fn check_no_wait_for(url: String) {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(4);
    let urls: Vec<_> = masters.iter().map(Server::url).chain([url]).collect();
    for round in 0..ROUNDS {
        let locks = Coordinator::builder()
            .masters(&urls)
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .unwrap();
        let lock = locks.mutex(format!("a{round}"));
        let start = Instant::now();
        let guard = timeout(CONNECT_TIMEOUT, lock.try_acquire()).await;
        let guard = guard
            .expect("the attempt waits for the silent master")
            .unwrap();
        println!("won after {:?}", start.elapsed());
        assert!(start.elapsed() < CONNECT_TIMEOUT / 2);
        let start = Instant::now();
        let _ = timeout(CONNECT_TIMEOUT / 2, guard.release())
            .await
            .expect("the release waits for the silent master");
        println!("released after {:?}", start.elapsed());
    }
}

/// Returns a port that accepts no more connections, and the sockets that keep it full. Returns
/// `None` if the system still accepts connections.
async fn full_listener() -> io::Result<Option<(u16, (tokio::net::TcpListener, Vec<TcpStream>))>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let listener = socket.listen(1)?;
    let address = listener.local_addr()?;
    let mut kept = Vec::new();
    while kept.len() < 16 {
        match TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
            Ok(stream) => kept.push(stream),
            Err(_) => return Ok(Some((address.port(), (listener, kept)))),
        }
    }
    Ok(None)
}

const ROUNDS: usize = 3;
/// This timeout is so long that the test notices a call that waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
