use super::{
    Severity::{Info, Refuse, Unknown, Warn},
    *,
};

/// As Redis 7 says it, with all rights.
const FIT: &str = "run_id:RUN\nredis_version:7.0.15\nredis_mode:standalone\nrole:master\nmaster_replid:RUN\n\
                   master_replid2:0000\n\
                   connected_slaves:0\nmaxmemory:0\nmaxmemory_policy:noeviction\nevicted_keys:0\nloading:0\n\
                   aof_enabled:1\naof_last_write_status:ok\nrdb_last_bgsave_status:ok\nconnected_clients:1\n\
                   monotonic_clock:POSIX clock_gettime\ntime:5000000\nguard_age:never\nguard_durable:1\n\
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
];

fn ours() -> Ours {
    Ours {
        guard: RestartGuard::Observed,
        is_durable: false,
        quarantine: Duration::from_secs(61),
        ttl: Duration::from_secs(10),
        node_timeout: Duration::from_millis(50),
        drift: Drift::from_ppm(10_000).unwrap(),
    }
}

/// Master `name`, on a host of its own, with changes to what is fit.
fn master(name: &str, changes: &[(&str, &str)]) -> Asked {
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
    Asked {
        address: format!("{name}:6379").into(),
        facts: Ok(facts),
    }
}

fn silent(name: &str, failure: Failure) -> Asked {
    Asked {
        address: format!("{name}:6379").into(),
        facts: Err(failure),
    }
}

fn found(masters: &[Asked], ours: &Ours) -> Vec<(Severity, &'static str)> {
    let found = check(masters, ours).findings;
    found
        .iter()
        .map(|finding| (finding.severity, finding.setting))
        .collect()
}

/// What is found when one of three masters has `changes`.
fn with_one(changes: &[(&str, &str)], ours: &Ours) -> Vec<(Severity, &'static str)> {
    let masters = [master("a", &[]), master("b", &[]), master("c", changes)];
    found(&masters, ours)
}

#[test]
fn nothing_is_found_on_masters_that_are_fit() {
    for guard in [
        RestartGuard::Off,
        RestartGuard::Observed,
        RestartGuard::Strict,
    ] {
        let ours = Ours { guard, ..ours() };
        assert_eq!(with_one(&[], &ours), [], "{guard:?}");
    }
    let valkey = ("redis_mode:standalone", "server_mode:standalone");
    assert_eq!(with_one(&[valkey], &ours()), []);
}

#[test]
fn each_setting() {
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
        ("lua-time-limit", "5001", (Info, "busy-reply-threshold")),
        ("lua-time-limit", "0", (Info, "busy-reply-threshold")),
        ("may_eval:yes", "may_eval:no", (Warn, "EVAL")),
        ("may_eval:yes", "may_listen:no", (Info, MESSAGES)),
        ("never", "none", (Refuse, "quorlock:guard")),
        ("never", "another", (Refuse, "quorlock:guard")),
        ("never", "60000", (Warn, "quorlock:guard")),
        (
            "guard_age:never\nguard_durable:1\n",
            "",
            (Refuse, "quorlock:guard"),
        ),
    ] {
        assert_eq!(with_one(&[(from, to)], &ours()), [expected], "{from} {to}");
    }
    assert_eq!(with_one(&[("never", "61000")], &ours()), []);
    let goes_on = [
        ("rdb_last_bgsave_status:ok", "rdb_last_bgsave_status:err"),
        ("stop-writes-on-bgsave-error", "no"),
    ];
    assert_eq!(
        with_one(&goes_on, &ours()),
        [(Info, "rdb_last_bgsave_status")]
    );
}

#[test]
fn what_a_restart_forgets() {
    let unguarded = Ours {
        guard: RestartGuard::Off,
        ..ours()
    };
    for (change, level, setting) in [
        (("aof_enabled:1", "aof_enabled:0"), Refuse, "aof_enabled"),
        (("appendfsync", "everysec"), Warn, "appendfsync"),
        (
            ("no-appendfsync-on-rewrite", "yes"),
            Warn,
            "no-appendfsync-on-rewrite",
        ),
    ] {
        assert_eq!(with_one(&[change], &unguarded), [(level, setting)]);
        // The guard notices it.
        assert_eq!(with_one(&[change], &ours()), [(Info, setting)]);
    }
    let lost = with_one(&[("never", "none")], &unguarded);
    assert_eq!(lost, []);
}

