//! The cures of the check: each one is for the error that the server gave, and for no other.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    thread,
    time::Duration,
};

use quorlock::{Quarantine, tools::DialRefusal, votes::Failure};
use quorlock_check::{
    Finding, Report,
    Severity::{Critical, Unknown},
};

use crate::{
    check::{as_user, check, check_for, durable, found, locks_of, set, shared, used_before},
    common::*,
    impostors::impostor,
    rights::row_for,
};

const ORIGIN: &str = "quorlock:origin";
const ACL: &str = "ACL SETUSER <user> ";

/// Checks that the report has these cures, one on each line: the severity and the setting, and a
/// part of the value and of the fix. A fix that changes rights is written as its rules, and no
/// other finding has such a fix.
#[track_caller]
fn assert_cures(report: &Report, cures: &str) {
    let mut rights = 0;
    for cure in cures.lines() {
        let parts: Vec<_> = cure.split(": ").collect();
        let [severity, setting, value, fix] = parts[..] else {
            panic!("{cure}");
        };
        let is_of_rights = fix.starts_with(['+', '~', '&']);
        rights += usize::from(is_of_rights);
        let fix = format!("{}{fix}", if is_of_rights { ACL } else { "" });
        let is_it = |one: &Finding| {
            let is_named = (&*one.severity.to_string(), one.setting) == (severity, setting);
            is_named && one.value.contains(value) && one.fix.contains(&fix)
        };
        assert!(report.findings.iter().any(is_it), "{cure}: {report}");
    }
    let found = report.findings.iter().filter(|one| one.fix.contains(ACL));
    assert_eq!(found.count(), rights, "{report}");
}

/// Returns the rules in the commands of all cures.
fn rights_of(report: &Report) -> Vec<&str> {
    let fixes = report.findings.iter();
    let commands = fixes.filter_map(|one| one.fix.split([',', ';']).next());
    let rules = commands.filter_map(|command| command.strip_prefix(ACL));
    rules.flat_map(|rules| rules.split(' ')).collect()
}

#[test]
fn a_state_of_the_server_has_its_cure() {
    with_masters(1, async |masters| {
        let master = &masters[0];
        let url = [master.url()];
        for (setting, cure) in [
            (
                "min-replicas-to-write",
                "warn: writes: NOREPLICAS: let its replicas connect again",
            ),
            (
                "maxmemory",
                "warn: writes: OOM: CONFIG SET maxmemory to more",
            ),
        ] {
            set(master, setting, "1");
            let report = check(&url).await;
            assert_cures(&report, cure);
            let is_command = report.to_string().contains("min-replicas-to-write 0");
            assert!(!is_command, "a partition is no reason: {report}");
            set(master, setting, "0");
        }
        std::fs::create_dir(master.socket().with_file_name("dump.rdb")).unwrap();
        set(master, "save", "3600 1000000");
        master.command(&["BGSAVE"]);
        until("MISCONF", async || {
            let is_refused = master.command(&["SET", "x", "y"]).contains("MISCONF");
            is_refused.then_some(())
        })
        .await;
        assert_cures(&check(&url).await, "warn: writes: MISCONF: its disk");
        set(master, "stop-writes-on-bgsave-error", "no");
        let text = check(&url).await.to_string();
        assert!(!text.contains("writes: "), "{text}");

        master.command(&["SET", ORIGIN, "of another program"]);
        let cure = "unknown: quorlock:origin: WRONGTYPE: writes the key anew";
        assert_cures(&check(&url).await, cure);

        set(master, "lua-time-limit", "1");
        let port = master.port();
        let busy = thread::spawn(move || {
            let words = ["EVAL", "while true do end", "0"];
            let _ = server::try_command_on(port, &words, TEST_TIMEOUT);
        });
        // The server may become busy in the middle of a check, before or after the votes.
        let is_busy = |report: &Report| {
            let mut votes = report.findings.iter().filter(|one| one.setting == "votes");
            votes.any(|one| one.value.contains("BUSY"))
        };
        let report = until("BUSY", async || Some(check(&url).await).filter(is_busy)).await;
        assert_cures(&report, "warn: votes: BUSY: SCRIPT KILL");
        master.command(&["SCRIPT", "KILL"]);
        busy.join().unwrap();

        let mut held = TcpStream::connect(("127.0.0.1", master.port())).unwrap();
        held.write_all(b"PING\r\n").unwrap();
        held.read_exact(&mut [0; b"+PONG\r\n".len()]).unwrap();
        set(master, "maxclients", "1");
        let cure = "warn: votes: max number of clients: CONFIG SET maxclients to more";
        assert_cures(&check(&url).await, cure);
    });
}

