//! The cures of the check: each one is for the error that the server gave, and for no other.

use std::{io, io::Write as _, thread, time::Duration};

use quorlock::{DialRefusal, Failure, Quarantine};
use quorlock_check::{
    Report,
    Severity::{self, Info, Refuse, Unknown, Warn},
};

use crate::{
    check::{as_user, check, check_for, durable, shared},
    common::*,
    impostors::impostor,
};

/// A finding: its severity and setting, and a part of its value and of its fix.
type Cure = (Severity, &'static str, &'static str, &'static str);

const GUARD: &str = "quorlock:guard";
const ACL: &str = "ACL SETUSER";
const HMGET: &str = "ACL SETUSER <user> +hmget";

/// A user for mutexes without the right to `SET`.
const MUTEXES_WITHOUT_SET: &[Cure] = &[
    (
        Refuse,
        "rights",
        "no mutexes, fencing tokens without SET",
        "ACL SETUSER <user> +set",
    ),
    (
        Info,
        "rights for other locks",
        "without EXISTS, HDEL",
        "ACL SETUSER <user> +exists +hdel +zadd",
    ),
];
const FENCES: &[Cure] = &[(
    Info,
    "rights for other locks",
    "no fencing tokens without fence",
    "ACL SETUSER <user> ~quorlock:fence:*",
)];

/// Checks that the report has these cures, and tells only those of them to change rights.
fn assert_cures(report: &Report, cures: &[Cure]) {
    for (severity, setting, value, fix) in cures {
        let is_it = |one: &&quorlock_check::Finding| {
            (one.severity, one.setting) == (*severity, *setting) && one.value.contains(value)
        };
        let mut found = report.findings.iter().filter(is_it);
        assert!(
            found.any(|one| one.fix.contains(fix)),
            "{severity}, {setting}, {value}, {fix}: {report}"
        );
    }
    let is_of_rights = |fix: &str| fix.contains(ACL);
    let found = report.findings.iter().filter(|one| is_of_rights(&one.fix));
    let expected = cures.iter().filter(|(.., fix)| is_of_rights(fix));
    assert_eq!(found.count(), expected.count(), "{report}");
}

/// Returns the rules in the commands of all cures.
fn rights_of(report: &Report) -> Vec<&str> {
    let fixes = report.findings.iter();
    let commands = fixes.filter_map(|one| one.fix.split([',', ';']).next());
    let rules = commands.filter_map(|command| command.strip_prefix("ACL SETUSER <user> "));
    rules.flat_map(|rules| rules.split(' ')).collect()
}

fn set(master: &Server, setting: &str, value: &str) {
    assert_eq!(master.command(&["CONFIG", "SET", setting, value]), "OK");
}

#[test]
fn a_state_of_the_server_has_its_cure() {
    with_masters(1, async |masters| {
        let master = &masters[0];
        let url = [master.url()];
        for (setting, bad, good, code, fix) in [
            (
                "min-replicas-to-write",
                "1",
                "0",
                "NOREPLICAS",
                "let its replicas connect again",
            ),
            ("maxmemory", "1", "0", "OOM", "CONFIG SET maxmemory to more"),
        ] {
            set(master, setting, bad);
            let report = check(&url).await;
            assert_cures(&report, &[(Warn, "writes", code, fix)]);
            let is_command = report.to_string().contains("min-replicas-to-write 0");
            assert!(!is_command, "a partition is no reason: {report}");
            set(master, setting, good);
        }
        std::fs::create_dir(master.socket().with_file_name("dump.rdb")).unwrap();
        set(master, "save", "3600 1000000");
        master.command(&["BGSAVE"]);
        until("MISCONF", async || {
            let is_refused = master.command(&["SET", "x", "y"]).contains("MISCONF");
            is_refused.then_some(())
        })
        .await;
        assert_cures(
            &check(&url).await,
            &[(Warn, "writes", "MISCONF", "its disk")],
        );
        set(master, "stop-writes-on-bgsave-error", "no");

        master.command(&["SET", GUARD, "of another program"]);
        let cure = (Unknown, GUARD, "WRONGTYPE", "writes the key anew");
        assert_cures(&check(&url).await, &[cure]);

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
        assert_cures(&report, &[(Warn, "votes", "BUSY", "SCRIPT KILL")]);
        master.command(&["SCRIPT", "KILL"]);
        busy.join().unwrap();
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
        let down = (Warn, "writes", "CLUSTERDOWN", "CLUSTER INFO");
        let mode = (Warn, "redis_mode", "cluster", "standalone");
        assert_cures(&report, &[down, mode]);

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
            let part = |value| (Refuse, "redis_mode", value, "standalone masters");
            let votes = (Refuse, "votes", "of 2 masters", "");
            assert_cures(&report, &[part("MOVED"), votes]);
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
        let renamed = async |commands: &[&str]| {
            let options = commands
                .iter()
                .flat_map(|one| ["--rename-command", one, ""]);
            let master = Server::start_with(&options.collect::<Vec<_>>());
            (check(&[master.url()]).await, master)
        };
        let (report, _server) = renamed(&[
            "CONFIG",
            "CLIENT",
            "INFO",
            "TYPE",
            "PUBLISH",
            "SUBSCRIBE",
            "PTTL",
        ])
        .await;
        let forbidden = "the server itself forbids that in scripts";
        let cures = [
            (
                Unknown,
                "CONFIG GET",
                "unknown command",
                "look at the settings by hand",
            ),
            (
                Unknown,
                "lists",
                "unknown command",
                "do not rename or disable CLIENT",
            ),
            (
                Warn,
                "CLIENT TRACKING",
                "unknown command",
                "do not rename or disable CLIENT",
            ),
            (Unknown, "INFO", "denied", forbidden),
            (Info, "rights to inspect", "TYPE", forbidden),
            (Info, "PUBLISH, SUBSCRIBE", "denied", forbidden),
            (Refuse, "rights", "PTTL", forbidden),
            (Refuse, GUARD, "nknown", forbidden),
        ];
        assert_cures(&report, &cures);
        for (command, cure) in [
            (
                "EVAL",
                (
                    Refuse,
                    "EVAL",
                    "unknown command",
                    "do not rename or disable EVAL",
                ),
            ),
            (
                "EVALSHA",
                (
                    Refuse,
                    "EVALSHA",
                    "unknown command",
                    "do not rename or disable EVAL",
                ),
            ),
            (
                "HELLO",
                (
                    Refuse,
                    "redis_version",
                    "unknown command",
                    "do not rename HELLO",
                ),
            ),
        ] {
            let (report, _server) = renamed(&[command]).await;
            assert_cures(&report, &[cure]);
        }
    });
}

#[test]
fn a_missing_right_has_the_right_as_its_cure() {
    if server::is_before_7() {
        return; // rules about subcommands need version 7
    }
    with_masters(0, async |_| {
        let masters = durable();
        for (without, cures) in [
            (
                "-config",
                &[(
                    Unknown,
                    "CONFIG GET",
                    "NOPERM",
                    "ACL SETUSER <user> +config|get",
                )][..],
            ),
            (
                "-eval",
                &[(
                    Refuse,
                    "EVAL",
                    "NOPERM",
                    "ACL SETUSER <user> +eval; then check again",
                )],
            ),
            (
                "-evalsha",
                &[(Refuse, "EVALSHA", "NOPERM", "ACL SETUSER <user> +evalsha")],
            ),
            (
                "-eval -evalsha",
                &[(
                    Refuse,
                    "EVAL",
                    "NOPERM",
                    "ACL SETUSER <user> +eval +evalsha; then check again",
                )],
            ),
            (
                "-client|list",
                &[(
                    Unknown,
                    "lists",
                    "NOPERM",
                    "ACL SETUSER <user> +client|list",
                )],
            ),
            (
                "-client|tracking",
                &[(
                    Warn,
                    "CLIENT TRACKING",
                    "NOPERM",
                    "ACL SETUSER <user> +client|tracking",
                )],
            ),
            (
                "-type",
                &[(
                    Info,
                    "rights to inspect",
                    "TYPE",
                    "ACL SETUSER <user> +type",
                )],
            ),
            (
                "-publish",
                &[(
                    Info,
                    "PUBLISH, SUBSCRIBE",
                    "denied",
                    "ACL SETUSER <user> +publish",
                )],
            ),
            (
                "-subscribe",
                &[(
                    Info,
                    "PUBLISH, SUBSCRIBE",
                    "denied",
                    "ACL SETUSER <user> +subscribe",
                )],
            ),
            (
                "resetchannels &redisson_lock__channel:*",
                &[(
                    Info,
                    "PUBLISH, SUBSCRIBE",
                    "denied",
                    "ACL SETUSER <user> &quorlock:*",
                )],
            ),
            (
                "-get -zrank",
                &[(
                    Refuse,
                    "rights",
                    "no mutexes, fencing tokens without GET; no fair locks without ZRANK",
                    "ACL SETUSER <user> +get +zrank",
                )],
            ),
            (
                "-set",
                &[(
                    Warn,
                    "rights for mutexes",
                    "no mutexes, fencing tokens without SET",
                    "ACL SETUSER <user> +set",
                )],
            ),
            (
                "-set -exists -hdel -zadd -zrem -zrange -zrank -zscore -zlexcount",
                MUTEXES_WITHOUT_SET,
            ),
            (
                "-hset",
                &[
                    (Warn, GUARD, "without HSET", "ACL SETUSER <user> +hset"),
                    (
                        Info,
                        "rights for other locks",
                        "without HSET",
                        "ACL SETUSER <user> +hset",
                    ),
                ],
            ),
            (
                "resetkeys ~quorlock:[cdfqrw]* %R~quorlock:guard",
                &[(
                    Warn,
                    GUARD,
                    "may not be written",
                    "ACL SETUSER <user> ~quorlock:guard",
                )],
            ),
            ("resetkeys %R~quorlock:fence:* ~quorlock:[cdgqrw]*", FENCES),
            ("resetkeys ~quorlock:[cdgqrw]*", FENCES),
            (
                "resetkeys %R~quorlock:check ~quorlock:[dfgqrw]*",
                &[(Unknown, "rights to keys", "not all keys", "patterns for")],
            ),
            (
                "-info",
                &[
                    (Unknown, "INFO", "denied", "ACL SETUSER <user> +info"),
                    (Refuse, GUARD, "answered ", "ACL SETUSER <user> +info"),
                ],
            ),
            (
                "-hmget",
                &[
                    (Refuse, GUARD, "answered ", HMGET),
                    (Refuse, "rights", "semaphores without HMGET", HMGET),
                ],
            ),
            (
                "resetkeys ~quorlock:[cdfqrw]*",
                &[(
                    Refuse,
                    GUARD,
                    "answered ",
                    "ACL SETUSER <user> ~quorlock:guard",
                )],
            ),
        ] {
            let rules = ["~*", "&*", "+@all"].into_iter().chain(without.split(' '));
            let rules: Vec<_> = rules.collect();
            let observed = shared(Quarantine::Observed);
            let report = as_user(&masters, &observed, &rules).await;
            assert_cures(&report, cures);
            // A server refuses all rules of a cure if one is a pattern and the user has all keys.
            let cured = [&rules[..], &rights_of(&report)].concat();
            let report = as_user(&masters, &observed, &cured).await;
            assert_eq!(rights_of(&report), [""; 0], "{without}: {report}");
        }
    });
}

#[cfg(feature = "sentinel")]
#[test]
fn a_connection_that_fails_has_its_cure() {
    with_masters(1, async |mut masters| {
        masters.push(Server::start_with(&["--requirepass", "hunter2"]));
        let web = impostor(|mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = io::copy(&mut stream, &mut io::sink());
        });
        use testkit::sentinels::{sentinel_url, watch};
        let sentinel = watch(&masters[0], 1, "", &[]);
        let service = sentinel_url([&sentinel]).replace("/svc", "/nope");
        for (url, cure) in [
            (
                masters[1].url(),
                (Refuse, "login", "NOAUTH", "look at its users"),
            ),
            (
                masters[0].url() + "/99",
                (Refuse, "login", "DB index", "use a lower number"),
            ),
            (
                Server::reserve().url(),
                (Unknown, "connection", "refused", "make sure that it is up"),
            ),
            (
                web,
                (
                    Refuse,
                    "server",
                    "is this a Redis server?",
                    "list the host and the port",
                ),
            ),
            (
                sentinel.url(),
                (
                    Refuse,
                    "server",
                    "it is a Sentinel",
                    "list the host and the port",
                ),
            ),
            (
                service,
                (
                    Refuse,
                    "connection",
                    "knows no master",
                    "look at the service",
                ),
            ),
        ] {
            let mut shared = shared(Quarantine::Off);
            shared.connect_timeout = Duration::from_secs(2);
            assert_cures(&check_for(&shared, &[url]).await, &[cure]);
        }
    });
}
