//! Checks of servers. These tests provoke each finding that can be provoked on a server.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use quorlock::{Builder, Coordinator, Kind, MasterSpec, Quarantine};
use quorlock_check::{
    Finding, Report,
    Severity::{self, Info, Refuse, Unknown, Warn},
    Shared,
};

use crate::{common::*, impostors::impostor, rights::row_for};

/// The options with which a master keeps its locks over a restart.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

type Found = (Severity, &'static str);

/// Returns three servers that are fit as masters, but on one machine.
pub(crate) fn durable() -> Vec<Server> {
    (0..3).map(|_| Server::start_with(&DURABLE)).collect()
}

pub(crate) fn quarantining() -> Builder {
    patient().quarantine(Quarantine::Observed).max_ttl(LONG)
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

/// Returns the settings of the programs that `patient` builds with this quarantine.
pub(crate) fn shared(quarantine: Quarantine) -> Shared {
    let mut shared = Shared::default();
    shared.quarantine = quarantine;
    shared.max_ttl = LONG;
    shared.node_timeout = Duration::from_secs(5);
    shared.connect_timeout = Duration::from_secs(5);
    shared
}

/// Checks the masters with these URLs, for programs with quarantine.
pub(crate) async fn check(urls: &[impl AsRef<str>]) -> Report {
    check_for(&shared(Quarantine::Observed), urls).await
}

pub(crate) async fn check_for(shared: &Shared, urls: &[impl AsRef<str>]) -> Report {
    let masters: Vec<_> = urls
        .iter()
        .map(|url| MasterSpec::from(url.as_ref()))
        .collect();
    quorlock_check::check(&masters, &[], shared).await.unwrap()
}

/// Connects a program to all masters, which writes their origin keys. Fails if a check then finds
/// anything.
async fn used(masters: &[Server]) -> Coordinator {
    let locks = locks(quarantining(), masters);
    let guard = acquire_on_all(&locks.mutex("fit")).await;
    guard.release().await.unwrap();
    let report = check(&apart(masters)).await;
    assert_eq!(found(&report), [], "{report}");
    locks
}

/// Uses the masters as [`used`] does, in a program that has ended. A server may list the
/// connections of that program for a moment longer.
async fn used_before(masters: &[Server]) {
    used(masters).await.close().await;
    until("only the test's own connections", async || {
        let clients = |master: &Server| master.command(&["CLIENT", "LIST"]).lines().count();
        masters
            .iter()
            .all(|master| clients(master) == 1)
            .then_some(())
    })
    .await;
}

/// Returns the findings, except for the one about an old version. That finding depends on the
/// version of the tested servers.
pub(crate) fn found(report: &Report) -> Vec<Found> {
    let findings = report.findings.iter();
    let findings = findings.map(|finding| (finding.severity, finding.setting));
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

const GUARD: &str = "quorlock:guard";
/// The finding about a master that no program has used yet.
const NEW: Found = (Info, GUARD);

/// A check asks for no origin key to be written: the next program must find the masters as they
/// are.
#[test]
fn nothing_is_found_on_fit_masters_but_that_they_are_new() {
    with_masters(0, async |_| {
        let masters = durable();
        for (quarantine, expected) in [(Quarantine::Off, &[][..]), (Quarantine::Observed, &[NEW])] {
            let report = check_for(&shared(quarantine), &apart(&masters)).await;
            assert_eq!(found(&report), expected, "{quarantine:?} {report}");
            let is_old = report
                .findings
                .iter()
                .any(|one| one.setting == "redis_version");
            assert_eq!(is_old, major(&masters[0]) < 7, "{report}");
        }
        let report = check_for(&shared(Quarantine::Strict), &apart(&masters)).await;
        assert_eq!(found(&report), [(Warn, "votes"), NEW], "{report}");
        for master in &masters {
            assert_eq!(master.command(&["KEYS", "*"]), "");
        }
        used_before(&masters).await;
    });
}

#[test]
fn each_setting_has_its_finding() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = used(&masters).await;
        for (setting, bad, good, careful, trusting) in [
            (
                "maxmemory-policy",
                "volatile-ttl",
                "noeviction",
                Some((Warn, "maxmemory_policy")),
                (Warn, "maxmemory_policy"),
            ),
            (
                "timeout",
                "3600",
                "0",
                Some((Warn, "timeout")),
                (Warn, "timeout"),
            ),
            (
                "appendfsync",
                "everysec",
                "always",
                None,
                (Warn, "appendfsync"),
            ),
            (
                "no-appendfsync-on-rewrite",
                "yes",
                "no",
                None,
                (Warn, "no-appendfsync-on-rewrite"),
            ),
        ] {
            set(&masters[1], setting, bad);
            let report = check(&apart(&masters)).await;
            assert_eq!(found(&report), Vec::from_iter(careful), "{report}");
            let report = check_for(&shared(Quarantine::Off), &apart(&masters)).await;
            assert_eq!(found(&report), [trusting], "{report}");
            let mut findings = report.findings.iter();
            let finding = findings
                .find(|finding| finding.setting == trusting.1)
                .unwrap();
            let address = format!("unix:{}", masters[1].socket().display());
            assert_eq!(finding.masters.join(" "), address);
            set(&masters[1], setting, good);
        }
        set(&masters[1], "maxmemory", "100mb");
        set(&masters[1], "maxmemory-policy", "allkeys-lru");
        let report = check(&apart(&masters)).await;
        assert_eq!(found(&report), [(Refuse, "maxmemory_policy")], "{report}");
        locks.close().await;
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
        let report = check_for(&shared(Quarantine::Off), &apart(&masters)).await;
        assert_eq!(found(&report), [(Warn, "votes")], "{report}");
        for part in ["max number of clients", "CONFIG SET maxclients to more"] {
            assert!(report.to_string().contains(part), "{report}");
        }
    });
}

