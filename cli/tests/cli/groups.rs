//! Groups of masters: each name is on the masters of its group.

use std::{fs, process::Command};

use nix::sys::signal::Signal;
use serde_json::{Value, json as value};
use testkit::server::{Server, masters};

use crate::support::{Running, ended, json, squeezed, urls, with};

const IDS: [&str; 3] = ["a", "b", "c"];

/// Returns a list of groups, as the variable `QUORLOCK_MASTERS` has it.
fn list(groups: &[Vec<Server>]) -> String {
    let groups = IDS.iter().zip(groups);
    let groups = groups.map(|(id, masters)| format!("{id}={}", urls(masters)));
    groups.collect::<Vec<_>>().join(" ")
}

/// Starts groups with these numbers of masters.
fn start<const N: usize>(sizes: [usize; N]) -> Vec<Vec<Server>> {
    sizes.into_iter().map(masters).collect()
}

/// Returns the program with these masters, which leaves the `old` ones.
fn leaving(new: &str, old: &str, words: &str) -> Command {
    let mut command = with(&[], words);
    command
        .env("QUORLOCK_MASTERS", new)
        .env("QUORLOCK_LEAVING", old);
    command
}

fn of(list: &str, words: &str) -> Command {
    leaving(list, "", words)
}

/// Returns the group of each of 30 names.
fn groups_of_names(new: &str, old: &str) -> Vec<(String, String)> {
    let names: Vec<_> = (0..30).map(|number| format!("job{number}")).collect();
    let words = format!("status --json {}", names.join(" "));
    let (status, shown, err) = ended(&mut leaving(new, old, &words));
    assert_eq!((status, &*err), (0, ""));
    let locks = json(&shown)["locks"].clone();
    let groups = locks.as_array().unwrap().iter().map(|lock| {
        let group = lock["masters"][0]["group"].as_str();
        group.unwrap_or_default().to_owned()
    });
    names.into_iter().zip(groups).collect()
}

/// Returns a name in the group.
fn name_in(names: &[(String, String)], group: &str) -> String {
    let name = names.iter().find(|(_, other)| other == group);
    name.unwrap().0.clone()
}

fn address(master: &Server) -> String {
    format!("127.0.0.1:{}", master.port())
}

#[test]
fn a_name_is_on_the_masters_of_its_group() {
    let groups = start([2, 1]);
    let list = list(&groups);
    let names = groups_of_names(&list, "");
    for (id, size) in [("a", 2), ("b", 1)] {
        let name = name_in(&names, id);
        let mut holder = Running::start(&mut of(&list, &format!("hold {name}")));
        assert!(holder.line().contains(&format!("votes={size}/{size}")));
        for (masters, other) in groups.iter().zip(IDS) {
            let expected = if other == id { "1" } else { "0" };
            for master in masters {
                assert_eq!(master.command(&["EXISTS", &name]), expected);
            }
        }
        let (status, shown, _) = ended(&mut of(&list, &format!("status {name}")));
        assert_eq!(status, 75, "{shown}");
        let rows = squeezed(&shown);
        assert!(rows.contains("\nMASTER GROUP VIEW TTL LEFT "), "{shown}");
        let first = &groups[usize::from(id == "b")][0];
        let row = format!("\n{} {id} mutex ", address(first));
        assert!(rows.contains(&row), "{shown}");
        let (status, _, err) = ended(&mut of(&list, &format!("break -y {name}")));
        assert_eq!(status, 0, "{err}");
        holder.signal(Signal::SIGTERM);
    }
    let all = format!("{} {}", name_in(&names, "a"), name_in(&names, "b"));
    let (status, _, err) = ended(&mut of(&list, &format!("run -n {all} -- true")));
    assert_eq!(status, 0, "{err}");
    let (_, shown, _) = ended(&mut of(&list, &format!("status --json {all}")));
    let report = |id: &str, masters: &[Server]| {
        let quorum = masters.len() / 2 + 1;
        let masters: Vec<_> = masters.iter().map(address).collect();
        value!({"group": id, "list": "masters", "quorum": quorum, "masters": masters})
    };
    let lists = value!([report("a", &groups[0]), report("b", &groups[1])]);
    assert_eq!(json(&shown)["lists"], lists);
    let mut watch = Running::start(&mut of(&list, &format!("status --watch {all}")));
    watch.line_with(" 2 of 2 masters of group a (need 2), 1 of 1 masters of group b (need 1) can");
    watch.line_with(&format!("{}  b ", address(&groups[1][0])));
    let (_, shown, _) = ended(&mut of(&list, "bench --time 300ms --json"));
    assert_eq!(json(&shown)["failures"], value!({}));
}

