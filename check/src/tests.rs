use std::{collections::BTreeMap, future::pending, io, mem, time::Duration};

use quorlock::{
    Coordinator, MasterSpec, Quarantine,
    tools::{ConnectionName, ListsId},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    time::timeout,
};

use crate::{
    Expected, Report,
    Severity::{self, Info, Refuse, Unknown, Warn},
    Shared,
    cure::of_state,
    expected,
    facts::{Facts, Master},
    judge,
    programs::read,
    table::{DOWN, LOGIN, LOOK_AT_LOG, STATES},
    together::List,
};

/// The answer of a fit master: Redis 7, and a user with all rights.
const FIT: &str = "run_id:RUN\nredis_version:7.0.15\nredis_mode:standalone\nrole:master\nmaster_replid:RUN\n\
                   master_replid2:0000\nconnected_slaves:0\nmaxmemory:0\nmaxmemory_policy:noeviction\n\
                   aof_enabled:1\ntime:5000000\norigin_age:never\n\
                   try.SET:ERR syntax error\ntry.HSET:ERR wrong number of arguments for 'hset' command\nmay_listen:yes";

const MESSAGES: &str = "PUBLISH, SUBSCRIBE";

const SET: [(&str, &str); 4] = [
    ("active-replica", "no"),
    ("appendfsync", "always"),
    ("no-appendfsync-on-rewrite", "no"),
    ("timeout", "0"),
];

fn with_quarantine(quarantine: Quarantine) -> Shared {
    Shared {
        quarantine,
        ..Shared::default()
    }
}

fn surprised_by_nobody() -> Expected {
    expected("quorlock:check", vec!["a:6379"], vec![], &Shared::default())
}

fn check(masters: &[Master], shared: &Shared) -> Report {
    let lists: [List; 1] = [("masters", (0..masters.len()).collect())];
    judge(masters, &lists, &surprised_by_nobody(), shared)
}

/// Returns master `name` on a host of its own. Its answer is that of a fit master with `changes`.
fn master(name: &str, changes: &[(&str, &str)]) -> Master {
    let mut text = FIT.replace("RUN", name);
    for (from, to) in changes {
        text = text.replace(from, to);
    }
    let mut facts = Facts::parse(&text, 5_000_000, 5_000_000);
    for (setting, value) in SET {
        let change = changes.iter().find(|(from, _)| *from == setting);
        facts.add(setting, change.map_or(value, |(_, to)| to).to_owned());
    }
    Master {
        address: format!("{name}:6379").into(),
        answer: Ok(facts),
    }
}

fn with_facts(name: &str, change: impl FnOnce(&mut Facts)) -> Master {
    let mut master = master(name, &[]);
    change(master.answer.as_mut().unwrap());
    master
}

fn down(name: &str) -> Master {
    Master {
        answer: Err(DOWN.with("refused")),
        ..master(name, &[])
    }
}

fn found(masters: &[Master], shared: &Shared) -> Vec<(Severity, &'static str)> {
    let found = check(masters, shared).findings;
    found
        .iter()
        .map(|one| (one.severity, one.setting))
        .collect()
}

/// Returns the findings about three masters if one of them has `changes`.
fn with_one(changes: &[(&str, &str)], shared: &Shared) -> Vec<(Severity, &'static str)> {
    found(
        &[master("a", &[]), master("b", &[]), master("c", changes)],
        shared,
    )
}

/// Returns the findings about three masters if the facts of one are changed.
fn with_third(change: impl FnOnce(&mut Facts), shared: &Shared) -> Vec<(Severity, &'static str)> {
    found(
        &[master("a", &[]), master("b", &[]), with_facts("c", change)],
        shared,
    )
}

#[test]
fn a_quarantine_without_end_is_as_long_as_can_be() {
    let shared = Shared {
        max_ttl: Duration::MAX,
        ..Shared::default()
    };
    assert_eq!(shared.quarantine_length(), Duration::MAX);
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
    let masters = ["a", "b", "c"].map(|name| master(name, &[]));
    let report = check(&masters, &Shared::default());
    assert_eq!(report.to_string(), "no findings");
    let valkey = ("redis_mode:standalone", "server_mode:standalone");
    assert_eq!(with_one(&[valkey], &Shared::default()), []);
}