#[test]
fn a_master_that_evicted_its_keys_is_found_and_then_in_quarantine() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = used(&masters).await;
        set(&masters[0], "maxmemory-policy", "allkeys-lru");
        set(&masters[0], "maxmemory", "1");
        until("an eviction", async || {
            (info(&masters[0], "evicted_keys")? != "0").then_some(())
        })
        .await;
        set(&masters[0], "maxmemory", "0");
        set(&masters[0], "maxmemory-policy", "noeviction");
        // A program that is connected for two seconds must have written the key.
        until_origin_is_refused(&masters).await;

        masters[0].command(&["CLIENT", "KILL", "TYPE", "normal"]);
        let report = until("a redial", async || {
            let report = check(&apart(&masters)).await;
            (found(&report) == [(Warn, GUARD)]).then_some(report)
        })
        .await;
        assert!(report.to_string().contains("in quarantine for"), "{report}");
        locks.close().await;
    });
}

#[test]
fn a_master_with_the_data_of_another_is_found() {
    if server::is_mixed() {
        return;
    }
    with_masters(0, async |_| {
        let (masters, other) = (durable(), Server::start());
        let connected = used(&masters).await;
        let program = coordinator(quarantining(), std::slice::from_ref(&other));
        program.all_ready(TEST_TIMEOUT / 4).await.unwrap();
        copy(&other, &masters[1]);
        let in_quarantine = (Warn, GUARD);
        until("a redial", async || {
            (found(&check(&apart(&masters)).await) == [in_quarantine]).then_some(())
        })
        .await;

        // The second master gets the data of the first master. Both are masters of the coordinator.
        copy(&masters[0], &masters[1]);
        let had = "master_replid";
        until("a redial", async || {
            let report = check(&apart(&masters)).await;
            (found(&report) == [in_quarantine, (Warn, had)]).then_some(())
        })
        .await;
        connected.close().await;
        let report = check_for(&shared(Quarantine::Off), &apart(&masters)).await;
        assert_eq!(found(&report), [(Refuse, had)], "{report}");
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
        let locks = used(&masters).await;
        // The snapshot cannot be written, because a folder has the name of its file.
        fs::create_dir(masters[0].socket().with_file_name("dump.rdb")).unwrap();
        set(&masters[0], "save", "3600 1000000");
        masters[0].command(&["BGSAVE"]);
        until("a failure", async || {
            (info(&masters[0], "rdb_last_bgsave_status")? == "err").then_some(())
        })
        .await;
        let report = check(&apart(&masters)).await;
        assert_eq!(found(&report), [(Warn, "writes")], "{report}");
        assert!(report.to_string().contains("writes: MISCONF"), "{report}");
        set(&masters[0], "stop-writes-on-bgsave-error", "no");
        assert_eq!(found(&check(&apart(&masters)).await), []);
        locks.close().await;
    });
}

