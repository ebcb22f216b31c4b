use std::{io, sync::Arc, time::Duration};

use super::{
    facts::{Facts, MasterAnswer, Ours},
    judge::judge,
    report::{
        CheckReport,
        Severity::{self, Info, Refuse, Unknown, Warn},
    },
    setting::Setting,
};
use crate::{
    Coordinator, MemoryMaster, Quarantine,
    core::{
        config::{Config, Settings},
        time::lease::Drift,
        vote::{Failure, quorum::Quorum},
    },
    master::{
        connect_error::{ConnectError, ConnectStep},
        dial_error::DialError,
        probe::ProbeError,
    },
};

/// The answer of a fit master: Redis 7, and a user with all rights.
const FIT: &str = "run_id:RUN\nredis_version:7.0.15\nredis_mode:standalone\nrole:master\nmaster_replid:RUN\n\
                   master_replid2:0000\n\
                   connected_slaves:0\nmaxmemory:0\nmaxmemory_policy:noeviction\nevicted_keys:0\nloading:0\n\
                   tracking_total_keys:9\n\
                   aof_enabled:1\naof_last_write_status:ok\nrdb_last_bgsave_status:ok\nconnected_clients:1\n\
                   monotonic_clock:POSIX clock_gettime\ntime:5000000\norigin_age:never\n\
                   try.SET:ERR syntax error\ntry.HSET:ERR wrong number of arguments for 'hset' command\nmay_eval:yes";

const MESSAGES: &str = "PUBLISH, SUBSCRIBE";

const SET: &[(&str, &str)] = &[
    ("active-replica", "no"),
    ("appendfsync", "always"),
    ("lua-time-limit", "40"),
    ("maxclients", "10000"),
    ("min-replicas-to-write", "0"),
    ("no-appendfsync-on-rewrite", "no"),
    ("stop-writes-on-bgsave-error", "yes"),
    ("tcp-keepalive", "300"),
    ("timeout", "0"),
    ("tracking-table-max-keys", "1000000"),
];

/// The settings of a program.
struct Own {
    config: Config,
    node_timeout: Duration,
}

fn own() -> Own {
    let mut config = Config::parse(Settings::default()).unwrap();
    config.quarantine = Quarantine::Observed;
    Own {
        config,
        node_timeout: Duration::from_millis(50),
    }
}

fn with_quarantine(quarantine: Quarantine) -> Own {
    let mut own = own();
    own.config.quarantine = quarantine;
    own
}

fn check(masters: &[MasterAnswer], own: &Own) -> CheckReport {
    let (config, node_timeout) = (&own.config, own.node_timeout);
    judge(
        masters,
        &Ours {
            config,
            quorum: &Quorum::of(masters.len()),
            node_timeout,
        },
    )
}

/// Returns master `name` on a host of its own. Its answer is that of a fit master with `changes`.
fn master(name: &str, changes: &[(&str, &str)]) -> MasterAnswer {
    let mut text = FIT.replace("RUN", name);
    for (from, to) in changes {
        text = text.replace(from, to);
    }
    let mut facts = Facts::parse(&text, 5_000_000, 5_000_000);
    for (setting, value) in SET {
        let change = changes.iter().find(|(from, _)| from == setting);
        let value = change.map_or(*value, |(_, to)| to);
        facts.add(setting, Ok(Some(value.to_owned())));
    }
    MasterAnswer {
        address: format!("{name}:6379").into(),
        facts: Ok(facts),
    }
}

fn unanswered(name: &str, error: impl Into<ProbeError>) -> MasterAnswer {
    MasterAnswer {
        address: format!("{name}:6379").into(),
        facts: Err(error.into()),
    }
}

fn found(masters: &[MasterAnswer], own: &Own) -> Vec<(Severity, &'static str)> {
    let found = check(masters, own).findings;
    found
        .iter()
        .map(|finding| (finding.severity, finding.setting.name()))
        .collect()
}

/// Returns the findings about three masters if one of them has `changes`.
fn with_one(changes: &[(&str, &str)], own: &Own) -> Vec<(Severity, &'static str)> {
    let masters = [master("a", &[]), master("b", &[]), master("c", changes)];
    found(&masters, own)
}

