//! One program with two sources of masters: a configuration file, and a list beside it.

use std::{fs, path::Path, process::Command, time::Duration};

use quorlock::{
    SharedSettings,
    tools::{ConnectionName, example_keys},
};
use testkit::server::{Server, masters};

use crate::support::{Running, ended, json, until, urls, with};

/// Writes the usual configuration file, with one set called `cron`.
fn write(folder: &Path, masters: &[Server], settings: &str) {
    let urls: Vec<_> = masters.iter().map(Server::url).collect();
    let text = format!("[set.cron]\nmasters = {urls:?}\n{settings}\n");
    fs::write(folder.join("quorlock.toml"), text).unwrap();
}

/// Returns the program with the usual file in `folder`, and without a list of masters.
fn at(folder: &Path, words: &str) -> Command {
    let mut command = with(&[], words);
    command
        .env("XDG_CONFIG_HOME", folder)
        .env_remove("QUORLOCK_MASTERS");
    command
}

const LOCKS: &str = "key_template = \"locks:{name}\"";

/// Two holders of one name were possible: one knew the lock as `job`, the other as `locks:job`.
#[test]
fn a_list_that_drops_settings_of_the_file_is_an_error() {
    let masters = masters(3);
    let folder = masters[0].directory();
    let list = urls(&masters);
    let part = list
        .split(',')
        .next()
        .unwrap()
        .replace("127.0.0.1", "localhost");
    for (settings, option) in [
        (LOCKS, "--key-template"),
        ("strict = true", "--strict (off: --strict=false)"),
        ("max_ttl = \"2m\"", "--max-ttl"),
    ] {
        write(folder, &masters, settings);
        let by_option = format!("run -n --master {list} job -- echo ran");
        let some = format!("status job --master {part}");
        let run = "run -n job -- echo ran";
        for (words, list) in [(run, &*list), (&by_option, ""), (&some, "")] {
            let (status, out, err) = ended(at(folder, words).env("QUORLOCK_MASTERS", list));
            assert_eq!((status, &*out), (78, ""), "{words}: {err}");
            let advice = format!("; use --set cron, or give {option}\n");
            assert!(err.ends_with(&advice), "{words}: {err}");
            let source = match list {
                "" => "--master",
                _ => "QUORLOCK_MASTERS",
            };
            let says = format!("quorlock: {source} has 127.0.0.1:");
            assert!(err.starts_with(&says), "{words}: {err}");
        }
    }
}

/// Two programs with different sets could hold one lock after a restart of the masters.
#[test]
fn sets_with_the_same_locks_have_the_same_settings() {
    let masters = masters(3);
    let folder = masters[0].directory();
    let urls: Vec<_> = masters.iter().map(Server::url).collect();
    let local = urls[0].replace("127.0.0.1", "localhost");
    for (settings, expected) in [
        ("max_ttl = \"2m\"", "max_ttl"),
        ("strict = true", "strict"),
        ("max_ttl = \"60s\"\nstrict = false\nttl = \"7s\"", ""),
        ("key_template = \"{name}\"", ""),
        // A purpose of its own, whose locks are others.
        ("key_template = \"long:{name}\"\nmax_ttl = \"2m\"", ""),
    ] {
        write(
            folder,
            &masters,
            &format!("[set.other]\nmasters = [{local:?}]\n{settings}"),
        );
        let (status, _, err) = ended(&mut at(folder, "--set cron status job"));
        let differ = format!(
            " in the sets \"cron\" and \"other\", which differ in {expected}, so two programs could \
             hold one lock; give both the same {expected}\n"
        );
        let is_wrong = !expected.is_empty();
        assert_eq!(status, if is_wrong { 78 } else { 0 }, "{settings}: {err}");
        assert_eq!(err.ends_with(&differ), is_wrong, "{settings}: {err}");
    }
}

