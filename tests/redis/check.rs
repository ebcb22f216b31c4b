//! Checks of servers. These tests provoke each finding that can be provoked on a server.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use quorlock::{
    __internals::has_queue,
    Builder, CheckReport, Coordinator, Finding, Kind, Quarantine, Setting,
    Severity::{self, Info, Refuse, Unknown, Warn},
};
use tokio::time::sleep;

use crate::{common::*, impostors::impostor, rights::row_for};

/// The options with which a master keeps its locks over a restart.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

type Found = (Severity, &'static str);

/// Returns three servers that are fit as masters, but on one machine.
pub(crate) fn durable() -> Vec<Server> {
    (0..3).map(|_| Server::start_with(&DURABLE)).collect()
}

pub(crate) fn quarantining() -> Builder {
    patient().quarantine(Quarantine::Observed)
}

/// Returns addresses of `masters` that look like addresses of different machines.
fn apart(masters: &[Server]) -> [String; 3] {
    [
        masters[0].url(),
        masters[1].unix_url(),
        format!("redis://localhost:{}", masters[2].port()),
    ]
}

fn locks(builder: Builder, masters: &[Server]) -> Coordinator {
    builder.masters(apart(masters)).build().unwrap()
}

/// Waits until `locks` has dialled every master. Fails if a check then finds anything.
async fn assert_fit(locks: &Coordinator) {
    acquire_on_all(&locks.mutex("fit"))
        .await
        .release()
        .await
        .unwrap();
    let report = locks.check().await;
    assert_eq!(found(&report), [], "{report}");
}

/// Returns the findings, except for the one about an old version. That finding depends on the
/// version of the tested servers.
fn found(report: &CheckReport) -> Vec<Found> {
    let findings = report.findings.iter();
    let findings = findings.map(|finding| (finding.severity, finding.setting.name()));
    findings
        .filter(|(level, setting)| (*level, *setting) != (Warn, "redis_version"))
        .collect()
}

fn set(master: &Server, setting: &str, value: &str) {
    let answer = master.command(&["CONFIG", "SET", setting, value]);
    assert_eq!(answer, "OK", "{setting} {value}");
}

fn info(master: &Server, field: &str) -> Option<String> {
    let info = master.command(&["INFO"]);
    let line = info.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.strip_prefix(':')?.trim().to_owned())
}

fn major(master: &Server) -> u32 {
    let version = info(master, "redis_version").unwrap();
    version.split('.').next().unwrap().parse().unwrap()
}

#[test]
fn nothing_is_found_on_fit_masters() {
    with_masters(0, async |_| {
        let masters = durable();
        for quarantine in [Quarantine::Off, Quarantine::Observed] {
            // The check is made at once, like at the start of a program.
            let locks = locks(patient().quarantine(quarantine), &masters);
            let report = locks.check().await;
            assert_eq!(found(&report), [], "{quarantine:?} {report}");
            let is_old = !report.findings.is_empty();
            assert_eq!(is_old, major(&masters[0]) < 7, "{report}");
            locks.close().await;
        }
    });
}

#[test]
fn a_server_with_default_settings_loses_locks_in_a_restart() {
    with_masters(3, async |masters| {
        let careful = locks(quarantining(), &masters);
        let report = careful.check().await;
        assert_eq!(found(&report), [(Info, "aof_enabled")], "{report}");
        let of_all = report
            .findings
            .iter()
            .find(|finding| finding.severity == Info);
        assert_eq!(of_all.unwrap().master, None);
        careful.close().await;

        let trusting = locks(patient(), &masters);
        let report = trusting.check().await;
        assert_eq!(found(&report), [(Refuse, "aof_enabled")], "{report}");
        trusting.close().await;
    });
}