#[test]
fn nothing_is_found_on_masters_that_are_fit() {
    for quarantine in [Quarantine::Off, Quarantine::Observed, Quarantine::Strict] {
        assert_eq!(
            with_one(&[], &with_quarantine(quarantine)),
            [],
            "{quarantine:?}"
        );
    }
    let valkey = ("redis_mode:standalone", "server_mode:standalone");
    assert_eq!(with_one(&[valkey], &own()), []);
}

#[test]
fn each_setting_has_its_finding() {
    for (from, to, expected) in [
        ("role:master", "role:slave", (Refuse, "role")),
        ("role:master", "role:active-replica", (Refuse, "role")),
        ("role:master\n", "", (Refuse, "role")),
        ("run_id:c\n", "", (Refuse, "run_id")),
        (
            "loading:0",
            "dragonfly_version:df-v1.2",
            (Refuse, "dragonfly_version"),
        ),
        ("active-replica", "yes", (Refuse, "active-replica")),
        (
            "loading:0",
            "crdt_config_version:3",
            (Refuse, "crdt_config_version"),
        ),
        ("7.0.15", "6.2.14", (Warn, "redis_version")),
        ("7.0.15", "5.0.1", (Warn, "redis_version")),
        ("redis_version:7.0.15\n", "", (Unknown, "redis_version")),
        (
            "connected_slaves:0",
            "connected_slaves:1",
            (Warn, "connected_slaves"),
        ),
        (
            "redis_mode:standalone",
            "redis_mode:cluster",
            (Warn, "redis_mode"),
        ),
        (
            "redis_mode:standalone",
            "server_mode:cluster",
            (Warn, "redis_mode"),
        ),
        ("loading:0", "loading:1", (Warn, "loading")),
        ("loading:0", "async_loading:1", (Warn, "loading")),
        ("noeviction", "volatile-ttl", (Warn, "maxmemory_policy")),
        (
            "maxmemory:0\nmaxmemory_policy:noeviction",
            "maxmemory:9\nmaxmemory_policy:volatile-lru",
            (Refuse, "maxmemory_policy"),
        ),
        ("evicted_keys:0", "evicted_keys:3", (Warn, "evicted_keys")),
        (
            "aof_last_write_status:ok",
            "aof_last_write_status:err",
            (Warn, "aof_last_write_status"),
        ),
        (
            "rdb_last_bgsave_status:ok",
            "rdb_last_bgsave_status:err",
            (Warn, "rdb_last_bgsave_status"),
        ),
        (
            "connected_clients:1",
            "connected_clients:9500",
            (Warn, "maxclients"),
        ),
        (
            "POSIX clock_gettime",
            "X86 TSC @ inf",
            (Refuse, "monotonic_clock"),
        ),
        ("run_id:c", "run_id:a", (Refuse, "run_id")),
        (
            "master_replid:c",
            "master_replid:a",
            (Refuse, "master_replid"),
        ),
        (
            "master_replid2:0000",
            "master_replid2:a",
            (Warn, "master_replid"),
        ),
        (
            "min-replicas-to-write",
            "1",
            (Warn, "min-replicas-to-write"),
        ),
        ("timeout", "60", (Warn, "timeout")),
        ("tcp-keepalive", "0", (Warn, "tcp-keepalive")),
        (
            "tracking-table-max-keys",
            "10",
            (Warn, "tracking-table-max-keys"),
        ),
        ("lua-time-limit", "5001", (Info, "busy-reply-threshold")),
        ("lua-time-limit", "0", (Info, "busy-reply-threshold")),
        ("may_eval:yes", "may_eval:no", (Refuse, "EVAL")),
        ("may_eval:yes", "may_listen:no", (Info, MESSAGES)),
        (
            "may_eval:yes",
            "reports_changes:no",
            (Warn, "CLIENT TRACKING"),
        ),
        ("never", "none", (Refuse, "quorlock:guard")),
        ("never", "another", (Refuse, "quorlock:guard")),
        ("never", "60000", (Warn, "quorlock:guard")),
        ("origin_age:never\n", "", (Refuse, "quorlock:guard")),
    ] {
        assert_eq!(with_one(&[(from, to)], &own()), [expected], "{from} {to}");
    }
    let untold = ("may_eval:yes", "reports_changes:no");
    let trusting = with_quarantine(Quarantine::Off);
    let expected = [(Info, "CLIENT TRACKING")];
    assert_eq!(with_one(&[untold], &trusting), expected);
    for fine in [
        ("never", "61000"),
        ("tracking-table-max-keys", "11"),
        ("tracking-table-max-keys", "0"),
    ] {
        assert_eq!(with_one(&[fine], &own()), [], "{fine:?}");
    }
    let goes_on = [
        ("rdb_last_bgsave_status:ok", "rdb_last_bgsave_status:err"),
        ("stop-writes-on-bgsave-error", "no"),
    ];
    assert_eq!(
        with_one(&goes_on, &own()),
        [(Info, "rdb_last_bgsave_status")]
    );
}