/// Other programs would not know the longer quarantine that such a lock needs.
#[test]
fn a_long_ttl_needs_a_max_ttl_in_the_set_as_on_the_command_line() {
    let masters = masters(3);
    let folder = masters[0].directory();
    for (settings, options, expected) in [
        ("ttl = \"2m\"", "", 78),
        ("", "--ttl 2m", 64),
        ("ttl = \"2m\"\nmax_ttl = \"2m\"", "", 0),
        ("max_ttl = \"2m\"", "--ttl 2m", 0),
        ("ttl = \"2m\"", "--max-ttl 2m", 0),
        ("max_ttl = \"5s\"", "--ttl 3s", 0),
    ] {
        write(folder, &masters, settings);
        let (status, _, err) = ended(&mut at(folder, &format!("run -n {options} job -- true")));
        assert_eq!(status, expected, "{settings} {options}: {err}");
        let says = err.contains("out of range: it must be at most 60s, so set a shorter ttl");
        assert_eq!(says, expected != 0, "{err}");
    }
}

#[test]
fn settings_that_are_given_or_the_same_are_no_error() {
    let masters = masters(3);
    let folder = masters[0].directory();
    let list = urls(&masters);
    let ends = |words: &str, variables: &[(&str, &str)], expected: i32| {
        let mut command = at(folder, words);
        command.env("QUORLOCK_MASTERS", &list);
        let (status, _, err) = ended(command.envs(variables.iter().copied()));
        assert_eq!(status, expected, "{words} {variables:?}: {err}");
    };
    write(
        folder,
        &masters,
        "key_template = \"{name}\"\nstrict = false\nmax_ttl = \"60s\"",
    );
    ends("status job", &[], 0);
    write(folder, &masters, &format!("{LOCKS}\nmax_ttl = \"2m\""));
    let mut holder = Running::start(&mut at(folder, "hold job"));
    assert!(holder.line().starts_with("held "));
    for command in ["status job", "run -n job -- true"] {
        ends(&format!("--set cron {command}"), &[], 75);
        let options = "--key-template locks:{name} --max-ttl 2m";
        ends(&format!("{options} {command}"), &[], 75);
        let template = ("QUORLOCK_KEY_TEMPLATE", "locks:{name}");
        ends(command, &[template, ("QUORLOCK_MAX_TTL", "2m")], 75);
        let words = format!("--key-template {{name}} {command}");
        ends(&words, &[template, ("QUORLOCK_MAX_TTL", "2m")], 0);
    }
    write(folder, &masters, "strict = true");
    ends("status job", &[("QUORLOCK_STRICT", "false")], 0);
    ends(
        "--strict=false status job",
        &[("QUORLOCK_STRICT", "true")],
        0,
    );
    ends("--strict run -n --ready 10ms job -- true", &[], 69); // new masters have no vote
    ends("status job", &[("QUORLOCK_STRICT", "perhaps")], 78);
    ends(
        "status job",
        &[("QUORLOCK_STRICT", "true"), ("QUORLOCK_MAX_TTL", "one")],
        78,
    );
    ends("--strict status job --strict", &[], 64);
}

/// A program that holds locks by other settings than its user thinks is one of two holders.
#[test]
fn variables_that_count_for_nothing_are_told_of() {
    let masters = masters(3);
    let folder = masters[0].directory();
    write(folder, &masters, "ttl = \"20\"");
    let list = urls(&masters);
    let set = format!(
        "the set \"cron\" in {}",
        folder.join("quorlock.toml").display()
    );
    let ends = |words: &str, list: &str, ignored: &str, source: &str| {
        let mut command = at(folder, words);
        for name in [
            "STRICT",
            "USER",
            "CONFIG",
            "LOCK",
            "A_SERVICE_HOST",
            "A_PORT",
        ] {
            command.env(format!("QUORLOCK_{name}"), "false");
        }
        command
            .env("QUORLOCK_MASTERS", list)
            .env_remove("QUORLOCK_TEST");
        let (status, _, err) = ended(command.env("QUORLOCK_PASSWORD", "").env("QUORLOCK_TTL", ""));
        assert_eq!(status, 0, "{words}: {err}");
        let expected = format!(
            "quorlock: these variables count for nothing: {ignored}; `quorlock man | man -l -` \
             shows those that count beside {source}\n"
        );
        let is_told = !ignored.is_empty();
        assert_eq!(err, if is_told { &*expected } else { "" }, "{words}");
    };
    let of_set = "QUORLOCK_CONFIG, QUORLOCK_STRICT, QUORLOCK_USER";
    ends("--set cron run a -- true", &list, of_set, &set);
    ends("status a", "", of_set, &set);
    ends("run -q a -- true", "", "", &set);
}

