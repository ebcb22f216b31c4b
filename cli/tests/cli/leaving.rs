//! Two lists of masters, while the masters are changed.

use std::{fs, process::Command};

use nix::sys::signal::Signal;
use serde_json::{Value, json as value};
use testkit::server::{Server, masters};

use crate::support::{Running, ended, json, squeezed, urls, with, write_mutex};

/// Returns the program with `new` masters, which leaves the `old` ones.
fn joint(new: &[Server], old: &[Server], words: &str) -> Command {
    let mut command = with(new, words);
    command.env("QUORLOCK_LEAVING", urls(old));
    command
}

#[test]
fn a_lock_needs_a_majority_of_each_list() {
    for list in ["masters", "leaving masters"] {
        let (mut new, mut old) = (masters(3), masters(3));
        assert_eq!(ended(&mut joint(&new, &old, "run a -- true")).0, 0);
        // Each program that knows one of the lists excludes one that knows both.
        for known in [&new, &old] {
            let holder = Running::hold(known, "a");
            let (status, _, err) = ended(&mut joint(&new, &old, "run -n a -- echo ran"));
            assert_eq!(status, 75, "{err}");
            holder.signal(Signal::SIGTERM);
            assert!(holder.ended().0.success());
            let mut holder = Running::start(&mut joint(&new, &old, "hold a"));
            assert!(holder.line().starts_with("held a votes="));
            assert_eq!(ended(&mut with(known, "run -n a -- echo ran")).0, 75);
            holder.signal(Signal::SIGTERM);
            assert!(holder.ended().0.success());
        }
        let lacking = if list == "masters" {
            &mut new
        } else {
            &mut old
        };
        lacking[..2].iter_mut().for_each(Server::kill);
        let (status, out, err) = ended(&mut joint(&new, &old, "run -n a -- echo ran"));
        assert_eq!((status, &*out), (69, ""), "{err}");
        let text = format!(": only 1 of 3 {list} (need 2) can vote; 127.0.0.1:");
        assert!(err.contains(&text), "{err}");
        let mut waiter = Running::start(&mut joint(&new, &old, "run a -- echo ran"));
        let news = waiter.error_line();
        let text = format!(" 1 of 3 {list} (need 2) can vote; 127.0.0.1:");
        assert!(news.contains(&text), "{news}");
    }
}

#[test]
fn the_status_and_the_doctor_show_the_lists() {
    let all = masters(4);
    let (new, old) = (&all[1..], &all[..3]);
    let address = |at: usize| format!("127.0.0.1:{}", all[at].port());
    write_mutex(old, "job", "t"); // a holder that knows only the old masters
    let (status, shown, err) = ended(&mut joint(new, old, "status job"));
    assert_eq!((status, &*err), (75, ""));
    let rows = squeezed(&shown);
    for part in [
        "job held as a mutex, ".to_owned(),
        "\nMASTER CHANGE VIEW TTL LEFT ROUND TRIP\n".to_owned(),
        format!("\n{} stays mutex ", address(1)),
        format!("\n{} joins free ", address(3)),
        format!("\n{} leaves mutex ", address(0)),
    ] {
        assert!(rows.contains(&part), "{part}: {shown}");
    }
    let list = |name: &str, masters: &[usize]| {
        let masters: Vec<_> = masters.iter().map(|at| address(*at)).collect();
        value!({"list": name, "quorum": 2, "masters": masters})
    };
    let lists = value!([list("masters", &[1, 2, 3]), list("leaving", &[1, 2, 0])]);
    let parts = value!(["stays", "stays", "joins", "leaves"]);
    let parts_of = |masters: &Value| -> Value {
        let masters = masters.as_array().unwrap().iter();
        masters.map(|master| master["membership"].clone()).collect()
    };
    let (_, shown, _) = ended(&mut joint(new, old, "status job --json"));
    let shown = json(&shown);
    assert_eq!(shown["lists"], lists);
    assert_eq!(parts_of(&shown["locks"][0]["masters"]), parts);
    let (_, shown, _) = ended(&mut joint(new, old, "doctor --json"));
    assert_eq!(json(&shown)["lists"], lists);
}

#[test]
fn one_list_is_not_shown() {
    let masters = masters(3);
    for words in ["status a", "status a --json", "doctor", "doctor --json"] {
        // The same list in another order is no change.
        let turned: Vec<_> = masters.iter().rev().map(Server::url).collect();
        let mut command = with(&masters, words);
        let (_, shown, _) = ended(command.env("QUORLOCK_LEAVING", turned.join(",")));
        for word in ["CHANGE", "stays", "membership", "lists"] {
            assert!(!shown.contains(word), "{words}: {word}: {shown}");
        }
    }
}