#[test]
fn settings_with_which_a_restart_loses_locks_are_found() {
    let trusting = with_quarantine(Quarantine::Off);
    for (change, severity, setting) in [
        (("aof_enabled:1", "aof_enabled:0"), Refuse, "aof_enabled"),
        (("appendfsync", "everysec"), Warn, "appendfsync"),
        (
            ("no-appendfsync-on-rewrite", "yes"),
            Warn,
            "no-appendfsync-on-rewrite",
        ),
    ] {
        assert_eq!(with_one(&[change], &trusting), [(severity, setting)]);
        // With quarantine, a restart is noticed.
        assert_eq!(with_one(&[change], &own()), [(Info, setting)]);
    }
    let lost = with_one(&[("never", "none")], &trusting);
    assert_eq!(lost, []);
}

#[test]
fn it_is_found_that_fewer_than_a_majority_can_vote() {
    let down = || unanswered("x", Failure::Closed);
    let writes = |word: &'static str| master("w", &[("ERR syntax error", word)]);
    let quarantined = |age: &'static str| master(&format!("q{age}"), &[("never", age)]);
    for (masters, expected) in [
        ([down(), master("a", &[]), master("b", &[])], None),
        (
            [down(), down(), master("a", &[])],
            Some((Refuse, "only 1 of 3 masters now (need 2)")),
        ),
        (
            [down(), down(), down()],
            Some((Refuse, "only 0 of 3 masters now (need 2)")),
        ),
        (
            [down(), writes("OOM command"), master("a", &[])],
            Some((Refuse, "only 1 of 3 masters now (need 2)")),
        ),
        ([quarantined("1"), master("a", &[]), master("b", &[])], None),
        (
            [
                quarantined("21000"),
                quarantined("31000"),
                quarantined("1000"),
            ],
            Some((Warn, "only 0 of 3 masters now (need 2), for another 39.6s")),
        ),
        (
            [quarantined("21000"), down(), master("a", &[])],
            Some((Warn, "only 1 of 3 masters now (need 2), for another 39.6s")),
        ),
        (
            [quarantined("21000"), down(), down()],
            Some((Refuse, "only 0 of 3 masters now (need 2)")),
        ),
    ] {
        let report = check(&masters, &own()).findings;
        let about_votes = report
            .iter()
            .filter(|finding| finding.setting.name() == "votes")
            .map(|finding| (finding.severity, &*finding.value));
        assert_eq!(about_votes.collect::<Vec<_>>(), Vec::from_iter(expected));
    }
    let trusting = with_quarantine(Quarantine::Off);
    let masters = ["1", "2", "3"].map(quarantined);
    assert!(!found(&masters, &trusting).contains(&(Warn, "votes")));
}

#[test]
fn a_server_that_is_listed_twice_is_found_once_and_has_one_vote() {
    let twins = [
        master("a", &[]),
        master("a", &[]),
        unanswered("c", Failure::Closed),
    ];
    let run_id = (Refuse, "run_id");
    let expected = [
        (Refuse, "votes"),
        run_id,
        (Warn, "hosts"),
        (Unknown, "connection"),
    ];
    assert_eq!(found(&twins, &own()), expected);
    // Without quarantine, the server has two votes. It is also found to share data with itself.
    let expected = [
        run_id,
        (Refuse, "master_replid"),
        (Warn, "hosts"),
        (Unknown, "connection"),
    ];
    assert_eq!(found(&twins, &with_quarantine(Quarantine::Off)), expected);
}

