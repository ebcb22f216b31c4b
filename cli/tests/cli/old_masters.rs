//! Two lists of masters, while the masters are changed.

use std::process::Command;

use serde_json::{Value, json as value};
use testkit::server::{Server, masters};

use crate::support::{Ended, Running, at, configure, each, ended, run, urls, with, write_mutex};

/// Returns the program with `new` masters, which leaves the `old` ones.
fn joint(new: &[Server], old: &[Server], words: &str) -> Command {
    let mut command = with(new, words);
    command.env("QUORLOCK_OLD_MASTERS", urls(old));
    command
}

#[track_caller]
fn run_joint(new: &[Server], old: &[Server], words: &str) -> Ended {
    ended(&mut joint(new, old, words))
}

#[test]
fn a_lock_needs_a_majority_of_each_list() {
    for list in ["masters", "old masters"] {
        let (mut new, mut old) = (masters(3), masters(3));
        run_joint(&new, &old, "run a -- true").is(0);
        // Each program that knows one of the lists excludes one that knows both.
        for known in [&new, &old] {
            let holder = Running::hold(known, "a");
            run_joint(&new, &old, "run -n a -- echo ran").is(75);
            holder.terminated().is(0);
            let holder = Running::held(&mut joint(&new, &old, "hold a"));
            run(known, "run -n a -- echo ran").is(75);
            holder.terminated().is(0);
        }
        let lacking = match list {
            "masters" => &mut new,
            _ => &mut old,
        };
        lacking[..2].iter_mut().for_each(Server::kill);
        let text = format!(" 1 of 3 {list} (need 2) can vote; 127.0.0.1:");
        let ended = run_joint(&new, &old, "run -n a -- echo ran");
        ended.gives(69, "").says(&format!(": only{text}"));
        let mut waiter = Running::start(&mut joint(&new, &old, "run a -- echo ran"));
        waiter.errors_until(&[&text]);
    }
}

#[test]
fn the_status_and_the_doctor_show_the_lists() {
    let all = masters(4);
    let (new, old) = (&all[1..], &all[..3]);
    let address = |at: usize| format!("127.0.0.1:{}", all[at].port());
    write_mutex(old, "job", "t"); // a holder that knows only the old masters
    run_joint(new, old, "status job")
        .is(75)
        .in_lines(0)
        .tells("job held as a mutex, ")
        .tells(" MASTER CHANGE VIEW TTL LEFT ROUND TRIP ")
        .tells(&format!(" {} stays mutex ", address(1)))
        .tells(&format!(" {} joins free ", address(3)))
        .tells(&format!(" {} leaves mutex ", address(0)));
    let list = |name: &str, masters: [usize; 3]| {
        let masters = masters.map(address);
        value!({"list": name, "quorum": 2, "masters": masters})
    };
    let lists = value!([list("masters", [1, 2, 3]), list("old_masters", [1, 2, 0])]);
    let shown = run_joint(new, old, "status job --json").json();
    assert_eq!(shown["lists"], lists);
    let masters = shown["locks"][0]["masters"].as_array().unwrap().iter();
    let parts: Value = masters.map(|master| master["membership"].clone()).collect();
    assert_eq!(parts, value!(["stays", "stays", "joins", "leaves"]));
    let shown = run_joint(new, old, "doctor --json").json();
    assert_eq!(shown["lists"], lists);
}

#[test]
fn one_list_is_not_shown() {
    let masters = masters(3);
    for words in ["status a", "status a --json", "doctor", "doctor --json"] {
        // The same list in another order is no change.
        let turned: Vec<_> = masters.iter().rev().map(Server::url).collect();
        let mut command = with(&masters, words);
        let ended = ended(command.env("QUORLOCK_OLD_MASTERS", turned.join(",")));
        let ended = ended.hides("CHANGE").hides("stays");
        ended.hides("membership").hides("lists");
    }
}

#[test]
fn without_a_majority_of_a_list_nothing_is_known_or_broken() {
    let (new, mut old) = (masters(5), masters(3));
    write_mutex(&new, "job", "t");
    write_mutex(&old, "job", "t");
    old[..2].iter_mut().for_each(Server::kill);
    let few = "only 1 of 3 old masters (need 2) answered";
    let ended = run_joint(&new, &old, "status job").is(69);
    ended.begins(&format!("job  unknown: {few}\n"));
    let ended = run_joint(&new, &old, "break -y job").is(69);
    let cannot = format!("quorlock: cannot break \"job\": it is unknown: {few}; run `quorlock");
    ended.first_says(&cannot);
    for master in new.iter().chain(&old[2..]) {
        assert_eq!(master.command(&["GET", "job"]), "t", "nothing is destroyed");
    }
}