#[test]
fn each_setting_has_its_finding() {
    for (from, to, expected) in [
        ("role:master", "role:slave", (Refuse, "role")),
        ("role:master\n", "", (Refuse, "role")),
        ("run_id:c\n", "", (Refuse, "run_id")),
        (
            "maxmemory:0",
            "dragonfly_version:df-v1.2",
            (Refuse, "server"),
        ),
        ("maxmemory:0", "crdt_config_version:3", (Refuse, "server")),
        ("active-replica", "yes", (Refuse, "server")),
        ("7.0.15", "6.2.14", (Warn, "redis_version")),
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
        ("noeviction", "volatile-ttl", (Warn, "maxmemory_policy")),
        (
            "maxmemory:0\nmaxmemory_policy:noeviction",
            "maxmemory:9\nmaxmemory_policy:volatile-lru",
            (Refuse, "maxmemory_policy"),
        ),
        ("run_id:c", "run_id:a", (Refuse, "run_id")),
        (
            "master_replid:c",
            "master_replid:a",
            (Warn, "master_replid"),
        ),
        (
            "master_replid2:0000",
            "master_replid2:a",
            (Warn, "master_replid"),
        ),
        ("timeout", "60", (Warn, "timeout")),
        ("may_listen:yes", "may_listen:no", (Info, MESSAGES)),
        ("may_listen:yes", "may_listen:no channel", (Info, MESSAGES)),
        ("never", "none", (Info, "quorlock:guard")),
        ("never", "another", (Warn, "quorlock:guard")),
        ("never", "60000", (Warn, "quorlock:guard")),
        (
            "origin_age:never",
            "try.origin:WRONGTYPE Operation against a key",
            (Unknown, "quorlock:guard"),
        ),
        (
            "origin_age:never",
            "try.origin:ERR ACL failure in script: No permissions to access a key",
            (Refuse, "quorlock:guard"),
        ),
        (
            "origin_age:never",
            "try.origin:ERR Script attempted to access a non local key in a cluster node",
            (Refuse, "redis_mode"),
        ),
        (
            "origin_age:never",
            "origin_age:never\ntry.origin_write:ERR ACL failure in script: No permissions to access a key",
            (Warn, "quorlock:guard"),
        ),
    ] {
        assert_eq!(
            with_one(&[(from, to)], &Shared::default()),
            [expected],
            "{from} {to}"
        );
    }
    assert_eq!(with_one(&[("never", "61000")], &Shared::default()), []);
}

#[test]
fn a_missing_answer_is_a_finding() {
    let why = || "answered NOPERM its user".to_owned();
    type Change = fn(&mut Facts, String);
    let changes: [(Change, _); 6] = [
        (
            |facts, why| facts.withheld = Some(why),
            (Unknown, "CONFIG GET"),
        ),
        (|facts, why| facts.unseen = Some(why), (Unknown, "lists")),
        (
            |facts, why| facts.uncompared = Some(why),
            (Unknown, "run_id"),
        ),
        (
            |facts, why| facts.counters = Some(Err(why)),
            (Unknown, "quorlock:fence:*"),
        ),
        (
            |facts, why| facts.untracked = Some(why),
            (Warn, "CLIENT TRACKING"),
        ),
        (|facts, why| facts.evalsha = Some(why), (Refuse, "EVALSHA")),
    ];
    for (change, expected) in changes {
        let found = with_third(|facts| change(facts, why()), &Shared::default());
        assert_eq!(found, [expected]);
    }
    let error = "ERR ACL failure in script: User bob has no permissions to run the 'info' command";
    let text = format!("try.INFO:{error}\ntime:5000000");
    let denied = |facts: &mut Facts| *facts = Facts::parse(&text, 5_000_000, 5_000_000);
    let expected = [(Refuse, "quorlock:guard"), (Unknown, "INFO")];
    assert_eq!(with_third(denied, &Shared::default()), expected);
}

#[test]
fn settings_with_which_a_restart_loses_locks_are_found_without_quarantine() {
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
        assert_eq!(with_one(&[change], &Shared::default()), []);
    }
    assert_eq!(with_one(&[("never", "none")], &trusting), []);
}