#[test]
fn masters_that_share_data_are_found_once_however_many_pairs_they_are() {
    let at = |name: &str, field: (&str, &str)| MasterAnswer {
        address: format!("{name}:1").into(),
        ..master(name, &[field])
    };
    let now = |name: &str| at(name, (&format!("master_replid:{name}"), "master_replid:x"));
    let before = |name: &str| at(name, ("master_replid2:0000", "master_replid2:x"));
    let mut masters: Vec<_> = ["a", "b", "c"].map(now).into();
    masters.extend(["d", "e"].map(|name| at(name, ("RUN", "RUN"))));
    let report = check(&masters, &own()).to_string();
    assert_eq!(report.matches("master_replid").count(), 1, "{report}");
    assert!(
        report.contains("is the same on a:1, b:1 and c:1: "),
        "{report}"
    );

    let report = check(&["a", "b", "c"].map(before), &own()).to_string();
    assert_eq!(report.matches("master_replid").count(), 1, "{report}");
    assert!(
        report.contains("of one origin on a:1, b:1 and c:1: "),
        "{report}"
    );
}

/// An error that another finding explains is not reported again.
#[test]
fn a_refused_write_is_reported_once() {
    let no_replicas = ("ERR syntax error", "NOREPLICAS Not enough");
    let read_only = ("ERR syntax error", "READONLY You can't");
    let wanting = ("min-replicas-to-write", "1");
    let replica = ("role:master", "role:slave");
    for (changes, expected) in [
        (&[no_replicas][..], (Warn, "writes")),
        (&[no_replicas, wanting], (Warn, "min-replicas-to-write")),
        (&[read_only], (Warn, "writes")),
        (&[read_only, replica], (Refuse, "role")),
    ] {
        assert_eq!(with_one(changes, &own()), [expected], "{changes:?}");
    }
}

#[test]
fn an_answer_that_is_missing_is_a_finding() {
    let denied = || {
        Failure::Rejected(
            "NOPERM User bob has no permissions to run the 'config|get' command".into(),
        )
    };
    let mut masters = ["a", "b", "c"].map(|name| master(name, &[]));
    let facts = masters[1].facts.as_mut().unwrap();
    facts.add("timeout", Err(denied()));
    let report = check(&masters, &own());
    assert_eq!(report.worst(), Some(Unknown));
    let text = report.to_string();
    assert!(
        text.contains("unknown: b:6379: CONFIG GET is answered NOPERM its user has no"),
        "{text}"
    );
    assert!(!text.contains("bob"), "{text}");

    let text = "try.INFO:ERR ACL failure in script\ntime:5000000\nmay_eval:yes";
    masters[1].facts = Ok(Facts::parse(text, 5_000_000, 5_000_000));
    let expected = [(Refuse, "quorlock:guard"), (Unknown, "INFO")];
    assert_eq!(found(&masters, &own()), expected);
}