#[test]
fn an_outage_of_a_group_concerns_its_names_only() {
    let mut groups = start([1, 3]);
    let list = list(&groups);
    let names = groups_of_names(&list, "");
    let [ours, theirs] = ["a", "b"].map(|id| name_in(&names, id));
    groups[1][1..].iter_mut().for_each(Server::kill);
    let few = "only 1 of 3 masters of group b (need 2)";
    for option in ["", "--ready 20s"] {
        let words = format!("run -n {option} {ours} -- true");
        let (status, _, err) = ended(&mut of(&list, &words));
        assert_eq!((status, &*err), (0, ""));
    }
    let (status, shown, _) = ended(&mut of(&list, &format!("status {ours}")));
    assert_eq!(status, 0, "{shown}");
    let (status, _, err) = ended(&mut of(&list, &format!("run -n {theirs} -- echo ran")));
    assert_eq!(status, 69, "{err}");
    assert!(err.contains(&format!(": {few} can vote; ")), "{err}");
    let (status, _, err) = ended(&mut of(&list, &format!("run -n {ours} {theirs} -- true")));
    assert_eq!(status, 69, "{err}");
    let (status, shown, _) = ended(&mut of(&list, &format!("status {theirs}")));
    assert_eq!(status, 69, "{shown}");
    let verdict = format!("{theirs}  unknown: {few} answered\n");
    assert!(shown.starts_with(&verdict), "{shown}");
    let (status, shown, _) = ended(&mut of(&list, "doctor"));
    assert_eq!(status, 3, "{shown}");
    assert!(
        shown.contains("no lock of group b can be acquired now\n"),
        "{shown}"
    );
    let row = format!("\n{} b\n", address(&groups[1][0]));
    assert!(squeezed(&shown).contains(&row), "{shown}");

    // A program that waits for a holder does not speak of the other group.
    let mut holder = Running::start(&mut of(&list, &format!("hold {ours}")));
    assert!(holder.line().starts_with("held "));
    let mut waiter = Running::start(&mut of(&list, &format!("run -v {ours} -- true")));
    let news = waiter.error_line_with("waiting for");
    assert!(news.contains("is held by"), "{news}");
}

/// A program that holds one lock needs no connections to other groups.
#[test]
fn only_the_group_of_the_lock_is_dialled() {
    let groups = start([1, 1, 1]);
    let list = list(&groups);
    let greeted = |at: usize| groups[at][0].calls(|name| name.starts_with("hello"));
    // By the rule in lua/README.md.
    for option in ["", "--ready 20s"] {
        let words = format!("run -n {option} orders/43 -- true");
        let (status, _, err) = ended(&mut of(&list, &words));
        assert_eq!((status, &*err), (0, ""));
    }
    assert!(greeted(0) > 0);
    assert_eq!((greeted(1), greeted(2)), (0, 0));
    let names = "orders/43 orders/42 account/7"; // of a, c and b
    let mut holder = Running::start(&mut of(&list, &format!("hold {names}")));
    assert!(holder.line().starts_with("held "));
    assert!(greeted(1) > 0 && greeted(2) > 0);
    // The other groups are not asked before the first name is free, and that is no outage.
    let mut waiter = Running::start(&mut of(&list, &format!("run -v {names} -- true")));
    let news = waiter.error_line_with("waiting for");
    assert!(news.contains("is held by"), "{news}");
    let (status, _, err) = ended(&mut of(
        &list,
        &format!("run -n --ready 1s {names} -- true"),
    ));
    assert_eq!(status, 75, "{err}");
}