#[test]
fn a_misspelt_variable_is_no_setting() {
    let masters = masters(1);
    let folder = masters[0].directory();
    let status = |name: &str, list: &str| {
        let mut command = at(folder, "status a");
        let (status, _, err) = ended(command.env("QUORLOCK_MASTERS", list).env(name, "redis://b"));
        (status, err)
    };
    let expected = "quorlock: the variable QUORLOCK_MASTER is not known: is it QUORLOCK_MASTERS?\n";
    assert_eq!(status("QUORLOCK_MASTER", ""), (78, expected.to_owned()));
    let list = urls(&masters);
    assert_eq!(status("QUORLOCK_LEAVE", &list).0, 78);
    let (code, err) = status("QUORLOCK_SET", &list);
    let expected = "quorlock: these variables count for nothing: QUORLOCK_SET; ";
    assert!(code == 0 && err.starts_with(expected), "{code} {err}");
    assert!(err.ends_with(" count beside QUORLOCK_MASTERS\n"), "{err}");
}

#[test]
fn a_list_that_is_wrong_has_one_status_wherever_it_comes_from() {
    let masters = masters(1);
    let folder = masters[0].directory();
    let good = urls(&masters);
    let file = folder.join("quorlock.toml");
    for (list, why) in [
        (
            "redis://b:x".to_owned(),
            "the port in its URL is not a number",
        ),
        (
            format!("{good},{good}"),
            "masters 1 and 2 are the same server",
        ),
    ] {
        let quoted: Vec<_> = list.split(',').collect();
        fs::write(&file, format!("[set.a]\nmasters = {quoted:?}\n")).unwrap();
        let by_option = format!("status a --master {list}");
        let leaving = format!("status a --master {good} --leaving {list}");
        let by_file = format!("status a --config {}", file.display());
        for (words, list) in [
            (&*by_option, ""),
            (&leaving, ""),
            (&by_file, ""),
            ("status a", &list),
        ] {
            let mut command = with(&[], words);
            let (status, _, err) = ended(command.env("QUORLOCK_MASTERS", list));
            assert!(
                status == 78 && err.contains(why),
                "{words} {list}: {status} {err}"
            );
        }
    }
}

#[test]
fn a_file_about_other_masters_is_no_error() {
    let (ours, theirs) = (masters(3), masters(1));
    let folder = ours[0].directory();
    write(folder, &theirs, &format!("{LOCKS}\nstrict = true"));
    let (status, _, err) =
        ended(at(folder, "run -n a -- true").env("QUORLOCK_MASTERS", urls(&ours)));
    assert_eq!(status, 0, "{err}");
    // Another database has other keys.
    write(folder, &ours, &format!("{LOCKS}\nstrict = true"));
    let other = urls(&ours).replace(',', "/1,") + "/1";
    let (status, _, err) = ended(at(folder, "run -n a -- true").env("QUORLOCK_MASTERS", other));
    assert_eq!(status, 0, "{err}");
    write(folder, &theirs, &format!("{LOCKS}\nstrict = true"));
    // What the command line names comes before the environment.
    let mut named = at(
        folder,
        "status a --key-template other:{name} --json --config",
    );
    let named = named.arg(folder.join("quorlock.toml"));
    let (_, shown, err) = ended(named.env("QUORLOCK_MASTERS", urls(&ours)));
    assert_eq!(
        json(&shown)["locks"][0]["masters"]
            .as_array()
            .unwrap()
            .len(),
        1,
        "{err}"
    );
}

