//! Completions and the manual page.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;
use testkit::server::{Server, masters};

use crate::support::{Running, assert_free, ended, urls, with, write_mutex};

#[test]
fn completions_can_be_read_by_their_shells() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (status, script, _) = ended(&mut with(&[], &format!("completions {shell}")));
        assert_eq!(status, 0, "{shell}");
        assert!(script.contains("nonblock"), "{shell}: {script}");
        if shell == "zsh" {
            assert!(script.contains("_cmdambivalent"), "{script}");
        }
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

/// Returns what bash offers for the last of these words.
fn offered(folder: &Path, words: &[&str]) -> Vec<String> {
    let (_, script, _) = ended(&mut with(&[], "completions bash"));
    let last = words.len();
    let script = format!(
        "compopt() {{ :; }}\n{script}\nCOMP_WORDS=(quorlock \"$@\"); COMP_CWORD={last}\n\
         _quorlock_words quorlock \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last} - 1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &script, "bash"]).args(words);
    let (status, out, err) = ended(bash.env("XDG_CONFIG_HOME", folder).current_dir(folder));
    assert_eq!((status, &*err), (0, ""), "{words:?}");
    out.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_sets_and_commands() {
    let server = Server::start();
    let folder = server.directory();
    fs::write(folder.join("quorlock.toml"), "[set.a-1]\n  [set.b]\n").unwrap();
    assert_eq!(offered(folder, &["status", "--set", ""]), ["a-1", "b"]);
    assert_eq!(offered(folder, &["run", "--set", "b"]), ["b"]);
    let command = offered(folder, &["run", "a", "--", "dirn"]);
    assert!(command.contains(&"dirname".to_owned()), "{command:?}");
    let arguments = offered(folder, &["run", "a", "--", "ls", "-"]);
    assert_eq!(arguments, [""], "these options are not those of ls");
    let files = offered(folder, &["run", "--config", "quor"]);
    assert_eq!(files, ["quorlock.toml"]);
    // The hint of the shell itself is the word as it is.
    assert_eq!(offered(folder, &["run", "--wait", "quor"]), ["quor"]);
}

#[test]
fn each_command_has_a_manual_page() {
    let (status, page, _) = ended(&mut with(&[], "man"));
    assert_eq!(status, 0);
    assert!(
        page.contains("EXIT STATUS\n") && page.contains("QUORLOCK_SLOT"),
        "{page}"
    );
    let (status, page, _) = ended(&mut with(&[], "man run"));
    assert_eq!(status, 0);
    assert!(page.contains("\\-\\-fair"), "{page}");
    assert!(page.contains("<NAME>... \\-\\- <CMD>..."), "{page}");
    let (status, _, err) = ended(&mut with(&[], "man fly"));
    assert_eq!(status, 64);
    let expected = "quorlock: there is no command \"fly\"; `quorlock help` lists them\n";
    assert_eq!(err, expected);
}

/// Returns a script of the recipes that begins with a line for the shell.
fn script_of_the_recipes(work: &str) -> String {
    let page = include_str!("../../../docs/recipes.md");
    let (_, script) = page.split_once("```sh\n#!/bin/sh\n").unwrap();
    let script = script.split("\n```").next().unwrap();
    assert!(script.contains("./stop && ./copy && ./start"));
    script.replace("./stop && ./copy && ./start", work).replace(
        "quorlock hold",
        &format!("{} hold", env!("CARGO_BIN_EXE_quorlock")),
    )
}

fn shell(masters: &[Server], work: &str) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script_of_the_recipes(work)])
        .env("QUORLOCK_MASTERS", urls(masters))
        .env("HOME", "/nonexistent")
        .env_remove("XDG_CONFIG_HOME")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    shell
}

#[test]
fn a_part_of_a_script_holds_a_lock() {
    let masters = masters(3);
    let work = format!(
        "{} status deployment > /dev/null; echo status $?",
        env!("CARGO_BIN_EXE_quorlock")
    );
    let held = ended(&mut shell(&masters, &work));
    assert_eq!(held, (0, "status 75\n".into(), String::new()));
    assert_free(&masters, "deployment");
}

#[test]
fn a_script_that_is_ended_leaves_no_holder() {
    let masters = masters(3);
    let waiting = Running::ready(&mut shell(&masters, "echo ready; sleep 1"));
    waiting.signal(Signal::SIGTERM);
    waiting.ended();
    assert_free(&masters, "deployment");
}

#[test]
fn a_script_that_is_killed_leaves_no_holder() {
    let masters = masters(3);
    let script = Running::ready(&mut shell(&masters, "echo ready; wait $holder"));
    script.signal(Signal::SIGKILL);
    assert_free(&masters, "deployment"); // long before the end of its renewal
}

#[test]
fn a_hold_ends_with_its_input() {
    let masters = masters(3);
    let mut command = with(&masters, "hold --until-eof a");
    let mut holder = Running::start(command.stdin(Stdio::piped()));
    assert!(holder.line().starts_with("held a "));
    holder.say("this is not the end");
    let (status, _, err) = holder.ended();
    assert_eq!((status.code(), &*err), (Some(0), ""));
    assert_free(&masters, "a");
    write_mutex(&masters, "b", "t");
    let (status, out, err) = ended(&mut with(&masters, "hold --until-eof b"));
    assert_eq!((status, &*out), (64, ""), "{err}");
    assert!(
        err.contains("the input ended before the lock was held"),
        "{err}"
    );
}

#[test]
fn a_script_without_masters_does_no_work() {
    let (status, out, err) = ended(&mut shell(&[], "echo worked"));
    assert_eq!((status, &*out), (64, ""), "{err}");
}