/// The group that is asked first lacks only a minority.
#[test]
fn masters_that_take_no_locks_are_found_in_each_group() {
    let groups = start([3, 3]);
    let list = list(&groups);
    let names = groups_of_names(&list, ""); // writes the keys of the guard
    let deny = |master: &Server| master.command(&["CONFIG", "SET", "maxmemory", "1"]);
    deny(&groups[0][0]);
    groups[1][..2].iter().for_each(|master| drop(deny(master)));
    let [ours, theirs] = ["a", "b"].map(|id| name_in(&names, id));
    let (status, shown, _) = ended(&mut of(&list, &format!("status {ours}")));
    assert_eq!(status, 0, "{shown}");
    let (status, shown, _) = ended(&mut of(&list, &format!("status {theirs}")));
    assert_eq!(status, 69, "{shown}");
    let verdict = format!(
        "{theirs}  free, but nobody can lock it: only 1 of 3 masters of group b (need 2) can vote\n"
    );
    assert!(shown.starts_with(&verdict), "{shown}");
    assert_eq!(shown.matches("no vote: ").count(), 2, "{shown}");
}

#[test]
fn groups_are_changed() {
    let groups = start([1, 1, 1]);
    let (old, new) = (list(&groups[..2]), list(&groups));
    let names = groups_of_names(&new, &old);
    for id in ["a", "b", "a->c", "b->c"] {
        let name = name_in(&names, id);
        for known in [&old, &new] {
            let mut holder = Running::start(&mut of(known, &format!("hold {name}")));
            assert!(holder.line().starts_with("held "));
            let words = format!("run -n {name} -- echo ran");
            let (status, _, err) = ended(&mut leaving(&new, &old, &words));
            assert_eq!(status, 75, "{err}");
            holder.signal(Signal::SIGTERM);
            assert!(holder.ended().0.success());
        }
    }
    let moving = name_in(&names, "a->c");
    let (_, shown, _) = ended(&mut leaving(&new, &old, &format!("status {moving}")));
    let rows = squeezed(&shown);
    for row in [
        "\nMASTER GROUP CHANGE VIEW ".to_owned(),
        format!("\n{} a->c joins free ", address(&groups[2][0])),
        format!("\n{} a->c leaves free ", address(&groups[0][0])),
    ] {
        assert!(rows.contains(&row), "{row}: {shown}");
    }
    let (_, shown, _) = ended(&mut leaving(&new, &old, "doctor"));
    let table = format!(
        "\nMASTER GROUP CHANGE\n{} a and a->c stays\n{} b and b->c stays\n{} a->c and b->c joins\n",
        address(&groups[0][0]),
        address(&groups[1][0]),
        address(&groups[2][0])
    );
    assert!(squeezed(&shown).contains(&table), "{shown}");
    assert!(shown.contains("\n3 masters: "), "{shown}");
}

/// Masters without groups, in the other list, are one group.
#[test]
fn masters_become_groups_and_groups_become_masters() {
    let groups = start([1, 1]);
    let (plain, grouped) = (urls(&groups[0]), list(&groups));
    for (new, old) in [(&grouped, &plain), (&plain, &grouped)] {
        let names = groups_of_names(new, old);
        let moving = names.iter().filter(|(_, group)| group.contains("->"));
        let moving = moving.map(|(name, _)| name).next_back().unwrap();
        for known in [&plain, &grouped] {
            let mut holder = Running::start(&mut of(known, &format!("hold {moving}")));
            assert!(holder.line().starts_with("held "));
            let words = format!("run -n {moving} -- echo ran");
            let (status, _, err) = ended(&mut leaving(new, old, &words));
            assert_eq!(status, 75, "{err}");
            holder.signal(Signal::SIGTERM);
            assert!(holder.ended().0.success());
        }
    }
}

