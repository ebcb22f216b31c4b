//! Masters from arguments, the environment and files; passwords.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
};

use testkit::server::{Server, masters};

use crate::support::{Running, ended, json, urls, with};

const PASSWORD: &str = "hunter2 /@:%";

#[test]
fn a_password_from_a_file_is_shown_nowhere() {
    /// No other test has it: `ps` shows the servers that other tests start.
    const SECRET: &str = "shown-nowhere /@:%";
    let masters: Vec<_> = (0..3)
        .map(|_| Server::start_with(&["--requirepass", SECRET]))
        .collect();
    let file = masters[0].directory().join("password");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    let file = file.to_str().unwrap();
    let words = format!("run -v --password-file {file} a -- sh -c");
    let script = "echo ready; tr '\\0' ' ' < /proc/$PPID/cmdline; ps axww -o args= | grep -v grep; read line";
    let mut running = Running::ready(
        with(&masters, &words)
            .arg(script)
            .stdin(std::process::Stdio::piped()),
    );
    running.say("\n");
    let (status, out, err) = running.ended();
    assert_eq!(status.code(), Some(0), "{err}");
    assert!(out.contains("--password-file"), "{out}");
    let keeper = out.lines().find(|line| line.ends_with("--keeper"));
    assert!(keeper.is_some(), "{out}");
    let own = out
        .lines()
        .filter(|line| line.contains("quorlock") || line.contains("keeper"));
    assert!(!own.collect::<String>().contains("shown-nowhere"), "{out}");
    assert!(!err.contains("shown-nowhere"), "{err}");

    let lines = masters[0].directory().join("lines");
    fs::write(&lines, format!("{SECRET}\nanother\n")).unwrap();
    let words = format!("run --password-file {} a -- true", lines.display());
    let (status, _, err) = ended(&mut with(&masters, &words));
    assert_eq!(status, 78, "{err}");
    assert!(
        err.contains("has several lines") && !err.contains("shown-nowhere"),
        "{err}"
    );

    let without = ended(&mut with(&masters, "run -v -n a -- true"));
    assert_eq!(without.0, 78, "{}", without.2);
    let advice =
        "refused the login: NOAUTH, no password was given; give the password with --password-file";
    assert!(without.2.contains(advice), "{}", without.2);
    let (_, shown, _) = ended(&mut with(&masters, "doctor"));
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let how = without
        .2
        .split("; ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap();
    assert!(shown.contains(how), "{how}: {shown}");
    for words in ["status a", "hold a", "break -y a"] {
        let (status, shown, err) = ended(&mut with(&masters, words));
        assert_eq!(status, 78, "{words}: {err}");
        assert!(err.contains(advice), "{words}: {err}");
        assert!(!shown.contains("HELLO"), "{words}: {shown}");
    }
    // A program that waits for the masters would wait forever.
    let waiting = ended(with(&masters, "run a -- true").env("QUORLOCK_PASSWORD", "wrong"));
    assert_eq!(waiting.0, 78, "{}", waiting.2);
    assert!(waiting.2.contains("the login: WRONGPASS "), "{}", waiting.2);
    assert!(
        waiting
            .2
            .contains("; look at the user, and the password (blanks count) of QUORLOCK_PASSWORD\n"),
        "{}",
        waiting.2
    );
    // The advice is about the place of the password that was used.
    let wrong = masters[0].directory().join("wrong");
    fs::write(&wrong, "wrong").unwrap();
    let words = format!("run --password-file {} a -- true", wrong.display());
    let (_, _, err) = ended(&mut with(&masters, &words));
    assert!(
        err.contains(&format!("password (blanks count) of {}\n", wrong.display())),
        "{err}"
    );
    let of_url = urls(&masters).replace("redis://", "redis://:wrong@");
    let mut run = with(&masters, &words);
    let (_, _, err) = ended(run.env("QUORLOCK_MASTERS", &of_url));
    assert!(
        err.ends_with("; look at the user and the password in the URL\n"),
        "{err}"
    );
    let (_, shown, _) = ended(with(&masters, "doctor").env("QUORLOCK_MASTERS", of_url));
    assert!(!shown.contains("password-file"), "{shown}");
    let by_environment = ended(with(&masters, "run a -- true").env("QUORLOCK_PASSWORD", SECRET));
    assert_eq!(by_environment.0, 0, "{}", by_environment.2);
}

#[test]
fn no_message_has_a_password() {
    let masters = masters(1);
    let file = masters[0].directory().join("q.toml");
    for text in [
        "[set.a]\nmasters = [\"redis://:hunter2@a\"",
        "[set.a]\nmasters = \"redis://:hunter2@a\"",
        "[set.a]\n\"redis://:hunter2@a\" = 1",
        "default = \"redis://:hunter2@a\"\n[set.a]\nmasters = []\n[set.\"redis://:hunter2@a\"]\nmasters = []\n[set.b]\nmasters = []",
        "default = \"redis://:hunter2@b\"\n[set.a]\nmasters = []",
        "[set.a]\nmasters = [\"redis://:hunter2@a\"]\nttl = \"hunter2\"",
        "[set.a]\nmasters = [\"redis://:hunter2@a:x\"]",
        "[set.a]\nmasters = [\"redis://:hunter2@127.0.0.1:1\"]",
        "[set.a]\nmasters = [\"redis://:hunter2@127.0.0.1:1\"]\nhunter = 2",
        "[set.a]\nmasters = [\"redis://:hunter2@127.0.0.1:1\", \"redis://:hunter2@127.0.0.1:1\"]",
    ] {
        fs::write(&file, text).unwrap();
        let words = format!("run -v --nonblock --config {} a -- true", file.display());
        let (status, out, err) = ended(with(&[], &words).env_remove("QUORLOCK_MASTERS"));
        assert!([64, 69, 78].contains(&status), "{status} {err}");
        assert!(
            !err.is_empty() && !err.contains("hunter2") && !out.contains("hunter2"),
            "{err}"
        );
    }
}

#[test]
fn masters_come_from_arguments_then_the_environment_then_a_file() {
    let sets = [(); 3].map(|()| masters(1));
    let url = |set: usize| sets[set][0].url();
    let folder = sets[0][0].directory();
    let file = folder.join("quorlock.toml");
    let text = format!(
        "default = \"two\"\n[set.one]\nmasters = [{:?}]\n[set.two]\nmasters = [{:?}]\nttl = \"7s\"\n",
        url(1),
        url(2)
    );
    fs::write(&file, text).unwrap();
    let held_on = |words: &str, env: &str, is_usual: bool| {
        let mut command = with(&[], &format!("hold {words} a"));
        command.env("QUORLOCK_MASTERS", env);
        if is_usual {
            command.env("XDG_CONFIG_HOME", folder);
        }
        let mut running = Running::start(&mut command);
        assert!(
            running.line().starts_with("held "),
            "{words}: {:?}",
            running.ended()
        );
        let on = |set: &usize| sets[*set][0].command(&["EXISTS", "a"]) == "1";
        let on: Vec<_> = (0..3).filter(on).collect();
        running.signal(nix::sys::signal::Signal::SIGTERM);
        running.ended();
        on
    };
    let config = format!("--config {}", file.display());
    assert_eq!(
        held_on(&format!("--master {} {config}", url(0)), &url(1), true),
        [0]
    );
    assert_eq!(held_on(&config, &url(1), true), [2]);
    assert_eq!(held_on(&config, "", false), [2]);
    assert_eq!(held_on("", "", true), [2]);
    assert_eq!(held_on("--set one", &url(0), true), [1]);
    let (status, _, err) = ended(with(&[], "hold --set three a").env("XDG_CONFIG_HOME", folder));
    assert_eq!(status, 78);
    assert!(err.contains("it has: one, two"), "{err}");
}

#[test]
fn options_stand_on_both_sides_of_the_command() {
    let masters = masters(3);
    let urls: Vec<_> = masters.iter().map(Server::url).collect();
    let [one, two, three] = &urls[..] else {
        unreachable!("there are three masters");
    };
    let words = format!("--master {one} --master {two},{three} status a -v");
    let (status, shown, _) = ended(&mut with(&[], &words));
    assert_eq!(status, 0, "{shown}");
    assert_eq!(shown.matches("127.0.0.1").count(), 3, "{shown}");
    for words in [
        // One list would be lost, and the rest would be another lock.
        format!("--master {one} --master {two} status a --master={three}"),
        format!("--master {one} status a --set s"),
        format!("--set s status a --master {one}"),
        "--set s status a --set t".to_owned(),
        "--config s status a --config t".to_owned(),
        "--password-file s status a --password-file t".to_owned(),
    ] {
        let (status, shown, err) = ended(&mut with(&masters, &words));
        assert_eq!((status, &*shown), (64, ""), "{words}: {err}");
    }
}

#[test]
fn variables_that_are_no_text_are_refused() {
    let masters = masters(1);
    let bytes = OsStr::from_bytes(b"redis://\xff");
    for name in ["QUORLOCK_MASTERS", "QUORLOCK_PASSWORD"] {
        let (status, _, err) = ended(with(&masters, "run -n a -- true").env(name, bytes));
        assert_eq!(status, 78, "{err}");
        assert!(err.contains(name), "{err}");
    }
}

#[test]
fn a_password_file_for_all_users_is_a_warning_for_people() {
    let masters = [Server::start_with(&["--requirepass", PASSWORD])];
    let file = masters[0].directory().join("password");
    fs::write(&file, PASSWORD).unwrap();
    for (mode, words, warns) in [
        (0o640, "-v run a -- true", false),
        (0o644, "run a -- true", false), // from cron, or in a container
        (0o644, "-v run a -- true", true),
    ] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let words = format!("--password-file {} {words}", file.display());
        let (status, _, err) = ended(&mut with(&masters, &words));
        assert_eq!(status, 0, "{err}");
        assert_eq!(err.contains("; run: chmod 600 "), warns, "{err}");
    }
}

