//! Completions and the manual page.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::support::{ended, with};

#[test]
fn completions_can_be_read_by_their_shells() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (status, script, _) = ended(&mut with(&[], &format!("completions {shell}")));
        assert_eq!(status, 0, "{shell}");
        assert!(script.contains("nonblock"), "{shell}: {script}");
        if shell != "bash" {
            continue;
        }
        let mut bash = Command::new("bash");
        let mut bash = bash.arg("-n").stdin(Stdio::piped()).spawn().unwrap();
        bash.stdin
            .take()
            .unwrap()
            .write_all(script.as_bytes())
            .unwrap();
        assert!(bash.wait().unwrap().success());
    }
    let (status, _, error) = ended(&mut with(&[], "completions tcsh"));
    assert_eq!(status, 64, "{error}");
}

#[test]
fn the_manual_page_is_up_to_date() {
    let (status, page, _) = ended(&mut with(&[], "man"));
    assert_eq!(status, 0);
    let kept = include_str!("../../man/quorlock.1");
    assert!(page == kept, "run: quorlock man > cli/man/quorlock.1");
    for word in ["QUORLOCK STATUS", "fair", "Exit status"] {
        assert!(page.contains(word), "{word}");
    }
}
