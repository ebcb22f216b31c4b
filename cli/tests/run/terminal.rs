//! Ctrl-C, Ctrl-Z and reading, in an interactive shell on a terminal.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::AsFd,
    process::{Child, Command},
};

use nix::{
    poll::{PollFd, PollFlags, poll},
    pty::openpty,
};

use crate::{
    server::{Server, masters},
    support::{assert_free, ignores_interrupts},
};

/// An interactive shell. It is killed when it is dropped.
struct Shell {
    child: Child,
    terminal: File,
    /// The text that the terminal has shown since the text that was last awaited.
    shown: String,
}

impl Shell {
    /// Returns `None` if a program is missing.
    fn start(masters: &[Server]) -> Option<Self> {
        let pty = openpty(None, None).unwrap();
        let end = || File::from(pty.slave.try_clone().unwrap());
        let urls: Vec<_> = masters.iter().map(Server::url).collect();
        let child = Command::new("setsid")
            .args(["-c", "-w", "bash", "--norc", "--noprofile", "-i"])
            .env("QUORLOCK_MASTERS", urls.join(","))
            .env("Q", env!("CARGO_BIN_EXE_quorlock"))
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .ok()?;
        Some(Self {
            child,
            terminal: pty.master.into(),
            shown: String::new(),
        })
    }

    fn types(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the terminal shows `text`.
    #[track_caller]
    fn shows(&mut self, text: &str) {
        while !self.shown.contains(text) {
            let mut fds = [PollFd::new(self.terminal.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut fds, 20_000u16).unwrap();
            assert!(ready > 0, "no {text:?} after 20 s: {}", self.shown);
            let mut bytes = [0; 1024];
            let count = self.terminal.read(&mut bytes).unwrap();
            self.shown += &String::from_utf8_lossy(&bytes[..count]);
        }
        let (_, rest) = self.shown.split_once(text).unwrap();
        self.shown = rest.to_owned();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A shell echoes what is typed, so a text that is awaited is not typed as such.
#[test]
fn the_command_has_the_terminal() {
    if ignores_interrupts() {
        println!("skipped: this process ignores Ctrl-C");
        return;
    }
    let masters = masters(3);
    let Some(mut shell) = Shell::start(&masters) else {
        println!("skipped: setsid is not installed");
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
    let Some(mut shell) = Shell::start(&masters) else {
        println!("skipped: setsid is not installed");
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
