//! Outputs that are closed or full.

use std::{fs::File, process::Stdio};

use testkit::server::masters;

use crate::support::{Running, assert_free, ended, script, shell, with};

/// Opens a file on a disk that is full.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn closed_outputs_do_no_harm() {
    let masters = masters(3);
    for (line, code) in [
        (r#""$0" run a -- true >&- 2>&- <&-"#, 0),
        (r#""$0" run a -- sh -c 'exit 9' >&-"#, 9),
        (r#""$0" run a -- no-such-command 2>&-"#, 127),
        (r#""$0" --help >&-"#, 0),
        (r#""$0" --fly 2>&-"#, 64),
    ] {
        ended(&mut shell(&masters, line)).is(code).in_lines(0);
    }
    assert_free(&masters, "a");
}

#[test]
fn a_full_disk_does_no_harm() {
    let masters = masters(3);
    let mut exits = script(&masters, "a", "exit 4");
    ended(exits.stdout(full()).stderr(full())).is(4);
    let lost = ended(script(&masters, "a", "echo lost").stdout(full()));
    assert_ne!(lost.status, 0, "the shell notices: {lost}");
    // A script that waits for the line of a holder would wait forever.
    ended(with(&masters, "hold a").stdout(full())).is(74);
    assert_free(&masters, "a");
    let _holder = Running::hold(&masters, "a");
    ended(script(&masters, "-n -v a", "exit 4").stderr(full())).is(75);
    // Nobody would know that the lock is broken.
    let broken = ended(with(&masters, "break --yes a").stdout(full()));
    broken.is(74).says("broke \"a\" on 3 masters");
    assert_free(&masters, "a");
}

#[test]
fn a_closed_or_full_output_is_an_exit_status() {
    let masters = masters(3);
    for words in ["status job", "doctor", "man", "completions bash"] {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        // A reader that has seen enough, such as `head`, needs no message.
        for (stdout, lines) in [(full().into(), 1), (Stdio::from(closed), 0)] {
            ended(with(&masters, words).stdout(stdout))
                .is(74)
                .in_lines(lines);
        }
    }
}
