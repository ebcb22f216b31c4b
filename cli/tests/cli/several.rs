//! Several names at once.

use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use testkit::server::masters;

use crate::support::{Running, assert_free, ended, json, quorlock, script, urls, with};

#[test]
fn a_command_runs_while_all_names_are_held() {
    let masters = masters(3);
    let [one, two] = ["a", "b c"];
    let work = r#"printf '%s;' "$QUORLOCK_LOCK" "$QUORLOCK_VOTES" "$QUORLOCK_FENCING_TOKEN"; echo
        "$0" status a "b c" > /dev/null; echo $?"#;
    let mut command = quorlock(&masters);
    command.args(["run", two, one, "--", "sh", "-c", work]);
    command
        .arg(env!("CARGO_BIN_EXE_quorlock"))
        .env("QUORLOCK_FENCING_TOKEN", "7"); // of an outer command
    let (status, out, err) = ended(&mut command);
    assert_eq!((status, &*err), (0, ""));
    let (variables, status) = out.trim_end().rsplit_once('\n').unwrap();
    assert!(variables.starts_with("a\nb c;"), "{out}");
    assert!(variables.ends_with("/3;;"), "no token: {out}");
    assert_eq!(status, "75");
    assert_free(&masters, one);
    assert_free(&masters, two);
}

#[test]
fn a_conflict_names_the_name_and_its_holder() {
    let masters = masters(3);
    let holder = Running::hold(&masters, "b");
    let (status, out, err) = ended(&mut script(&masters, "-n a b c", "echo ran"));
    assert_eq!((status, &*out), (75, ""), "{err}");
    assert!(err.contains("\"b\" is held by "), "{err}");
    assert!(err.contains(&format!("/{} ", holder.id())), "{err}");
    for name in ["a", "c"] {
        assert_free(&masters, name);
    }
    let quiet = ended(&mut script(&masters, "-q -n -E 9 a b c", "echo ran"));
    assert_eq!(quiet, (9, String::new(), String::new()));
}

/// The waiter holds the names before the one for which it waits.
#[test]
fn a_waiter_says_for_which_name_it_waits() {
    let masters = masters(3);
    let holder = Running::hold(&masters, "b");
    let line = r#"exec "$0" run -v a b c -- echo ran 2>&1"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", line, env!("CARGO_BIN_EXE_quorlock")]);
    shell.env("QUORLOCK_MASTERS", urls(&masters));
    let mut waiter = Running::start(shell.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let news = waiter.line_with("waiting for ");
    let expected = "waiting for \"a\", \"b\" and \"c\": \"b\" is held by ";
    assert!(news.contains(expected), "{news}");
    assert!(news.contains(&format!("/{} ", holder.id())), "{news}");
    holder.signal(Signal::SIGTERM);
    waiter.line_with("ran");
    assert!(waiter.ended().0.success());
}

#[test]
fn a_command_that_waits_for_one_of_its_own_names_is_warned() {
    let masters = masters(1);
    let inner = format!("{} run --wait 2s b -- true", env!("CARGO_BIN_EXE_quorlock"));
    let (status, _, err) = ended(&mut script(&masters, "a b", &inner));
    assert_eq!(status, 75, "{err}");
    let warning = "the command of `quorlock run b` waits for the same lock";
    assert!(err.contains(warning), "{err}");
}

#[test]
fn a_loss_names_the_name() {
    let masters = masters(3);
    let lose = |name: &str| {
        for master in &masters {
            master.command(&["DEL", name]);
        }
    };
    let work = "echo ready; exec sleep 1000";
    let running = Running::ready(&mut script(&masters, "--ttl 2s a b c", work));
    lose("b");
    let (status, _, err) = running.ended();
    assert_eq!(status.code(), Some(76), "{err}");
    assert!(err.contains("lost \"b\": "), "{err}");

    let held = Running::hold(&masters, "--ttl 2s a b c");
    lose("c");
    let (status, _, err) = held.ended();
    assert_eq!(status.code(), Some(76), "{err}");
    assert!(err.contains("lost \"c\": "), "{err}");
    for name in ["a", "b", "c"] {
        assert_free(&masters, name);
    }
}

#[test]
fn a_hold_prints_all_names() {
    let masters = masters(3);
    let mut held = Running::start(&mut with(&masters, "hold b a b"));
    let line = held.line();
    assert!(line.starts_with("held a b votes="), "{line}");
    held.signal(Signal::SIGTERM);
    assert!(held.ended().0.success());
    let mut held = Running::start(&mut with(&masters, "hold --json --max-hold 1s b a"));
    let line = json(&held.line());
    assert_eq!(line["name"], "a");
    assert_eq!(line["names"], serde_json::json!(["a", "b"]));
    assert!(line["fencing_token"].is_null());
    let (status, _, err) = held.ended();
    assert_eq!(status.code(), Some(76));
    let over = "the lock of \"a\" and \"b\" was held for the time of --max-hold";
    assert!(err.contains(over), "{err}");
}

#[test]
fn several_names_are_mutexes_without_tokens() {
    let masters = masters(1);
    for option in ["--fair", "--read", "--write", "--permits 2", "--fence"] {
        for words in [
            format!("run {option} a b -- echo ran"),
            format!("hold {option} a b"),
        ] {
            let (status, out, err) = ended(&mut with(&masters, &words));
            assert_eq!((status, &*out), (64, ""), "{words}: {err}");
            let word = option.split(' ').next().unwrap();
            assert!(err.contains(&format!("{word} takes one name")), "{err}");
        }
    }
    let many: Vec<_> = (0..101).map(|name| name.to_string()).collect();
    let words = format!("run {} -- true", many.join(" "));
    let (status, _, err) = ended(&mut with(&masters, &words));
    assert_eq!(status, 64, "{err}");
    assert_eq!(masters[0].command(&["EXISTS", "a"]), "0");
}

/// QUORLOCK_LOCK has a line for each name.
#[test]
fn a_name_with_a_line_break_is_refused() {
    let masters = masters(1);
    for words in [&["run", "a\nb", "--", "env"][..], &["hold", "a\nb"]] {
        let (status, out, err) = ended(with(&masters, "").args(words));
        assert_eq!((status, &*out), (64, ""), "{err}");
        let text = r#""a\nb" has a line break, which QUORLOCK_LOCK has between names"#;
        assert!(err.contains(text), "{err}");
    }
}

/// Without --, the words of the command look like names.
#[test]
fn a_command_without_dashes_is_explained() {
    let masters = masters(1);
    for words in ["run job ls", "run job ls -l"] {
        let (status, _, err) = ended(&mut with(&masters, words));
        assert_eq!(status, 64, "{err}");
        assert!(err.contains("put -- before the command"), "{err}");
    }
}