#[test]
fn without_a_majority_of_a_list_nothing_is_known_or_broken() {
    let (new, mut old) = (masters(5), masters(3));
    write_mutex(&new, "job", "t");
    write_mutex(&old, "job", "t");
    old[..2].iter_mut().for_each(Server::kill);
    let few = "only 1 of 3 leaving masters (need 2) answered";
    let (status, shown, _) = ended(&mut joint(&new, &old, "status job"));
    assert_eq!(status, 69, "{shown}");
    let unknown = format!("job  unknown: {few}\n");
    assert!(shown.starts_with(&unknown), "{shown}");
    let (status, _, err) = ended(&mut joint(&new, &old, "break -y job"));
    assert_eq!(status, 69, "{err}");
    let cannot = format!("quorlock: cannot break \"job\": it is unknown: {few}; run `quorlock");
    assert!(err.starts_with(&cannot), "{err}");
    for master in new.iter().chain(&old[2..]) {
        assert_eq!(master.command(&["GET", "job"]), "t", "nothing is destroyed");
    }
}

/// Both times, most of all masters are free of the lock afterwards.
#[test]
fn a_break_needs_a_majority_of_each_list() {
    let (new, mut old) = (masters(3), masters(3));
    write_mutex(&new, "job", "t");
    for master in &old[..2] {
        master.command(&["HSET", "job", "field", "value"]);
    }
    let (status, shown, err) = ended(&mut joint(&new, &old, "break -y --json job"));
    assert_eq!(status, 78, "two of the old keys are not locks: {err}");
    assert_eq!(json(&shown)["is_broken"], false);
    write_mutex(&new, "job", "t");
    old[1].kill();
    old[2].command(&["DEL", "job"]);
    let (status, _, err) = ended(&mut joint(&new, &old, "break -y job"));
    assert_eq!(status, 69, "the dead master could help: {err}");
    let text = "is not broken: only 1 of 3 leaving masters (need 2) confirmed; ";
    assert!(err.contains(text), "{err}");
    old[0].command(&["DEL", "job"]);
    write_mutex(&old[..1], "job", "t");
    let (status, _, err) = ended(&mut joint(&new, &old, "break -y job"));
    assert_eq!(status, 0, "{err}");
}

#[test]
fn the_verdict_says_which_list_lacks_masters() {
    let (new, old) = (masters(3), masters(3));
    let (status, shown, err) = ended(&mut joint(&new, &old, "--strict status job"));
    assert_eq!(status, 69, "{err}");
    let lacking = "only 0 of 3 masters (need 2) and 0 of 3 leaving masters (need 2)";
    let verdict = format!("job  free, but nobody can lock it: {lacking} can vote\n");
    assert!(shown.starts_with(&verdict), "{shown}");
    for option in ["--ready 10ms", ""] {
        let words = format!("--strict run -n {option} job -- true");
        let (status, _, err) = ended(&mut joint(&new, &old, &words));
        assert_eq!(status, 69, "{err}");
        let text = "can vote; masters that may have forgotten locks have no vote for ";
        assert!(err.contains(&format!("{lacking} {text}")), "{err}");
    }

    let (new, mut old) = (masters(3), masters(3));
    let lacking = "only 1 of 3 leaving masters (need 2)";
    assert_eq!(ended(&mut joint(&new, &old, "status job")).0, 0); // writes the keys of the guard
    let set = |master: &Server, bytes| {
        master.command(&["CONFIG", "SET", "maxmemory", bytes]);
    };
    old[..2].iter().for_each(|master| set(master, "1"));
    let (status, shown, err) = ended(&mut joint(&new, &old, "status job"));
    assert_eq!(status, 69, "{err}");
    let verdict = format!("job  free, but nobody can lock it: {lacking} can vote\n");
    assert!(shown.starts_with(&verdict), "{shown}");

    old[..2].iter().for_each(|master| set(master, "0"));
    write_mutex(&old[..1], "job", "t");
    old[1].kill();
    let (status, shown, err) = ended(&mut joint(&new, &old, "status job"));
    assert_eq!(status, 75, "{err}");
    let few = format!("held on 1 of 6 masters, and too few others are free, {lacking}");
    let verdict = format!("job  contested: {few}\n");
    assert!(shown.starts_with(&verdict), "{shown}");
}

#[test]
fn leaving_masters_come_from_where_the_masters_come_from() {
    let (new, old, others) = (masters(1), masters(1), masters(1));
    let folder = new[0].directory();
    let (ours, theirs) = (new[0].url(), old[0].url());
    let text = format!("[set.cron]\nmasters = [{ours:?}]\nleaving = [{theirs:?}]\n");
    fs::write(folder.join("quorlock.toml"), text).unwrap();
    let leaves = |variables: [&str; 2], arguments: &[&str]| -> Vec<String> {
        let mut command = with(&[], "status job --json");
        command.env("XDG_CONFIG_HOME", folder).args(arguments);
        let names = ["QUORLOCK_MASTERS", "QUORLOCK_LEAVING"];
        let (status, shown, err) = ended(command.envs(names.into_iter().zip(variables)));
        assert_eq!(status, 0, "{arguments:?}: {err}");
        let masters = json(&shown)["lists"][1]["masters"].clone();
        serde_json::from_value(masters).unwrap_or_default()
    };
    let address = |masters: &[Server]| [format!("127.0.0.1:{}", masters[0].port())];
    let other = others[0].url();
    assert_eq!(leaves(["", ""], &[]), address(&old));
    assert_eq!(leaves(["", ""], &["--leaving", &other]), address(&others));
    assert!(leaves(["", ""], &["--leaving", ""]).is_empty());
    assert!(leaves([&ours, ""], &[]).is_empty());
    assert_eq!(leaves([&ours, &other], &[]), address(&others));
    let masters = ["--master", &ours];
    assert_eq!(leaves(["", &other], &masters), address(&others));
    let both = ["--master", &ours, "--leaving", &theirs];
    assert_eq!(leaves([&other, &other], &both), address(&old));
}