#[test]
fn each_setting_has_its_finding() {
    with_masters(0, async |_| {
        let masters = durable();
        let (careful, trusting) = (locks(quarantining(), &masters), locks(patient(), &masters));
        for (setting, bad, good, expected, without_guard) in [
            (
                "maxmemory-policy",
                "volatile-ttl",
                "noeviction",
                (Warn, "maxmemory_policy"),
                None,
            ),
            ("timeout", "3600", "0", (Warn, "timeout"), None),
            ("tcp-keepalive", "0", "300", (Warn, "tcp-keepalive"), None),
            // A threshold below the node timeout does not matter.
            (
                "lua-time-limit",
                "5001",
                "5000",
                (Info, "busy-reply-threshold"),
                None,
            ),
            (
                "appendfsync",
                "everysec",
                "always",
                (Info, "appendfsync"),
                Some(Warn),
            ),
            (
                "no-appendfsync-on-rewrite",
                "yes",
                "no",
                (Info, "no-appendfsync-on-rewrite"),
                Some(Warn),
            ),
        ] {
            set(&masters[1], setting, bad);
            let report = careful.check().await;
            assert_eq!(found(&report), [expected], "{report}");
            let finding = report
                .findings
                .iter()
                .find(|finding| finding.setting.name() == expected.1);
            let address = format!("unix:{}", masters[1].socket().display());
            assert_eq!(finding.unwrap().master.as_deref(), Some(&*address));
            let report = trusting.check().await;
            let level = without_guard.unwrap_or(expected.0);
            assert_eq!(found(&report), [(level, expected.1)], "{report}");
            set(&masters[1], setting, good);
        }
        set(&masters[1], "maxmemory", "100mb");
        set(&masters[1], "maxmemory-policy", "allkeys-lru");
        let report = careful.check().await;
        assert_eq!(found(&report), [(Refuse, "maxmemory_policy")], "{report}");
        careful.close().await;
        trusting.close().await;
    });
}

#[test]
fn a_master_that_takes_no_connection_is_found() {
    with_masters(0, async |_| {
        let masters = durable();
        let mut held = TcpStream::connect(("127.0.0.1", masters[0].port())).unwrap();
        held.write_all(b"PING\r\n").unwrap();
        held.read_exact(&mut [0; b"+PONG\r\n".len()]).unwrap();
        set(&masters[0], "maxclients", "1");
        let locks = locks(quarantining(), &masters);
        let report = locks.check().await;
        assert_eq!(found(&report), [(Warn, "maxclients")], "{report}");
        let text = report.to_string();
        assert!(text.contains("is ERR max number of clients"), "{text}");
        locks.close().await;
    });
}

#[test]
fn a_master_that_soon_takes_no_more_connections_is_found() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = locks(quarantining(), &masters);
        locks.check().await;
        set(&masters[0], "maxclients", "11");
        let connect = || TcpStream::connect(("127.0.0.1", masters[0].port())).unwrap();
        let held: Vec<_> = (0..9).map(|_| connect()).collect();
        until("ten clients", async || {
            let count = info(&masters[0], "connected_clients")?;
            (count.parse::<u32>().ok()? >= 10).then_some(())
        })
        .await;
        let report = locks.check().await;
        assert_eq!(found(&report), [(Warn, "maxclients")], "{report}");
        drop(held);
        locks.close().await;
    });
}

#[test]
fn a_master_that_evicted_its_keys_is_found_and_then_in_quarantine() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = locks(quarantining(), &masters);
        assert_fit(&locks).await;
        set(&masters[0], "maxmemory-policy", "allkeys-lru");
        set(&masters[0], "maxmemory", "1");
        until("an eviction", async || {
            (info(&masters[0], "evicted_keys")? != "0").then_some(())
        })
        .await;
        set(&masters[0], "maxmemory", "0");
        set(&masters[0], "maxmemory-policy", "noeviction");
        let report = locks.check().await;
        let expected = [(Refuse, "quorlock:guard"), (Warn, "evicted_keys")];
        assert_eq!(found(&report), expected, "{report}");

        masters[0].command(&["CONFIG", "RESETSTAT"]);
        masters[0].command(&["CLIENT", "KILL", "TYPE", "normal"]);
        let report = until("a redial", async || {
            let report = locks.check().await;
            (found(&report) == [(Warn, "quorlock:guard")]).then_some(report)
        })
        .await;
        assert!(report.to_string().contains("in quarantine for"), "{report}");
    });
}

#[test]
fn masters_that_were_flushed_are_found_in_quarantine() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = locks(quarantining(), &masters);
        assert_fit(&locks).await;
        for master in &masters {
            master.command(&["FLUSHALL"]);
        }
        let report = until("quarantines", async || {
            let report = locks.check().await;
            let are_dialled = found(&report).iter().all(|(level, _)| *level == Warn);
            are_dialled.then_some(report)
        })
        .await;
        let text = report.to_string();
        assert!(
            text.contains("votes: only 0 of 3 masters now (need 2), for "),
            "{text}"
        );
        locks.close().await;
    });
}