/// A master without the key is new, unless a program is connected that wrote it.
#[test]
fn a_lost_origin_key_is_told_from_one_that_was_never_written() {
    let ours = surprised_by_nobody().ours;
    let of = |key, max_ttl| ConnectionName::new(ours.lists, key, max_ttl, None).to_string();
    let name = ours.to_string();
    let other = of("app:quorlock:check", ours.max_ttl);
    let off = of("quorlock:check", ConnectionName::MAX_TTL_WITHOUT_QUARANTINE);
    for (age, name, expected) in [
        ("never", &*name, None),
        ("none", "", Some(Info)),
        ("none", "sidekiq", Some(Info)),
        ("none", &name, Some(Refuse)),
        ("none", &other, Some(Info)),
        ("none", &off, Some(Info)),
        ("another", &off, Some(Warn)),
        ("another", "", Some(Warn)),
        ("another", &name, Some(Refuse)),
    ] {
        for (seconds, is_settled) in [(1, false), (2, true)] {
            let mut master = master("c", &[("never", age)]);
            let facts = master.answer.as_mut().unwrap();
            facts.programs = read(&format!("id=3 name={name} age={seconds} flags=N"), 0).0;
            let expected = if is_settled {
                expected
            } else {
                expected.map(|severity| {
                    if age == "none" {
                        Info
                    } else {
                        severity.min(Warn)
                    }
                })
            };
            let found = found(
                &[self::master("a", &[]), self::master("b", &[]), master],
                &Shared::default(),
            );
            let found = found
                .into_iter()
                .filter(|one| *one != (Info, "key template"));
            let expected = Vec::from_iter(expected.map(|severity| (severity, "quorlock:guard")));
            assert_eq!(
                found.collect::<Vec<_>>(),
                expected,
                "{age} {name} {seconds}"
            );
        }
    }
}

#[test]
fn it_is_found_that_fewer_than_a_majority_can_vote() {
    let refuses = |word: &'static str| master("w", &[("ERR syntax error", word)]);
    let quarantined = |age: &'static str| master(&format!("q{age}"), &[("never", age)]);
    let fit = |name| master(name, &[]);
    let few = |count: usize| format!("only {count} of 3 masters now (need 2)");
    for (masters, expected) in [
        ([down("x"), fit("a"), fit("b")], None),
        ([down("x"), down("y"), fit("a")], Some((Refuse, few(1)))),
        ([down("x"), down("y"), down("z")], Some((Refuse, few(0)))),
        (
            [down("x"), refuses("OOM command"), fit("a")],
            Some((Refuse, few(1))),
        ),
        ([quarantined("1"), fit("a"), fit("b")], None),
        (
            [
                quarantined("21000"),
                quarantined("31000"),
                quarantined("1000"),
            ],
            Some((Warn, few(0))),
        ),
        (
            [quarantined("21000"), down("x"), fit("a")],
            Some((Warn, few(1))),
        ),
        (
            [quarantined("21000"), down("x"), down("y")],
            Some((Refuse, few(0))),
        ),
        (
            [quarantined("another"), quarantined("none"), down("x")],
            Some((Warn, few(1))),
        ),
    ] {
        let report = check(&masters, &Shared::default());
        let about_votes = report.findings.iter().filter(|one| one.setting == "votes");
        let about_votes: Vec<_> = about_votes
            .map(|one| (one.severity, one.value.clone()))
            .collect();
        assert_eq!(about_votes, Vec::from_iter(expected));
    }
    let masters = ["1", "2", "3"].map(quarantined);
    assert!(!found(&masters, &with_quarantine(Quarantine::Off)).contains(&(Warn, "votes")));
    // `Strict` programs count new masters as masters that forgot.
    let strict = with_quarantine(Quarantine::Strict);
    let seen = ("never", "never\norigin_seen:1000");
    let masters = ["a", "b", "c"].map(|name| master(name, &[("never", "none")]));
    assert!(found(&masters, &strict).contains(&(Warn, "votes")));
    let masters = ["a", "b", "c"].map(|name| master(name, &[seen]));
    assert!(found(&masters, &strict).contains(&(Warn, "votes")));
}

#[test]
fn every_list_needs_a_majority() {
    let masters = [master("a", &[]), down("b"), down("c")];
    let lists: [List; 2] = [
        ("masters", [0].into()),
        ("leaving masters", [0, 1, 2].into()),
    ];
    let report = judge(&masters, &lists, &surprised_by_nobody(), &Shared::default());
    assert_eq!(report.voters, 1);
    let votes = "refuse: votes: only 1 of 3 leaving masters now (need 2): ";
    assert!(report.to_string().starts_with(votes), "{report}");
    let few = "warn: masters: 1 in the list of masters: ";
    assert!(report.to_string().contains(few), "{report}");
}

