//! Several names at once.

use nix::sys::signal::Signal;
use testkit::server::masters;

use crate::support::{
    PROGRAM, Running, assert_free, each, ended, json, quorlock, run, script, shell, with,
};

#[test]
fn a_command_runs_while_all_names_are_held() {
    let masters = masters(3);
    let [one, two] = ["a", "b c"];
    let work = r#"printf '%s;' "$QUORLOCK_LOCK" "$QUORLOCK_VOTES" "$QUORLOCK_FENCING_TOKEN"; echo
        "$0" status a "b c" > /dev/null; echo $?"#;
    let mut command = quorlock(&masters);
    command.args(["run", two, one, "--", "sh", "-c", work]);
    command.arg(PROGRAM).env("QUORLOCK_FENCING_TOKEN", "7"); // of an outer command
    let out = ended(&mut command).is(0).in_lines(0).out;
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
    ended(&mut script(&masters, "-n a b c", "echo ran"))
        .gives(75, "")
        .says("\"b\" is held by ")
        .says(&format!("/{}, since ", holder.id()));
    for name in ["a", "c"] {
        assert_free(&masters, name);
    }
    let mut quiet = script(&masters, "-q -n -E 9 a b c", "echo ran");
    ended(&mut quiet).gives(9, "").in_lines(0);
}

/// The waiter holds the names before the one for which it waits.
#[test]
fn a_waiter_says_for_which_name_it_waits() {
    let masters = masters(3);
    let holder = Running::hold(&masters, "b");
    let line = r#"exec "$0" run -v a b c -- echo ran 2>&1"#;
    let mut waiter = Running::start(&mut shell(&masters, line));
    let news = waiter.line_with("waiting for ");
    let expected = "waiting for \"a\", \"b\" and \"c\": \"b\" is held by ";
    assert!(news.contains(expected), "{news}");
    assert!(
        news.contains(&format!("/{}, since ", holder.id())),
        "{news}"
    );
    holder.signal(Signal::SIGTERM);
    waiter.line_with("ran");
    waiter.ended().is(0);
}

#[test]
fn a_loss_names_the_name() {
    let masters = masters(3);
    let work = "echo ready; exec sleep 1000";
    let running = Running::ready(&mut script(&masters, "--ttl 2s a b c", work));
    each(&masters, "DEL b");
    running.ended().is(76).says("lost \"b\": ");

    let held = Running::hold(&masters, "--ttl 2s a b c");
    each(&masters, "DEL c");
    held.ended().is(76).says("lost \"c\": ");
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
    held.terminated().is(0);
    let mut held = Running::start(&mut with(&masters, "hold --json --max-hold 1s b a"));
    let line = json(&held.line());
    assert_eq!(line["name"], "a");
    assert_eq!(line["names"], serde_json::json!(["a", "b"]));
    assert!(line["fencing_token"].is_null());
    let over = "the lock of \"a\" and \"b\" was held for the time of --max-hold";
    held.ended().is(76).says(over);
}

#[test]
fn several_names_are_mutexes_without_tokens() {
    let masters = masters(1);
    for option in ["--fair", "--read", "--write", "--permits 2", "--fence"] {
        for words in [
            format!("run {option} a b -- echo ran"),
            format!("hold {option} a b"),
        ] {
            let word = option.split(' ').next().unwrap();
            let says = format!("{word} takes one name");
            run(&masters, &words).gives(64, "").says(&says);
        }
    }
    let many: Vec<_> = (0..101).map(|name| name.to_string()).collect();
    run(&masters, &format!("run {} -- true", many.join(" "))).is(64);
    assert_free(&masters, "a");
}

/// QUORLOCK_LOCK has a line for each name.
#[test]
fn a_name_with_a_line_break_is_refused() {
    let masters = masters(1);
    for words in [&["run", "a\nb", "--", "env"][..], &["hold", "a\nb"]] {
        let text = r#""a\nb" has a line break, which QUORLOCK_LOCK has between names"#;
        ended(quorlock(&masters).args(words))
            .gives(64, "")
            .says(text);
    }
}