#[test]
fn groups_come_from_where_the_masters_come_from() {
    let groups = start([1, 2]);
    let folder = groups[0][0].directory();
    let quoted = |masters: &[Server]| {
        let urls: Vec<_> = masters.iter().map(Server::url).collect();
        format!("{urls:?}")
    };
    let (a, b) = (quoted(&groups[0]), quoted(&groups[1]));
    let text = format!(
        "[set.cron]\n[set.cron.groups]\n\"b:2\" = {b}\na = {a}\n\
         [set.back.groups]\na = {a}\n[set.back.leaving_groups]\na = {a}\n\"b:2\" = {b}\n"
    );
    fs::write(folder.join("quorlock.toml"), text).unwrap();
    let (a, b) = (urls(&groups[0]), urls(&groups[1]));
    let (first, second) = b.split_once(',').unwrap();
    let parts = format!("--master a={a} --master b:2={first} --master {second}");
    let lists = |variable: &str, words: &str| -> Value {
        let names: Vec<_> = (0..30).map(|number| format!("job{number}")).collect();
        let words = format!("{words} status --json {}", names.join(" "));
        let mut command = of(variable, &words);
        let (status, shown, err) = ended(command.env("XDG_CONFIG_HOME", folder));
        assert_eq!(status, 0, "{words}: {err}");
        json(&shown)["lists"].clone()
    };
    let expected = lists("", "--set cron");
    assert_eq!(expected.as_array().unwrap().len(), 2, "{expected}");
    assert_eq!(lists("", &parts), expected);
    assert_eq!(lists(&format!("a={a},b:2={b}"), ""), expected);
    let back = lists("", "--set back");
    assert_eq!(back[2]["list"], "leaving", "{back}");
    assert_eq!(back[2]["group"], "b->a", "{back}");
    let option = format!("--leaving a={a},b:2={b} --master a={a}");
    assert_eq!(lists("", &option), back);
}

#[test]
fn the_password_is_for_all_groups() {
    let all: Vec<_> = (0..2)
        .map(|_| vec![Server::start_with(&["--requirepass", "hunter2"])])
        .collect();
    let list = list(&all);
    for leaves in ["", &list] {
        let mut command = leaving(&list, leaves, "run -n a b c d e f -- true");
        let (status, _, err) = ended(command.env("QUORLOCK_PASSWORD", "hunter2"));
        assert_eq!(status, 0, "{err}");
    }
    let (status, _, err) = ended(&mut of(&list, "run -n a b c d e f -- true"));
    assert_eq!(status, 78, "{err}");
    assert!(err.contains("refused the login"), "{err}");
}

#[test]
fn bad_groups_are_refused_before_anything_is_sent() {
    let groups = start([1, 1]);
    let good = list(&groups);
    let [a, b] = [0, 1].map(|at| groups[at][0].url());
    let name = "its name is not ID or ID:WEIGHT, ";
    let one = format!("group 1: {name}");
    let two = format!("group 2: {name}");
    for (masters, leaves, expected) in [
        (format!("{a} b={b}"), "", "master 1: it is in no group"),
        (
            format!("b={b}"),
            "redis://h a=redis://h",
            "leaving master 1: it is in no group",
        ),
        (format!("user:hunter2@h={a}"), "", &*one),
        (format!("a={a} redis:hunter2={b}"), "", &two),
        (
            good.clone(),
            "hunter2@=redis://h",
            &format!("leaving {one}"),
        ),
        (
            format!("a={a},redis://:hunter2@h:x b={b}"),
            "",
            "group a: master 2: ",
        ),
        (
            good.clone(),
            "a=redis://:hunter2@h:x",
            "leaving: group a: master 1: ",
        ),
        (good.clone(), "redis://:hunter2@h:x", "leaving master 1: "),
        (format!("redis://:hunter2@h:x,{a}"), &good, "master 1: "),
        (format!("a={a} a={b}"), "", "two groups are called \"a\""),
        (
            good.clone(),
            "x=redis://h x=redis://i",
            "leaving: two groups are called \"x\"",
        ),
        (
            format!("a={a} b={a}"),
            "",
            "groups a and b have the same master",
        ),
        (
            format!("a={a} b:17={b}"),
            "",
            "group b: a weight of 17 is out of range",
        ),
        (
            good.clone(),
            &format!("{a}/1"),
            "group all->a: masters 1 and 2 are the same server",
        ),
    ] {
        let option = format!("--leaving {leaves} status job");
        let words = if leaves.contains(' ') || leaves.is_empty() {
            "status job"
        } else {
            &option
        };
        let (status, out, err) = ended(&mut leaving(&masters, leaves, words));
        assert_eq!((status, &*out), (64, ""), "{masters} {leaves}: {err}");
        assert!(err.starts_with(&format!("quorlock: {expected}")), "{err}");
        assert!(!err.contains("hunter2"), "{err}");
    }
    let greeted = |master: &Server| master.calls(|name| name.starts_with("hello"));
    assert!(groups.iter().all(|masters| greeted(&masters[0]) == 0));
}

