//! Masters from arguments, the environment and files; passwords.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::PathBuf,
    process::Stdio,
};

use testkit::server::{Server, masters};

use crate::support::{Running, at, ended, one_line, run, urls, with};

const PASSWORD: &str = "hunter2 /@:%";

/// Starts masters with this password. Returns a file that has it, too.
fn protected(password: &str, count: usize) -> (Vec<Server>, PathBuf) {
    let start = |_| Server::start_with(&["--requirepass", password]);
    let masters: Vec<_> = (0..count).map(start).collect();
    let file = masters[0].directory().join("password");
    fs::write(&file, format!("{password}\n")).unwrap();
    (masters, file)
}

#[test]
fn a_password_from_a_file_is_shown_nowhere() {
    /// No other test has it: `ps` shows the servers that other tests start.
    const SECRET: &str = "shown-nowhere /@:%";
    let (masters, file) = protected(SECRET, 3);
    let words = format!("run -v --password-file {} a -- sh -c", file.display());
    let script = "echo ready; tr '\\0' ' ' < /proc/$PPID/cmdline; ps axww -o args= | grep -v grep; read line";
    let mut command = with(&masters, &words);
    let mut running = Running::ready(command.arg(script).stdin(Stdio::piped()));
    running.say("\n");
    let ended = running
        .ended()
        .is(0)
        .omits("shown-nowhere")
        .shows("--password-file");
    let is_own = |line: &&str| line.contains("quorlock") || line.contains("keeper");
    let own: Vec<_> = ended.out.lines().filter(is_own).collect();
    assert!(own.iter().any(|line| line.ends_with("--keeper")), "{ended}");
    assert!(!own.concat().contains("shown-nowhere"), "{ended}");
}

#[test]
fn a_login_that_is_refused_is_explained_by_the_place_of_its_password() {
    let (masters, file) = protected(PASSWORD, 3);
    fs::write(&file, format!("{PASSWORD}\nanother\n")).unwrap();
    let lines = format!("run --password-file {} a -- true", file.display());
    run(&masters, &lines)
        .is(78)
        .says("has several lines")
        .omits("hunter2");

    let how = "give the password with --password-file";
    let advice = format!("refused the login: NOAUTH, no password was given; {how}");
    for words in ["run -v -n a -- true", "status a", "hold a", "break -y a"] {
        run(&masters, words).is(78).says(&advice).hides("HELLO");
    }
    run(&masters, "doctor").tells(how);
    // A program that waits for the masters would wait forever.
    let with_variable = |words: &str, name: &str, value: &str| {
        let mut command = with(&masters, words);
        ended(command.env(name, value))
    };
    with_variable("run a -- true", "QUORLOCK_PASSWORD", "wrong")
        .is(78)
        .says("the login: WRONGPASS ")
        .says("; look at the user, and the password (blanks count) of QUORLOCK_PASSWORD\n");
    // The advice is about the place of the password that was used.
    fs::write(&file, "wrong").unwrap();
    let expected = format!("password (blanks count) of {}\n", file.display());
    run(&masters, &lines).is(78).says(&expected);
    let of_url = urls(&masters).replace("redis://", "redis://:wrong@");
    let expected = "; look at the user and the password in the URL\n";
    with_variable(&lines, "QUORLOCK_MASTERS", &of_url).last_says(expected);
    with_variable("doctor", "QUORLOCK_MASTERS", &of_url).hides("password-file");
    with_variable("run a -- true", "QUORLOCK_PASSWORD", PASSWORD).is(0);
}