/// Both times, most of all masters are free of the lock afterwards.
#[test]
fn a_break_needs_a_majority_of_each_list() {
    let (new, mut old) = (masters(3), masters(3));
    write_mutex(&new, "job", "t");
    each(&old[..2], "HSET job field value");
    // Two of the old keys are not locks.
    let ended = run_joint(&new, &old, "break -y --json job").is(78);
    assert_eq!(ended.json()["is_broken"], false);
    write_mutex(&new, "job", "t");
    old[1].kill();
    each(&old[2..], "DEL job");
    // The dead master could help.
    run_joint(&new, &old, "break -y job")
        .is(69)
        .says("is not broken: only 1 of 3 old masters (need 2) confirmed; ");
    each(&old[..1], "DEL job");
    write_mutex(&old[..1], "job", "t");
    run_joint(&new, &old, "break -y job").is(0);
}

#[test]
fn the_verdict_says_which_list_lacks_masters() {
    let (new, old) = (masters(3), masters(3));
    let cannot = "job  free, but nobody can lock it:";
    let lacking = "only 0 of 3 masters (need 2) and 0 of 3 old masters (need 2) can vote";
    let ended = run_joint(&new, &old, "--quarantine strict status job").is(69);
    ended.begins(&format!("{cannot} {lacking}\n"));
    let text = format!("{lacking}; masters that may have forgotten locks have no vote for ");
    for option in ["--ready 10ms", ""] {
        let words = format!("--quarantine strict run -n {option} job -- true");
        run_joint(&new, &old, &words).is(69).says(&text);
    }

    let (new, mut old) = (masters(3), masters(3));
    let lacking = "only 1 of 3 old masters (need 2)";
    run_joint(&new, &old, "status job").is(0); // writes the keys of the guard
    each(&old[..2], "CONFIG SET maxmemory 1");
    let ended = run_joint(&new, &old, "status job").is(69);
    ended.begins(&format!("{cannot} {lacking} can vote\n"));

    each(&old[..2], "CONFIG SET maxmemory 0");
    write_mutex(&old[..1], "job", "t");
    old[1].kill();
    let ended = run_joint(&new, &old, "status job").is(75);
    let few = "held on 1 of 6 masters, and too few others are free";
    ended.begins(&format!("job  split: {few}, {lacking}\n"));
}

#[test]
fn old_masters_come_from_where_the_masters_come_from() {
    let (new, old, others) = (masters(1), masters(1), masters(1));
    let folder = new[0].directory();
    let (ours, theirs) = (new[0].url(), old[0].url());
    configure(folder, &[&ours], &format!("old_masters = [{theirs:?}]"));
    let leaves = |variables: [&str; 2], arguments: &[&str]| -> Vec<String> {
        let mut command = at(folder, "status job --json");
        let names = ["QUORLOCK_MASTERS", "QUORLOCK_OLD_MASTERS"];
        command
            .args(arguments)
            .envs(names.into_iter().zip(variables));
        let shown = ended(&mut command).is(0).json();
        let masters = shown["lists"][1]["masters"].clone();
        serde_json::from_value(masters).unwrap_or_default()
    };
    let address = |masters: &[Server]| [format!("127.0.0.1:{}", masters[0].port())];
    let other = others[0].url();
    assert_eq!(leaves(["", ""], &[]), address(&old));
    assert_eq!(
        leaves(["", ""], &["--old-master", &other]),
        address(&others)
    );
    assert!(leaves(["", ""], &["--old-master", ""]).is_empty());
    assert!(leaves([&ours, ""], &[]).is_empty());
    assert_eq!(leaves([&ours, &other], &[]), address(&others));
    let masters = ["--master", &ours];
    assert_eq!(leaves(["", &other], &masters), address(&others));
    let both = ["--master", &ours, "--old-master", &theirs];
    assert_eq!(leaves([&other, &other], &both), address(&old));
}