/// A check cannot find this loss of data. `docs/operations.md` says so.
#[test]
fn a_flush_is_not_found_after_an_observer_wrote_the_origin_key_anew() {
    with_masters(0, async |_| {
        let masters = durable();
        let knew = locks(quarantining(), &masters);
        assert_fit(&knew).await;
        // The step that flushes the master also does what the first dial of a program would do that
        // has never seen the master.
        let record = masters[0].command(&["HGETALL", "quorlock:guard"]);
        let script = "redis.call('FLUSHALL') redis.call('HSET', KEYS[1], unpack(ARGV))";
        let mut words = vec!["EVAL", script, "1", "quorlock:guard"];
        words.extend(record.lines());
        masters[0].command(&words);
        assert_eq!(masters[0].command(&["HGETALL", "quorlock:guard"]), record);
        let report = knew.check().await;
        assert_eq!(found(&report), [], "{report}");
        knew.close().await;
    });
}

#[test]
fn a_master_with_the_data_of_another_is_found() {
    if server::is_mixed() {
        return;
    }
    with_masters(0, async |_| {
        let (masters, other) = (durable(), Server::start());
        let connected = locks(quarantining(), &masters);
        assert_fit(&connected).await;
        let guard = quarantining().masters([other.url()]).build().unwrap();
        guard.check().await;
        guard.close().await;
        copy(&other, &masters[1]);
        let in_quarantine = (Warn, "quorlock:guard");
        until("a redial", async || {
            (found(&connected.check().await) == [in_quarantine]).then_some(())
        })
        .await;

        // The second master gets the data of the first master. Both are masters of the coordinator.
        copy(&masters[0], &masters[1]);
        let had = "master_replid";
        until("a redial", async || {
            (found(&connected.check().await) == [in_quarantine, (Warn, had)]).then_some(())
        })
        .await;
        connected.close().await;
        let trusting = locks(patient(), &masters);
        let report = trusting.check().await;
        assert_eq!(found(&report), [(Refuse, had)], "{report}");
        trusting.close().await;
    });
}

/// Replaces the data of `to` with the data of `from`.
fn copy(from: &Server, to: &Server) {
    let port = from.port().to_string();
    set(from, "repl-diskless-sync-delay", "0");
    to.command(&["REPLICAOF", "127.0.0.1", &port]);
    let start = Instant::now();
    while info(to, "master_link_status").as_deref() != Some("up") {
        assert!(start.elapsed() < TEST_TIMEOUT, "{}", to.log_tail());
        thread::sleep(Duration::from_millis(10));
    }
    to.command(&["REPLICAOF", "NO", "ONE"]);
    while info(from, "connected_slaves").as_deref() != Some("0") {
        assert!(start.elapsed() < TEST_TIMEOUT, "{}", from.log_tail());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_master_that_cannot_save_is_found() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = locks(quarantining(), &masters);
        assert_fit(&locks).await;
        // The snapshot cannot be written, because a folder has the name of its file.
        fs::create_dir(masters[0].socket().with_file_name("dump.rdb")).unwrap();
        set(&masters[0], "save", "3600 1000000");
        masters[0].command(&["BGSAVE"]);
        until("a failure", async || {
            (info(&masters[0], "rdb_last_bgsave_status")? == "err").then_some(())
        })
        .await;
        let report = locks.check().await;
        let mut expected = vec![(Warn, "rdb_last_bgsave_status"), (Warn, "writes")];
        assert_eq!(found(&report), expected, "{report}");
        assert!(report.to_string().contains("writes: MISCONF"), "{report}");
        set(&masters[0], "stop-writes-on-bgsave-error", "no");
        expected = vec![(Info, "rdb_last_bgsave_status")];
        let report = locks.check().await;
        assert_eq!(found(&report), expected, "{report}");
        locks.close().await;
    });
}

