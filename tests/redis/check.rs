//! Checks of servers. These tests and those in `cures.rs` provoke each finding that can be provoked
//! on a server.

use std::{
    io,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use quorlock::{Builder, Coordinator, LockKind, MasterSpec, Quarantine};
use quorlock_check::{
    CheckSettings, Report,
    Severity::{self, Critical, Info, Unknown, Warn},
};

use crate::{common::*, impostors::impostor};

/// The options with which a master keeps its locks over a restart.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

type Found = (Severity, &'static str);

/// Returns three servers that are fit as masters, but on one machine.
pub(crate) fn durable() -> Vec<Server> {
    (0..3).map(|_| Server::start_with(&DURABLE)).collect()
}

fn quarantining() -> Builder {
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
pub(crate) fn shared(quarantine: Quarantine) -> CheckSettings {
    let mut shared = CheckSettings::default();
    shared.quarantine = quarantine;
    shared.max_ttl = LONG;
    shared.response_timeout = Duration::from_secs(5);
    shared.connect_timeout = Duration::from_secs(5);
    shared
}

/// Checks the masters with these URLs, for programs with quarantine.
pub(crate) async fn check(urls: &[impl AsRef<str>]) -> Report {
    check_for(&shared(Quarantine::Observed), urls).await
}

pub(crate) async fn check_for(shared: &CheckSettings, urls: &[impl AsRef<str>]) -> Report {
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
pub(crate) async fn used_before(masters: &[Server]) {
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

pub(crate) fn set(master: &Server, setting: &str, value: &str) {
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

const ORIGIN: &str = "quorlock:origin";
/// The finding about a master that no program has used yet.
const NEW: Found = (Info, ORIGIN);

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
        let address = format!("unix:{}", masters[1].socket().display());
        for (setting, bad, good, is_always) in [
            ("maxmemory-policy", "volatile-ttl", "noeviction", true),
            ("timeout", "3600", "0", true),
            ("appendfsync", "everysec", "always", false),
            ("no-appendfsync-on-rewrite", "yes", "no", false),
        ] {
            set(&masters[1], setting, bad);
            let careful = check(&apart(&masters)).await;
            assert_eq!(found(&careful).len(), usize::from(is_always), "{careful}");
            let report = check_for(&shared(Quarantine::Off), &apart(&masters)).await;
            let setting_or_field = setting.replace("maxmemory-policy", "maxmemory_policy");
            let text = format!("warn: {address}: {setting_or_field}: {bad}: ");
            assert!(report.to_string().contains(&text), "{report}");
            assert_eq!(found(&report).len(), 1, "{report}");
            set(&masters[1], setting, good);
        }
        set(&masters[1], "maxmemory", "100mb");
        set(&masters[1], "maxmemory-policy", "allkeys-lru");
        let report = check(&apart(&masters)).await;
        assert_eq!(found(&report), [(Critical, "maxmemory_policy")], "{report}");
        locks.close().await;
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
            (found(&report) == [(Warn, ORIGIN)]).then_some(report)
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
        program.all_ready_within(TEST_TIMEOUT / 4).await.unwrap();
        copy(&other, &masters[1]);
        let in_quarantine = (Warn, ORIGIN);
        until("a redial", async || {
            // The data also tells of the program that used the other server.
            let expected = [(Critical, "lists"), in_quarantine];
            (found(&check(&apart(&masters)).await) == expected).then_some(())
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
        assert_eq!(found(&report), [(Critical, had)], "{report}");
    });
}

/// Replaces the data of `to` with the data of `from`.
fn copy(from: &Server, to: &Server) {
    follow(from, to);
    to.command(&["REPLICAOF", "NO", "ONE"]);
    until_info(from, "connected_slaves", "0");
}

/// Makes a server a replica, and waits until it has the data.
fn follow(master: &Server, replica: &Server) {
    set(master, "repl-diskless-sync-delay", "0");
    replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    until_info(replica, "master_link_status", "up");
}

fn until_info(server: &Server, field: &str, value: &str) {
    let start = Instant::now();
    while info(server, field).as_deref() != Some(value) {
        assert!(start.elapsed() < TEST_TIMEOUT, "{}", server.log_tail());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn replicas_are_found() {
    if server::is_mixed() {
        return;
    }
    with_masters(0, async |_| {
        let (masters, replica) = (durable(), Server::start());
        let locks = used(&masters).await;
        follow(&masters[0], &replica);
        let report = check(&apart(&masters)).await;
        assert_eq!(found(&report), [(Warn, "connected_slaves")], "{report}");
        replica.command(&["REPLICAOF", "NO", "ONE"]);

        follow(&masters[0], &masters[1]);
        let report = check(&apart(&masters)).await;
        assert!(found(&report).contains(&(Critical, "role")), "{report}");
        locks.close().await;
    });
}

/// Each connection to the address meets the next server, or only the first one meets any.
#[test]
fn it_is_found_if_several_servers_answer_behind_one_address_or_would_not_be_seen() {
    with_masters(0, async |_| {
        let (masters, other) = (durable(), Server::start_with(&DURABLE));
        let [one, other] = [&masters[0], &other].map(Server::port);
        for (ports, expected, text) in [
            (
                [one, other].repeat(4),
                (Critical, "run_id"),
                "several servers",
            ),
            (vec![one], (Unknown, "run_id"), "would not be seen"),
        ] {
            let (sender, streams) = std::sync::mpsc::channel();
            let mut urls = apart(&masters);
            urls[0] = impostor(move |stream| drop(sender.send(stream)));
            thread::spawn(move || {
                let pairs = streams.into_iter().zip(ports);
                pairs.for_each(|(stream, port)| forward(stream, port));
            });
            let report = check_for(&shared(Quarantine::Off), &urls).await;
            assert_eq!(found(&report), [expected], "{report}");
            assert!(report.to_string().contains(text), "{report}");
        }
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

/// Checks three masters that programs have used. On the first one, the user has `rules`.
pub(crate) async fn as_user(masters: &[Server], shared: &CheckSettings, rules: &[&str]) -> Report {
    let words = [&["ACL", "SETUSER", "bob", "reset", "on", ">hunter2"], rules].concat();
    assert_eq!(masters[0].command(&words), "OK");
    let mut urls = apart(masters);
    urls[0] = format!("redis://bob:hunter2@127.0.0.1:{}", masters[0].port());
    let report = check_for(shared, &urls).await;
    let text = format!("{report} {report:?}");
    assert!(!text.contains("bob") && !text.contains("hunter2"), "{text}");
    report
}

/// Returns how findings call the locks of a kind.
pub(crate) fn locks_of(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Mutex => "mutexes",
        LockKind::Reentrant => "reentrant locks",
        LockKind::Fair => "fair locks",
        LockKind::ReadWrite => "read-write locks",
        LockKind::Semaphore => "semaphores",
        other => panic!("{other:?} has no name here"),
    }
}

/// Waits until the check refuses the origin key: a program is known to have used the master.
async fn until_origin_is_refused(masters: &[Server]) {
    until("a refused origin key", async || {
        let report = check(&apart(masters)).await;
        (found(&report) == [(Critical, ORIGIN)]).then_some(())
    })
    .await;
}

#[test]
fn an_origin_key_that_makes_no_sense_is_found() {
    with_masters(0, async |_| {
        let masters = durable();
        let locks = used(&masters).await;
        masters[0].command(&["HSET", ORIGIN, "since", "soon"]);
        until_origin_is_refused(&masters).await;
        locks.close().await;
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

/// Two programs with different lists held one lock at once, and nobody noticed.
#[test]
fn programs_with_other_masters_or_settings_are_found() {
    with_masters(5, async |masters| {
        let urls = urls(&masters);
        let program = async |name: &str, builder: Builder| {
            let locks = builder.client_name(name).build().unwrap();
            locks.all_ready_within(TEST_TIMEOUT / 2).await.unwrap();
            locks
        };
        let ours = || patient().masters(&urls[..3]).max_ttl(LONG);
        let others = || {
            patient()
                .masters([&urls[0], &urls[3], &urls[4]])
                .max_ttl(LONG)
        };
        let elsewhere = urls[..3].iter().map(|url| format!("{url}/3"));
        let elsewhere = patient().masters(elsewhere).max_ttl(LONG);
        let hasty = ours().max_ttl(LONG / 2).ttl(LONG / 2);
        let programs = [
            program("us", ours()).await,
            program("them", others()).await,
            program("elsewhere", elsewhere).await,
            program("trusting", patient().masters(&urls[..3])).await, // it has no quarantine
            program("hasty", hasty).await,
            program("prefixed", others().key_template("app:{name}")).await,
        ];
        let report = check_for(&shared(Quarantine::Observed), &urls[..3]).await;
        for (severity, setting, value, count) in [
            (Critical, "lists", "them", 1),
            (Warn, "database", "elsewhere", 3),
            (Warn, "max_ttl", "hasty with 300s", 3),
            (Info, "key template", "prefixed", 1),
        ] {
            let of_it = report.findings.iter().filter(|one| one.setting == setting);
            let of_it = of_it.map(|one| (one.severity, &*one.value, one.masters.len()));
            assert_eq!(
                of_it.collect::<Vec<_>>(),
                [(severity, value, count)],
                "{report}"
            );
        }
        for locks in programs {
            locks.close().await;
        }
    });
}