#[test]
fn the_doctor_warns_of_a_password_file_for_all_users() {
    let masters = [Server::start_with(&["--requirepass", PASSWORD])];
    let file = masters[0].directory().join("password");
    fs::write(&file, PASSWORD).unwrap();
    for (mode, warns) in [(0o640, false), (0o644, true)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let doctor = format!("--password-file {} doctor", file.display());
        let (_, shown, _) = ended(&mut with(&masters, &doctor));
        let words: Vec<_> = shown.split_whitespace().collect();
        let fix = format!("fix chmod 600 {}", file.display());
        assert_eq!(words.join(" ").contains(&fix), warns, "{shown}");
        let starts = shown.matches("\nwarn ").count() + usize::from(shown.starts_with("warn "));
        let counted = format!(" {starts} warn");
        assert!(shown.contains(&counted) || starts == 0, "{shown}");

        let (status, shown, _) = ended(&mut with(&masters, &format!("{doctor} --json")));
        let report = json(&shown);
        let findings = report["findings"].as_array().unwrap();
        let own = findings
            .iter()
            .find(|one| one["setting"] == "password_file");
        assert_eq!(own.is_some(), warns, "{shown}");
        if let Some(own) = own {
            assert_eq!(own["severity"], "warn");
            assert!(status >= 2, "{status}");
        }
    }
}