#[test]
fn a_master_that_refuses_writes_is_found() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = locks(quarantining(), &masters);
        assert_fit(&locks).await;
        set(&masters[0], "min-replicas-to-write", "1");
        let report = locks.check().await;
        let expected = [(Warn, "min-replicas-to-write")];
        assert_eq!(found(&report), expected, "{report}");
        set(&masters[0], "min-replicas-to-write", "0");

        set(&masters[0], "maxmemory", "1");
        let report = locks.check().await;
        assert_eq!(found(&report), [(Warn, "writes")], "{report}");
        assert!(report.to_string().contains("writes: OOM"), "{report}");
        set(&masters[0], "maxmemory", "0");
        locks.close().await;
    });
}

#[test]
fn replicas_are_found() {
    if server::is_mixed() {
        return;
    }
    with_masters(0, async |_| {
        let (masters, replica) = (durable(), Server::start());
        let connected = locks(quarantining(), &masters);
        assert_fit(&connected).await;
        let port = masters[0].port().to_string();
        set(&masters[0], "repl-diskless-sync-delay", "0");
        let follow = ["REPLICAOF", "127.0.0.1", &port];
        replica.command(&follow);
        until("a replica", async || {
            (info(&masters[0], "connected_slaves")? == "1").then_some(())
        })
        .await;
        let report = connected.check().await;
        assert_eq!(found(&report), [(Warn, "connected_slaves")], "{report}");
        replica.command(&["REPLICAOF", "NO", "ONE"]);

        masters[1].command(&follow);
        until("a copy", async || {
            (info(&masters[1], "master_link_status")? == "up").then_some(())
        })
        .await;
        // The first coordinator was connected before the server became a replica. The second one
        // was not.
        for locks in [connected, locks(quarantining(), &masters)] {
            let report = locks.check().await;
            assert_eq!(report.worst(), Some(Refuse));
            assert!(found(&report).contains(&(Refuse, "role")), "{report}");
            locks.close().await;
        }
    });
}

#[test]
fn a_server_that_is_listed_twice_is_found() {
    with_masters(0, async |_| {
        let masters = durable();
        let urls = [
            masters[0].url(),
            masters[0].unix_url(),
            apart(&masters)[2].clone(),
        ];
        let trusting = patient().masters(&urls).build().unwrap();
        let report = trusting.check().await;
        let expected = [(Refuse, "run_id"), (Refuse, "master_replid")];
        assert_eq!(found(&report), expected, "{report}");
        trusting.close().await;
        // With quarantine, the server has a single vote.
        let careful = quarantining().masters(&urls).build().unwrap();
        let report = careful.check().await;
        assert_eq!(found(&report), [(Refuse, "run_id")], "{report}");
        careful.close().await;
    });
}

#[test]
fn a_server_of_a_cluster_is_found() {
    with_masters(0, async |_| {
        let mut masters = durable();
        masters[0] = Server::start_with(&[&DURABLE[..], &["--cluster-enabled", "yes"]].concat());
        let locks = locks(patient(), &masters);
        let report = locks.check().await;
        assert!(found(&report).contains(&(Warn, "redis_mode")), "{report}");
        assert_eq!(report.worst(), Some(Warn), "{report}");
        locks.close().await;
    });
}

#[test]
fn the_number_of_masters_and_their_hosts_are_checked() {
    with_masters(4, async |masters| {
        let durable = ["aof_enabled"];
        for (count, expected) in [
            (1, vec![(Warn, "masters")]),
            (2, vec![(Warn, "masters")]),
            (3, vec![(Warn, "hosts")]),
            (4, vec![(Warn, "hosts"), (Info, "masters")]),
        ] {
            let locks = coordinator(quarantining(), &masters[..count]);
            let report = locks.check().await;
            let mut found = found(&report);
            found.retain(|(_, setting)| !durable.contains(setting));
            assert_eq!(found, expected, "{report}");
            locks.close().await;
        }
    });
}

#[test]
fn settings_of_this_program_are_checked() {
    with_masters(0, async |_| {
        let masters = durable();
        let hasty = quarantining().ttl(Duration::from_secs(40)).drift_ppm(0);
        let locks = locks(hasty, &masters);
        let report = locks.check().await;
        let expected = [(Warn, "ttl"), (Warn, "drift")];
        assert_eq!(found(&report), expected, "{report}");
        locks.close().await;
    });
}