/// Where they are durable, a restart is trusted.
#[test]
fn masters_that_are_said_to_keep_everything() {
    let durable = Ours {
        is_durable: true,
        ..ours()
    };
    assert_eq!(with_one(&[], &durable), []);
    let (was, was_not) = ("guard_durable:1", "guard_durable:0");
    for (setting, from, to) in [
        ("aof_enabled", "aof_enabled:1", "aof_enabled:0"),
        ("appendfsync", "appendfsync", "everysec"),
        (
            "no-appendfsync-on-rewrite",
            "no-appendfsync-on-rewrite",
            "yes",
        ),
    ] {
        let found = with_one(&[(from, to)], &durable);
        assert_eq!(found, [(Refuse, setting)]);
        let found = with_one(&[(from, to), (was, was_not)], &durable);
        assert_eq!(found, [(Warn, setting)]);
    }
    let found = with_one(&[(was, was_not)], &durable);
    assert_eq!(found, [(Warn, "quorlock:guard")]);
    assert_eq!(with_one(&[(was, was_not)], &ours()), []);
}

#[test]
fn too_few_that_vote() {
    let down = || silent("x", Failure::Closed);
    let with = |from: &'static str, to: &'static str| master("y", &[(from, to)]);
    let writes = |word: &'static str| with("ERR syntax error", word);
    let quarantined = |age: &'static str| with("never", age);
    for (masters, expected) in [
        ([down(), master("a", &[]), master("b", &[])], None),
        (
            [down(), down(), master("a", &[])],
            Some((Refuse, "only 1 of 3 now (need 2)")),
        ),
        (
            [down(), down(), down()],
            Some((Refuse, "only 0 of 3 now (need 2)")),
        ),
        (
            [down(), writes("OOM command"), master("a", &[])],
            Some((Refuse, "only 1 of 3 now (need 2)")),
        ),
        ([quarantined("1"), master("a", &[]), master("b", &[])], None),
        (
            [
                quarantined("21000"),
                quarantined("31000"),
                quarantined("1000"),
            ],
            Some((Warn, "only 0 of 3 now (need 2), for 40.0s still")),
        ),
        (
            [quarantined("21000"), down(), master("a", &[])],
            Some((Warn, "only 1 of 3 now (need 2), for 40.0s still")),
        ),
        (
            [quarantined("21000"), down(), down()],
            Some((Refuse, "only 0 of 3 now (need 2)")),
        ),
    ] {
        let report = check(&masters, &ours()).findings;
        let of_all = report
            .iter()
            .filter(|finding| finding.setting == "votes")
            .map(|finding| (finding.severity, &*finding.value));
        assert_eq!(of_all.collect::<Vec<_>>(), Vec::from_iter(expected));
    }
    let unguarded = Ours {
        guard: RestartGuard::Off,
        ..ours()
    };
    let masters = ["1", "2", "3"].map(quarantined);
    assert!(!found(&masters, &unguarded).contains(&(Warn, "votes")));
}

/// An error that another finding explains is not said again.
#[test]
fn why_nothing_is_written() {
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
        assert_eq!(with_one(changes, &ours()), [expected], "{changes:?}");
    }
}