#[test]
fn a_master_that_refuses_writes_is_found() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = used(&masters).await;
        for (setting, bad, good, code) in [
            ("min-replicas-to-write", "1", "0", "NOREPLICAS"),
            ("maxmemory", "1", "0", "OOM"),
        ] {
            set(&masters[0], setting, bad);
            let report = check(&apart(&masters)).await;
            assert_eq!(found(&report), [(Warn, "writes")], "{report}");
            assert!(
                report.to_string().contains(&format!("writes: {code}")),
                "{report}"
            );
            set(&masters[0], setting, good);
        }
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
        let locks = used(&masters).await;
        let port = masters[0].port().to_string();
        set(&masters[0], "repl-diskless-sync-delay", "0");
        let follow = ["REPLICAOF", "127.0.0.1", &port];
        replica.command(&follow);
        until("a replica", async || {
            (info(&masters[0], "connected_slaves")? == "1").then_some(())
        })
        .await;
        let report = check(&apart(&masters)).await;
        assert_eq!(found(&report), [(Warn, "connected_slaves")], "{report}");
        replica.command(&["REPLICAOF", "NO", "ONE"]);

        masters[1].command(&follow);
        until("a copy", async || {
            (info(&masters[1], "master_link_status")? == "up").then_some(())
        })
        .await;
        let report = check(&apart(&masters)).await;
        assert_eq!(report.worst(), Some(Refuse));
        assert!(found(&report).contains(&(Refuse, "role")), "{report}");
        locks.close().await;
    });
}

/// Each connection to the address meets the next server.
#[test]
fn several_servers_behind_one_address_are_found() {
    with_masters(0, async |_| {
        let masters = durable();
        let mut urls = apart(&masters);
        let other = Server::start_with(&DURABLE);
        let mut ports = [masters[0].port(), other.port()].into_iter().cycle();
        let (sender, mut next) = (std::sync::mpsc::channel(), move || ports.next().unwrap());
        let (sender, streams) = sender;
        urls[0] = impostor(move |stream| drop(sender.send(stream)));
        thread::spawn(move || streams.iter().for_each(|stream| forward(stream, next())));
        let report = check_for(&shared(Quarantine::Off), &urls).await;
        assert_eq!(found(&report), [(Refuse, "run_id")], "{report}");
        assert!(report.to_string().contains("several servers"), "{report}");
    });
}

/// Only the first connection to the address works.
#[test]
fn it_is_found_if_several_servers_behind_one_address_would_not_be_seen() {
    with_masters(0, async |_| {
        let masters = durable();
        let mut urls = apart(&masters);
        let mut first = Some(masters[0].port());
        let (sender, streams) = std::sync::mpsc::channel();
        urls[0] = impostor(move |stream| drop(sender.send(stream)));
        let pass_on = move |stream| {
            if let Some(port) = first.take() {
                forward(stream, port);
            }
        };
        thread::spawn(move || streams.iter().for_each(pass_on));
        let report = check_for(&shared(Quarantine::Off), &urls).await;
        assert_eq!(found(&report), [(Unknown, "run_id")], "{report}");
        assert!(report.to_string().contains("would not be seen"), "{report}");
    });
}

/// Passes everything on between a client and the server at `port`, in both directions.
fn forward(client: TcpStream, port: u16) {
    let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    for (from, to) in [(&client, &server), (&server, &client)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
    }
}

#[test]
fn a_server_of_a_cluster_is_found() {
    with_masters(0, async |_| {
        let mut masters = durable();
        masters[0] = Server::start_with(&[&DURABLE[..], &["--cluster-enabled", "yes"]].concat());
        let report = check_for(&shared(Quarantine::Off), &apart(&masters)).await;
        assert!(found(&report).contains(&(Warn, "redis_mode")), "{report}");
        assert_eq!(report.worst(), Some(Warn), "{report}");
    });
}

#[test]
fn masters_that_do_not_answer_are_found() {
    with_masters(0, async |_| {
        let mut masters = durable();
        let mut trusting = shared(Quarantine::Off);
        masters[0] = Server::reserve();
        let connection = (Unknown, "connection");
        let report = check_for(&trusting, &apart(&masters)).await;
        assert_eq!(found(&report), [connection], "{report}");

        masters[1] = Server::reserve();
        let report = check_for(&trusting, &apart(&masters)).await;
        let expected = [(Refuse, "votes"), connection, connection];
        assert_eq!(found(&report), expected, "{report}");
        let text = report.to_string();
        assert!(text.contains("only 1 of 3 masters now (need 2)"), "{text}");
        masters[1] = Server::start_with(&DURABLE);

        masters[0] = Server::start_with(&["--requirepass", "hunter2"]);
        let report = check_for(&trusting, &apart(&masters)).await;
        assert_eq!(found(&report), [(Refuse, "login")], "{report}");
        assert!(report.to_string().contains("login: NOAUTH"), "{report}");

        masters[0] = Server::start_with(&DURABLE);
        trusting.connect_timeout = Duration::from_millis(500);
        masters[0].pause();
        let report = check_for(&trusting, &apart(&masters)).await;
        assert_eq!(found(&report), [connection], "{report}");
        masters[0].resume();
    });
}