#[test]
fn masters_that_do_not_answer_are_found() {
    with_masters(0, async |_| {
        let mut masters = durable();
        masters[0] = Server::reserve();
        let down = locks(quarantining(), &masters);
        let report = down.check().await;
        assert_eq!(found(&report), [(Unknown, "connection")], "{report}");
        down.close().await;

        masters[1] = Server::reserve();
        let lost = locks(quarantining(), &masters);
        let report = lost.check().await;
        let connection = (Unknown, "connection");
        let expected = [(Refuse, "votes"), connection, connection];
        assert_eq!(found(&report), expected, "{report}");
        let text = report.to_string();
        assert!(text.contains("only 1 of 3 masters now (need 2)"), "{text}");
        lost.close().await;
        masters[1] = Server::start_with(&DURABLE);

        masters[0] = Server::start_with(&["--requirepass", "hunter2"]);
        let locked = locks(quarantining(), &masters);
        let report = locked.check().await;
        assert_eq!(found(&report), [(Refuse, "login")], "{report}");
        assert!(report.to_string().contains("login: NOAUTH"), "{report}");
        locked.close().await;

        masters[0] = Server::start_with(&DURABLE);
        let hung = locks(
            quarantining().node_timeout(Duration::from_millis(500)),
            &masters,
        );
        let report = hung.check().await;
        assert_eq!(found(&report), [], "{report}");
        masters[0].pause();
        let report = hung.check().await;
        assert!(found(&report).contains(&connection), "{report}");
        masters[0].resume();
    });
}

/// The server at the address is too old, or another program answers there.
#[test]
fn servers_that_are_no_masters_are_found() {
    with_masters(0, async |_| {
        let masters = durable();
        for (answer, expected) in [
            ("HTTP/1.1 400 Bad Request\r\n\r\n", (Warn, "connection")),
            // These are the answers of Redis 5 and of a proxy.
            (
                "-ERR unknown command `HELLO`, with args beginning with: `3`\r\n",
                (Refuse, "redis_version"),
            ),
            (
                "-NOPROTO unsupported protocol version\r\n",
                (Refuse, "redis_version"),
            ),
        ] {
            let mut urls = apart(&masters);
            urls[0] = impostor(|mut stream| {
                let _ = stream.write_all(answer.as_bytes());
                // Reads to the end, because a close with unread bytes would reset the connection.
                let _ = io::copy(&mut stream, &mut io::sink());
            });
            let locks = quarantining().masters(urls).build().unwrap();
            let report = locks.check().await;
            assert_eq!(found(&report), [expected], "{report}");
            locks.close().await;
        }
        let mut urls = apart(&masters);
        urls[0] = "redis://nobody.invalid:6379".to_owned();
        let locks = quarantining().masters(urls).build().unwrap();
        let report = locks.check().await;
        assert_eq!(found(&report), [(Warn, "connection")], "{report}");
        locks.close().await;
    });
}

/// The test needs an address of this machine that is not the loopback address.
#[test]
fn protected_mode_is_found() {
    with_masters(0, async |_| {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
        // Connecting a UDP socket sends nothing, and tells the address of this machine.
        let address = socket
            .connect(("192.0.2.1", 9))
            .and_then(|()| socket.local_addr());
        let Ok(address) = address else {
            skipped("there is no network");
            return;
        };
        let mut masters = durable();
        masters[0] = Server::start_with(&["--protected-mode", "yes", "--bind", "0.0.0.0"]);
        let mut urls = apart(&masters);
        urls[0] = format!("redis://{}:{}", address.ip(), masters[0].port());
        let locks = quarantining().masters(urls).build().unwrap();
        let report = locks.check().await;
        // Before Redis 7, `--bind` turned the protected mode off.
        if major(&masters[0]) >= 7 {
            assert_eq!(found(&report), [(Refuse, "login")], "{report}");
            assert!(report.to_string().contains("protected mode"), "{report}");
        }
        locks.close().await;
    });
}

