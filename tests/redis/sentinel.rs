//! Masters behind Sentinel: failovers, and Sentinels that are down, wrong or lie.

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use quorlock::{Coordinator, Quarantine, Renewal, health::MasterState};
use testkit::{
    captured_log::CapturedLog,
    sentinels::{Group, sentinel_url, watch},
};

use crate::{
    check::{check, check_for, shared},
    common::*,
    idle::local_runtime,
    impostors::impostor,
    quarantine::is_quarantined,
};

/// The longest TTL in these tests. A failover takes less time.
const TTL: Duration = Duration::from_secs(6);

/// Returns a coordinator whose locks last for at most `TTL`. Its last master is behind Sentinel.
fn behind(group: &Group, masters: &[Server]) -> Coordinator {
    patient()
        .quarantine(Quarantine::Observed)
        .response_timeout(Duration::from_secs(1))
        .connect_timeout(Duration::from_secs(2))
        .max_ttl(TTL)
        .ttl(TTL)
        .renewal(Renewal::Off)
        .masters(urls(masters))
        .master(group.url())
        .build()
        .unwrap()
}

fn refuses(url: &str) -> Coordinator {
    let builder = patient().connect_timeout(millis(500));
    builder.master(url).build().unwrap()
}

/// The holder has the lock on the first master and on the master behind Sentinel. The promoted
/// replica lacks the lock. So it and the second master could give the lock to someone else.
#[test]
fn a_failover_costs_a_quarantine_and_no_second_holder_gets_the_lock() {
    if server::is_mixed() {
        return;
    }
    with_masters(2, async |masters| {
        let mut group = Group::start(1);
        let [mine, yours] = [(); 2].map(|()| behind(&group, &masters));
        for locks in [&mine, &yours] {
            let warm = acquire_on_all(&locks.mutex("warm")).await;
            warm.release().await.unwrap();
        }
        let held = acquire_on_all(&mine.mutex("r")).await;
        masters[1].command(&["DEL", "r"]);
        let writable = ["CONFIG", "SET", "replica-read-only", "no"];
        group.replica.command(&writable);
        group.replica.command(&["DEL", "r"]);
        let killed = Instant::now();
        group.primary.kill();
        let next = yours.mutex("r");
        let next = tokio::spawn(async move {
            let next = next.acquire_within(TEST_TIMEOUT / 2).await.unwrap();
            (killed.elapsed(), next)
        });
        until("a promoted replica that is dialled", async || {
            let health = &mine.health()[2];
            let is_up = health.state == MasterState::Connected && health.failures > 0;
            (is_up && group.replica.command(&["ROLE"]).starts_with("master")).then_some(())
        })
        .await;
        let (promoted, end) = (killed.elapsed(), held.valid_until() - killed);
        assert!(
            promoted < end,
            "the failover took {promoted:?}: this shows nothing"
        );
        let (acquired, next) = next.await.unwrap();
        assert!(acquired >= end, "{acquired:?}, {end:?}");
        next.release().await.unwrap();
        yours.close().await;
        let votes = until_votes(&mine.mutex("other"), "three votes", |votes| {
            votes.granted_count() == 3
        })
        .await;
        assert!(killed.elapsed() > TTL, "{:?}", killed.elapsed());
        let name = format!("sentinel:svc@127.0.0.1:{}", group.sentinels[0].port());
        assert_eq!(row(&votes, 2).master, name);
        mine.close().await;
    });
}

/// After `SENTINEL FAILOVER`, the old master goes on as a master for about ten seconds.
#[test]
fn a_failover_by_command_is_noticed_while_the_old_master_goes_on() {
    if server::is_mixed() || server::only_urls() {
        return;
    }
    // The log has the reason. The new master may be connected before health events tell of it.
    let (said, _listening) = CapturedLog::listen();
    let masters = server::masters(2);
    local_runtime().block_on(async {
        let group = Group::start(3);
        let locks = behind(&group, &masters);
        let lock = locks.mutex("r");
        acquire_on_all(&lock).await.release().await.unwrap();
        until("a failover", async || {
            let said = group.sentinels[0].command(&["SENTINEL", "FAILOVER", "svc"]);
            (said == "OK").then_some(())
        })
        .await;
        until_votes(&lock, "a quarantine", |votes| is_quarantined(votes, 2)).await;
        let port = group.replica.port();
        let why = format!("the Sentinels now name 127.0.0.1:{port}, no longer");
        let lines = said.take();
        let is_told = lines.iter().any(|(_, line)| line.contains(&why));
        assert!(is_told, "{lines:#?}");
        until_votes(&lock, "three votes", |votes| votes.granted_count() == 3).await;
        assert_eq!(group.replica.command(&["EXISTS", "quorlock:origin"]), "1");
        locks.close().await;
    });
}