/// The server at the address is too old, or another program answers there.
#[test]
fn servers_that_are_no_masters_are_found() {
    with_masters(0, async |_| {
        let masters = durable();
        for (answer, expected) in [
            ("HTTP/1.1 400 Bad Request\r\n\r\n", (Refuse, "server")),
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
            let report = check_for(&shared(Quarantine::Off), &urls).await;
            assert_eq!(found(&report), [expected], "{report}");
        }
        let mut urls = apart(&masters);
        urls[0] = "redis://nobody.invalid:6379".to_owned();
        let report = check_for(&shared(Quarantine::Off), &urls).await;
        assert_eq!(found(&report), [(Unknown, "connection")], "{report}");
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
        let report = check_for(&shared(Quarantine::Off), &urls).await;
        // Before Redis 7, `--bind` turned the protected mode off.
        if major(&masters[0]) >= 7 {
            assert_eq!(found(&report), [(Refuse, "login")], "{report}");
            assert!(
                report.to_string().contains("set protected-mode no"),
                "{report}"
            );
        }
    });
}

/// Checks three masters that programs have used. On the first one, the user has `rules`.
pub(crate) async fn as_user(masters: &[Server], shared: &Shared, rules: &[&str]) -> Report {
    let words = [&["ACL", "SETUSER", "bob", "reset", "on", ">hunter2"], rules].concat();
    assert_eq!(masters[0].command(&words), "OK");
    let mut urls = apart(masters);
    urls[0] = format!("redis://bob:hunter2@127.0.0.1:{}", masters[0].port());
    let report = check_for(shared, &urls).await;
    let text = format!("{report} {report:?}");
    assert!(!text.contains("bob") && !text.contains("hunter2"), "{text}");
    report
}

const RIGHTS: Found = (Refuse, "rights");
/// The finding about an origin key that may not be written.
const UNWRITTEN: Found = (Warn, GUARD);
const NO_MUTEX: Found = (Warn, "rights for mutexes");
const OTHER_LOCKS: Found = (Info, "rights for other locks");
const MESSAGES: &str = "PUBLISH, SUBSCRIBE";
const INSPECT: &str = "rights to inspect";

/// Returns how findings call the locks of a kind.
pub(crate) fn locks_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Mutex => "mutexes",
        Kind::Reentrant => "reentrant locks",
        Kind::Fair => "fair locks",
        Kind::ReadWrite => "read-write locks",
        Kind::Semaphore => "semaphores",
        other => panic!("{other:?} has no name here"),
    }
}

/// Checks that the report names the kinds of locks whose documented rights include `command`.
fn assert_names_kinds_needing(command: &str, report: &Report) {
    let has = |row: &str| row.contains(&format!("`{command}`"));
    for kind in KINDS {
        let row = row_for(kind.word());
        let also = row.contains("those of").then(|| row_for("reentrant"));
        let needs = has(row) || also.is_some_and(has);
        let is_named = report.to_string().contains(locks_of(kind));
        assert_eq!(is_named, needs, "{kind:?} {command}: {report}");
    }
}