/// Checks three masters. On the first one, the user has `rules`.
pub(crate) async fn as_user(masters: &[Server], builder: Builder, rules: &[&str]) -> CheckReport {
    let words = [&["ACL", "SETUSER", "bob", "reset", "on", ">hunter2"], rules].concat();
    assert_eq!(masters[0].command(&words), "OK");
    let mut urls = apart(masters);
    urls[0] = format!("redis://bob:hunter2@127.0.0.1:{}", masters[0].port());
    let locks = builder.masters(urls).build().unwrap();
    let report = locks.check().await;
    let text = format!("{report} {report:?}");
    assert!(!text.contains("bob") && !text.contains("hunter2"), "{text}");
    locks.close().await;
    report
}

const MUTEX: Found = (Refuse, "rights for mutexes");
const NO_READ_WRITE: Found = (Info, "rights for read-write locks");
const NO_SEMAPHORE: Found = (Info, "rights for semaphores");
const MESSAGES: &str = "PUBLISH, SUBSCRIBE";
const TOKENS: &str = "rights for fencing tokens";
const INSPECT: &str = "rights to inspect";

/// Returns a finding about the rights of each kind of lock that `is_it` accepts.
fn about_kinds(severity: Severity, is_it: impl Fn(Kind) -> bool) -> Vec<Found> {
    let kinds = KINDS.into_iter().filter(|kind| is_it(*kind));
    let found = kinds.map(|kind| (severity, Setting::Rights(kind).name()));
    found.collect()
}

/// Returns the findings about the kinds of locks whose documented rights include `command`. Locks
/// that need this right to be acquired, or the rights of another kind, cannot be acquired without.
fn needing(command: &str) -> Vec<Found> {
    let needs = |kind: Kind| row_for(kind.word()).contains(&format!("`{command}`"));
    let adds = |kind: Kind| row_for(kind.word()).contains("those of");
    let mut found = about_kinds(Refuse, |kind| needs(kind) && !adds(kind));
    found.extend(about_kinds(Info, |kind| needs(kind) && adds(kind)));
    found
}

#[test]
fn each_missing_right_has_its_finding() {
    with_masters(0, async |_| {
        let masters = durable();
        let all = ["~*", "&*", "+@all"];
        let fenced = (Info, TOKENS);
        let with = |found: Vec<Found>, also: Found| [&found[..], &[also]].concat();
        for (without, expected) in [
            (&["+@all"][..], vec![]),
            (&["-config"], vec![(Unknown, "CONFIG GET")]),
            (&["-evalsha"], vec![(Refuse, "EVALSHA")]),
            (&["-del"], needing("DEL")),
            (&["-pexpire"], needing("PEXPIRE")),
            (&["-get"], vec![MUTEX, fenced]),
            (&["-hlen"], needing("HLEN")),
            (&["-zadd"], needing("ZADD")),
            (&["-zrank"], needing("ZRANK")),
            (&["-zlexcount"], needing("ZLEXCOUNT")),
            (&["-type"], vec![(Info, INSPECT)]),
            (&["-set"], vec![(Info, "rights for mutexes"), fenced]),
            (
                &["-set", "-exists", "-hset"],
                with(about_kinds(Refuse, |_| true), (Refuse, TOKENS)),
            ),
            (&["-publish"], vec![(Info, MESSAGES)]),
            (&["resetkeys", "~quorlock:*"], vec![]),
            (
                &[
                    "resetkeys",
                    "~quorlock:guard",
                    "~quorlock:check",
                    "~quorlock:fence:*",
                ],
                about_kinds(Info, has_queue),
            ),
            (&["resetkeys", "~quorlock:[cdfgqw]*"], vec![NO_READ_WRITE]),
            (
                &["resetkeys", "~quorlock:[gqd]*"],
                vec![
                    (Unknown, "rights to keys"),
                    NO_READ_WRITE,
                    NO_SEMAPHORE,
                    fenced,
                ],
            ),
        ] {
            let report = as_user(&masters, quarantining(), &[&all, without].concat()).await;
            assert_eq!(found(&report), expected, "{without:?}: {report}");
        }
        if major(&masters[0]) >= 7 {
            for without in ["resetchannels", "-subscribe"] {
                let rules = [&all[..], &[without]].concat();
                let report = as_user(&masters, quarantining(), &rules).await;
                assert_eq!(found(&report), [(Info, MESSAGES)], "{report}");
            }
            let rules = [&all[..], &["-eval"]].concat();
            let report = as_user(&masters, patient(), &rules).await;
            assert_eq!(found(&report), [(Refuse, "EVAL")], "{report}");
        }
    });
}