#[test]
fn what_is_not_told_is_never_fine() {
    let denied = || {
        Failure::Rejected(
            "NOPERM User bob has no permissions to run the 'config|get' command".into(),
        )
    };
    let mut masters = ["a", "b", "c"].map(|name| master(name, &[]));
    let facts = masters[1].facts.as_mut().unwrap();
    facts.add("timeout", Err(denied()));
    let report = check(&masters, &ours());
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
    assert_eq!(found(&masters, &ours()), expected);

    for (failure, expected) in [
        (
            Failure::TimedOut(Duration::from_millis(50)),
            (Unknown, "connection"),
        ),
        (Failure::Closed, (Unknown, "connection")),
        (
            Failure::Disconnected("reset".into()),
            (Unknown, "connection"),
        ),
        (
            Failure::Unreachable("Connection refused".into()),
            (Unknown, "connection"),
        ),
        (
            Failure::Unreachable(
                "refused the login: DENIED Redis is running in protected mode".into(),
            ),
            (Refuse, "login"),
        ),
        (
            Failure::Unreachable("refused the login: ERR unknown command `HELLO`".into()),
            (Refuse, "redis_version"),
        ),
        (
            Failure::Unreachable(
                "its answer to HELLO 3 makes no sense: is this Redis 6 or later?".into(),
            ),
            (Refuse, "redis_version"),
        ),
        (
            Failure::Unreachable("refused the login: ERR max number of clients reached".into()),
            (Warn, "maxclients"),
        ),
        (
            Failure::Unreachable("refused the database: ERR DB index is out of range".into()),
            (Refuse, "login"),
        ),
        (
            Failure::Unreachable("the answer is not RESP: is this a Redis server?".into()),
            (Warn, "connection"),
        ),
        (
            Failure::Unreachable("failed to lookup address information: no".into()),
            (Warn, "connection"),
        ),
        (
            Failure::Unreachable("it is a replica, not a master".into()),
            (Refuse, "role"),
        ),
        (
            Failure::Unreachable("it is the same server as master 1".into()),
            (Refuse, "run_id"),
        ),
        (
            Failure::Unreachable(
                "whether it restarted cannot be known: NOPERM; its user needs the rights +info"
                    .into(),
            ),
            (Refuse, "quorlock:guard"),
        ),
        (
            Failure::Unreachable("whether it restarted cannot be known: OOM".into()),
            (Warn, "votes"),
        ),
        (
            Failure::Unreachable("LOADING Redis is loading the dataset in memory".into()),
            (Warn, "loading"),
        ),
        (
            Failure::Rejected("NOPERM this user".into()),
            (Refuse, "EVALSHA"),
        ),
        (
            Failure::Rejected("ERR unknown command 'EVALSHA'".into()),
            (Refuse, "EVALSHA"),
        ),
        (
            Failure::Rejected("LOADING Redis is".into()),
            (Warn, "votes"),
        ),
        (Failure::Rejected("BUSY Redis is".into()), (Warn, "votes")),
    ] {
        let masters = [master("a", &[]), master("b", &[]), silent("c", failure)];
        assert_eq!(found(&masters, &ours()), [expected], "{:?}", masters[2]);
    }
}

/// The words of Redis 6, 7 and 8, and of Valkey.
#[test]
fn each_right() {
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
    for (tried, errors, expected) in [
        // Reentrant locks can be had, and mutexes not.
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
                (Refuse, tokens),
            ],
        ),
        (
            &["PEXPIRE"],
            &command,
            &[(Refuse, mutex), (Refuse, reentrant)],
        ),
        (&["GET"], &command, &[(Refuse, mutex), (Info, tokens)]),
        (
            &["HSET", "HMGET"],
            &command,
            &[(Info, reentrant), (Info, fair)],
        ),
        (&["HLEN"], &command, &[(Refuse, reentrant)]),
        (&["TYPE"], &command, &[(Info, "rights to inspect")]),
        // The guard's HSET is not enough to take one.
        (
            &["EXISTS", "HLEN"],
            &command,
            &[(Info, reentrant), (Info, fair)],
        ),
        (&["ZADD"], &command, &[(Info, fair)]),
        (&["queue"], &key, &[(Info, fair)]),
        (&["fence"], &key, &[(Info, tokens)]),
        (
            &["SET", "GET", "HSET", "PEXPIRE"],
            &key,
            &[(Unknown, "rights to keys")],
        ),
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
                with_one(&[("may_eval:yes", &lines)], &ours()),
                *expected,
                "{tried:?} {error}"
            );
        }
    }
}

#[test]
fn clocks() {
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
        let report = check(&masters, &ours()).findings;
        let found: Vec<_> = report
            .iter()
            .map(|finding| (finding.severity, finding.setting, &*finding.value))
            .collect();
        assert_eq!(found, expected, "{times:?}");
    }
    // What half of the round trip explains is no finding.
    let mut masters = ["a", "b", "c"].map(|name| master(name, &[]));
    let facts = FIT
        .replace("RUN", "c")
        .replace("time:5000000", "time:7000000");
    let slow = Facts::parse(&facts, 4_000_000, 6_000_000);
    masters[2].facts = Ok(slow);
    let found = found(&masters, &ours());
    assert!(!found.contains(&(Warn, "TIME")), "{found:?}");
}