#[test]
fn each_missing_right_has_its_finding() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = used(&masters).await;
        let careful = shared(Quarantine::Observed);
        let all = ["~*", "&*", "+@all"];
        for (without, expected) in [
            (&["+@all"][..], vec![]),
            (&["-config"], vec![(Unknown, "CONFIG GET")]),
            (&["-evalsha"], vec![(Refuse, "EVALSHA")]),
            (&["-del"], vec![RIGHTS]),
            (&["-pexpire"], vec![RIGHTS]),
            (&["-get"], vec![RIGHTS]),
            (&["-hlen"], vec![RIGHTS]),
            (&["-zadd"], vec![RIGHTS]),
            (&["-zrank"], vec![RIGHTS]),
            (&["-zlexcount"], vec![RIGHTS]),
            (&["-type"], vec![(Info, INSPECT)]),
            (&["-set"], vec![NO_MUTEX]),
            (&["-hset"], vec![UNWRITTEN, OTHER_LOCKS]),
            (
                &["-set", "-exists", "-hset"],
                vec![RIGHTS, UNWRITTEN, OTHER_LOCKS],
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
                vec![OTHER_LOCKS],
            ),
            (&["resetkeys", "~quorlock:[cdfgqw]*"], vec![OTHER_LOCKS]),
            (
                &["resetkeys", "~quorlock:[gqd]*"],
                vec![(Unknown, "rights to keys"), OTHER_LOCKS],
            ),
        ] {
            let report = as_user(&masters, &careful, &[&all, without].concat()).await;
            assert_eq!(found(&report), expected, "{without:?}: {report}");
            if let ([one], [RIGHTS | NO_MUTEX]) = (without, &*expected) {
                let command = one.trim_start_matches('-').to_uppercase();
                assert_names_kinds_needing(&command, &report);
            }
        }
        if major(&masters[0]) >= 7 {
            for without in ["resetchannels", "-subscribe"] {
                let rules = [&all[..], &[without]].concat();
                let report = as_user(&masters, &careful, &rules).await;
                assert_eq!(found(&report), [(Info, MESSAGES)], "{report}");
            }
            let rules = [&all[..], &["-eval"]].concat();
            let report = as_user(&masters, &shared(Quarantine::Off), &rules).await;
            assert_eq!(found(&report), [(Refuse, "EVAL")], "{report}");
            for without in ["-client|list", "-client|setname"] {
                let rules = [&all[..], &[without]].concat();
                let report = as_user(&masters, &careful, &rules).await;
                assert_eq!(found(&report), [(Unknown, "lists")], "{report}");
            }
        }
        locks.close().await;
    });
}

/// Waits until the check refuses the origin key: a program is known to have used the master.
async fn until_origin_is_refused(masters: &[Server]) {
    until("a refused origin key", async || {
        let report = check(&apart(masters)).await;
        (found(&report) == [(Refuse, GUARD)]).then_some(())
    })
    .await;
}

#[test]
fn an_origin_key_that_makes_no_sense_is_found() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = used(&masters).await;
        masters[0].command(&["HSET", GUARD, "since", "soon"]);
        until_origin_is_refused(&masters).await;
        locks.close().await;
    });
}