/// Servers in cluster mode: without slots, and the two parts of one cluster.
#[test]
fn no_right_helps_a_part_of_a_cluster() {
    if server::is_mixed() {
        return;
    }
    with_masters(0, async |_| {
        let start = |_| Server::start_with(&["--cluster-enabled", "yes"]);
        let masters: Vec<_> = (0..2).map(start).collect();
        let urls = urls(&masters);
        let report = check(&urls).await;
        assert_cures(
            &report,
            "warn: writes: CLUSTERDOWN: CLUSTER INFO\nwarn: redis_mode: cluster: standalone",
        );

        for (master, slots) in masters.iter().zip([0..8_192, 8_192..16_384]) {
            let slots: Vec<_> = slots.map(|slot: u32| slot.to_string()).collect();
            let words = ["CLUSTER", "ADDSLOTS"].into_iter();
            let words: Vec<_> = words.chain(slots.iter().map(String::as_str)).collect();
            assert_eq!(master.command(&words), "OK");
        }
        let port = masters[1].port().to_string();
        masters[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        until("a cluster", async || {
            let is_up = |one: &Server| one.command(&["CLUSTER", "INFO"]).contains("state:ok");
            let knows = |one: &Server| one.command(&["CLUSTER", "INFO"]).contains("nodes:2");
            let all = masters.iter().all(|one| is_up(one) && knows(one));
            all.then_some(())
        })
        .await;
        for quarantine in [Quarantine::Observed, Quarantine::Off] {
            let report = check_for(&shared(quarantine), &urls).await;
            assert_cures(&report, "critical: redis_mode: MOVED: standalone masters");
            assert!(
                report.to_string().contains("\ncritical: votes: "),
                "{report}"
            );
        }
        let report = check(&urls).await;
        let parts = report
            .findings
            .iter()
            .filter(|one| one.setting == "redis_mode");
        assert_eq!(parts.flat_map(|one| &one.masters).count(), 2, "{report}");

        // The key of the quarantine is on the second one.
        let locks = patient()
            .quarantine(Quarantine::Observed)
            .ttl(Duration::from_secs(10));
        let locks = locks.master(&*urls[0]).build().unwrap();
        let refusal = until("a failed dial", async || locks.health()[0].refusal).await;
        assert_eq!(refusal, DialRefusal::OtherServer);
        let locks = patient().quarantine(Quarantine::Off).masters(&urls);
        let locks = locks.build().unwrap();
        let error = locks.mutex("r").try_acquire().await.unwrap_err();
        let votes = error.votes().unwrap();
        let mut failures = votes.iter().filter_map(|row| row.failure());
        assert!(failures.any(Failure::is_permanent), "{votes}");
    });
}

/// No right brings a command back that has another name.
#[test]
fn no_right_helps_where_commands_are_renamed() {
    with_masters(0, async |_| {
        for row in include_str!("renamed.txt").trim_end().split("\n\n") {
            let (commands, cures) = row.split_once('\n').unwrap();
            let options = commands.split(' ');
            let options = options.flat_map(|one| ["--rename-command", one, ""]);
            let master = Server::start_with(&options.collect::<Vec<_>>());
            assert_cures(&check(&[master.url()]).await, cures);
        }
    });
}

/// Returns the findings if a user with all rights has these rules, too.
async fn without(masters: &[Server], quarantine: Quarantine, rules: &str) -> Report {
    let all = ["~*", "&*", "+@all"].into_iter();
    let rules: Vec<_> = all.chain(rules.split_whitespace()).collect();
    as_user(masters, &shared(quarantine), &rules).await
}

#[test]
fn a_missing_right_has_the_right_as_its_cure() {
    let is_old = server::is_before_7();
    with_masters(0, async |_| {
        let masters = durable();
        used_before(&masters).await;
        // Each paragraph has rules, and what is found then. `-set -exists ..` is a user for mutexes
        // without the right to `SET`.
        for row in include_str!("cures.txt").trim_end().split("\n\n") {
            let (rules, cures) = row.split_once('\n').unwrap_or((row, ""));
            // Older servers have no rules about subcommands, or they tell no script.
            let is_new = |part| rules.contains(part);
            if is_old
                && ["|", "%", "&", "-eval", "-subscribe"]
                    .into_iter()
                    .any(is_new)
            {
                continue;
            }
            let report = without(&masters, Quarantine::Observed, rules).await;
            assert_cures(&report, cures);
            assert_eq!(found(&report).len(), cures.lines().count(), "{report}");
            // A server refuses all rules of a cure if one is a pattern and the user has all keys.
            let cured = format!("{rules} {}", rights_of(&report).join(" "));
            let report = without(&masters, Quarantine::Observed, &cured).await;
            assert_eq!(rights_of(&report), [""; 0], "{rules}: {report}");
        }
        for command in [
            "del",
            "pexpire",
            "get",
            "hlen",
            "zadd",
            "zrank",
            "zlexcount",
            "set",
        ] {
            let report = without(&masters, Quarantine::Observed, &format!("-{command}")).await;
            assert_names_kinds_needing(&command.to_uppercase(), &report);
        }
        // Without quarantine, the right is not needed for the origin key.
        let found = found(&without(&masters, Quarantine::Off, "-info").await);
        let is_needed = found.contains(&(Critical, ORIGIN));
        assert!(found.contains(&(Unknown, "INFO")) && !is_needed);
    });
}

/// Checks that the report names the kinds of locks whose documented rights include `command`, and
/// no other kinds.
fn assert_names_kinds_needing(command: &str, report: &Report) {
    let has = |row: &str| row.contains(&format!("`{command}`"));
    for kind in KINDS {
        let row = row_for(kind.as_str());
        let also = row.contains("those of").then(|| row_for("reentrant"));
        let needs = has(row) || also.is_some_and(has);
        let is_named = report.to_string().contains(locks_of(kind));
        assert_eq!(is_named, needs, "{kind:?} {command}: {report}");
    }
}

#[cfg(feature = "sentinel")]
#[test]
fn a_connection_that_fails_has_its_cure() {
    with_masters(2, async |mut masters| {
        masters.push(Server::start_with(&["--requirepass", "hunter2"]));
        let says = |answer: &'static str| {
            impostor(move |mut stream| {
                let _ = stream.write_all(answer.as_bytes());
                // Reads to the end, because a close with unread bytes would reset the connection.
                let _ = io::copy(&mut stream, &mut io::sink());
            })
        };
        use testkit::sentinels::{sentinel_url, watch};
        let sentinel = watch(&masters[0], 1, "", &[]);
        let service = sentinel_url([&sentinel]).replace("/svc", "/nope");
        masters[1].pause();
        for (url, cure) in [
            (
                masters[2].url(),
                "critical: login: NOAUTH: look at its users",
            ),
            (
                masters[0].url() + "/99",
                "critical: login: DB index: use a lower number",
            ),
            (
                says("-DENIED Redis is running in protected mode\r\n"),
                "critical: login: DENIED: set protected-mode no",
            ),
            (
                Server::reserve().url(),
                "unknown: connection: refused: make sure that it is up",
            ),
            (
                masters[1].url(),
                "unknown: connection: no connection in 2s: make sure that it is up",
            ),
            (
                "redis://nobody.invalid:6379".to_owned(),
                "unknown: connection: nobody.invalid: make sure that it is up",
            ),
            (
                says("HTTP/1.1 400 Bad Request\r\n\r\n"),
                "critical: server: is this a Redis server?: list the host and the port",
            ),
            (
                sentinel.url(),
                "critical: server: it is a Sentinel: list the host and the port",
            ),
            (
                service,
                "critical: connection: knows no master: look at the service",
            ),
        ] {
            let mut shared = shared(Quarantine::Off);
            shared.connect_timeout = Duration::from_secs(2);
            assert_cures(&check_for(&shared, &[url]).await, cure);
        }
        masters[1].resume();
    });
}
