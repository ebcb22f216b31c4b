//! Outputs that are closed or full.

use std::{
    fs::File,
    process::{Command, Stdio},
};

use testkit::server::masters;

use crate::support::{Running, assert_free, ended, script, urls, with};

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
        let mut shell = Command::new("sh");
        shell.args(["-c", line, env!("CARGO_BIN_EXE_quorlock")]);
        let (status, _, err) = ended(shell.env("QUORLOCK_MASTERS", urls(&masters)));
        assert_eq!((status, &*err), (code, ""), "{line}");
    }
    assert_free(&masters, "a");
}

#[test]
fn a_full_disk_does_no_harm() {
    let masters = masters(3);
    let (status, _, _) = ended(
        script(&masters, "a", "exit 4")
            .stdout(full())
            .stderr(full()),
    );
    assert_eq!(status, 4);
    let (status, _, err) = ended(script(&masters, "a", "echo lost").stdout(full()));
    assert_ne!(status, 0, "the shell notices: {err}");
    // A script that waits for the line of a holder would wait forever.
    let (status, _, err) = ended(with(&masters, "hold a").stdout(full()));
    assert_eq!(status, 74, "{err}");
    assert_free(&masters, "a");
    let _holder = Running::hold(&masters, "a");
    let (status, _, _) = ended(script(&masters, "-n -v a", "exit 4").stderr(full()));
    assert_eq!(status, 75);
}

#[test]
fn a_closed_or_full_output_is_an_exit_status() {
    let masters = masters(3);
    for words in ["status job", "doctor", "man", "completions bash"] {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        // A reader that has seen enough, such as `head`, needs no message.
        for (stdout, lines) in [(full().into(), 1), (Stdio::from(closed), 0)] {
            let (status, _, error) = ended(with(&masters, words).stdout(stdout));
            assert_eq!(status, 74, "{words}: {error}");
            assert_eq!(error.lines().count(), lines, "{error}");
        }
    }
}
