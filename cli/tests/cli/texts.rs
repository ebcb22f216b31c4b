//! Completions and the manual page.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;
use quorlock::tools::SETTINGS;
use testkit::server::{Server, masters};

use crate::support::{Running, assert_free, ended, run, shell, with, write_mutex};

#[test]
fn completions_can_be_read_by_their_shells() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(&[], &format!("completions {shell}")).is(0).out;
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
    run(&[], "completions tcsh").is(64);
}

/// Returns what bash offers for the last of these words.
fn offered(folder: &Path, words: &[&str]) -> Vec<String> {
    let script = run(&[], "completions bash").out;
    let last = words.len();
    let script = format!(
        "compopt() {{ :; }}\n{script}\nCOMP_WORDS=(quorlock \"$@\"); COMP_CWORD={last}\n\
         _quorlock_words quorlock \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last} - 1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &script, "bash"]).args(words);
    let ended = ended(bash.env("XDG_CONFIG_HOME", folder).current_dir(folder));
    let ended = ended.is(0).in_lines(0);
    ended.out.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_profiles_and_commands() {
    let server = Server::start();
    let folder = server.directory();
    fs::write(
        folder.join("quorlock.toml"),
        "[profile.a-1]\n  [profile.b]\n",
    )
    .unwrap();
    assert_eq!(offered(folder, &["status", "--profile", ""]), ["a-1", "b"]);
    assert_eq!(offered(folder, &["run", "--profile", "b"]), ["b"]);
    let words = offered(folder, &["run", "--quarantine", "o"]);
    assert_eq!(words, ["observed", "off"]);
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
fn the_manual_page_has_the_settings_of_the_library() {
    let page = run(&[], "man").is(0).out;
    for [variable, key, _, text] in SETTINGS {
        let row = format!(".IR {key} \", {variable}\"\n{text}\n");
        assert_eq!(page.contains(&row), !key.is_empty(), "{row}");
        assert!(page.contains(variable), "{variable}");
    }
}

#[test]
fn options_that_are_settings_have_the_texts_of_the_library() {
    let help = run(&[], "run -h").is(0).out;
    let help: Vec<_> = help.split_whitespace().collect();
    let help = help.join(" ");
    for key in [
        "old_masters",
        "password_file",
        "ttl",
        "max_ttl",
        "connect_timeout",
        "response_timeout",
        "key_template",
        "quarantine",
    ] {
        let [_, _, kind, text] = SETTINGS.into_iter().find(|row| row[1] == key).unwrap();
        let first = text.split(". ").next().unwrap().trim_end_matches('.');
        let option = match key {
            "old_masters" => "--old-master".to_owned(), // given once for each
            key => format!("--{}", key.replace('_', "-")),
        };
        let plain = format!("{option} <{kind}> {first}");
        assert!(help.contains(&plain), "{plain}: {help}");
    }
}

#[test]
fn the_manual_page_has_what_the_help_has_not() {
    run(&[], "man")
        .is(0)
        .shows("EXIT STATUS\n")
        .shows("QUORLOCK_SLOT")
        .shows("SUBCOMMANDS\n.TP\nquorlock run\n");
}

#[test]
fn help_says_when_commands_end_and_which_status_counts() {
    for (words, text) in [
        (
            "run --help",
            "CMD gets TERM this long before its lock would end",
        ),
        (
            "run --help",
            "Without --ready and --nonblock, only --wait limits it.",
        ),
        ("break --help", "Break the lock only if this holder has it"),
        (
            "status --help",
            "the worst counts: 69 or 78, then 75, then 0.",
        ),
        ("man", "the worst counts: 69 or 78, then 75, then 0."),
        (
            "man",
            "refuse the login, the certificate, the database or a right, or can never be",
        ),
    ] {
        run(&[], words).is(0).tells(text);
    }
}

/// Returns a script of the recipes that begins with a line for the shell.
fn script_of_the_recipes(work: &str) -> String {
    let page = include_str!("../../../docs/recipes.md");
    let (_, script) = page.split_once("```sh\n#!/bin/sh\n").unwrap();
    let script = script.split("\n```").next().unwrap();
    assert!(script.contains("./stop && ./copy && ./start"));
    script
        .replace("./stop && ./copy && ./start", work)
        .replace("quorlock hold", "\"$0\" hold")
}

#[test]
fn a_part_of_a_script_holds_a_lock() {
    let masters = masters(3);
    let script = script_of_the_recipes("\"$0\" status deployment > /dev/null; echo status $?");
    ended(&mut shell(&masters, &script))
        .gives(0, "status 75\n")
        .in_lines(0);
    assert_free(&masters, "deployment");
}

/// A script that is killed may wait for its holder.
#[test]
fn a_script_that_is_ended_or_killed_leaves_no_holder() {
    let masters = masters(3);
    for (work, signal) in [
        ("sleep 1", Signal::SIGTERM),
        ("wait $holder", Signal::SIGKILL),
    ] {
        let script = script_of_the_recipes(&format!("echo ready; {work}"));
        let running = Running::ready(&mut shell(&masters, &script));
        running.signal(signal);
        assert_free(&masters, "deployment"); // long before the end of its renewal
    }
}

#[test]
fn a_hold_ends_with_its_input() {
    let masters = masters(3);
    let mut command = with(&masters, "hold --until-eof a");
    let mut holder = Running::held(command.stdin(Stdio::piped()));
    holder.say("this is not the end");
    holder.ended().is(0).in_lines(0);
    assert_free(&masters, "a");
    write_mutex(&masters, "b", "t");
    run(&masters, "hold --until-eof b")
        .gives(64, "")
        .says("the input ended before the lock was held");
}

#[test]
fn a_script_without_masters_does_no_work() {
    let script = script_of_the_recipes("echo worked");
    ended(&mut shell(&[], &script)).gives(64, "");
}