#[test]
fn a_clock_that_stands_still() {
    for (asked, time, is_found) in [
        (5_002_000, 5_000_000, true),
        (5_002_000, 4_999_000, true),
        (5_002_000, 5_000_001, false),
        (5_000_100, 5_000_000, false), // too early to say
    ] {
        let mut facts = Facts::parse(&FIT.replace("RUN", "c"), 5_000_000, 5_000_000);
        facts.compare(&Facts::parse(&format!("time:{time}"), asked, asked));
        let masters = [
            master("a", &[]),
            master("b", &[]),
            Asked {
                address: "c:6379".into(),
                facts: Ok(facts),
            },
        ];
        let is_there = found(&masters, &ours()).contains(&(Refuse, "TIME"));
        assert_eq!(is_there, is_found, "{asked} {time}");
    }
}

#[test]
fn masters_and_hosts() {
    let on = |addresses: &[&str]| {
        let masters = addresses.iter().map(|address| {
            let facts = master(address, &[]).facts;
            let address = Arc::from(*address);
            Asked { address, facts }
        });
        found(&masters.collect::<Vec<_>>(), &ours())
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
fn our_own_settings() {
    let ours_with = |change: fn(&mut Ours)| {
        let mut ours = ours();
        change(&mut ours);
        with_one(&[], &ours)
    };
    assert_eq!(
        ours_with(|ours| ours.ttl = Duration::from_millis(499)),
        [(Warn, "ttl")]
    );
    assert_eq!(ours_with(|ours| ours.ttl = Duration::from_millis(500)), []);
    assert_eq!(
        ours_with(|ours| ours.drift = Drift::from_ppm(999).unwrap()),
        [(Warn, "drift")]
    );
}

#[test]
fn what_is_the_same_on_all_is_said_once() {
    let slow = ("lua-time-limit", "7000");
    let masters = ["a", "b", "c"].map(|name| master(name, &[slow]));
    let report = check(&masters, &ours());
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].master, None);
    // Of one master, and where they differ, it is said whose it is.
    let masters = [
        master("a", &[("lua-time-limit", "6000")]),
        master("b", &[slow]),
        master("c", &[slow]),
    ];
    let report = check(&masters, &ours());
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
fn whom_a_finding_is_about() {
    let hasty = Ours {
        ttl: Duration::from_millis(499),
        ..ours()
    };
    let at = |place: &str| Asked {
        address: place.into(),
        ..master("a", &[("timeout", "60")])
    };
    let report = check(&[at("m:1"), at("m:2")], &hasty);
    for line in [
        "warn: this program: ttl is 499ms with a node timeout of 50ms: ",
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
fn errors_in_short() {
    for (failure, expected) in [
        (
            Failure::Unreachable(
                "refused the login: WRONGPASS invalid username-password pair or user is disabled."
                    .into(),
            ),
            "WRONGPASS invalid username-password pair or user is disabled",
        ),
        (
            Failure::Unreachable(
                "whether it restarted cannot be known: NOPERM User bob has no permissions to run the 'eval' command; \
                 its user needs the rights +eval"
                    .into(),
            ),
            "NOPERM its user has no permissions to run the 'eval' command",
        ),
        (
            Failure::Unreachable("it is a replica, not a master".into()),
            "a replica, not a master",
        ),
        (
            Failure::Rejected("BUSY Redis is busy running a script. You can only call".into()),
            "answered BUSY Redis is busy running a script",
        ),
        (
            Failure::TimedOut(Duration::from_millis(50)),
            "no answer in 50ms",
        ),
    ] {
        assert_eq!(silent::in_short(&failure), expected);
    }
}

#[test]
fn a_finding_says_what_to_do() {
    let masters = [master("m1", &[("noeviction", "allkeys-lru")])];
    let text = check(&masters, &ours()).to_string();
    assert!(
        text.contains("warn: m1:6379: maxmemory_policy is allkeys-lru: locks are evicted"),
        "{text}"
    );
    assert!(
        text.contains("CONFIG SET maxmemory-policy noeviction"),
        "{text}"
    );
}