#[test]
fn the_status_and_the_doctor_say_where_the_masters_come_from() {
    let masters = masters(3);
    let folder = masters[0].directory();
    write(folder, &masters, "ttl = \"5s\"");
    let list = urls(&masters);
    let set = format!(
        "the set \"cron\" in {}",
        folder.join("quorlock.toml").display()
    );
    let option = format!("--master {list}");
    for (words, list, source) in [
        ("", "", &*set),
        (&option, "", "--master"),
        ("", &list, "QUORLOCK_MASTERS"),
    ] {
        let run = |command: &str| {
            let words = format!("{words} {command}");
            ended(at(folder, &words).env("QUORLOCK_MASTERS", list)).1
        };
        let status = run("status a");
        assert!(
            status.ends_with(&format!("\nthe masters are those of {source}\n")),
            "{status}"
        );
        let doctor = run("doctor");
        assert!(
            doctor.contains(&format!("\nthe masters are those of {source}\n3 masters; ")),
            "{doctor}"
        );
        for command in ["status a --json", "doctor --json"] {
            assert_eq!(json(&run(command))["source"], *source);
        }
    }
}

/// The library refuses these times, and its error shows the one that counts.
#[test]
fn timeouts_come_from_the_option_then_the_variable_or_the_file() {
    let masters = masters(1);
    let folder = masters[0].directory();
    let list = urls(&masters);
    for name in ["connect", "node"] {
        write(folder, &masters, &format!("{name}_timeout = \"61s\""));
        let variable = format!("QUORLOCK_{}_TIMEOUT", name.to_uppercase());
        let option = format!("--{name}-timeout 63s");
        for (options, list, seconds, status) in [
            ("", "", 61, 78),
            ("", &*list, 62, 64),
            (&*option, "", 63, 78),
            (&option, &list, 63, 64),
        ] {
            let mut command = at(folder, &format!("{options} status job"));
            command.env(&variable, "62s").env("QUORLOCK_MASTERS", list);
            let (found, _, err) = ended(&mut command);
            let expected = format!("a {name} timeout of {seconds}s is out of range");
            assert!(err.contains(&expected) && found == status, "{found}: {err}");
        }
    }
}

/// Every connection shows the lists, the key template and the longest TTL of its program.
#[test]
fn the_file_the_environment_and_the_library_give_the_same_settings() {
    let (new, old) = (masters(3), masters(3));
    let [masters, leaving] =
        [&new, &old].map(|list| -> Vec<_> { list.iter().map(Server::url).collect() });
    let section = format!(
        "masters = {masters:?}\nleaving = {leaving:?}\nkey_template = \"locks:{{name}}\"\n\
         max_ttl = \"90s\"\n"
    );
    let folder = new[0].directory();
    fs::write(folder.join("quorlock.toml"), format!("[set.a]\n{section}")).unwrap();
    let shown = || {
        let clients = old[0].command(&["CLIENT", "LIST"]);
        let name = clients
            .split("name=quorlock:")
            .nth(1)
            .expect("a named connection");
        let parts: Vec<_> = name.split([':', ' ']).take(3).map(str::to_owned).collect();
        parts
    };
    let mut of_file = Running::start(&mut at(folder, "hold --set a job"));
    assert!(of_file.line().starts_with("held "));
    let by_file = shown();
    drop(of_file);
    let no_one = || {
        old[0]
            .command(&["CLIENT", "LIST"])
            .contains("name=quorlock:")
    };
    until("the first program is gone", || !no_one());
    for master in new.iter().chain(&old) {
        master.command(&["DEL", "locks:job"]);
    }
    let mut command = with(&new, "hold job");
    command
        .env("QUORLOCK_LEAVING", leaving.join(","))
        .env("QUORLOCK_KEY_TEMPLATE", "locks:{name}")
        .env("QUORLOCK_MAX_TTL", "1m 30s");
    let mut of_environment = Running::start(&mut command);
    assert!(of_environment.line().starts_with("held "));
    assert_eq!(shown(), by_file);

    let settings: SharedSettings = toml::from_str(&section).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    let _inside = runtime.enter();
    let locks = settings.builder().unwrap().build().unwrap();
    let keys = example_keys("locks:{name}").unwrap();
    let name = ConnectionName::new(
        locks.lists_id(),
        &keys[0].key,
        Duration::from_secs(90),
        None,
    );
    let shown = format!("quorlock:{}:", by_file.join(":"));
    assert!(name.to_string().starts_with(&shown), "{name}, not {shown}");
}
