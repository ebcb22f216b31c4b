//! Users of the masters that lack rights.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use testkit::server::{Server, masters};

use crate::support::{Running, ended, urls, with};

/// Gives the user `bob` these rights.
fn allow(master: &Server, rules: &str) {
    let words = ["ACL", "SETUSER", "bob", "reset", "on", ">pw", "&*"];
    let rules: Vec<_> = rules.split(' ').collect();
    master.command(&[&words[..], &rules].concat());
}

/// Returns the program as the user `bob`.
fn as_bob(masters: &[Server], words: &str) -> Command {
    let urls = urls(masters).replace("redis://", "redis://bob:pw@");
    let mut command = with(masters, words);
    command.env("QUORLOCK_MASTERS", urls);
    command
}

const ALL: &str = "+@all ~*";
const NO_SCRIPTS: &str = "+@all -eval -evalsha ~*";
const OTHER_KEYS: &str = "+@all ~locks:* ~quorlock:*";

#[test]
fn masters_that_deny_the_lock_are_78_at_once() {
    let masters = masters(3);
    for (rules, words) in [
        (OTHER_KEYS, "run a -- echo ran"),
        (OTHER_KEYS, "run --fair a -- echo ran"),
        (OTHER_KEYS, "run -n a -- echo ran"),
        (OTHER_KEYS, "run --wait 1m a -- echo ran"),
        (OTHER_KEYS, "run locks:a a -- echo ran"),
        (OTHER_KEYS, "hold a"),
        (NO_SCRIPTS, "run --fair a -- echo ran"),
        (NO_SCRIPTS, "run --permits 2 a -- echo ran"),
        (NO_SCRIPTS, "hold --read a"),
    ] {
        masters.iter().for_each(|master| allow(master, rules));
        let since = Instant::now();
        let (status, out, err) = ended(&mut as_bob(&masters, words));
        assert_eq!((status, &*out), (78, ""), "{words}: {err}");
        assert!(since.elapsed() < Duration::from_secs(20), "{words}");
        for part in [
            "cannot lock ",
            ": the user lacks a right on 127.0.0.1:",
            "NOPERM",
            "; run `quorlock doctor` with the same masters\n",
        ] {
            assert!(err.contains(part), "{words}: {part}: {err}");
        }
        assert_eq!(err.lines().count(), 1, "{words}: {err}");
    }
}

#[test]
fn a_wait_for_masters_of_which_some_deny_the_lock_says_so() {
    let mut masters = masters(3);
    masters.iter().for_each(|master| allow(master, ALL));
    allow(&masters[0], OTHER_KEYS);
    let (status, out, err) = ended(&mut as_bob(&masters, "run a -- echo ran"));
    assert_eq!((status, &*out, &*err), (0, "ran\n", ""), "two are enough");

    masters[2].kill();
    let mut running = Running::start(&mut as_bob(&masters, "run a -- echo ran"));
    let news = running.error_line();
    let port = masters[0].port();
    for part in [
        "waiting for \"a\": ",
        " 1 of 3 masters can vote, and 2 are needed; ",
        &format!("127.0.0.1:{port}: "),
        "NOPERM",
        "; run `quorlock doctor`",
    ] {
        assert!(news.contains(part), "{part}: {news}");
    }
    allow(&masters[0], ALL);
    assert_eq!(running.line(), "ran", "the wait went on");
    assert!(running.ended().0.success());
}