#[test]
fn a_server_that_is_listed_twice_is_found_once_and_has_one_vote() {
    let twins = [master("a", &[]), master("a", &[]), down("c")];
    let (run_id, down) = ((Refuse, "run_id"), (Unknown, "connection"));
    assert_eq!(
        found(&twins, &Shared::default()),
        [(Refuse, "votes"), run_id, down]
    );
    // Without quarantine, the server has two votes.
    assert_eq!(
        found(&twins, &with_quarantine(Quarantine::Off)),
        [run_id, down]
    );
}

#[test]
fn several_servers_behind_one_address_are_found() {
    let found = with_third(|facts| facts.is_one_of_several = true, &Shared::default());
    assert_eq!(found, [(Refuse, "run_id")]);
}

#[test]
fn masters_that_share_data_are_found_once_however_many_pairs_they_are() {
    let now = |name: &str| {
        master(
            name,
            &[(&*format!("master_replid:{name}"), "master_replid:x")],
        )
    };
    let before = |name: &str| master(name, &[("master_replid2:0000", "master_replid2:x")]);
    for (quarantine, severity) in [(Quarantine::Observed, "warn"), (Quarantine::Off, "refuse")] {
        for masters in [["a", "b", "c"].map(now), ["a", "b", "c"].map(before)] {
            let masters = [&masters[..], &["d", "e"].map(|name| master(name, &[]))].concat();
            let report = check(&masters, &with_quarantine(quarantine));
            let [finding] = &report.findings[..] else {
                panic!("{report}");
            };
            let text = finding.to_string();
            let expected =
                format!("{severity}: a:6379, b:6379, c:6379: master_replid: of one origin: ");
            assert!(text.starts_with(&expected), "{text}");
        }
    }
}

#[test]
fn a_refused_write_is_found_with_what_helps() {
    for (error, fix) in [
        ("CLUSTERDOWN The cluster is down", "CLUSTER INFO"),
        (
            "MISCONF Redis is configured to save RDB snapshots, but",
            "its disk",
        ),
        (
            "@user_script: 3: -NOREPLICAS Not enough good replicas to write.",
            "let its replicas connect again",
        ),
        ("MASTERDOWN Link with MASTER is down", "independent masters"),
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            "maxmemory",
        ),
        (
            "READONLY You can't write against a read only replica.",
            "independent masters",
        ),
    ] {
        let masters = [
            master("a", &[]),
            master("b", &[]),
            master("c", &[("ERR syntax error", error)]),
        ];
        let report = check(&masters, &Shared::default());
        let [finding] = &report.findings[..] else {
            panic!("{report}")
        };
        assert_eq!((finding.severity, finding.setting), (Warn, "writes"));
        assert!(finding.fix.contains(fix), "{finding}");
    }
}

