//! The start of a command: one that takes long, and one that somebody disturbs.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use nix::{
    libc::O_NONBLOCK,
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::{Pid, mkfifo},
};
use testkit::server::{Server, masters};

use crate::support::{Running, assert_free, is_stopped, script, until};

/// A file that the dynamic linker opens when a program starts. The program waits there until it may
/// pass.
struct Gate(PathBuf);

impl Gate {
    fn new(masters: &[Server]) -> Self {
        let path = masters[0].directory().join("gate");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        Self(path)
    }

    /// Starts a wrapper, and lets it pass. Its children wait at the gate.
    fn start(&self, command: &mut Command) -> Running {
        let running = Running::start(command.env("LD_PRELOAD", &self.0));
        drop(self.pass());
        running
    }

    /// Waits for the next program. It passes when the result is dropped.
    fn pass(&self) -> File {
        let mut file = None;
        until("a program waits", || {
            let mut options = File::options();
            file = options
                .write(true)
                .custom_flags(O_NONBLOCK)
                .open(&self.0)
                .ok();
            file.is_some()
        });
        file.unwrap()
    }

    /// Returns the starter, which waits at the gate. The keeper has passed.
    fn starter(&self, wrapper: &Running) -> Pid {
        child(wrapper, 0);
        drop(self.pass());
        child(wrapper, 1)
    }

    /// Lets all programs pass.
    fn open(self) {
        let last = self.pass();
        fs::remove_file(&self.0).unwrap();
        drop(last);
    }
}

/// Waits for a child of a wrapper, which starts the keeper before the starter.
fn child(wrapper: &Running, number: usize) -> Pid {
    let id = wrapper.id();
    let mut child = None;
    until("the wrapper has the child", || {
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        child = children.split_whitespace().nth(number).map(str::to_owned);
        child.is_some()
    });
    Pid::from_raw(child.unwrap().parse().unwrap())
}

#[test]
fn a_start_that_takes_longer_than_the_ttl_keeps_the_lock() {
    let masters = masters(3);
    let gate = Gate::new(&masters);
    let running = gate.start(&mut script(&masters, "--ttl 2s a", "echo ran"));
    gate.starter(&running);
    let since = Instant::now();
    until("the first lease is over", || {
        since.elapsed() > Duration::from_secs(3)
    });
    gate.open();
    running.ended().gives(0, "ran\n");
}

#[test]
fn a_lock_that_is_lost_during_the_start_is_76() {
    let masters = masters(3);
    let gate = Gate::new(&masters);
    let running = gate.start(&mut script(&masters, "--ttl 2s a", "echo ran"));
    gate.starter(&running);
    masters.iter().for_each(Server::pause);
    let ended = running.ended();
    masters.iter().for_each(Server::resume);
    ended.gives(76, "");
}

#[test]
fn a_command_that_somebody_resumes_does_not_begin_without_its_keeper() {
    let masters = masters(3);
    let gate = Gate::new(&masters);
    let mark = masters[0].directory().join("mark");
    let work = format!("echo > {}; echo ready; exec sleep 1000", mark.display());
    let mut running = gate.start(&mut script(&masters, "a", &work));
    let starter = gate.starter(&running);
    running.signal(Signal::SIGSTOP);
    gate.open();
    let id = starter.to_string();
    for _ in 0..20 {
        until("it has stopped, or begun", || {
            is_stopped(&id) || mark.exists()
        });
        assert!(
            !mark.exists(),
            "the command runs, and its keeper is not in its group"
        );
        kill(starter, Signal::SIGCONT).unwrap();
    }
    running.signal(Signal::SIGCONT);
    assert_eq!(running.line(), "ready");
    running.terminated().is(143);
}

#[test]
fn a_helper_that_is_killed_during_the_start_is_71() {
    let masters = masters(3);
    for number in [0, 1] {
        let gate = Gate::new(&masters);
        let running = gate.start(&mut script(&masters, "a", "echo ran"));
        let helper = match number {
            0 => child(&running, 0),
            _ => gate.starter(&running),
        };
        kill(helper, Signal::SIGKILL).unwrap();
        fs::remove_file(&gate.0).unwrap();
        running.ended().gives(71, "").last_says(" was killed\n");
        assert_free(&masters, "a");
    }
}
