//! `quorlock run` inside a `quorlock run` of the same lock.

use std::process::Command;

use testkit::server::{Server, masters};

use crate::support::{Ended, PROGRAM, Running, ended, script, urls};

const ITSELF: &str = "and would wait for itself";

/// Returns the program with the arguments `outer`, whose command is a shell that runs `inner`.
fn nested(masters: &[Server], outer: &str, inner: &str) -> Command {
    script(masters, outer, &inner.replace("quorlock", PROGRAM))
}

fn ran(masters: &[Server], outer: &str, inner: &str) -> Ended {
    ended(&mut nested(masters, outer, inner))
}

#[test]
fn a_command_that_would_wait_for_its_own_parent_is_an_error() {
    let masters = masters(1);
    for (outer, inner) in [
        ("a", "quorlock run a -- echo ran"),
        ("a", "quorlock run -q a -- echo ran; exit"),
        ("a", "quorlock hold a"),
        ("a", "quorlock run b -- quorlock run a -- echo ran"),
        ("a b", "quorlock run b -- echo ran"),
        ("b", "quorlock run a b -- echo ran"),
        ("--fair a", "quorlock run --fair a -- echo ran"),
        ("--permits 1 a", "quorlock run --permits 1 a -- echo ran"),
        ("--read a", "quorlock run --write a -- echo ran"),
    ] {
        let name = if outer.contains('b') { "b" } else { "a" };
        ran(&masters, outer, inner)
            .gives(64, "")
            .says(&format!(
                "inside a `quorlock run` of the same lock, {name:?}, {ITSELF}; "
            ))
            .says("; leave out one of the two, or give --wait for a wait that ends\n");
    }
}

#[test]
fn a_nested_command_that_ends_by_itself_is_at_most_warned() {
    let masters = masters(1);
    for (outer, inner, expected, warns) in [
        ("a b", "quorlock run --wait 2s b -- true", 75, true),
        ("a", "quorlock run -n a -- true", 75, false),
        ("a", "quorlock run b -- true", 0, false),
        ("--read a", "quorlock run --read a -- true", 0, false),
        (
            "--permits 2 a",
            "quorlock run --permits 2 a -- true",
            0,
            false,
        ),
    ] {
        let ended = ran(&masters, outer, inner).is(expected);
        assert_eq!(ended.err.contains(ITSELF), warns, "{ended}");
    }
}

/// The name and QUORLOCK_LOCK are the same, and yet the holder does not wait for the command.
#[test]
fn a_nested_command_that_waits_for_others_goes_on_waiting() {
    let (ours, theirs) = (masters(1), masters(1));
    let _holder = Running::hold(&theirs, "a");
    let inner = format!(
        "QUORLOCK_MASTERS={} quorlock run --wait 2s a -- true",
        urls(&theirs)
    );
    ran(&ours, "a", &inner).is(75).omits(ITSELF);

    let _permit = Running::hold(&ours, "s --permits 2");
    let inner = "quorlock run --wait 2s --permits 2 s -- true";
    ran(&ours, "--permits 2 s", inner).is(75).omits(ITSELF);

    // The shell does not wait for it.
    let inner = "(sleep 0.1; quorlock run a -- echo ran) &";
    ran(&ours, "a", inner).gives(0, "ran\n").omits(ITSELF);
}
