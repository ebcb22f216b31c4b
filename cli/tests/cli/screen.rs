//! The view in a terminal: questions, live tables, colours and cut lines.

use testkit::server::{Server, masters};

use crate::{
    support::{with, write_mutex},
    terminal::Terminal,
};

fn start(masters: &[Server], words: &str, no_colour: &str) -> Terminal {
    let mut command = with(masters, words);
    command.env("NO_COLOR", no_colour);
    Terminal::start(command).unwrap()
}

#[track_caller]
fn all_have(masters: &[Server], token: &str) {
    for master in masters {
        assert_eq!(master.command(&["GET", "job"]), token);
    }
}

#[test]
fn a_break_asks_and_takes_no_for_an_answer() {
    let masters = masters(3);
    write_mutex(&masters, "job", "t");
    for answer in ["no\n", "\n", "yy\n", "\x04"] {
        let mut terminal = start(&masters, "break job", "");
        terminal.until("Break \"job\"? [y/N] ");
        terminal.types(answer);
        assert_eq!(terminal.ended(), 64, "{answer:?}: {}", terminal.shown);
        assert!(
            terminal
                .shown
                .contains("nothing was broken, because the answer was not yes"),
            "{}",
            terminal.shown
        );
        all_have(&masters, "t");
    }
}

#[test]
fn a_break_shows_what_it_destroys_before_it_asks() {
    let masters = masters(3);
    write_mutex(&masters, "job", "t");
    let mut terminal = start(&masters, "break job", "1");
    terminal.until("Break \"job\"? [y/N] ");
    assert!(
        terminal.shown.starts_with("job\r\n  held as a mutex, 5"),
        "{}",
        terminal.shown
    );
    assert!(
        terminal
            .shown
            .contains("fails, or without renewal until its TTL ends."),
        "{}",
        terminal.shown
    );
    all_have(&masters, "t");
    terminal.types("yes\n");
    assert_eq!(terminal.ended(), 0, "{}", terminal.shown);
    assert_eq!(
        terminal.shown.matches("  broken\r\n").count(),
        3,
        "{}",
        terminal.shown
    );
    assert!(
        masters
            .iter()
            .all(|master| master.command(&["EXISTS", "job"]) == "0")
    );
}

#[test]
fn y_is_a_yes() {
    let masters = masters(3);
    write_mutex(&masters, "job", "t");
    let mut terminal = start(&masters, "break job", "");
    terminal.until("Break \"job\"? [y/N] ");
    terminal.types("y\n");
    assert_eq!(terminal.ended(), 0, "{}", terminal.shown);
}

#[test]
fn a_break_leaves_the_lock_to_a_newer_holder() {
    let masters = masters(3);
    write_mutex(&masters, "job", "old");
    let mut terminal = start(&masters, "break job", "");
    terminal.until("Break \"job\"? [y/N] ");
    write_mutex(&masters, "job", "new");
    terminal.types("yes\n");
    assert_eq!(terminal.ended(), 75, "{}", terminal.shown);
    assert_eq!(
        terminal.shown.matches("kept by a newer holder").count(),
        3,
        "{}",
        terminal.shown
    );
    all_have(&masters, "new");
}

#[test]
fn colours_are_for_terminals_and_not_with_no_color() {
    let masters = masters(3);
    for (no_colour, has_colour) in [("", true), ("1", false)] {
        let mut terminal = start(&masters, "status job", no_colour);
        assert_eq!(terminal.ended(), 0);
        assert_eq!(
            terminal.shown.contains("\x1b["),
            has_colour,
            "{:?}",
            terminal.shown
        );
        assert!(terminal.shown.contains("job"), "{}", terminal.shown);
    }
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