#[test]
fn a_origin_key_that_makes_no_sense_is_found() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = locks(quarantining(), &masters);
        assert_fit(&locks).await;
        masters[0].command(&["HSET", "quorlock:guard", "since", "soon"]);
        let report = locks.check().await;
        assert_eq!(found(&report), [(Refuse, "quorlock:guard")], "{report}");
        locks.close().await;
    });
}

#[test]
fn rights_that_the_guard_lacks_are_found() {
    with_masters(0, async |_| {
        let masters = durable();
        let gone = (Refuse, "quorlock:guard");
        let all = ["~*", "&*", "+@all"];
        for (without, expected) in [
            (&["-info"][..], &[gone, (Unknown, "INFO")][..]),
            (
                &["resetkeys", "~quorlock:check", "~quorlock:[dfqrw]*"],
                &[gone],
            ),
        ] {
            let rules = [&all[..], without].concat();
            let report = as_user(&masters, quarantining(), &rules).await;
            assert_eq!(found(&report), expected, "{without:?}: {report}");
            // With `Strict`, the client does not even connect.
            let strict = patient().quarantine(Quarantine::Strict).max_ttl(LONG);
            let report = as_user(&masters, strict, &rules).await;
            assert!(found(&report).contains(&gone), "{without:?}: {report}");
            let text = report.to_string();
            assert_eq!(text.matches("~quorlock:guard").count(), 1, "{text}");
        }
        // Without quarantine, these rights are not needed.
        let report = as_user(&masters, patient(), &["~*", "&*", "+@all", "-info"]).await;
        let found = found(&report);
        assert!(
            found.contains(&(Unknown, "INFO")) && !found.contains(&gone),
            "{report}"
        );
    });
}

/// A right that only other kinds of locks need is not a fault.
#[test]
fn the_least_rights_for_mutexes_are_enough() {
    with_masters(0, async |_| {
        let masters = durable();
        // The rules include the rights of the quarantine.
        let rules = [
            "~locks:*",
            "~quorlock:guard",
            "+hello",
            "+client|tracking",
            "+client|caching",
            "+set",
            "+get",
            "+pttl",
            "+pexpire",
            "+del",
            "+eval",
            "+evalsha",
            "+info",
            "+time",
            "+hmget",
            "+hset",
            "+config|get",
        ];
        // Another client may have a lock with this name. A user without `EXISTS` cannot see it.
        let key = "locks:quorlock:check";
        masters[0].command(&["SET", key, "somebody's"]);
        let builder = quarantining().key_template("locks:{name}");
        let report = as_user(&masters, builder, &rules).await;
        assert_eq!(masters[0].command(&["GET", key]), "somebody's");
        let mut expected = about_kinds(Info, |kind| kind != Kind::Mutex);
        expected.extend([(Info, TOKENS), (Info, INSPECT), (Info, MESSAGES)]);
        assert_eq!(found(&report), expected, "{report}");
    });
}

/// Without the right to tracking, a program that runs does not notice a `FLUSHALL`. The check says
/// so, and its fix helps.
#[test]
fn a_master_that_reports_no_changes_is_found() {
    if server::is_before_7() {
        return; // rules about subcommands need version 7
    }
    with_masters(0, async |_| {
        let masters = durable();
        let all = ["~*", "&*", "+@all"];
        for quarantine in [Quarantine::Off, Quarantine::Observed, Quarantine::Strict] {
            let builder = || patient().quarantine(quarantine);
            for missing in ["-client|tracking", "-client|caching"] {
                let rules = [&all[..], &[missing]].concat();
                let report = as_user(&masters, builder(), &rules).await;
                let of_it = |finding: &&Finding| finding.setting.name() == "CLIENT TRACKING";
                let finding = report.findings.iter().find(of_it).unwrap();
                let expected = match quarantine {
                    Quarantine::Off => Info,
                    _ => Warn,
                };
                assert_eq!(
                    finding.severity, expected,
                    "{quarantine:?} {missing}: {report}"
                );
                assert_eq!(finding.why.contains("FLUSHALL"), expected == Warn);
                let fix = finding.fix.split(';').next().unwrap();
                let rights = fix.strip_prefix("ACL SETUSER <user> ").unwrap();
                let rights: Vec<_> = rights.split(' ').collect();
                let report = as_user(&masters, builder(), &[&rules[..], &rights].concat()).await;
                assert!(!report.findings.iter().any(|one| of_it(&one)), "{report}");
            }
        }
    });
}

