use std::{collections::BTreeMap, time::Duration};

use quorlock::{
    Quarantine,
    tools::{ConnectionName, ListsId},
};

use crate::{
    CheckSettings, Expected, Report,
    Severity::{self, Critical, Info, Unknown, Warn},
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
                   aof_enabled:1\nactive-replica:no\nappendfsync:always\nno-appendfsync-on-rewrite:no\n\
                   timeout:0\ntime:5000000\norigin_age:never\ntry.SET:ERR syntax error\n\
                   try.HSET:ERR wrong number of arguments for 'hset' command\nmay_listen:yes\n";

const ORIGIN: &str = "quorlock:origin";

type Found = (Severity, &'static str);

fn with_quarantine(quarantine: Quarantine) -> CheckSettings {
    CheckSettings {
        quarantine,
        ..CheckSettings::default()
    }
}

fn surprised_by_nobody() -> Expected {
    expected(
        "quorlock:check",
        vec!["a:6379"],
        vec![],
        &CheckSettings::default(),
    )
}

fn check(masters: &[Master], shared: &CheckSettings) -> Report {
    let lists: [List; 1] = [("masters", (0..masters.len()).collect())];
    judge(masters, &lists, &surprised_by_nobody(), shared)
}

/// Returns master `name` on a host of its own. Its answer is that of a fit master with other lines:
/// `changes` has them, and `-field` for a line that is not there.
fn master(name: &str, changes: &str) -> Master {
    let is_there = |line: &&str| {
        let mut gone = changes.lines().filter_map(|line| line.strip_prefix('-'));
        !gone.any(|field| line.split(':').next() == Some(field))
    };
    let fit = FIT.replace("RUN", name);
    let lines = fit.lines().filter(is_there).chain(changes.lines());
    let text = lines.collect::<Vec<_>>().join("\n");
    Master {
        address: format!("{name}:6379").into(),
        answer: Ok(Facts::parse(&text, 5_000_000, 5_000_000)),
    }
}

fn with_facts(name: &str, change: impl FnOnce(&mut Facts)) -> Master {
    let mut master = master(name, "");
    change(master.answer.as_mut().unwrap());
    master
}

/// Returns a master that shows these lines of `CLIENT LIST`.
fn with_programs(changes: &str, list: &str) -> Master {
    let mut master = master("c", changes);
    master.answer.as_mut().unwrap().programs = read(list, 0).0;
    master
}

fn down(name: &str) -> Master {
    Master {
        answer: Err(DOWN.with("refused")),
        ..master(name, "")
    }
}

fn found_in(report: &Report) -> Vec<Found> {
    let found = report.findings.iter();
    found.map(|one| (one.severity, one.setting)).collect()
}

fn found(masters: &[Master], shared: &CheckSettings) -> Vec<Found> {
    found_in(&check(masters, shared))
}

/// Returns the report about this master and two that are fit.
fn beside_two(third: Master, shared: &CheckSettings) -> Report {
    check(&[master("a", ""), master("b", ""), third], shared)
}

/// Returns the findings about three masters if one of them has `changes`.
fn with_one(changes: &str, shared: &CheckSettings) -> Vec<Found> {
    found_in(&beside_two(master("c", changes), shared))
}

#[test]
fn a_quarantine_without_end_is_as_long_as_can_be() {
    let shared = CheckSettings {
        max_ttl: Duration::MAX,
        ..CheckSettings::default()
    };
    assert_eq!(shared.quarantine_length(), Duration::MAX);
}

#[test]
fn nothing_is_found_on_masters_that_are_fit() {
    for quarantine in [Quarantine::Off, Quarantine::Observed, Quarantine::Strict] {
        let found = with_one("", &with_quarantine(quarantine));
        assert_eq!(found, [], "{quarantine:?}");
    }
    let report = beside_two(
        master("c", "-redis_mode\nserver_mode:standalone"),
        &CheckSettings::default(),
    );
    assert_eq!(report.to_string(), "no findings");
}

#[test]
fn each_setting_has_its_finding() {
    for row in include_str!("settings.txt").lines().skip(2) {
        let (changes, expected) = row.split_once(" | ").unwrap();
        let found = with_one(&changes.replace(" & ", "\n"), &CheckSettings::default());
        let [(severity, setting)] = found[..] else {
            panic!("{row}: {found:?}");
        };
        assert_eq!(format!("{severity} {setting}"), expected, "{changes}");
    }
    assert_eq!(with_one("origin_age:61000", &CheckSettings::default()), []);
}

#[test]
fn a_missing_answer_is_a_finding() {
    let found_with = |change: &dyn Fn(&mut Facts, String)| {
        let why = "answered NOPERM its user".to_owned();
        let third = with_facts("c", |facts| change(facts, why));
        found_in(&beside_two(third, &CheckSettings::default()))
    };
    type Field = fn(&mut Facts) -> &mut Option<String>;
    let fields: [(Field, Found); 5] = [
        (|facts| &mut facts.withheld, (Unknown, "CONFIG GET")),
        (|facts| &mut facts.unseen, (Unknown, "lists")),
        (|facts| &mut facts.uncompared, (Unknown, "run_id")),
        (|facts| &mut facts.untracked, (Warn, "CLIENT TRACKING")),
        (|facts| &mut facts.evalsha, (Critical, "EVALSHA")),
    ];
    for (field, expected) in fields {
        let found = found_with(&|facts, why| *field(facts) = Some(why));
        assert_eq!(found, [expected]);
    }
    let found = found_with(&|facts, why| facts.counters = Some(Err(why)));
    assert_eq!(found, [(Unknown, "quorlock:fence:*")]);
    let found = found_with(&|facts, _| facts.is_one_of_several = true);
    assert_eq!(found, [(Critical, "run_id")]);
    let error = "ERR ACL failure in script: User bob has no permissions to run the 'info' command";
    let text = format!("try.INFO:{error}\ntime:5000000");
    let denied = Master {
        answer: Ok(Facts::parse(&text, 5_000_000, 5_000_000)),
        ..master("c", "")
    };
    let expected = [(Critical, ORIGIN), (Unknown, "INFO")];
    assert_eq!(
        found_in(&beside_two(denied, &CheckSettings::default())),
        expected
    );
}

#[test]
fn settings_with_which_a_restart_loses_locks_are_found_without_quarantine() {
    let trusting = with_quarantine(Quarantine::Off);
    for (change, severity) in [
        ("aof_enabled:0", Critical),
        ("appendfsync:everysec", Warn),
        ("no-appendfsync-on-rewrite:yes", Warn),
    ] {
        let setting = change.split(':').next().unwrap();
        assert_eq!(with_one(change, &trusting), [(severity, setting)]);
        assert_eq!(with_one(change, &CheckSettings::default()), []);
    }
    assert_eq!(with_one("origin_age:none", &trusting), []);
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
        ("none", &name, Some(Critical)),
        ("none", &other, Some(Info)),
        ("none", &off, Some(Info)),
        ("another", &off, Some(Warn)),
        ("another", "", Some(Warn)),
        ("another", &name, Some(Critical)),
    ] {
        for (seconds, is_settled) in [(1, false), (2, true)] {
            let list = format!("id=3 name={name} age={seconds} flags=N");
            let third = with_programs(&format!("origin_age:{age}"), &list);
            let expected = expected.map(|severity| match age {
                _ if is_settled => severity,
                "none" => Info,
                _ => severity.min(Warn),
            });
            let mut found = found_in(&beside_two(third, &CheckSettings::default()));
            found.retain(|one| *one != (Info, "key template"));
            let expected = Vec::from_iter(expected.map(|severity| (severity, ORIGIN)));
            assert_eq!(found, expected, "{age} {name} {seconds}");
        }
    }
}

#[test]
fn it_is_found_that_fewer_than_a_majority_can_vote() {
    let full = master("w", "try.SET:OOM command");
    let quarantined = |age: &str| master(&format!("q{age}"), &format!("origin_age:{age}"));
    let fit = |name| master(name, "");
    let few = |severity, count: usize| {
        let value = format!("only {count} of 3 masters now (need 2)");
        Some((severity, value))
    };
    let [half, third] = ["21000", "31000"].map(quarantined);
    let [another, none] = ["another", "none"].map(quarantined);
    for (masters, expected) in [
        ([down("x"), fit("a"), fit("b")], None),
        ([down("x"), down("y"), fit("a")], few(Critical, 1)),
        ([down("x"), down("y"), down("z")], few(Critical, 0)),
        ([down("x"), full, fit("a")], few(Critical, 1)),
        ([quarantined("1"), fit("a"), fit("b")], None),
        ([half.clone(), third, quarantined("1000")], few(Warn, 0)),
        ([half.clone(), down("x"), fit("a")], few(Warn, 1)),
        ([half, down("x"), down("y")], few(Critical, 0)),
        ([another, none, down("x")], few(Warn, 1)),
    ] {
        let findings = check(&masters, &CheckSettings::default())
            .findings
            .into_iter();
        let about_votes = findings.filter(|one| one.setting == "votes");
        // Whatever begins a quarantine, the check does not.
        let about_votes = about_votes.inspect(|one| {
            let is_told = [
                "new, restarted, was replaced or lost its key",
                "status NAME",
            ]
            .map(|part| one.fix.contains(part));
            assert_eq!(is_told, [one.severity == Warn; 2], "{}", one.fix);
        });
        let about_votes = about_votes.map(|one| (one.severity, one.value));
        assert_eq!(about_votes.collect::<Vec<_>>(), Vec::from_iter(expected));
    }
    // `Strict` programs count new masters as masters that forgot.
    for (changes, quarantine, is_found) in [
        ("origin_age:1", Quarantine::Off, false),
        ("origin_age:none", Quarantine::Strict, true),
        ("origin_seen:1000", Quarantine::Strict, true),
    ] {
        let masters = ["1", "2", "3"].map(|name| master(name, changes));
        let found = found(&masters, &with_quarantine(quarantine));
        assert_eq!(found.contains(&(Warn, "votes")), is_found, "{changes}");
    }
}

#[test]
fn every_list_needs_a_majority() {
    let masters = [master("a", ""), down("b"), down("c")];
    let lists: [List; 2] = [("masters", [0].into()), ("old masters", [0, 1, 2].into())];
    let report = judge(
        &masters,
        &lists,
        &surprised_by_nobody(),
        &CheckSettings::default(),
    );
    assert_eq!(report.voters, 1);
    let votes = "critical: votes: only 1 of 3 old masters now (need 2): ";
    assert!(report.to_string().starts_with(votes), "{report}");
    let few = "warn: masters: 1 in the list of masters: ";
    assert!(report.to_string().contains(few), "{report}");
}

#[test]
fn a_server_that_is_listed_twice_is_found_once_and_has_one_vote() {
    let twins = [master("a", ""), master("a", ""), down("c")];
    let (run_id, down) = ((Critical, "run_id"), (Unknown, "connection"));
    assert_eq!(
        found(&twins, &CheckSettings::default()),
        [(Critical, "votes"), run_id, down]
    );
    // Without quarantine, the server has two votes.
    assert_eq!(
        found(&twins, &with_quarantine(Quarantine::Off)),
        [run_id, down]
    );
}

#[test]
fn masters_that_share_data_are_found_once_however_many_pairs_they_are() {
    let now = |name| master(name, "master_replid:x");
    let before = |name| master(name, "master_replid2:x");
    for (quarantine, severity) in [
        (Quarantine::Observed, "warn"),
        (Quarantine::Off, "critical"),
    ] {
        for masters in [["a", "b", "c"].map(now), ["a", "b", "c"].map(before)] {
            let masters = [&masters[..], &["d", "e"].map(|name| master(name, ""))].concat();
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

/// `server_error.rs` of the crate has the words of each version, and `tests/redis/cures.rs` has
/// users that lack rights on a server.
#[test]
fn each_missing_right_has_its_finding() {
    const COMMAND: &str = "User lock has no permissions to run the 'set' command";
    const KEY: &str = "No permissions to access a key";
    let table = include_str!("missing_rights.txt").trim_end();
    for row in table.split("\n\n").skip(1) {
        let lines: Vec<_> = row.lines().filter(|line| !line.starts_with('#')).collect();
        let (tried, error) = lines[0].split_once(" | ").unwrap();
        let error = if error == "key" { KEY } else { COMMAND };
        let expected = lines[1..].join("\n");
        let lines = tried.split(' ');
        let lines = lines.map(|what| format!("try.{what}:ERR ACL failure in script: {error}\n"));
        let lacking = master("c", &lines.collect::<String>());
        let found = beside_two(lacking, &CheckSettings::default()).findings;
        let found = found.iter();
        let found = found.map(|one| format!("{}: {}: {}", one.severity, one.setting, one.value));
        assert_eq!(
            found.collect::<Vec<_>>().join("\n"),
            expected,
            "{tried} {error}"
        );
    }
    let others = "try.SET:ERR syntax error\ntry.GET:WRONGTYPE Operation";
    assert_eq!(with_one(others, &CheckSettings::default()), []);
}

/// A template that was forgotten is likelier than a user without its rights.
#[test]
fn the_right_to_all_keys_is_no_fix() {
    let denied = "try.GET:ERR ACL failure in script: No permissions to access a key";
    for (template, begin) in [
        (
            "{name}",
            "if your programs have a key template, give the check",
        ),
        ("app:{name}", "ACL SETUSER <user> ~app:*; or patterns for"),
        ("app:[{name}", "give its user patterns for"),
    ] {
        let shared = CheckSettings {
            key_template: template.to_owned(),
            ..CheckSettings::default()
        };
        let report = check(&[master("a", denied)], &shared);
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
        let changes = format!("-origin_age\ntry.TIME:{error}");
        let masters = ["a", "b", "c"].map(|name| master(name, &changes));
        let report = check(&masters, &CheckSettings::default());
        let is_of = |one: &&crate::Finding| {
            one.setting.starts_with("rights") || one.setting.starts_with(ORIGIN)
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
        (7_000_000, 5_000_000, 5_000_000, Some("2.0s")),
        (3_500_000, 5_000_000, 5_000_000, Some("1.5s")),
        // The reading may be wrong by half of the round trip.
        (7_000_000, 4_000_000, 6_000_000, None),
    ] {
        let read = Facts::parse(&format!("time:{theirs}"), sent, received);
        let off = with_facts("c", |facts| facts.clock = read.clock);
        let found = beside_two(off, &CheckSettings::default())
            .findings
            .into_iter();
        let found = found.map(|one| (one.severity, one.setting, one.value));
        let off = |time| (Warn, "TIME", format!("{time} off this machine"));
        let expected = Vec::from_iter(expected.map(off));
        assert_eq!(found.collect::<Vec<_>>(), expected, "{theirs}");
    }
}

#[test]
fn one_or_two_masters_are_few_and_an_even_number_tolerates_no_more() {
    let masters = ["a", "b", "c", "d", "e", "f"].map(|name| master(name, ""));
    for (count, expected) in (1..).zip([Some(Warn), Some(Warn), None, Some(Info), None, Some(Info)])
    {
        let found = found(&masters[..count], &CheckSettings::default());
        let expected: Vec<_> = expected
            .map(|severity| (severity, "masters"))
            .into_iter()
            .collect();
        assert_eq!(found, expected, "{count}");
    }
    let four = check(&masters[..4], &CheckSettings::default()).to_string();
    let expected = "info: masters: 4 in the list of masters: an even number of masters tolerates no \
                    more failures than one less; list one more or one less";
    assert_eq!(four, expected);
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
            ("old masters", (1..masters.len()).collect()),
        ];
        let report = judge(
            &masters,
            &lists,
            &surprised_by_nobody(),
            &CheckSettings::default(),
        );
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
    let expected = "critical: quorlock:fence:*: up to 3600.0s ahead of time, 2 in all, such as quorlock:fence:{a}: ";
    assert!(found.starts_with(expected), "{found}");
    assert!(
        finding(&[b, &[], &[]], None).is_some(),
        "the new master has it"
    );
}

/// Programs of a change are no surprise to each other. Programs of groups show the lists of all
/// groups, and not those of one.
#[test]
fn the_lists_of_a_change_or_of_groups_are_expected() {
    let id = |masters: &[&'static str], old_masters: &[&'static str]| {
        ListsId::of(masters.iter().copied(), old_masters.iter().copied())
    };
    let (new, old): (&[_], &[_]) = (&["n:1"], &["o:1"]);
    let ids = [id(new, old), id(old, &[]), id(new, &[]), id(old, new)];
    let shared = CheckSettings::default();
    let during = expected("k", new.to_vec(), old.to_vec(), &shared);
    assert_eq!(during.lists, ids);
    let before = expected("k", old.to_vec(), vec![], &shared);
    assert_eq!(before.lists, [id(old, &[])]);
    assert_eq!(
        before.ours,
        ConnectionName::new(id(old, &[]), "k", shared.max_ttl, None)
    );
    let groups = CheckSettings {
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
    let (lists, max_ttl) = (ListsId::of(["z:1"], []), Duration::from_secs(9));
    let hasty = ConnectionName::new(lists, "quorlock:check", max_ttl, None);
    for (name, database, expected) in [
        (&name, 0, &[(Critical, ORIGIN)][..]),
        (&name, 3, &[(Warn, "database"), (Info, ORIGIN)]),
        (
            &hasty,
            3,
            &[
                (Critical, "lists"),
                (Warn, "database"),
                (Warn, "max_ttl"),
                (Info, ORIGIN),
            ],
        ),
    ] {
        let list = format!("id=3 name={name} age=9 flags=N db={database}");
        let third = with_programs("origin_age:none", &list);
        let report = beside_two(third, &CheckSettings::default());
        assert_eq!(found_in(&report), expected, "{name} {database}");
        let danger = "another database of the server: they and you may hold one lock at once";
        let is_told = report.to_string().contains(danger);
        assert_eq!(is_told, database != 0, "{report}");
    }
}

/// The programs may be connected with different masters.
#[test]
fn programs_of_a_change_that_share_no_list_are_found() {
    let shared = CheckSettings::default();
    let during = |old| expected("k", vec!["n:1"], vec![old], &shared);
    let program = |lists: [&str; 2], key, client, database| {
        let [masters, old_masters] = lists.map(|list| list.split_whitespace());
        let lists = ListsId::of(masters, old_masters);
        let name = ConnectionName::new(lists, key, shared.max_ttl, Some(client));
        format!("id=1 name={name} age=9 flags=N db={database}\n")
    };
    let [old, new, both] = [["o:1", ""], ["n:1", ""], ["n:1", "o:1"]];
    let (web, job) = (program(old, "k", "web", 0), program(old, "k", "job", 0));
    for (first, second, is_found) in [
        (web.clone() + &job, program(new, "k", "api", 0), true),
        (web.clone(), program(both, "k", "api", 0), false),
        (
            program(both, "k", "web", 0),
            program(new, "k", "api", 0),
            false,
        ),
        (web.clone(), program(new, "other", "api", 0), false),
        (web, program(new, "k", "api", 3), false),
    ] {
        let [one, other] = [&first, &second].map(|list| with_programs("", list));
        let masters = [one, other, master("a", "")];
        let lists: [List; 2] = [("masters", [0].into()), ("old masters", [1].into())];
        let report = judge(&masters, &lists, &during("o:1"), &shared);
        let mut findings = report.findings.iter();
        let apart = findings.find(|one| (one.severity, one.setting) == (Critical, "lists"));
        let apart = apart.map(|one| (&*one.value, one.masters.len()));
        let value = "job, web with the old list, api with the new one";
        assert_eq!(apart, is_found.then_some((value, 0)), "{first}{second}");
    }
    assert!(during("n:1").apart.is_none(), "the lists are the same");
}

/// A job that comes and goes with the lists before a change is seen while it is gone.
#[test]
fn programs_that_are_gone_are_found_by_what_they_left() {
    const MINUTE: u64 = 60_000;
    const HOUR: u64 = 60 * MINUTE;
    let shared = CheckSettings::default(); // the longest TTL is a minute
    let name = |lists: [&str; 2], key, client| {
        let [masters, old_masters] = lists.map(|list| list.split_whitespace());
        let lists = ListsId::of(masters, old_masters);
        ConnectionName::new(lists, key, shared.max_ttl, Some(client)).to_string()
    };
    let stayed = |at, first: u64, last: u64, seen: u64, name: &str| {
        format!("earlier.{at}:{first} {last} {seen} {name}\n")
    };
    let entry = |at, first, last, name: &str| stayed(at, first, last, last, name);
    let cron = name(["o:1", ""], "k", "cron");
    let us = name(["n:1", ""], "k", "us");
    let ours = entry(0, 5 * HOUR, 9 * MINUTE, &us);
    let both = entry(0, 2 * HOUR, 9 * MINUTE, &name(["n:1", "o:1"], "k", "us"));
    let after = expected("k", vec!["n:1"], vec![], &shared);
    let during = expected("k", vec!["n:1"], vec!["o:1"], &shared);
    let nobody = "";
    let connected = |name: &str| format!("id=1 name={name} age=9 flags=N db=0\n");
    let lately = "critical: lists: cron 20 min ago";
    let earlier = "info: lists: cron";
    for (expected, entries, list, found) in [
        (
            &after,
            ours.clone() + &entry(1, 99 * HOUR, 20 * MINUTE, &cron),
            nobody,
            Some(lately),
        ),
        (
            &after,
            ours.clone() + &entry(1, 99 * HOUR, HOUR + MINUTE - 1, &cron),
            nobody,
            Some("critical"),
        ),
        (
            &after,
            ours.clone() + &entry(1, 99 * HOUR, HOUR + MINUTE, &cron),
            nobody,
            Some("info: lists: cron 61 min ago"),
        ),
        (
            &after,
            ours.clone() + &entry(1, 99 * HOUR, 70 * HOUR, &cron),
            nobody,
            Some("info: lists: cron 2 days ago"),
        ),
        // It came for the last time before ours came for the first time. Its locks have ended, or
        // not.
        (
            &after,
            ours.clone() + &entry(1, 99 * HOUR, 5 * HOUR + 1, &cron),
            nobody,
            Some(earlier),
        ),
        (
            &after,
            entry(0, 9, 9, &us) + &entry(1, 99 * HOUR, MINUTE, &cron),
            nobody,
            Some(earlier),
        ),
        (
            &after,
            entry(0, 9, 9, &us) + &entry(1, 99 * HOUR, MINUTE - 9_000, &cron),
            nobody,
            Some("critical: lists: cron 51 s ago; this ends in 9 s if none comes again: "),
        ),
        (
            &after,
            entry(0, 9, 9, &us) + &stayed(1, 99 * HOUR, 9 * HOUR, MINUTE - 9_000, &cron),
            nobody,
            Some("critical: lists: cron 51 s ago; this ends in 9 s if none comes again: "),
        ),
        (
            &after,
            entry(1, 99 * HOUR, MINUTE, &cron),
            nobody,
            Some(earlier),
        ),
        // It is still there.
        (
            &after,
            ours.clone() + &entry(1, 99 * HOUR, MINUTE, &cron),
            &*connected(&cron),
            Some("critical: c:6379, c:6379: lists: cron: "),
        ),
        // Another one is still there.
        (
            &during,
            ours.clone() + &entry(1, 99 * HOUR, MINUTE, &cron),
            &*connected(&name(["o:1", ""], "k", "web")),
            Some("critical: lists: cron 1 min ago"),
        ),
        // What ours left was deleted.
        (
            &after,
            entry(1, 99 * HOUR, MINUTE, &cron),
            &*connected(&us).replace("age=9 ", "age=60 "),
            Some("critical: lists: cron 1 min ago; this ends in 60 min if none comes again: "),
        ),
        // Other keys, and a list in common.
        (
            &after,
            ours.clone() + &entry(1, 99 * HOUR, MINUTE, &name(["o:1", ""], "other", "cron")),
            nobody,
            None,
        ),
        (
            &after,
            ours.clone() + &entry(1, 99 * HOUR, MINUTE, &name(["o:1", "n:1"], "k", "cron")),
            nobody,
            None,
        ),
        (&after, ours.clone(), nobody, None),
        // Programs with our lists ended long before those came, or not long before.
        (
            &after,
            entry(0, 99 * HOUR, 9 * HOUR, &us) + &entry(1, 5 * HOUR, MINUTE, &cron),
            nobody,
            Some(earlier),
        ),
        (
            &after,
            entry(0, 99 * HOUR, MINUTE + 9, &us) + &entry(1, MINUTE, MINUTE, &cron),
            nobody,
            Some("critical: lists: cron 1 min ago"),
        ),
        (
            &after,
            entry(0, 99 * HOUR, 9 * HOUR, &us) + &entry(1, 5 * HOUR, MINUTE, &cron),
            &*connected(&us),
            Some("critical: lists: cron 1 min ago"),
        ),
        // After a change, too, if programs with both lists came before that job.
        (
            &after,
            both.clone() + &entry(1, 99 * HOUR, MINUTE, &cron),
            &*connected(&us),
            Some("warn: lists: cron 1 min ago; this ends in 60 min if none comes again: "),
        ),
        (
            &after,
            both.clone() + &entry(1, 99 * HOUR, 3 * HOUR, &cron),
            &*connected(&us),
            Some(earlier),
        ),
        // In a change, programs with the old list must not come after those with both.
        (
            &during,
            both.clone() + &entry(1, 99 * HOUR, HOUR + MINUTE, &cron),
            nobody,
            Some("warn: lists: cron 61 min ago; this ends in 6 days if none comes again: "),
        ),
        (
            &during,
            both.clone() + &entry(1, 99 * HOUR, 3 * HOUR, &cron),
            nobody,
            Some(earlier),
        ),
        // One that has ended since did not come again.
        (
            &during,
            both + &stayed(1, 99 * HOUR, 3 * HOUR, MINUTE, &cron),
            nobody,
            Some(earlier),
        ),
        // A change under way expects programs with the old list as long as they are connected.
        (
            &during,
            ours.clone() + &entry(1, 99 * HOUR, MINUTE, &cron),
            nobody,
            Some("critical: lists: cron 1 min ago"),
        ),
        (
            &during,
            ours + &entry(1, 99 * HOUR, 5 * HOUR + 1, &cron),
            nobody,
            Some(earlier),
        ),
        (
            &during,
            entry(1, 99 * HOUR, MINUTE, &cron),
            nobody,
            Some(earlier),
        ),
        (
            &during,
            entry(1, 99 * HOUR, MINUTE, &cron),
            &*connected(&cron),
            None,
        ),
        // A job with the new list must not come while programs with the old one are connected.
        (
            &during,
            entry(0, MINUTE, MINUTE, &us) + &entry(1, 99 * HOUR, 9 * HOUR, &cron),
            &*connected(&cron),
            Some("critical: lists: us 1 min ago; this ends in 60 min if none comes again: "),
        ),
        (&during, entry(0, MINUTE, MINUTE, &us), nobody, None),
        // Nor one with a third list.
        (
            &during,
            entry(0, MINUTE, MINUTE, &name(["x:1", ""], "k", "typo"))
                + &entry(1, 99 * HOUR, 9 * HOUR, &cron),
            &*connected(&cron),
            Some("critical: lists: typo 1 min ago"),
        ),
    ] {
        let masters = [
            with_programs(&entries, list),
            with_programs(&entries, list),
            master("d", ""),
        ];
        let lists: [List; 1] = [("masters", [0, 1, 2].into())];
        let report = judge(&masters, &lists, expected, &shared);
        let texts = report
            .findings
            .iter()
            .filter(|one| one.setting == "lists")
            .map(ToString::to_string);
        let texts: Vec<_> = texts.collect();
        assert_eq!(
            texts.len(),
            usize::from(found.is_some()),
            "{texts:?} {entries}"
        );
        if let (Some(found), Some(text)) = (found, texts.first()) {
            assert!(text.starts_with(found), "{text} {entries}");
        }
    }
}

#[test]
fn findings_are_joined_and_the_worst_comes_first() {
    let slow = |name, timeout| master(name, &format!("timeout:{timeout}"));
    let denied = Master {
        answer: Err(LOGIN.with("WRONGPASS")),
        ..master("d", "")
    };
    let masters = [
        slow("a", 60),
        slow("b", 300),
        slow("c", 300),
        denied,
        master("e", ""),
    ];
    let report = check(&masters, &CheckSettings::default()).to_string();
    let begins: Vec<_> = report
        .lines()
        .map(|line| line.split(": it ").next().unwrap())
        .collect();
    let expected = [
        "critical: d:6379: login: WRONGPASS",
        "warn: a:6379: timeout: 60",
        "warn: b:6379, c:6379: timeout: 300",
    ];
    assert_eq!(begins, expected, "{report}");
    assert!(report.ends_with("; CONFIG SET timeout 0"), "{report}");
}