#[test]
fn rights_that_the_guard_lacks_are_found() {
    with_masters(0, async |_| {
        let masters = durable();
        used_before(&masters).await;
        let gone = (Refuse, GUARD);
        let all = ["~*", "&*", "+@all"];
        for (without, expected, right) in [
            (&["-info"][..], &[gone, (Unknown, "INFO")][..], "+info"),
            (
                &["resetkeys", "~quorlock:check", "~quorlock:[dfqrw]*"],
                &[gone],
                "~quorlock:guard",
            ),
        ] {
            let rules = [&all[..], without].concat();
            let report = as_user(&masters, &shared(Quarantine::Observed), &rules).await;
            assert_eq!(found(&report), expected, "{without:?}: {report}");
            let fix = format!("ACL SETUSER <user> {right}");
            assert_eq!(report.findings[0].fix, fix, "{report}");
        }
        // Without quarantine, these rights are not needed.
        let rules = ["~*", "&*", "+@all", "-info"];
        let report = as_user(&masters, &shared(Quarantine::Off), &rules).await;
        let found = found(&report);
        assert!(
            found.contains(&(Unknown, "INFO")) && !found.contains(&gone),
            "{report}"
        );
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
        used_before(&masters).await;
        let all = ["~*", "&*", "+@all"];
        for quarantine in [Quarantine::Off, Quarantine::Observed, Quarantine::Strict] {
            let shared = shared(quarantine);
            for missing in ["-client|tracking", "-client|caching"] {
                let rules = [&all[..], &[missing]].concat();
                let report = as_user(&masters, &shared, &rules).await;
                let of_it = |finding: &&Finding| finding.setting == "CLIENT TRACKING";
                let finding = report.findings.iter().find(of_it).unwrap();
                assert_eq!(finding.severity, Warn, "{quarantine:?} {missing}");
                let fix = finding.fix.split(';').next().unwrap();
                let rights = fix.strip_prefix("ACL SETUSER <user> ").unwrap();
                let rights: Vec<_> = rights.split(' ').collect();
                let report = as_user(&masters, &shared, &[&rules[..], &rights].concat()).await;
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
            ("EVAL", vec![(Refuse, "EVAL")]),
            ("EVALSHA", vec![(Refuse, "EVALSHA")]),
            ("PTTL", vec![RIGHTS]),
            ("INFO", vec![(Unknown, "INFO")]),
        ] {
            let renamed = [&DURABLE[..], &["--rename-command", command, "HIDDEN"]].concat();
            masters[0] = Server::start_with(&renamed);
            let report = check(&apart(&masters)).await;
            let mut found = found(&report);
            found.retain(|(_, setting)| *setting != GUARD);
            assert_eq!(found, expected, "{command}: {report}");
        }
    });
}

#[test]
fn a_check_changes_nothing() {
    with_masters(3, async |masters| {
        let urls = apart(&masters);
        check(&urls).await;
        for master in &masters {
            assert_eq!(master.command(&["KEYS", "*"]), "");
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
        let report = check(&urls).await;
        let expected = if major(&masters[0]) < 7 { Warn } else { Info };
        assert_eq!(report.worst(), Some(expected), "{report}");
        assert_eq!(look(), before);
        for (channel, _) in heard.heard().unwrap() {
            assert_eq!(channel, "redisson_lock__channel:{quorlock:check}");
        }
    });
}

#[test]
fn a_master_that_runs_a_long_script_is_found() {
    with_masters(0, async |_| {
        let masters = durable();
        set(&masters[0], "lua-time-limit", "1");
        let port = masters[0].port();
        let busy = thread::spawn(move || {
            let words = ["EVAL", "while true do end", "0"];
            let _ = server::try_command_on(port, &words, TEST_TIMEOUT);
        });
        let report = until("a busy master", async || {
            let report = check_for(&shared(Quarantine::Off), &apart(&masters)).await;
            found(&report).contains(&(Warn, "votes")).then_some(report)
        })
        .await;
        assert!(report.to_string().contains("BUSY"), "{report}");
        masters[0].command(&["SCRIPT", "KILL"]);
        busy.join().unwrap();
    });
}

/// Two programs with different lists held one lock at once, and nobody noticed.
#[test]
fn programs_with_other_masters_or_settings_are_found() {
    with_masters(5, async |masters| {
        let urls = urls(&masters);
        let program = async |name: &str, builder: Builder| {
            let locks = builder.client_name(name).max_ttl(LONG).build().unwrap();
            locks.all_ready(TEST_TIMEOUT / 2).await.unwrap();
            locks
        };
        let ours = || patient().masters(&urls[..3]);
        let others = || patient().masters([&urls[0], &urls[3], &urls[4]]);
        let (us, them) = (program("us", ours()).await, program("them", others()).await);
        let shared = shared(Quarantine::Observed);
        let about = async |setting: &str| {
            let report = check_for(&shared, &urls[..3]).await;
            let mut findings = report.findings.into_iter();
            findings.find(|finding| finding.setting == setting)
        };
        let lists = about("lists").await.unwrap();
        assert_eq!((lists.severity, &*lists.value), (Warn, "them"), "{lists}");
        assert_eq!(lists.masters.len(), 1, "{lists}");
        them.close().await;
        drop(them);
        until("they are gone", async || {
            about("lists").await.is_none().then_some(())
        })
        .await;

        let elsewhere = urls[..3].iter().map(|url| format!("{url}/3"));
        let elsewhere = program("elsewhere", patient().masters(elsewhere)).await;
        let database = about("database").await.unwrap();
        assert_eq!(
            (database.severity, &*database.value),
            (Warn, "elsewhere"),
            "{database}"
        );
        assert_eq!(about("lists").await, None, "their masters are ours");
        elsewhere.close().await;

        let trusting = ours().quarantine(Quarantine::Off).client_name("trusting");
        let trusting = trusting.build().unwrap();
        trusting.all_ready(TEST_TIMEOUT / 2).await.unwrap();
        assert_eq!(about("max_ttl").await, None, "it has no quarantine");

        let hasty = ours()
            .client_name("hasty")
            .max_ttl(LONG / 2)
            .ttl(LONG / 2)
            .build()
            .unwrap();
        hasty.all_ready(TEST_TIMEOUT / 2).await.unwrap();
        let prefixed = program("prefixed", others().key_template("app:{name}")).await;
        let max_ttl = about("max_ttl").await.unwrap();
        assert_eq!(
            (max_ttl.severity, &*max_ttl.value),
            (Warn, "hasty with 300s")
        );
        let template = about("key template").await.unwrap();
        assert_eq!((template.severity, &*template.value), (Info, "prefixed"));
        assert_eq!(about("lists").await, None, "their keys are others");
        for locks in [us, trusting, hasty, prefixed] {
            locks.close().await;
        }
    });
}