/// `tests/redis/cures.rs` provokes those that a server can be made to give.
#[test]
fn each_error_about_the_state_of_a_server_has_its_own_cure() {
    let errors = [
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "ERR Script attempted to access a slot not served",
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "@user_script: 3: -NOREPLICAS Not enough good replicas to write.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "READONLY You can't write against a read only replica.",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "ERR max number of clients reached",
    ];
    let cures = errors.map(|error| (error, of_state(error)));
    for ((error, cure), (code, fix)) in cures.into_iter().zip(STATES) {
        assert_eq!(cure, fix, "{code}: {error}");
    }
    assert_eq!(errors.len(), STATES.len());
    for error in [
        "upstream failure",
        "ERR Connection timed out",
        "TRYAGAIN later",
    ] {
        assert_eq!(of_state(error), LOOK_AT_LOG, "{error}");
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
    let (all, mutex, other) = ("rights", "rights for mutexes", "rights for other locks");
    let keys = "rights to keys";
    let inspect = "rights to inspect";
    for (tried, errors, expected) in [
        // Reentrant locks can be acquired, but mutexes cannot.
        (
            &["SET"][..],
            &command[..],
            &[(Warn, mutex, "no mutexes, fencing tokens without SET")][..],
        ),
        (
            &["SET", "HSET"],
            &command,
            &[
                (Refuse, all, "no mutexes, fencing tokens without SET"),
                (
                    Info,
                    other,
                    "no reentrant locks, fair locks, read-write locks, semaphores without HSET",
                ),
            ],
        ),
        (
            &["PEXPIRE"],
            &command,
            &[(
                Refuse,
                all,
                "no mutexes, reentrant locks, fair locks, read-write locks, semaphores \
                 without PEXPIRE",
            )],
        ),
        (
            &["GET"],
            &command,
            &[(Refuse, all, "no mutexes, fencing tokens without GET")],
        ),
        (
            &["HSET", "HMGET"],
            &command,
            &[(
                Info,
                other,
                "no reentrant locks, fair locks, read-write locks, semaphores without HMGET, HSET",
            )],
        ),
        (
            &["HLEN"],
            &command,
            &[(
                Refuse,
                all,
                "no reentrant locks, fair locks, read-write locks, semaphores without HLEN",
            )],
        ),
        (&["TYPE"], &command, &[(Info, inspect, "without TYPE")]),
        // HSET, which the origin record needs, is not enough to acquire a reentrant lock.
        (
            &["EXISTS", "ZRANK"],
            &command,
            &[(
                Info,
                other,
                "no reentrant locks, read-write locks, semaphores without EXISTS; \
                 no fair locks without EXISTS, ZRANK",
            )],
        ),
        (
            &["ZADD"],
            &command,
            &[(
                Refuse,
                all,
                "no fair locks, read-write locks, semaphores without ZADD",
            )],
        ),
        (
            &["ZRANK"],
            &command,
            &[(Refuse, all, "no fair locks without ZRANK")],
        ),
        // Without the right to one of the keys, no script of the lock runs.
        (
            &["writers"],
            &key,
            &[(Info, other, "no read-write locks without writers")],
        ),
        (
            &["deadlines"],
            &key,
            &[(
                Info,
                other,
                "no fair locks, read-write locks, semaphores without deadlines",
            )],
        ),
        (
            &["queue"],
            &key,
            &[(Info, other, "no fair locks without queue")],
        ),
        (
            &["fence"],
            &key,
            &[(Info, other, "no fencing tokens without fence")],
        ),
        (
            &["SET", "GET", "HSET", "PEXPIRE"],
            &key,
            &[(Unknown, keys, "not all keys")],
        ),
        // The key may be read only.
        (
            &["SET", "PEXPIRE"],
            &key,
            &[(Unknown, keys, "not all keys")],
        ),
        (&["PUBLISH"], &command, &[(Info, MESSAGES, "denied")]),
        (&["PUBLISH"], &channel, &[(Info, MESSAGES, "denied")]),
        (
            &["SET", "GET"],
            &["ERR syntax error", "WRONGTYPE Operation"],
            &[],
        ),
    ] {
        for error in errors {
            let lines = tried.iter().map(|what| format!("\ntry.{what}:{error}"));
            let lines = format!("may_listen:yes{}", lines.collect::<String>());
            let lacking = master("a", &[("may_listen:yes", &lines)]);
            let masters = [lacking, master("b", &[]), master("c", &[])];
            let found = check(&masters, &Shared::default()).findings;
            let found = found.iter();
            let found: Vec<_> = found
                .map(|one| (one.severity, one.setting, &*one.value))
                .collect();
            assert_eq!(found, expected, "{tried:?} {error}");
        }
    }
}

/// A template that was forgotten is likelier than a user without its rights.
#[test]
fn the_right_to_all_keys_is_no_fix() {
    let denied =
        "may_listen:yes\ntry.GET:ERR ACL failure in script: No permissions to access a key";
    for (template, begin) in [
        (
            "{name}",
            "if your programs have a key template, give the check",
        ),
        ("app:{name}", "ACL SETUSER <user> ~app:*; or patterns for"),
        ("app:[{name}", "give its user patterns for"),
    ] {
        let shared = Shared {
            key_template: template.to_owned(),
            ..Shared::default()
        };
        let report = check(&[master("a", &[("may_listen:yes", denied)])], &shared);
        let mut found = report.findings.iter();
        let found = found.find(|one| one.setting == "rights to keys").unwrap();
        assert!(found.fix.starts_with(begin), "{}", found.fix);
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
        let lines = format!("may_listen:yes\ntry.TIME:{error}");
        let changes = [("may_listen:yes", &*lines), ("origin_age:never\n", "")];
        let masters = ["a", "b", "c"].map(|name| master(name, &changes));
        let report = check(&masters, &Shared::default());
        let settings = ["rights", "quorlock:guard"];
        let is_of = |one: &&crate::Finding| {
            settings
                .iter()
                .any(|setting| one.setting.starts_with(setting))
        };
        let fixes = report.findings.iter().filter(is_of).map(|one| &one.fix);
        let fixes: Vec<_> = fixes.collect();
        assert_eq!(fixes.len(), 2, "{report}");
        assert!(!report.to_string().contains("no mutexes"), "{report}");
        assert!(fixes.iter().all(|one| one.contains(fix)), "{report}");
    }
}

#[test]
fn clocks_that_are_off_are_found() {
    // The master's clock, and ours before and after the question.
    for (theirs, sent, received, expected) in [
        (6_000_000, 5_000_000, 5_000_000, None),
        (
            7_000_000,
            5_000_000,
            5_000_000,
            Some("2.0s off this machine"),
        ),
        (
            3_500_000,
            5_000_000,
            5_000_000,
            Some("1.5s off this machine"),
        ),
        // The reading may be wrong by half of the round trip.
        (7_000_000, 4_000_000, 6_000_000, None),
    ] {
        let time = format!("time:{theirs}");
        let read = Facts::parse(&time, sent, received);
        let off = with_facts("c", |facts| facts.clock = read.clock);
        let report = check(
            &[master("a", &[]), master("b", &[]), off],
            &Shared::default(),
        );
        let found = report
            .findings
            .iter()
            .map(|one| (one.severity, one.setting, &*one.value));
        let expected = expected.map(|value| (Warn, "TIME", value));
        assert_eq!(
            found.collect::<Vec<_>>(),
            Vec::from_iter(expected),
            "{theirs}"
        );
    }
}

#[test]
fn one_or_two_masters_are_few() {
    let masters = ["a", "b", "c"].map(|name| master(name, &[]));
    for (count, expected) in [
        (1, &[(Warn, "masters")][..]),
        (2, &[(Warn, "masters")]),
        (3, &[]),
    ] {
        assert_eq!(
            found(&masters[..count], &Shared::default()),
            expected,
            "{count}"
        );
    }
}

#[test]
fn a_counter_counts_if_the_other_masters_are_no_majority() {
    let key = |name: &str| format!("quorlock:fence:{{{name}}}");
    let finding = |ahead: &[&[(&str, u64)]], new: Option<Master>| {
        let masters = ahead.iter().map(|ahead| {
            let ahead = ahead
                .iter()
                .map(|(name, seconds)| (key(name), Duration::from_secs(*seconds)));
            let ahead: BTreeMap<_, _> = ahead.collect();
            with_facts("m", |facts| facts.counters = Some(Ok(ahead)))
        });
        let masters: Vec<_> = new.into_iter().chain(masters).collect();
        let lists: [List; 2] = [
            ("masters", [0].into()),
            ("leaving masters", (1..masters.len()).collect()),
        ];
        let report = judge(&masters, &lists, &surprised_by_nobody(), &Shared::default());
        report
            .findings
            .into_iter()
            .find(|one| one.setting == "quorlock:fence:*")
    };
    let new = || Some(with_facts("new", |_| ()));
    let (a, b): (&[_], &[_]) = (&[("a", 5)], &[("a", 3_600), ("b", 2)]);
    for (ahead, is_found) in [
        (&[a, &[], &[]][..], false),
        (&[a, b, &[]], true),
        (&[a, &[("b", 2)], &[]], false),
        (&[a, &[], &[], &[]], false),
        (&[a, b, &[], &[]], true), // the other two of four are no majority
        (&[b, b, a, b, &[]], true),
        (&[a, a, &[], &[], &[]], false),
    ] {
        assert_eq!(finding(ahead, new()).is_some(), is_found, "{ahead:?}");
    }
    let found = finding(&[b, b, a], new()).unwrap().to_string();
    let expected = "refuse: quorlock:fence:*: up to 3600.0s ahead of time, 2 in all, such as quorlock:fence:{a}: ";
    assert!(found.starts_with(expected), "{found}");
    assert!(
        finding(&[b, &[], &[]], None).is_some(),
        "the new master has it"
    );
}

/// The errors are those of `Builder::build`, and need no answer of a master.
#[tokio::test]
async fn lists_that_a_builder_refuses_are_refused() {
    let many: Vec<_> = (0..65).map(|number| format!("redis://m{number}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let lists: [(&[&str], &[&str]); 7] = [
        (&[], &[]),
        (&[], &["redis://a"]),
        (&many, &[]),
        (&many[..33], &many[32..]),
        (&["redis://a", "redis://b", "redis://a/1"], &[]),
        (&["redis://a"], &["redis://b", "redis://a", "redis://b"]),
        (&["redis://a", "redis://b"], &["redis://c", "redis://b/1"]),
    ];
    for (masters, leaving) in lists {
        let [masters, leaving] = [masters, leaving].map(|list| {
            let specs = list.iter().map(|url| MasterSpec::from(*url));
            specs.collect::<Vec<_>>()
        });
        let checked = crate::check(&masters, &leaving, &Shared::default()).await;
        let builder = Coordinator::builder().masters(masters).leaving(leaving);
        let expected = builder.build().unwrap_err().to_string();
        assert_eq!(checked.unwrap_err().to_string(), expected);
    }
}

/// Programs of a change are no surprise to each other. Programs of groups show the lists of all
/// groups, and not those of one.
#[test]
fn the_lists_of_a_change_or_of_groups_are_expected() {
    let id = |masters: &[&'static str], leaving: &[&'static str]| {
        ListsId::of(masters.iter().copied(), leaving.iter().copied())
    };
    let (new, old): (&[_], &[_]) = (&["n:1"], &["o:1"]);
    let ids = [id(new, old), id(old, &[]), id(new, &[]), id(old, new)];
    let shared = Shared::default();
    let during = expected("k", new.to_vec(), old.to_vec(), &shared);
    assert_eq!(during.lists, ids);
    let before = expected("k", old.to_vec(), vec![], &shared);
    assert_eq!(before.lists, [id(old, &[])]);
    assert_eq!(
        before.ours,
        ConnectionName::new(id(old, &[]), "k", shared.max_ttl, None)
    );
    let groups = Shared {
        lists: vec![ListsId::of(["g:1"], [])],
        ..shared
    };
    let in_groups = expected("k", old.to_vec(), vec![], &groups);
    assert_eq!(in_groups.lists, groups.lists);
}

/// The program uses the same servers, and other keys there.
#[test]
fn a_program_in_another_database_is_found_and_writes_no_origin_key_here() {
    let name = surprised_by_nobody().ours;
    let hasty = ConnectionName::new(
        ListsId::of(["z:1"], []),
        "quorlock:check",
        Duration::from_secs(9),
        None,
    );
    for (name, database, expected) in [
        (&name, 0, vec![(Refuse, "quorlock:guard")]),
        (&name, 3, vec![(Warn, "database"), (Info, "quorlock:guard")]),
        (
            &hasty,
            3,
            vec![
                (Warn, "database"),
                (Warn, "lists"),
                (Warn, "max_ttl"),
                (Info, "quorlock:guard"),
            ],
        ),
    ] {
        let mut master = master("c", &[("never", "none")]);
        let facts = master.answer.as_mut().unwrap();
        facts.programs = read(&format!("id=3 name={name} age=9 flags=N db={database}"), 0).0;
        let masters = [self::master("a", &[]), self::master("b", &[]), master];
        assert_eq!(
            found(&masters, &Shared::default()),
            expected,
            "{name} {database}"
        );
    }
}

/// The programs may be connected with different masters.
#[test]
fn programs_of_a_change_that_share_no_list_are_found() {
    let shared = Shared::default();
    let during = |old| expected("k", vec!["n:1"], vec![old], &shared);
    let name = |lists: [&str; 2], key, client| {
        let [masters, leaving] = lists.map(|list| list.split_whitespace());
        let name = ConnectionName::new(
            ListsId::of(masters, leaving),
            key,
            shared.max_ttl,
            Some(client),
        );
        format!("id=1 name={name} age=9 flags=N db=")
    };
    let [old, new] = [["o:1", ""], ["n:1", ""]];
    let value = "job, web with the old list, api with the new one";
    for (programs, is_found) in [
        (
            [name(old, "k", "web") + "0", name(new, "k", "api") + "0"],
            true,
        ),
        (
            [
                name(old, "k", "web") + "0",
                name(["n:1", "o:1"], "k", "api") + "0",
            ],
            false,
        ),
        (
            [
                name(["n:1", "o:1"], "k", "web") + "0",
                name(new, "k", "api") + "0",
            ],
            false,
        ),
        (
            [name(old, "k", "web") + "0", name(new, "other", "api") + "0"],
            false,
        ),
        (
            [name(old, "k", "web") + "0", name(new, "k", "api") + "3"],
            false,
        ),
    ] {
        let [first, second] = programs.clone().map(|text| {
            let job = name(old, "k", "job") + "0";
            let text = if text.contains("web") && is_found {
                format!("{text}\n{job}")
            } else {
                text
            };
            with_facts("m", |facts| facts.programs = read(&text, 0).0)
        });
        let masters = [first, second, master("a", &[])];
        let lists: [List; 2] = [("masters", [0].into()), ("leaving masters", [1].into())];
        let report = judge(&masters, &lists, &during("o:1"), &shared);
        let mut findings = report.findings.iter();
        let apart = findings.find(|one| (one.severity, one.setting) == (Refuse, "lists"));
        let apart = apart.map(|one| (&*one.value, one.masters.len()));
        assert_eq!(apart, is_found.then_some((value, 0)), "{programs:?}");
    }
    assert!(during("n:1").apart.is_none(), "the lists are the same");
}

#[test]
fn a_program_with_other_masters_is_found_on_each_master_it_uses() {
    let other = ConnectionName::new(
        ListsId::of(["z:1"], []),
        "quorlock:check",
        Duration::from_secs(60),
        Some("web"),
    );
    let (programs, _) = read(&format!("id=1 name={other} age=1 flags=N"), 0);
    let one = |name| with_facts(name, |facts| facts.programs = programs.clone());
    let report = check(&[one("a"), one("b"), master("c", &[])], &Shared::default());
    assert!(
        report
            .to_string()
            .starts_with("warn: a:6379, b:6379: lists: web: "),
        "{report}"
    );
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.programs[0].programs, Ok(programs));
    assert_eq!(report.programs[2].programs, Ok(vec![]));
}

#[test]
fn findings_are_joined_and_the_worst_comes_first() {
    let slow = |name, timeout| master(name, &[("timeout", timeout)]);
    let denied = Master {
        answer: Err(LOGIN.with("WRONGPASS")),
        ..master("d", &[])
    };
    let masters = [
        slow("a", "60"),
        slow("b", "300"),
        slow("c", "300"),
        denied,
        master("e", &[]),
    ];
    let report = check(&masters, &Shared::default()).to_string();
    let begins: Vec<_> = report
        .lines()
        .map(|line| line.split(": it ").next().unwrap())
        .collect();
    let expected = [
        "refuse: d:6379: login: WRONGPASS",
        "warn: a:6379: timeout: 60",
        "warn: b:6379, c:6379: timeout: 300",
    ];
    assert_eq!(begins, expected, "{report}");
    assert!(report.ends_with("; CONFIG SET timeout 0"), "{report}");
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the task is the server")]
async fn a_master_that_falls_silent_after_the_login_is_found() {
    let silent = MasterSpec::from_stream("redis://a", async || {
        let (ours, mut theirs) = duplex(4096);
        tokio::spawn(async move {
            let (mut bytes, mut is_first) = ([0; 4096], true);
            loop {
                let count = theirs.read(&mut bytes).await.unwrap_or(0);
                let text = String::from_utf8_lossy(&bytes[..count]);
                if text.contains("EVALSHA") {
                    pending::<()>().await;
                }
                for _ in text.matches('*') {
                    let reply = if mem::take(&mut is_first) {
                        "%0"
                    } else {
                        "+OK"
                    };
                    theirs.write_all(format!("{reply}\r\n").as_bytes()).await?;
                }
                if count == 0 {
                    return io::Result::Ok(());
                }
            }
        });
        Ok(ours)
    });
    let (masters, shared) = ([silent], Shared::default());
    let checked = timeout(
        Duration::from_secs(60),
        crate::check(&masters, &[], &shared),
    );
    let report = checked.await.expect("it hangs").unwrap().to_string();
    assert!(
        report.contains("unknown: a:6379: connection: no answer in 1s: "),
        "{report}"
    );
}
