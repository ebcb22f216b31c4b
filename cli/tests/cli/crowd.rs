//! Many at once.

use std::{
    fs,
    process::{Command, Stdio},
};

use testkit::server::masters;

use crate::support::{Running, urls};

#[test]
fn two_hundred_scripts_lose_no_increment() {
    let masters = masters(3);
    let counter = masters[0].directory().join("counter");
    fs::write(&counter, "0\n").unwrap();
    let start = |_| {
        // As in a crontab: a shell starts the program, and the program another shell. The first one
        // becomes the program, so that no program waits on if this test fails.
        let line = r#"exec "$1" run counter -- sh -c 'read n < "$0"; echo $((n + 1)) > "$0"' "$2""#;
        let mut shell = Command::new("sh");
        shell
            .args(["-c", line, "sh", env!("CARGO_BIN_EXE_quorlock")])
            .arg(&counter);
        shell.env("QUORLOCK_MASTERS", urls(&masters));
        Running::start(shell.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let scripts: Vec<_> = (0..200).map(start).collect();
    for script in scripts {
        let (status, _, err) = script.ended();
        // On a busy machine, a script may say that masters are slow to connect.
        assert_eq!(status.code(), Some(0), "{err}");
    }
    assert_eq!(fs::read_to_string(counter).unwrap(), "200\n");
}