/// The values of the file may be passwords.
#[test]
fn a_file_that_is_no_configuration_is_explained_without_its_values() {
    let masters = masters(1);
    let file = masters[0].directory().join("q.toml");
    let list = "in line 2, at masters: masters must be a list of URLs or one text with commas between them\n";
    let time = "in line 3, at ttl: is not a time, expected one such as 10s, 500ms or 1m\n";
    for (text, expected) in [
        (
            "[profile.a\nmasters = []",
            "in line 1: unclosed table, expected `]`\n",
        ),
        (
            "[profile.a]\nttl = \"1s\"",
            "the profile \"a\": no masters were given\n",
        ),
        (
            "default = \"a\"",
            "has no profile; write [profile.NAME] and masters = [..]\n",
        ),
        (
            "[profiles.a]\nmasters = []",
            "in line 1: write [profile.a] for the profile a\n",
        ),
        (
            "default = \"prod\"\n\n  [prod]\nmasters = [\"redis://:hunter2@a\"]",
            "in line 3: write [profile.prod] for the profile prod\n",
        ),
        (
            "masters = [\"redis://:hunter2@a\"]",
            "in line 1, at masters: unknown field, expected `default` or `profile`\n",
        ),
        (
            "[profile.a]\nmasters = []\n[profile.a.b]\nttl = 1",
            ", `quarantine`\n",
        ),
        (
            "profile = 5",
            "expected a table such as [profile.production]\n",
        ),
        (
            "[profile]\na = 1",
            "at a: invalid type, expected a table such as [profile.production]\n",
        ),
        (
            "[profile.a]\nttl = [10]",
            "in line 2, at ttl: a time must be a number of seconds or a text such as 500ms\n",
        ),
        (
            "[profile.a]\nmasters = { a = \"redis://:hunter2, expected 2@a\" }",
            list,
        ),
        (
            "[profile.a]\nmasters = [redis://:hunter2@a]",
            "in line 2, at masters: string values must be quoted, expected literal string\n",
        ),
        ("[profile.a]\nmasters = []\nttl = \"hunter2\"", time),
        ("[profile.a]\nmasters = [\"redis://:hunter2@a\"", "\n"),
        ("[profile.a]\n\"redis://:hunter2@a\" = 1", "\n"),
        (
            "default = \"redis://:hunter2@a\"\n[profile.a]\nmasters = []\n[profile.\"redis://:hunter2@a\"]\nmasters = []\n[profile.b]\nmasters = []",
            "\n",
        ),
        (
            "default = \"redis://:hunter2@b\"\n[profile.a]\nmasters = []",
            "\n",
        ),
        ("[profile.a]\nmasters = [\"redis://:hunter2@a:x\"]", "\n"),
        (
            "[profile.a]\nmasters = [\"redis://:hunter2@127.0.0.1:1\"]\nhunter = 2",
            "\n",
        ),
        (
            "[profile.a]\nmasters = [\"redis://:hunter2@127.0.0.1:1\", \"redis://:hunter2@127.0.0.1:1\"]",
            "\n",
        ),
        (
            "[profile.a]\nmasters = [\"redis://:hunter2@127.0.0.1:1\"]",
            "",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let words = format!("run -v --nonblock --config {} a -- true", file.display());
        let ended = run(&[], &words).last_says(expected);
        // The last one has no mistake.
        let status = if expected.is_empty() { 69 } else { 78 };
        ended.gives(status, "").omits("hunter2");
    }
}

#[test]
fn masters_come_from_arguments_then_the_environment_then_a_file() {
    let sets = [(); 3].map(|()| masters(1));
    let [zero, one, two] = sets.each_ref().map(|set| set[0].url());
    let folder = sets[0][0].directory();
    let file = folder.join("quorlock.toml");
    let text = format!(
        "default = \"two\"\n[profile.one]\nmasters = [{one:?}]\n[profile.two]\nmasters = [{two:?}]\nttl = \"7s\"\n"
    );
    fs::write(&file, text).unwrap();
    let config = format!("--config {}", file.display());
    let both = format!("--master {zero} {config}");
    for (words, env, is_usual, expected) in [
        (&*both, &*one, true, 0),
        (&config, &one, true, 2),
        (&config, "", false, 2),
        ("", "", true, 2),
        ("--profile one", &zero, true, 1),
    ] {
        let mut command = with(&[], &format!("hold {words} a"));
        command.env("QUORLOCK_MASTERS", env);
        if is_usual {
            command.env("XDG_CONFIG_HOME", folder);
        }
        let running = Running::held(&mut command);
        let on = |set: &usize| sets[*set][0].command(&["EXISTS", "a"]) == "1";
        assert_eq!((0..3).filter(on).collect::<Vec<_>>(), [expected], "{words}");
        running.terminated().is(0);
    }
    ended(&mut at(folder, "hold --profile three a"))
        .is(78)
        .says("it has: one, two");
}

#[test]
fn options_stand_on_both_sides_of_the_command() {
    let masters = masters(3);
    let [one, two, three] = [0, 1, 2].map(|at: usize| masters[at].url());
    let words = format!("--master {one} --master {two},{three} status a -v");
    run(&[], &words).is(0).shows_times(3, "127.0.0.1");
    for words in [
        // One list would be lost, and the rest would be another lock.
        format!("--master {one} --master {two} status a --master={three}"),
        format!("--master {one} status a --profile s"),
        format!("--profile s status a --master {one}"),
        "--profile s status a --profile t".to_owned(),
        "--config s status a --config t".to_owned(),
        "--password-file s status a --password-file t".to_owned(),
    ] {
        run(&masters, &words).gives(64, "");
    }
}

#[test]
fn variables_that_are_no_text_are_refused() {
    let masters = masters(1);
    let bytes = OsStr::from_bytes(b"redis://\xff");
    for name in ["QUORLOCK_MASTERS", "QUORLOCK_PASSWORD"] {
        ended(with(&masters, "run -n a -- true").env(name, bytes))
            .is(78)
            .says(name);
    }
}

#[test]
fn a_password_file_for_all_users_is_a_warning_of_the_doctor() {
    let (masters, file) = protected(PASSWORD, 1);
    let allow = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    let with_file = |words: &str| {
        let words = format!("--password-file {} {words}", file.display());
        run(&masters, &words)
    };
    for (mode, warns) in [(0o640, false), (0o644, true)] {
        allow(mode);
        let shown = with_file("doctor").out;
        let fix = format!("fix chmod 600 {}", file.display());
        assert_eq!(one_line(&shown).contains(&fix), warns, "{shown}");
        let starts = format!("\n{shown}").matches("\nwarn ").count();
        let is_counted = shown.contains(&format!(" {starts} warn"));
        assert!(is_counted || starts == 0, "{shown}");

        let ended = with_file("doctor --json");
        let report = ended.json();
        let mut findings = report["findings"].as_array().unwrap().iter();
        let own = findings.find(|one| one["setting"] == "password_file");
        assert_eq!(own.is_some(), warns, "{ended}");
        if let Some(own) = own {
            assert_eq!(own["severity"], "warn");
            assert!(ended.status >= 2, "{ended}");
        }
    }
}