#[test]
fn the_password_is_for_both_lists() {
    let all: Vec<_> = (0..2)
        .map(|_| Server::start_with(&["--requirepass", "hunter2"]))
        .collect();
    let mut command = joint(&all[..1], &all[1..], "run -n a -- true");
    ended(command.env("QUORLOCK_PASSWORD", "hunter2")).is(0);
    // The others are a majority of one list only.
    run_joint(&masters(3), &all, "run -n a -- true")
        .is(78)
        .says("refused the login");
}

#[test]
fn bad_old_masters_are_refused_before_anything_is_sent() {
    let masters = masters(2);
    let greeted = || -> u64 {
        let calls = |master: &Server| master.calls(|name| name.starts_with("hello"));
        masters.iter().map(calls).sum()
    };
    let folder = masters[0].directory();
    let [new, old] = [0, 1].map(|at| masters[at].url());
    let twice = "old masters 1 and 3 are the same server, 127.0.0.1:";
    for (old_masters, expected, by_variable) in [
        (
            vec![&*old, "redis://:hunter2@a:x"],
            "old master 2: ",
            "the variable QUORLOCK_OLD_MASTERS is wrong: master 2: ",
        ),
        (
            vec!["hunter2"],
            "old master 1: ",
            "the variable QUORLOCK_OLD_MASTERS is wrong: master 1: ",
        ),
        (vec![&old, "redis://127.0.0.1:1", &old], twice, twice),
    ] {
        configure(folder, &[&new], &format!("old_masters = {old_masters:?}"));
        let list = old_masters.join(",");
        let by_option = format!("--old-master {list} status job");
        let in_file = format!("the profile \"cron\": {expected}");
        for (masters, list, words, expected) in [
            (&*new, &*list, "status job", by_variable),
            (&new, "", &by_option, expected),
            ("", "", "status job", &in_file),
        ] {
            let mut command = at(folder, words);
            command.env("QUORLOCK_MASTERS", masters);
            ended(command.env("QUORLOCK_OLD_MASTERS", list))
                .gives(78, "")
                .first_says(&format!("quorlock: {expected}"))
                .omits("hunter2");
        }
    }
    assert_eq!(greeted(), 0);
    run_joint(&masters[..1], &masters[1..], "status a").is(0);
    assert!(greeted() > 0, "a good list is asked");
}

/// Programs with the old list, and programs with both, have the same locks.
#[test]
fn old_masters_belong_to_the_set() {
    let (new, old) = (masters(1), masters(1));
    let folder = new[0].directory();
    let (ours, theirs) = (new[0].url(), old[0].url());
    let joint = format!("old_masters = [{theirs:?}]\n");
    let strict = "quarantine = \"strict\"\n";
    let both = format!("{joint}[profile.b]\nmasters = [{theirs:?}]\n{strict}");
    let differ = "in the profiles \"b\" and \"cron\", which differ in quarantine, ";
    let has = "quorlock: QUORLOCK_MASTERS has 127.0.0.1:";
    for (in_file, more, list, says) in [
        (&ours, both, ["", ""], differ),
        (&ours, joint + strict, [&*theirs, ""], has),
        (&theirs, strict.to_owned(), [&ours, &theirs], has),
    ] {
        configure(folder, &[in_file], &more);
        let mut command = at(folder, "status job");
        command.env("QUORLOCK_MASTERS", list[0]);
        ended(command.env("QUORLOCK_OLD_MASTERS", list[1]))
            .is(78)
            .says(says);
    }
}

/// Either of them may be the one that is wrong. The one that came first looks once a minute.
#[test]
fn programs_with_other_lists_are_told_of_each_other() {
    let masters = masters(4);
    let [ours, theirs] = [[0, 1, 2], [0, 1, 3]].map(|list| list.map(|at| masters[at].url()));
    let mut hold = with(&[], "hold -q a");
    let mut holder = Running::held(hold.env("QUORLOCK_MASTERS", ours.join(",")));
    let mut acquire = with(&[], "acquire b --ttl 30s --handle-file");
    acquire.env("QUORLOCK_MASTERS", theirs.join(","));
    ended(acquire.arg(masters[0].directory().join("handle")))
        .is(0)
        .says(" used other lists of masters lately");
    holder.errors_until(&[" used other lists of masters lately"]);
}