/// The values of the file may be passwords.
#[test]
fn a_file_that_is_no_configuration_is_explained_without_its_values() {
    let masters = masters(1);
    let file = masters[0].directory().join("q.toml");
    let list = "expected a list such as [\"redis://10.0.0.1\"]";
    for (text, expected) in [
        (
            "[set.a\nmasters = []",
            "in line 1: unclosed table, expected `]`",
        ),
        (
            "[set.a]\nttl = \"1s\"",
            "the set \"a\": no masters were given",
        ),
        (
            "default = \"a\"",
            "has no set; write [set.NAME] and masters = [..]",
        ),
        (
            "[sets.a]\nmasters = []",
            "in line 1, at sets.a: unknown field, expected `default` or `set`",
        ),
        ("set = 5", "expected a table such as [set.production]"),
        (
            "[set]\na = 1",
            "at a: invalid type, expected a table such as [set.production]",
        ),
        (
            "[set.a]\nttl = 10",
            "in line 2, at ttl: invalid type, expected a text in quotes",
        ),
        (
            "[set.a]\nmasters = \"redis://:hunter2, expected 2@a\"",
            &format!("in line 2, at masters: invalid type, {list}"),
        ),
        (
            "[set.a]\nmasters = [redis://:hunter2@a]",
            "in line 2, at masters: string values must be quoted, expected literal string",
        ),
        (
            "[set.a]\nmasters = []\nttl = \"hunter2\"",
            "in line 3, at ttl: is not a time, expected one such as 10s, 500ms or 1m",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let words = format!("run --config {} a -- true", file.display());
        let (status, _, err) = ended(with(&[], &words).env_remove("QUORLOCK_MASTERS"));
        assert_eq!(status, 78, "{err}");
        assert!(err.ends_with(&format!("{expected}\n")), "{text}: {err}");
    }
}
