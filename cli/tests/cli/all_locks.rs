//! `quorlock status` without a name: all locks on the masters.

use std::time::Duration;

use quorlock::MasterSpec;
use quorlock_check::{CheckSettings, find_locks};
use serde_json::Value;
use testkit::server::{self, Server, masters};
use tokio::runtime::Builder;

use crate::{
    denied::{allow, as_bob},
    support::{Ended, Running, each, ended, run, script, until, write_fair},
};

const OURS: &str = "--key-template locks:{name}";
const TOKEN: &str = "0123456789012345678901234567890123456789";

/// Runs `status` without a name.
#[track_caller]
fn list(masters: &[Server], words: &str) -> Ended {
    run(masters, &format!("{OURS} status {words}"))
}

/// Writes a mutex with a TTL.
fn write(masters: &[Server], name: &str, token: &str) {
    each(masters, &format!("SET locks:{name} {token} PX 60000"));
}

/// Returns the words of the line that begins with `name`.
#[track_caller]
fn line(shown: &Ended, name: &str) -> String {
    let mut lines = shown.out.lines().map(str::trim);
    let line = lines.find(|line| line.split(' ').next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("no {name}: {shown}"));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Writes keys that are no locks of quorlock.
fn write_other_keys(masters: &[Server]) {
    each(masters, "SET locks:value a-value PX 60000");
    each(masters, &format!("SET locks:commit {TOKEN}"));
    each(
        masters,
        &format!("SET locks:long {TOKEN}@{} PX 60000", "a".repeat(65)),
    );
    each(masters, "HSET locks:visits some-page 5");
    each(masters, "HSET locks:half mode quorlock a b c d e f");
    each(masters, "ZADD locks:scores 1 a");
    each(masters, &format!("SET other {TOKEN}@web-3/1 PX 60000"));
    each(masters, &format!("SET locks: {TOKEN}@web-3/1 PX 60000"));
}

#[test]
fn without_a_name_the_status_lists_all_locks() {
    let masters = masters(3);
    list(&masters, "").is(0).begins("no lock is held\n");
    write_other_keys(&masters);
    let hold = |words: &str| Running::hold(&masters, &format!("{OURS} {words}"));
    let _held = [
        "job --label backup",
        "printer --fair",
        "pool --permits 3",
        "pool --permits 3",
        "docs --read",
        "book --write --fence",
    ]
    .map(hold);
    let mut wait = script(&masters, &format!("{OURS} --fair printer"), "true");
    let _waiter = Running::start(&mut wait);
    write(&masters, "old", &format!("{TOKEN}@web-3/1"));
    write(&masters[..1], "leftover", TOKEN);
    write(&masters, "bare", TOKEN);
    until("a waiter", || waits(&masters));

    let shown = list(&masters, "").is(0).in_lines(0);
    for (name, begins, has, ends) in [
        ("bare", "bare mutex 5", "s - ", " no name"),
        ("book", "book read_write ", "s 0 ", ""),
        ("docs", "docs read_write ", "s 0 ", ""),
        ("job", "job mutex ", " (backup), since ", " ago"),
        ("old", "old mutex 5", "s - ", " web-3/1"),
        ("pool", "pool semaphore ", " and ", ""),
        ("printer", "printer fair ", "s 1 ", ""),
    ] {
        let line = line(&shown, name);
        let is_so = line.starts_with(begins) && line.contains(has) && line.ends_with(ends);
        assert!(is_so, "{line}");
    }
    let shown = shown
        .begins("  NAME ")
        .ends("the masters are those of QUORLOCK_MASTERS\n")
        .shows("\nleft out, because too few masters still have them: 1\n");
    assert_eq!(shown.out.lines().count(), 1 + 7 + 2, "{shown}");
}

/// Returns whether somebody waits for the fair lock.
fn waits(masters: &[Server]) -> bool {
    let shown = list(masters, "--json").json();
    let locks = shown["locks"].as_array().unwrap();
    let mut queues = locks.iter().filter_map(|lock| lock["waiters"].as_array());
    queues.any(|queue| !queue.is_empty())
}

/// A lock that nobody can acquire is no leftover.
#[test]
fn a_lock_without_a_majority_is_listed() {
    let mut masters = masters(3);
    write(&masters[..1], "job", &format!("{TOKEN}@web-3/1"));
    write(&masters[1..2], "job", &format!("{TOKEN}@web-3/2"));
    let split = "  job   split: no holder has a majority\n";
    list(&masters, "").is(0).shows(split);

    masters[2].kill();
    list(&masters, "").is(0).shows(split).shows(&format!(
        "\nwithout an answer: 127.0.0.1:{}: ",
        masters[2].port()
    ));
    masters[1].kill();
    list(&masters, "")
        .gives(69, "")
        .in_lines(1)
        .first_says(
            "quorlock: cannot list the locks: only 1 of 3 masters listed them, and 2 are needed; ",
        )
        .last_says("; run `quorlock doctor` with the same masters\n");
}

#[test]
fn the_json_of_a_list_has_the_words_of_a_lock() {
    let masters = masters(3);
    write_fair(&masters, "locks:queue", "an-owner");
    write(&masters[..1], "leftover", TOKEN);
    let shown = list(&masters, "--json").is(0).json();
    let named = list(&masters, "--json --now queue").is(75).json();
    let lock = &shown["locks"][0];
    assert_eq!(shown["locks"].as_array().unwrap().len(), 1);
    assert_eq!(lock["holder"]["owner"], "an-owner");
    let fields = |lock: &Value| Vec::from_iter(lock.as_object().unwrap().keys().cloned());
    assert_eq!(fields(lock), fields(&named["locks"][0]));
    assert_eq!(shown["is_cut_short"], false);
    assert_eq!(shown["leftovers"], 1);
    assert!(named.get("leftovers").is_none());
}

#[test]
fn without_a_key_template_the_list_takes_all_keys() {
    let masters = masters(3);
    each(&masters, &format!("SET job {TOKEN}@web-3/1 PX 60000"));
    each(&masters, &format!("SET commit {TOKEN}"));
    let refused = run(&masters, "status").gives(64, "").in_lines(1);
    refused.first_says("quorlock: the key template is {name}, so any key may be that of a lock; ");
    run(&masters, "status --all-keys")
        .is(0)
        .shows("  job   mutex  ")
        .hides("commit")
        .hides("quorlock:");
    run(&masters, "status --all-keys job").is(64);
    // Letters that are special in a pattern stand for themselves.
    each(&masters, &format!("SET [l]*:job {TOKEN}@web-3/1 PX 60000"));
    each(&masters, &format!("SET l-a:other {TOKEN}@web-3/1 PX 60000"));
    run(&masters, "--key-template [l]*:{name} status")
        .is(0)
        .shows("  job   mutex  ")
        .hides("other");
}

#[test]
fn a_long_list_is_cut_short() {
    let masters = masters(3);
    let more = format!(
        "for i = 1, 1001 do redis.call('SET', 'locks:' .. i, '{TOKEN}', 'PX', '60000') end"
    );
    for master in &masters {
        master.command(&["EVAL", &more, "0"]);
    }
    let shown = list(&masters, "").is(1).shows("\ncut short: ");
    assert_eq!(shown.out.lines().count(), 1 + 1_000 + 2, "{shown}");
    let shown = list(&masters, "--json").is(1).json();
    assert_eq!(shown["is_cut_short"], true);
}

#[test]
fn a_user_without_a_right_gets_no_list() {
    let masters = masters(3);
    write(&masters, "job", TOKEN);
    let words = format!("{OURS} status");
    let says = " +time ~locks:* ~quorlock:*; %R~ is not enough for scripts\n";
    for rights in [
        "+@all -scan ~*",
        "+@all -type ~*",
        "+@all -getrange ~*",
        "+@all -eval ~*",
        "+@all ~other",
    ] {
        allow(&masters, rights);
        ended(&mut as_bob(&masters, &words))
            .gives(78, "")
            .in_lines(1)
            .first_says("quorlock: cannot list the locks: only 0 of 3 masters listed them, ")
            .says("; ACL SETUSER bob +eval +evalsha +scan ")
            .last_says(says)
            .omits("doctor"); // it knows no rights of a list
    }
    for rights in ["+@all -get ~*", "+@all %R~*"] {
        if rights.contains('%') && server::is_before_7() {
            continue;
        }
        allow(&masters, rights);
        ended(&mut as_bob(&masters, &words))
            .gives(78, "")
            .first_says("quorlock: cannot look at the locks: a right or a command is missing on ")
            .last_says(says)
            .omits("doctor");
    }
    allow(&masters, "+@all ~locks:*");
    ended(&mut as_bob(&masters, "status --all-keys"))
        .gives(78, "")
        .says("; --all-keys reads each key of the database: give --key-template, such as 'app:{name}', or ACL ")
        .last_says(" +time ~*; %R~ is not enough for scripts\n");
    allow(&masters, "+@all ~locks:* ~quorlock:*");
    ended(&mut as_bob(&masters, &words)).is(0).shows("  job ");
    // The rights of the wire format.
    let page = include_str!("../../../lua/README.md");
    let rights = |row| {
        let mut lines = page.lines();
        let row = lines.find_map(|line| line.strip_prefix(row)).unwrap();
        let words = row.split('`').skip(1).step_by(2);
        words
            .map(|word| format!(" +{}", word.to_lowercase()))
            .collect::<String>()
    };
    let rights = rights("| inspect, ") + &rights("| list all locks ") + &rights("| quarantine ");
    let rights = rights
        .replace(" +is_held", "")
        .replace(" +quorlock:origin", "");
    allow(
        &masters,
        &format!("+hello +eval +evalsha{rights} ~locks:* ~quorlock:*"),
    );
    ended(&mut as_bob(&masters, &words)).is(0).shows("  job ");
    allow(&masters[..1], "+@all -scan ~*");
    ended(&mut as_bob(&masters, &words)).is(0).shows("  job ");
}

/// These are the rights in `docs/operations.md`.
#[test]
fn a_user_who_only_looks_needs_few_rights() {
    let masters = masters(3);
    let page = include_str!("../../../docs/operations.md");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rights) = page.split_once("Who only looks needs `").unwrap();
    let (rights, keys) = rights.split_once("` and `").unwrap();
    let (keys, _) = keys.split_once('`').unwrap();
    let keys = keys.replace("app:", "locks:");
    let held = [
        ("mutex", "m"),
        ("fair", "f --fair"),
        ("read_write", "r --read"),
        ("read_write", "w --write"),
        ("semaphore", "s --permits 2"),
    ];
    let hold = |(_, words): (_, &str)| Running::hold(&masters, &format!("{OURS} {words}"));
    let _held = held.map(hold);
    let mut wait = script(&masters, &format!("{OURS} --fair f"), "true");
    let _waiter = Running::start(&mut wait);
    until("a waiter", || waits(&masters));
    let as_bob = |words: &str| ended(&mut as_bob(&masters, &format!("{OURS} {words}")));
    allow(&masters, &format!("+hello {rights} {keys}"));
    let shown = as_bob("status").is(0).hides("denied");
    for (kind, words) in held {
        let name = words.split(' ').next().unwrap();
        assert!(line(&shown, name).starts_with(&format!("{name} {kind} ")));
        as_bob(&format!("status --now {name}"))
            .is(75)
            .hides("no answer")
            .hides("may not read");
    }
    as_bob("status --now free").is(0);
    // The list gives the same rights, and each of them is needed.
    allow(&masters, "+@all -scan ~*");
    as_bob("status").is(78).says(&format!(" bob {rights} "));
    for right in rights.split(' ') {
        let others: Vec<_> = rights.split(' ').filter(|one| *one != right).collect();
        let others = others.join(" ");
        allow(&masters, &format!("+hello {others} {keys}"));
        match right {
            "+zrange" => as_bob("status").is(0).shows_times(1, "  denied  "),
            _ => as_bob("status").is(78),
        };
    }
}

#[test]
fn a_scan_ends_with_its_time() {
    let masters = masters(1);
    write(&masters, "job", TOKEN);
    let many = "for i = 1, 100000 do redis.call('SET', 'x' .. i, '') end";
    masters[0].command(&["EVAL", many, "0"]);
    let specs = MasterSpec::list(&masters[0].url());
    let mut shared = CheckSettings::default();
    shared.key_template = "locks:{name}".to_owned();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    for (limit, is_all) in [(Duration::ZERO, false), (Duration::from_secs(5), true)] {
        let found = find_locks(&specs, &[], &shared, 1, limit);
        let found = runtime.block_on(found).unwrap();
        let [found] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((found.is_all, found.failure()), (is_all, None));
        assert!(!is_all || found.names.len() == 1, "{found:?}");
    }
}

/// The time and the longest client name make the longest token.
#[test]
fn a_mutex_with_the_longest_client_name_is_listed() {
    let masters = masters(3);
    let words = format!("{OURS} --label {} job", "l".repeat(64));
    let held = Running::hold(&masters, &words);
    let shown = list(&masters, "").is(0);
    assert!(line(&shown, "job").starts_with("job mutex "), "{shown}");
    drop(held);
}