#[test]
fn commands_that_are_renamed_are_found() {
    with_masters(0, async |_| {
        let mut masters = durable();
        for (command, expected) in [
            ("CONFIG", vec![(Unknown, "CONFIG GET")]),
            ("EVALSHA", vec![(Refuse, "EVALSHA")]),
            ("PTTL", needing("PTTL")),
            ("INFO", vec![(Refuse, "quorlock:guard"), (Unknown, "INFO")]),
        ] {
            let renamed = [&DURABLE[..], &["--rename-command", command, "HIDDEN"]].concat();
            masters[0] = Server::start_with(&renamed);
            let locks = locks(quarantining(), &masters);
            let report = locks.check().await;
            assert_eq!(found(&report), expected, "{command}: {report}");
            locks.close().await;
        }
    });
}

#[test]
fn a_check_changes_nothing() {
    with_masters(3, async |masters| {
        let locks = locks(quarantining(), &masters);
        locks.check().await;
        for master in &masters {
            assert_eq!(master.command(&["KEYS", "*"]), "quorlock:guard");
            master.command(&["SET", "quorlock:check", "somebody's", "PX", "600000"]);
        }
        let mut heard = masters[0].listen();
        let look = || {
            let changes = info(&masters[0], "rdb_changes_since_last_save");
            (
                changes.unwrap(),
                pttl(&masters[0], "quorlock:check") > 500_000,
            )
        };
        let before = look();
        let report = locks.check().await;
        assert_eq!(
            report.worst(),
            Some(report_of_plain(&masters[0])),
            "{report}"
        );
        assert_eq!(look(), before);
        for (channel, _) in heard.heard().unwrap() {
            assert_eq!(channel, "redisson_lock__channel:{quorlock:check}");
        }
        locks.close().await;
    });
}

/// Returns the severity of the findings about a server with default settings.
fn report_of_plain(master: &Server) -> Severity {
    if major(master) < 7 { Warn } else { Info }
}

#[test]
fn a_report_shows_no_passwords() {
    with_masters(0, async |_| {
        let secret = [
            &DURABLE[..],
            &["--requirepass", "hunter2", "--masterauth", "hunter2"],
        ]
        .concat();
        let mut masters = durable();
        masters[0] = Server::start_with(&secret);
        let mut urls = apart(&masters);
        urls[0] = format!("redis://:hunter2@127.0.0.1:{}", masters[0].port());
        let locks = quarantining().masters(urls).build().unwrap();
        set(&masters[0], "timeout", "3600");
        let report = locks.check().await;
        assert_eq!(found(&report), [(Warn, "timeout")]);
        assert!(!format!("{report} {report:?}").contains("hunter2"));
        locks.close().await;
    });
}

/// The connections are made on the coordinator's runtime.
#[test]
fn a_check_can_be_made_from_a_runtime_without_timers_and_sockets() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = locks(quarantining(), &masters);
        let other = locks.clone();
        let report = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.unwrap().block_on(other.check())
        });
        assert_eq!(found(&report.join().unwrap()), []);
        locks.close().await;
    });
}

#[test]
fn a_master_that_runs_a_long_script_is_found() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = locks(
            quarantining().node_timeout(Duration::from_secs(2)),
            &masters,
        );
        locks.check().await;
        set(&masters[0], "lua-time-limit", "1");
        let port = masters[0].port();
        let busy = thread::spawn(move || {
            let words = ["EVAL", "while true do end", "0"];
            let _ = server::try_command_on(port, &words, TEST_TIMEOUT);
        });
        let report = until("a busy master", async || {
            sleep(Duration::from_millis(20)).await;
            let report = locks.check().await;
            found(&report).contains(&(Warn, "votes")).then_some(report)
        })
        .await;
        assert!(report.to_string().contains("BUSY"), "{report}");
        masters[0].command(&["SCRIPT", "KILL"]);
        busy.join().unwrap();
    });
}