#[test]
fn a_check_names_the_service_and_warns_of_its_replica() {
    if server::is_mixed() {
        return;
    }
    with_masters(2, async |masters| {
        let group = Group::start(1);
        let locks = behind(&group, &masters);
        acquire_on_all(&locks.mutex("r"))
            .await
            .release()
            .await
            .unwrap();
        let report = check(&[group.url()]).await;
        let mut findings = report.findings.iter();
        let found = findings
            .find(|found| found.setting == "connected_slaves")
            .unwrap();
        let name = format!("sentinel:svc@127.0.0.1:{}", group.sentinels[0].port());
        assert_eq!(found.masters.join(" "), name, "{report}");
        locks.close().await;
    });
}

/// Redis asks clients to check the role, because a Sentinel may be behind.
#[test]
fn a_replica_that_a_sentinel_names_gets_no_vote() {
    with_masters(3, async |masters| {
        let port = masters[0].port().to_string();
        masters[1].command(&["REPLICAOF", "127.0.0.1", &port]);
        let named = names(masters[1].port());
        let said = refusal(&refuses(&url_of(&[named]))).await;
        let expected = format!(
            "at 127.0.0.1:{}, named by the Sentinels: it is a replica, not a master",
            masters[1].port()
        );
        assert!(said.contains(&expected), "{said}");
    });
}