#[test]
fn each_reason_for_no_answer_has_its_finding() {
    use io::{Error, ErrorKind};
    let text = str::to_owned;
    let failed = |failure| ProbeError::Failed(failure);
    for (error, expected, value) in [
        (
            failed(Failure::timed_out(Duration::from_millis(50))),
            (Unknown, "connection"),
            "no answer in 50ms",
        ),
        (failed(Failure::Closed), (Unknown, "connection"), "closed"),
        (
            failed(Failure::Disconnected("reset".into())),
            (Unknown, "connection"),
            "connection lost: reset",
        ),
        (
            ConnectError::Failed(
                ConnectStep::Connect(text("a:1")),
                Error::new(ErrorKind::ConnectionRefused, "refused"),
            )
            .into(),
            (Unknown, "connection"),
            "refused",
        ),
        (
            ConnectError::Timeout(Duration::from_secs(1), None).into(),
            (Unknown, "connection"),
            "no connection in 1s",
        ),
        (
            ConnectError::Timeout(
                Duration::from_secs(1),
                Some(ConnectStep::Lookup(text("redis-1"))),
            )
            .into(),
            (Warn, "connection"),
            "no connection in 1s",
        ),
        (
            ConnectError::Timeout(
                Duration::from_secs(1),
                Some(ConnectStep::Connect(text("a:1"))),
            )
            .into(),
            (Unknown, "connection"),
            "no connection in 1s",
        ),
        (
            ConnectError::Timeout(
                Duration::from_secs(1),
                Some(ConnectStep::Login(text("a:1"))),
            )
            .into(),
            (Unknown, "connection"),
            "no connection in 1s",
        ),
        (
            ConnectError::Login(text("DENIED Redis is running in protected mode")).into(),
            (Refuse, "login"),
            "DENIED Redis is running in protected mode",
        ),
        (
            ConnectError::Login(text(
                "WRONGPASS invalid username-password pair or user is disabled",
            ))
            .into(),
            (Refuse, "login"),
            "WRONGPASS invalid username-password pair or user is disabled",
        ),
        (
            ConnectError::NotRedis6(text("ERR unknown command `HELLO`")).into(),
            (Refuse, "redis_version"),
            "ERR unknown command `HELLO`",
        ),
        (
            ConnectError::MaxClients(text("ERR max number of clients reached")).into(),
            (Warn, "maxclients"),
            "ERR max number of clients reached",
        ),
        (
            ConnectError::Database(text("ERR DB index is out of range")).into(),
            (Refuse, "login"),
            "ERR DB index is out of range",
        ),
        (
            ConnectError::from(crate::master::WireError::NotResp).into(),
            (Warn, "connection"),
            "the answer is not RESP: is this a Redis server?",
        ),
        (
            ConnectError::Failed(ConnectStep::Lookup(text("a")), Error::other("no such name"))
                .into(),
            (Warn, "connection"),
            "no such name",
        ),
        (
            ConnectError::NotAMaster {
                role: text("replica"),
            }
            .into(),
            (Refuse, "role"),
            "replica",
        ),
        (
            DialError::SameServer { other: 1 }.into(),
            (Refuse, "run_id"),
            "that of master 1",
        ),
        (
            DialError::RightsMissing {
                why: text("NOPERM User bob has no permissions to run the 'eval' command"),
            }
            .into(),
            (Refuse, "quorlock:guard"),
            "NOPERM its user has no permissions to run the 'eval' command",
        ),
        (
            DialError::RestartUnknown { why: text("OOM") }.into(),
            (Warn, "votes"),
            "OOM",
        ),
        (
            ConnectError::Loading(text("LOADING Redis is loading the dataset in memory")).into(),
            (Warn, "loading"),
            "LOADING Redis is loading the dataset in memory",
        ),
        (
            failed(Failure::Rejected("NOPERM this user".into())),
            (Refuse, "EVALSHA"),
            "answered NOPERM this user",
        ),
        (
            failed(Failure::Rejected("ERR unknown command 'EVALSHA'".into())),
            (Refuse, "EVALSHA"),
            "answered ERR unknown command 'EVALSHA'",
        ),
        (
            failed(Failure::Rejected("LOADING Redis is".into())),
            (Warn, "votes"),
            "answered LOADING Redis is",
        ),
        (
            failed(Failure::Rejected(
                "BUSY Redis is busy running a script".into(),
            )),
            (Warn, "votes"),
            "answered BUSY Redis is busy running a script",
        ),
    ] {
        let masters = [master("a", &[]), master("b", &[]), unanswered("c", error)];
        let report = check(&masters, &own());
        let [finding] = &report.findings[..] else {
            panic!("{report}");
        };
        let about = (finding.severity, finding.setting.name());
        assert_eq!((about, &*finding.value), (expected, value), "{report}");
    }
}