#[test]
fn the_password_is_for_both_lists() {
    let all: Vec<_> = (0..2)
        .map(|_| Server::start_with(&["--requirepass", "hunter2"]))
        .collect();
    let mut command = joint(&all[..1], &all[1..], "run -n a -- true");
    let (status, _, err) = ended(command.env("QUORLOCK_PASSWORD", "hunter2"));
    assert_eq!(status, 0, "{err}");
    // The others are a majority of one list only.
    let (status, _, err) = ended(&mut joint(&masters(3), &all, "run -n a -- true"));
    assert_eq!(status, 78, "{err}");
    assert!(err.contains("refused the login"), "{err}");
}

#[test]
fn bad_leaving_masters_are_refused_before_anything_is_sent() {
    let masters = masters(2);
    let greeted = || -> u64 {
        let calls = |master: &Server| master.calls(|name| name.starts_with("hello"));
        masters.iter().map(calls).sum()
    };
    let folder = masters[0].directory();
    let [new, old] = [0, 1].map(|at| masters[at].url());
    let twice = "leaving masters 1 and 3 are the same server, 127.0.0.1:";
    for (leaving, expected, by_variable) in [
        (
            vec![&*old, "redis://:hunter2@a:x"],
            "leaving master 2: ",
            (78, "the variable QUORLOCK_LEAVING is wrong: master 2: "),
        ),
        (
            vec!["hunter2"],
            "leaving master 1: ",
            (78, "the variable QUORLOCK_LEAVING is wrong: master 1: "),
        ),
        (vec![&old, "redis://127.0.0.1:1", &old], twice, (78, twice)),
    ] {
        let text = format!("[set.cron]\nmasters = [{new:?}]\nleaving = {leaving:?}\n");
        fs::write(folder.join("quorlock.toml"), text).unwrap();
        let list = leaving.join(",");
        let by_option = format!("--leaving {list} status job");
        let in_file = format!("the set \"cron\": {expected}");
        for (masters, list, words, status, expected) in [
            (&*new, &*list, "status job", by_variable.0, by_variable.1),
            (&new, "", &by_option, 78, expected),
            ("", "", "status job", 78, &in_file),
        ] {
            let mut command = with(&[], words);
            command.env("XDG_CONFIG_HOME", folder);
            command.env("QUORLOCK_MASTERS", masters);
            let (found, out, err) = ended(command.env("QUORLOCK_LEAVING", list));
            assert_eq!((found, &*out), (status, ""), "{err}");
            assert!(err.starts_with(&format!("quorlock: {expected}")), "{err}");
            assert!(!err.contains("hunter2"), "{err}");
        }
    }
    assert_eq!(greeted(), 0);
    assert_eq!(
        ended(&mut joint(&masters[..1], &masters[1..], "status a")).0,
        0
    );
    assert!(greeted() > 0, "a good list is asked");
}

/// Programs with the old list, and programs with both, have the same locks.
#[test]
fn leaving_masters_belong_to_the_set() {
    let (new, old) = (masters(1), masters(1));
    let folder = new[0].directory();
    let (ours, theirs) = (new[0].url(), old[0].url());
    let run = |text: String, list: [&str; 2]| {
        fs::write(folder.join("quorlock.toml"), text).unwrap();
        let mut command = with(&[], "status job");
        command.env("XDG_CONFIG_HOME", folder);
        command.env("QUORLOCK_MASTERS", list[0]);
        let (status, _, err) = ended(command.env("QUORLOCK_LEAVING", list[1]));
        assert_eq!(status, 78, "{err}");
        err
    };
    let joint = format!("masters = [{ours:?}]\nleaving = [{theirs:?}]\n");
    let sets = format!("[set.a]\n{joint}\n[set.b]\nmasters = [{theirs:?}]\nstrict = true\n");
    let err = run(sets, ["", ""]);
    let text = "in the sets \"a\" and \"b\", which differ in strict, ";
    assert!(err.contains(text), "{err}");

    let strict = format!("[set.a]\n{joint}strict = true\n");
    let err = run(strict, [&theirs, ""]);
    let text = "quorlock: QUORLOCK_MASTERS has 127.0.0.1:";
    assert!(err.starts_with(text), "{err}");
    let strict = format!("[set.a]\nmasters = [{theirs:?}]\nstrict = true\n");
    let err = run(strict, [&ours, &theirs]);
    let text = "quorlock: QUORLOCK_MASTERS has 127.0.0.1:";
    assert!(err.starts_with(text), "{err}");
}
