//! The view in a terminal: questions, live tables, colours and cut lines.

use std::mem;

use testkit::server::{Server, masters};

use crate::{
    support::{Running, assert_free, with, write_mutex},
    terminal::Terminal,
};

fn start(masters: &[Server], words: &str, no_colour: &str) -> Terminal {
    let mut command = with(masters, words);
    command.env("NO_COLOR", no_colour);
    Terminal::start(command).unwrap()
}

/// Starts to break the lock, and answers `keys` after `meanwhile`. Returns the exit status, and what
/// was shown.
fn answer(masters: &[Server], keys: &str, meanwhile: impl FnOnce(&str)) -> (i32, String) {
    let mut terminal = start(masters, "break job", "1");
    terminal.until("Break \"job\"? [y/N] ");
    meanwhile(&terminal.shown);
    terminal.types(keys);
    let status = terminal.ended();
    (status, mem::take(&mut terminal.shown))
}

#[track_caller]
fn all_are(masters: &[Server], token: &str) {
    for master in masters {
        assert_eq!(master.command(&["GET", "job"]), token);
    }
}

#[test]
fn a_break_shows_what_it_destroys_and_asks() {
    let masters = masters(3);
    write_mutex(&masters, "job", "t");
    for keys in ["no\n", "\n", "yy\n", "\x04"] {
        let (status, shown) = answer(&masters, keys, |_| ());
        assert_eq!(status, 64, "{keys:?}: {shown}");
        let says = "nothing was broken, because the answer was not yes";
        assert!(shown.contains(says), "{shown}");
        all_are(&masters, "t");
    }
    for keys in ["yes\n", "y\n"] {
        write_mutex(&masters, "job", "t");
        let (status, shown) = answer(&masters, keys, |shown| {
            assert!(shown.starts_with("job\r\n  held as a mutex, 5"), "{shown}");
            let warning = "fails, or without renewal until its TTL ends.";
            assert!(shown.contains(warning), "{shown}");
            all_are(&masters, "t");
        });
        let broken = shown.matches("  broken\r\n").count();
        assert_eq!((status, broken), (0, 3), "{shown}");
        assert_free(&masters, "job");
    }
}

#[test]
fn a_break_leaves_the_lock_to_a_newer_holder() {
    let masters = masters(3);
    write_mutex(&masters, "job", "old");
    let meanwhile = |_: &str| write_mutex(&masters, "job", "new");
    let (status, shown) = answer(&masters, "yes\n", meanwhile);
    let kept = shown.matches("kept by a newer holder").count();
    assert_eq!((status, kept), (75, 3), "{shown}");
    all_are(&masters, "new");
}

#[test]
fn colours_are_for_terminals_and_not_with_no_color() {
    let masters = masters(3);
    for (no_colour, has_colour) in [("", true), ("1", false)] {
        let mut terminal = start(&masters, "status job", no_colour);
        assert_eq!(terminal.ended(), 0);
        let shown = &terminal.shown;
        assert_eq!(shown.contains("\x1b["), has_colour, "{shown:?}");
        assert!(shown.contains("job"), "{shown}");
    }
}

#[test]
fn a_person_reads_at_once_that_the_status_looks_twice() {
    let masters = masters(3);
    let _holder = Running::hold(&masters, "job");
    let mut terminal = start(&masters, "status job", "1");
    terminal.until("quorlock: looks twice, for up to ");
    let text = &terminal.shown;
    assert!(!text.contains("held as a mutex"), "{text}");
    assert_eq!(terminal.ended(), 75);
    assert!(
        terminal.shown.contains("held as a mutex"),
        "{}",
        terminal.shown
    );
}

#[test]
fn long_lines_are_cut_at_the_edge_of_the_terminal() {
    let mut masters = masters(3);
    masters[0].kill();
    let mut terminal = start(&masters, "status job", "1");
    assert_eq!(terminal.ended(), 0);
    assert!(terminal.shown.contains("no answer: "), "{}", terminal.shown);
    for line in terminal.shown.lines() {
        assert!(line.trim_end().chars().count() <= 80, "{line}");
    }
}