/// The errors are those of Redis 6, 7 and 8, and of Valkey.
#[test]
fn each_missing_right_has_its_finding() {
    let command = [
        "@user_script: 3: The user executing the script can't run this command or subcommand",
        "ERR The user executing the script can't run this command or subcommand",
        "ERR ACL failure in script: User lock has no permissions to run the 'set' command",
        "@user_script: 3: Unknown Redis command called from Lua script",
        "ERR Unknown Redis command called from script",
        "ERR Unknown command called from script",
    ];
    let key = [
        "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
        "ERR ACL failure in script: No permissions to access a key",
    ];
    let channel = [
        "ERR The user executing the script can't publish to the channel mentioned in the command",
        "ERR ACL failure in script: No permissions to access a channel",
    ];
    let now = [
        "@user_script: 3: -NOREPLICAS Not enough good replicas to write.",
        "MISCONF Redis is configured to save RDB snapshots, but",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "READONLY You can't write against a read only replica.",
    ];
    let (mutex, reentrant) = ("rights for mutexes", "rights for reentrant locks");
    let (fair, tokens) = ("rights for fair locks", "rights for fencing tokens");
    let (read_write, semaphore) = ("rights for read-write locks", "rights for semaphores");
    for (tried, errors, expected) in [
        // Reentrant locks can be acquired, but mutexes cannot.
        (
            &["SET"][..],
            &command[..],
            &[(Info, mutex), (Info, tokens)][..],
        ),
        (
            &["SET", "HSET"],
            &command,
            &[
                (Refuse, mutex),
                (Refuse, reentrant),
                (Refuse, fair),
                (Refuse, read_write),
                (Refuse, semaphore),
                (Refuse, tokens),
            ],
        ),
        (
            &["PEXPIRE"],
            &command,
            &[
                (Refuse, mutex),
                (Refuse, reentrant),
                (Refuse, read_write),
                (Refuse, semaphore),
            ],
        ),
        (&["GET"], &command, &[(Refuse, mutex), (Info, tokens)]),
        (
            &["HSET", "HMGET"],
            &command,
            &[
                (Info, reentrant),
                (Info, fair),
                (Info, read_write),
                (Info, semaphore),
            ],
        ),
        (
            &["HLEN"],
            &command,
            &[
                (Refuse, reentrant),
                (Refuse, read_write),
                (Refuse, semaphore),
            ],
        ),
        (&["TYPE"], &command, &[(Info, "rights to inspect")]),
        // HSET, which the origin record needs, is not enough to acquire a reentrant lock.
        (
            &["EXISTS", "HLEN"],
            &command,
            &[
                (Info, reentrant),
                (Info, fair),
                (Info, read_write),
                (Info, semaphore),
            ],
        ),
        (
            &["ZADD"],
            &command,
            &[(Refuse, read_write), (Refuse, semaphore), (Info, fair)],
        ),
        (&["ZRANK"], &command, &[(Info, fair)]),
        (
            &["ZLEXCOUNT"],
            &command,
            &[(Refuse, read_write), (Refuse, semaphore)],
        ),
        // Without the right to one of the keys, no script of the lock runs.
        (&["writers"], &key, &[(Info, read_write)]),
        (&["readers"], &key, &[(Info, read_write)]),
        (&["waiters"], &key, &[(Info, semaphore)]),
        (
            &["deadlines"],
            &key,
            &[(Info, fair), (Info, read_write), (Info, semaphore)],
        ),
        (&["queue"], &key, &[(Info, fair)]),
        (&["fence"], &key, &[(Info, tokens)]),
        (
            &["SET", "GET", "HSET", "PEXPIRE"],
            &key,
            &[(Unknown, "rights to keys")],
        ),
        (&["DELEX"], &command[..3], &[(Info, "DELEX, DELIFEQ")]),
        (&["DELIFEQ"], &command[..3], &[(Info, "DELEX, DELIFEQ")]),
        (&["PUBLISH"], &command, &[(Info, MESSAGES)]),
        (&["PUBLISH"], &channel, &[(Info, MESSAGES)]),
        (&["SET", "HSET", "DEL"], &now, &[(Warn, "writes")]),
        (
            &["SET", "GET"],
            &["ERR syntax error", "WRONGTYPE Operation"],
            &[],
        ),
    ] {
        for error in errors {
            let mut lines = "may_eval:yes".to_owned();
            for what in tried {
                lines = format!("{lines}\ntry.{what}:{error}");
            }
            assert_eq!(
                with_one(&[("may_eval:yes", &lines)], &own()),
                *expected,
                "{tried:?} {error}"
            );
        }
    }
}

