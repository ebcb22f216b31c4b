//! Ctrl-C, Ctrl-Z and reading, in an interactive shell on a terminal.

use std::process::Command;

use nix::sys::signal::Signal;
use testkit::server::{Server, masters};

use crate::{
    support::{
        PROGRAM, assert_free, each, ignores, ignores_interrupts, is_alive, until, urls, with,
    },
    terminal::Terminal,
};

/// Starts an interactive shell. Returns `None` if a program is missing.
fn start(masters: &[Server]) -> Option<Terminal> {
    let mut command = Command::new("setsid");
    command.args(["-c", "-w", "bash", "--norc", "--noprofile", "-i"]);
    command.env("QUORLOCK_MASTERS", urls(masters));
    command.env("LC_ALL", "C"); // the messages of bash are awaited in English
    command.env("Q", PROGRAM);
    Terminal::start(command)
}

/// A shell echoes what is typed, so a text that is awaited is not typed as such.
#[test]
fn the_command_has_the_terminal() {
    if ignores_interrupts() {
        println!("skipped: this process ignores Ctrl-C");
        return;
    }
    let masters = masters(3);
    let Some(mut shell) = start(&masters) else {
        return;
    };
    shell.types("$Q run a -- sh -c 'echo w$((1))ts; read x; echo got $x'; echo st=$?\n");
    shell.shows("w1ts");
    shell.types("hello\n");
    shell.shows("got hello");
    shell.shows("st=0");

    shell.types("$Q run a -- sh -c 'echo r$((1))ns; exec sleep 1000'; echo st=$?\n");
    shell.shows("r1ns");
    shell.types("\x03");
    shell.shows("st=130");
    assert_free(&masters, "a");

    // It tries to lead a group of its own, which Ctrl-C would not reach.
    shell.types(
        "$Q run a -- timeout 100 sh -c 'echo o$((1))ut; exec sleep 1000'; echo s$((2))t=$?\n",
    );
    shell.shows("o1ut");
    shell.types("\x03");
    shell.shows("s2t=");
    assert_free(&masters, "a");

    let job = "trap \"echo b$((3))ck\" CONT; echo r$((2))ns; while :; do sleep 1 & wait; done";
    shell.types(&format!("$Q run a -- sh -c '{job}'\n"));
    shell.shows("r2ns");
    shell.types("\x1a");
    shell.shows("Stopped");
    shell.types("fg; echo st=$?\n");
    shell.shows("b3ck");
    shell.types("\x03");
    shell.shows("st=130");
}

#[test]
fn a_command_that_is_stopped_ends_with_its_lock() {
    let masters = masters(3);
    let Some(mut shell) = start(&masters) else {
        return;
    };
    shell.types("$Q run --ttl 2s a -- sh -c 'echo p$((1))d=$$=; exec sleep 1000'\n");
    shell.shows("p1d=");
    shell.shows("=");
    shell.types("\x1a");
    shell.shows("Stopped");
    assert_free(&masters, "a"); // nobody renews it
    shell.types("fg; echo st=$?\n");
    shell.shows("quorlock: lost \"a\"");
    shell.shows("st=76");
}

#[test]
fn a_command_in_a_pipeline_may_read_from_the_terminal() {
    let masters = masters(3);
    let Some(mut shell) = start(&masters) else {
        return;
    };
    shell.types("$Q run a -- sh -c 'echo p$((1))pe; read x; echo got $x' | cat; echo st=$?\n");
    shell.shows("p1pe");
    shell.types("hello\n");
    shell.shows("got hello");
    shell.shows("st=0");
    shell.types("$Q run a -- sh -c 'echo t$((1))ty; read x </dev/tty; echo got $x' </dev/null\n");
    shell.shows("t1ty");
    shell.types("hello\n");
    shell.shows("got hello");
    shell.types("set -b; $Q run a -- sh -c 'echo b$((1))g; read x; echo got $x' &\n");
    shell.shows("b1g");
    shell.shows("Stopped");
    shell.types("fg\n");
    shell.types("hello\n");
    shell.shows("got hello");
    assert_free(&masters, "a");
}

#[test]
fn a_stop_without_a_shell_is_ignored() {
    let masters = masters(3);
    let mut command = with(&masters, "run --ttl 2s a -- sh -c");
    command.arg("echo r$((1))n; read x; echo got $x");
    let mut ours = Command::new("setsid"); // it leads a session, as with ssh
    ours.args(["-c", "-w"])
        .arg(command.get_program())
        .args(command.get_args());
    ours.env("QUORLOCK_MASTERS", urls(&masters));
    let Some(mut terminal) = Terminal::start(ours) else {
        return;
    };
    terminal.shows("r1n");
    terminal.types("\x1a");
    terminal.shows("^Z");
    terminal.types("hello\n");
    terminal.shows("got hello");
    assert_eq!(terminal.ended(), 0);
}

#[test]
fn a_shell_that_loses_its_lock_takes_its_jobs_along() {
    if ignores(Signal::SIGHUP) {
        println!("skipped: this process ignores the end of its terminal, as with nohup");
        return;
    }
    let masters = masters(3);
    let Some(mut shell) = start(&masters) else {
        return;
    };
    shell.types("PS1='i''n> ' $Q run --ttl 3s a -- bash --norc -i; echo st=$?\n");
    shell.shows("in> ");
    shell.types("sh -c 'echo p$((1))d=$$=; exec sleep 1000'\n");
    shell.shows("p1d=");
    shell.until("=");
    let (job, _) = shell.shown.split_once('=').unwrap();
    let job = job.to_owned();
    each(&masters, "DEL a");
    shell.shows("st=76");
    until("the job is dead", || !is_alive(&job));
}