#[test]
fn bad_groups_of_a_file_are_refused() {
    let groups = start([1, 1]);
    let folder = groups[0][0].directory();
    let [a, b] = [0, 1].map(|at| groups[at][0].url());
    let run = |text: &str, list: &str| {
        fs::write(folder.join("quorlock.toml"), text).unwrap();
        let mut command = of(list, "--set cron status job");
        let mut listed = of(list, "status job");
        let command = if list.is_empty() {
            &mut command
        } else {
            &mut listed
        };
        let (status, out, err) = ended(command.env("XDG_CONFIG_HOME", folder));
        assert_eq!((status, &*out), (78, ""), "{text}: {err}");
        assert!(!err.contains("hunter2"), "{text}: {err}");
        err
    };
    let form = "is not ID or ID:WEIGHT, ";
    for (text, expected) in [
        (
            format!("masters = [{a:?}]\n[set.cron.groups]\nb = [{b:?}]"),
            "has a set \"cron\" with both masters and groups; keep only groups",
        ),
        (
            format!("masters = [{a:?}]\nleaving = [{a:?}]\n[set.cron.leaving_groups]\nb = [{b:?}]"),
            "has a set \"cron\" with both leaving and leaving_groups; ",
        ),
        (
            format!("[set.cron.groups]\n\"redis://:hunter2@h\" = [{b:?}]"),
            &format!("has a set \"cron\" with a name in groups that {form}"),
        ),
        (
            format!("masters = [{a:?}]\n[set.cron.leaving_groups]\n\"a:hunter2\" = [{b:?}]"),
            &format!("has a set \"cron\" with a name in leaving_groups that {form}"),
        ),
        (
            "[set.cron.groups]\na = \"redis://:hunter2@h\"".to_owned(),
            "is wrong in line 2, at a: invalid type, expected a list such as ",
        ),
        (
            "[set.cron]\ngroups = [\"redis://:hunter2@h\"]".to_owned(),
            "is wrong in line 2",
        ),
        (
            format!("[set.cron.groups]\na = [{a:?}, \"redis://:hunter2@h:x\"]"),
            "quorlock: the set \"cron\": group a: master 2: ",
        ),
        (
            format!("masters = [{a:?}]\n[set.cron.leaving_groups]\nb = [\"hunter2\"]"),
            "quorlock: the set \"cron\": leaving: group b: master 1: ",
        ),
    ] {
        let text = if text.starts_with('[') {
            text
        } else {
            format!("[set.cron]\n{text}")
        };
        let err = run(&text, "");
        assert!(err.contains(expected), "{text}: {err}");
    }
    // The masters in groups are masters of the set.
    let grouped = format!("[set.cron.groups]\na = [{a:?}]\nb = [{b:?}]\n");
    let err = run(
        &format!("{grouped}[set.other]\nmasters = [{b:?}]\nstrict = true\n"),
        "",
    );
    assert!(
        err.contains("in the sets \"cron\" and \"other\", which differ in strict"),
        "{err}"
    );
    let strict = format!("[set.cron]\nstrict = true\n{grouped}");
    let err = run(&strict, &format!("x=redis://127.0.0.1:1 y={b}"));
    assert!(
        err.starts_with("quorlock: QUORLOCK_MASTERS has 127.0.0.1:"),
        "{err}"
    );
}

/// A master has a connection for each pair of groups.
#[test]
fn too_few_files_for_the_pairs_of_groups_are_an_error() {
    let old: Vec<_> = (1..=8)
        .map(|at| format!("o{at}=redis://127.0.0.1:{at}"))
        .collect();
    let new: Vec<_> = (1..=8)
        .map(|at| format!("n{at}=redis://127.0.0.2:{at}"))
        .collect();
    let (new, old) = (new.join(" "), old.join(" "));
    let limited = |files: u32| {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {files}; exec \"$0\" status job");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_quorlock")]);
        command
            .env("HOME", "/nonexistent")
            .env("QUORLOCK_MASTERS", &new);
        ended(command.env("QUORLOCK_LEAVING", &old))
    };
    let (status, _, err) = limited(120); // 64 pairs of 2 masters
    assert_eq!(status, 71, "{err}");
    assert!(err.contains("cannot open enough files"), "{err}");
    assert_eq!(limited(250).0, 69);
}