/// Hosted servers may forbid a command in scripts, whatever the rights of the user are.
#[test]
fn a_fix_helps_where_the_server_itself_forbids_a_command() {
    let forbidden =
        "ERR This Redis command is not allowed from script script: 9f, on @user_script:1.";
    let denied =
        "ERR ACL failure in script: User lock has no permissions to run the 'time' command";
    for (error, fix) in [
        (forbidden, "without TIME, use mutexes and reentrant locks"),
        (denied, "ACL SETUSER <user> "),
    ] {
        let lines = format!("may_eval:yes\ntry.TIME:{error}");
        let masters = ["a", "b", "c"].map(|name| master(name, &[("may_eval:yes", &lines)]));
        let report = check(&masters, &own());
        let rights = report
            .findings
            .iter()
            .filter(|one| one.setting.name().starts_with("rights"));
        let fixes: Vec<_> = rights.map(|one| one.fix).collect();
        assert_eq!(fixes.len(), 4, "{report}"); // all but mutexes and reentrant locks
        assert!(fixes.iter().all(|one| one.contains(fix)), "{report}");
    }
}

#[test]
fn clocks_that_are_apart_are_found() {
    let at = |name, time: &str| master(name, &[("time:5000000", time)]);
    for (times, expected) in [
        (["time:5000000", "time:5900000", "time:4100000"], &[][..]),
        (
            ["time:5000000", "time:5000000", "time:7000000"],
            &[(Warn, "TIME", "2.0s off on c:6379")][..],
        ),
        (
            ["time:5000000", "time:7000000", "time:3000000"],
            &[
                (Refuse, "TIME", "apart"),
                (Warn, "TIME", "2.0s off on c:6379"),
                (Warn, "TIME", "2.0s off on b:6379"),
            ],
        ),
        (
            ["time:7000000"; 3],
            &[(Warn, "TIME", "2.0s off on this machine")],
        ),
    ] {
        let masters = [at("a", times[0]), at("b", times[1]), at("c", times[2])];
        let report = check(&masters, &own()).findings;
        let found: Vec<_> = report
            .iter()
            .map(|finding| (finding.severity, finding.setting.name(), &*finding.value))
            .collect();
        assert_eq!(found, expected, "{times:?}");
    }
    // The clock seems to be 2 s off. The reading may be wrong by half of the round trip, which is
    // 1 s. So the clock may be only 1 s off. That is within `CLOCK_WINDOW`, so there is no finding.
    let mut masters = ["a", "b", "c"].map(|name| master(name, &[]));
    let facts = FIT
        .replace("RUN", "c")
        .replace("time:5000000", "time:7000000");
    let slow = Facts::parse(&facts, 4_000_000, 6_000_000);
    masters[2].facts = Ok(slow);
    let found = found(&masters, &own());
    assert!(!found.contains(&(Warn, "TIME")), "{found:?}");
}

#[test]
fn a_clock_that_stands_still_is_found() {
    for (sent, time, is_found) in [
        (5_002_000, 5_000_000, true),
        (5_002_000, 4_999_000, true),
        (5_002_000, 5_000_001, false),
        (5_000_100, 5_000_000, false), // too early to say
    ] {
        let first = Facts::parse(&FIT.replace("RUN", "c"), 5_000_000, 5_000_000);
        let later = FIT.replace("RUN", "c");
        let later = later.replace("time:5000000", &format!("time:{time}"));
        let mut facts = Facts::parse(&later, sent, sent);
        facts.compare(&first);
        let masters = [
            master("a", &[]),
            master("b", &[]),
            MasterAnswer {
                address: "c:6379".into(),
                facts: Ok(facts),
            },
        ];
        let is_there = found(&masters, &own()).contains(&(Refuse, "TIME"));
        assert_eq!(is_there, is_found, "{sent} {time}");
    }
}

#[test]
fn the_number_of_masters_and_their_hosts_are_checked() {
    let on = |addresses: &[&str]| {
        let masters = addresses.iter().map(|address| {
            let facts = master(address, &[]).facts;
            let address = Arc::from(*address);
            MasterAnswer { address, facts }
        });
        found(&masters.collect::<Vec<_>>(), &own())
    };
    let (count, hosts) = ("masters", "hosts");
    for (addresses, expected) in [
        (&["a:1"][..], &[(Warn, count)][..]),
        (&["a:1", "b:1"], &[(Warn, count)]),
        (&["a:1", "b:1", "c:1", "d:1"], &[(Info, count)]),
        (&["a:1", "a:2", "b:1"], &[(Warn, hosts)]),
        (&["[::1]:1", "[::1]:2", "b:1"], &[(Warn, hosts)]),
        (&["unix:/a", "unix:/b:1", "b:1"], &[(Warn, hosts)]),
        (&["a:1", "a:2", "b:1", "c:1", "d:1"], &[]),
        (&["a:1", "a:2", "a:3", "b:1", "c:1"], &[(Warn, hosts)]),
        (&["memory:1", "memory:2", "memory:3"], &[]),
    ] {
        assert_eq!(on(addresses), expected, "{addresses:?}");
    }
}