#[test]
fn each_fault_of_sentinels_is_explained() {
    with_masters(1, async |masters| {
        let sentinel = watch(&masters[0], 1, "", &[]);
        let closed = watch(&masters[0], 1, "requirepass secret\n", &[]);
        let down = Server::reserve();
        let (keep, _kept) = std::sync::mpsc::channel();
        let silent = impostor(move |stream| drop(keep.send(stream)));
        let port = |url: &str| url.rsplit_once(':').unwrap().1.parse().unwrap();
        let good = sentinel.port();
        let hosts = |ports: &[u16]| url_of(ports);
        for (url, expected) in [
            (
                hosts(&[down.port()]),
                format!(
                    "sentinel:svc@127.0.0.1:{0} unreachable: 1 of 1 Sentinels must name the \
                     address of the master \"svc\": 127.0.0.1:{0}: connecting to 127.0.0.1:{0}: \
                     Connection refused",
                    down.port()
                ),
            ),
            (
                hosts(&[good]).replace("svc", "nope"),
                format!("127.0.0.1:{good}: knows no master \"nope\""),
            ),
            (
                hosts(&[masters[0].port()]),
                format!(
                    "127.0.0.1:{}: is not a Sentinel: ERR unknown command",
                    masters[0].port()
                ),
            ),
            (
                hosts(&[closed.port()]),
                format!(
                    "127.0.0.1:{}: NOAUTH Authentication required",
                    closed.port()
                ),
            ),
            (
                hosts(&[closed.port()]) + "?sentinel_password=hunter2",
                format!("127.0.0.1:{}: refused the login: WRONGPASS", closed.port()),
            ),
            (
                hosts(&[port(&silent)]),
                "no connection in 468.75ms: waiting for 127.0.0.1:".to_owned(),
            ),
            (
                hosts(&[answers(b"+OK\r\n")]),
                "its answer makes no sense".to_owned(),
            ),
            (
                hosts(&[answers(b"HTTP/1.1 400\r\n")]),
                "the answer is not RESP".to_owned(),
            ),
            (
                hosts(&[answers(b"*2\r\n$1\r\nh\r\n")]),
                "closed by the server".to_owned(),
            ),
            (
                hosts(&[answers(b"$9999999\r\n")]),
                "closed by the server".to_owned(),
            ),
            (hosts(&[talker()]), "a reply without end".to_owned()),
            (
                hosts(&[good, names(down.port()), down.port()]),
                format!("names 127.0.0.1:{}", down.port()),
            ),
            (
                hosts(&[names(down.port())]),
                format!("at 127.0.0.1:{}, named", down.port()),
            ),
        ] {
            let mut brief = shared(Quarantine::Off);
            brief.connect_timeout = millis(500);
            let locks = refuses(&url);
            let said = refusal(&locks).await;
            println!("{said}");
            assert!(said.contains(&expected), "{expected}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
            let report = check_for(&brief, &[&url]).await.to_string();
            let why = expected.rsplit("unreachable: ").next().unwrap();
            assert!(report.contains(why), "{why}: {report}");
            close_at_once(&locks).await;
        }
    });
}

#[test]
fn a_url_of_a_sentinel_without_its_scheme_is_explained() {
    with_masters(1, async |masters| {
        let sentinel = watch(&masters[0], 1, "", &[]);
        let said = refusal(&refuses(&sentinel.url())).await;
        let expected = "it is a Sentinel, not a master: use redis+sentinel://";
        assert!(said.contains(expected), "{said}");
    });
}

/// One Sentinel is silent, one names another address, and the majority is right.
#[test]
fn a_minority_of_sentinels_neither_delays_nor_misleads() {
    with_masters(2, async |masters| {
        let good = [(); 3].map(|()| watch(&masters[0], 1, "", &[]));
        let (keep, _kept) = std::sync::mpsc::channel();
        let silent = impostor(move |stream| drop(keep.send(stream)));
        let silent = silent.rsplit_once(':').unwrap().1.parse().unwrap();
        let stale = names(masters[1].port());
        let ports = [
            silent,
            good[0].port(),
            good[1].port(),
            stale,
            good[2].port(),
        ];
        let builder = patient().connect_timeout(Duration::from_secs(20));
        let locks = builder.master(url_of(&ports)).build().unwrap();
        let start = Instant::now();
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(masters[0].command(&["EXISTS", "r"]), "1");
        guard.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

/// The other Sentinels are a majority, and answer before this one.
#[test]
fn a_sentinel_that_answers_last_keeps_its_connection() {
    with_masters(1, async |masters| {
        let place = place(masters[0].port());
        let [connections, questions] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
        let counts = [connections.clone(), questions.clone()];
        let late = serve(move |stream| {
            counts[0].fetch_add(1, Ordering::SeqCst);
            let (mut stream, place) = (stream.try_clone().unwrap(), place.clone());
            let questions = counts[1].clone();
            thread::spawn(move || {
                while stream.read(&mut [0; 512]).is_ok_and(|count| count > 0) {
                    thread::sleep(millis(20));
                    questions.fetch_add(1, Ordering::SeqCst);
                    let _ = stream.write_all(&place);
                }
            });
        });
        let good = [(); 2].map(|()| watch(&masters[0], 1, "", &[]));
        let ports = [late, good[0].port(), good[1].port()];
        let locks = patient().master(url_of(&ports)).build().unwrap();
        until("several questions", async || {
            (questions.load(Ordering::SeqCst) >= 5).then_some(())
        })
        .await;
        // The first question is dropped, because the dial goes on without the answer.
        assert!(connections.load(Ordering::SeqCst) <= 2, "{connections:?}");
        locks.close().await;
    });
}

#[test]
fn sentinels_and_masters_have_logins_of_their_own() {
    with_masters(0, async |_| {
        let master = Server::start_with(&["--requirepass", "of-the-master"]);
        let more = "sentinel auth-pass svc of-the-master\nrequirepass of-the-sentinel\n";
        let sentinel = watch(&master, 1, more, &[]);
        let url = format!(
            "redis+sentinel://:of-the-master@127.0.0.1:{}/svc/3?sentinel_password=of-the-sentinel",
            sentinel.port()
        );
        let locks = patient().master(&url).build().unwrap();
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        let script = "redis.call('SELECT', 3); return redis.call('EXISTS', 'r')";
        assert_eq!(master.command(&["EVAL", script, "0"]), "1");
        let shown = format!("{locks:?} {guard:?} {:?}", locks.health());
        assert!(!shown.contains("of-the"), "{shown}");
        guard.release().await.unwrap();
        locks.close().await;

        let wrong = refuses(&url.replace(":of-the-master@", ""));
        let said = refusal(&wrong).await;
        let expected = format!(
            "at 127.0.0.1:{}, named by the Sentinels: refused",
            master.port()
        );
        assert!(said.contains(&expected), "{said}");
    });
}

#[cfg(feature = "tls")]
#[test]
fn sentinels_and_masters_may_expect_tls() {
    use testkit::certificates::{Authority, is_without_tls};

    if server::only_urls() || is_without_tls() {
        return;
    }
    run(async {
        let authority = Authority::new();
        let certificate = authority.sign("127.0.0.1");
        let master = authority.server(&certificate, "no", &[]);
        let options = authority.options(&certificate, "no");
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let sentinel = watch(&master, 1, "tls-replication yes\n", &options);
        let url = sentinel_url([&sentinel]).replace("redis+", "rediss+");
        let builder = patient().tls(crate::tls::trusting(&authority));
        let locks = builder.master(url).build().unwrap();
        lock_once(&locks).await;
        locks.close().await;
    });
}

fn url_of(ports: &[u16]) -> String {
    let hosts: Vec<_> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    format!("redis+sentinel://{}/svc", hosts.join(","))
}

/// Returns the port of a Sentinel that names the server on `port`.
fn names(port: u16) -> u16 {
    answers(&place(port))
}

/// Returns the answer of a Sentinel that names the server on `port`.
fn place(port: u16) -> Vec<u8> {
    let port = port.to_string();
    format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len()).into_bytes()
}

/// Returns the port of a server that answers every connection with these bytes.
fn answers(bytes: &[u8]) -> u16 {
    let bytes = bytes.to_vec();
    serve(move |stream| {
        let _ = stream.read(&mut [0; 512]);
        let _ = stream.write_all(&bytes);
    })
}

/// Returns the port of a server that sends without end.
fn talker() -> u16 {
    serve(|stream| {
        let _ = stream.write_all(b"$9999999\r\n");
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    })
}

fn serve(answer: impl Fn(&mut std::net::TcpStream) + Send + 'static) -> u16 {
    let url = impostor(move |mut stream| answer(&mut stream));
    url.rsplit_once(':').unwrap().1.parse().unwrap()
}