#[test]
fn settings_of_this_program_are_checked() {
    let with = |change: fn(&mut Own)| {
        let mut own = own();
        change(&mut own);
        with_one(&[], &own)
    };
    assert_eq!(
        with(|own| own.node_timeout = Duration::from_micros(1_000_001)),
        [(Warn, "ttl")]
    );
    assert_eq!(with(|own| own.node_timeout = Duration::from_secs(1)), []);
    assert_eq!(
        with(|own| own.config.drift = Drift::from_ppm(999).unwrap()),
        [(Warn, "drift")]
    );
}

#[test]
fn a_finding_about_all_masters_is_shown_once() {
    let slow = ("lua-time-limit", "7000");
    let masters = ["a", "b", "c"].map(|name| master(name, &[slow]));
    let report = check(&masters, &own());
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].master, None);
    // Findings with different values are not joined, so each of them names its master.
    let masters = [
        master("a", &[("lua-time-limit", "6000")]),
        master("b", &[slow]),
        master("c", &[slow]),
    ];
    let report = check(&masters, &own());
    assert!(
        report
            .findings
            .iter()
            .all(|finding| finding.master.is_some())
    );
    assert_eq!(report.findings.len(), 3);
    let text = report.to_string();
    let mut lines = text.lines();
    let mut begins = |with: &str| lines.next().is_some_and(|line| line.starts_with(with));
    assert!(
        begins("info: a:6379: busy-reply-threshold is 6s: "),
        "{text}"
    );
    assert!(
        begins("info: b:6379, c:6379: busy-reply-threshold is 7s: "),
        "{text}"
    );
    assert_eq!(lines.next(), None);
}

#[test]
fn a_finding_names_its_subject() {
    let slow = Own {
        node_timeout: Duration::from_secs(2),
        ..with_quarantine(Quarantine::Off)
    };
    let at = |address: &str| MasterAnswer {
        address: address.into(),
        ..master("a", &[("timeout", "60")])
    };
    let report = check(&[at("m:1"), at("m:2")], &slow);
    for line in [
        "warn: this program: ttl is 10s with a node timeout of 2s: ",
        "warn: all masters: timeout is 60: ",
        "refuse: run_id is the same on m:1 and m:2: ",
        "refuse: master_replid is the same on m:1 and m:2: ",
        "warn: masters is 2: ",
    ] {
        let text = report.to_string();
        assert!(text.lines().any(|other| other.starts_with(line)), "{text}");
    }
}

#[test]
fn a_finding_says_what_to_do() {
    let masters = [master("m1", &[("noeviction", "allkeys-lru")])];
    let text = check(&masters, &own()).to_string();
    assert!(
        text.contains("warn: m1:6379: maxmemory_policy is allkeys-lru: locks are evicted"),
        "{text}"
    );
    assert!(
        text.contains("CONFIG SET maxmemory-policy noeviction"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn clocks_of_masters_are_compared_with_each_other_and_with_ours() {
    let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
    let locks = Coordinator::new(&masters).unwrap();
    for (ahead, worst) in [
        ([0, 0, 900_000], None),
        ([0, 0, 3_000_000], Some(Warn)),
        ([0, -3_000_000, 3_000_000], Some(Refuse)),
        ([3_000_000, 3_000_000, 3_000_000], Some(Warn)),
    ] {
        for (master, ahead) in masters.iter().zip(ahead) {
            master.set_clock(ahead);
        }
        let report = locks.check().await;
        assert_eq!(report.worst(), worst, "{report}");
        let mut settings = report.findings.iter().map(|finding| finding.setting);
        assert!(settings.all(|setting| setting == Setting::Time), "{report}");
    }
}
