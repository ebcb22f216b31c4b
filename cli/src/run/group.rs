//! The process group of the command.

use std::{io, os::unix::process::CommandExt, process::Command, time::Duration, time::Instant};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::{Pid, getpgid},
};
use rustix::process::{WaitOptions, WaitStatus, wait};
use tokio::{
    signal::unix::{self, SignalKind},
    time::timeout,
};

use super::{program, terminal::Terminal};
use crate::{exit::Exit, failure::Failure, keeper::Keeper, signals::OriginalMask};

/// The process group of the command. If it is dropped before the [end](Self::end), it is killed.
pub(crate) struct Group {
    keeper: Keeper,
    is_guarded: bool,
    /// The command, until it has ended.
    command: Option<Pid>,
    changes: unix::Signal,
    terminal: Option<Terminal>,
    mask: OriginalMask,
}

/// A change of the command.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Ended(Exit),
    Stopped(i32),
    /// The keeper was killed.
    Unguarded,
}

impl Group {
    /// Starts a group with only its keeper.
    pub(crate) async fn start(mask: OriginalMask) -> Result<Self, Failure> {
        let group = Self::try_start(mask).await;
        group.map_err(|error| {
            let sentence = format!("cannot start the process that guards the command: {error}");
            Failure::new(Exit::System, sentence)
        })
    }

    async fn try_start(mask: OriginalMask) -> io::Result<Self> {
        let changes = unix::signal(SignalKind::child())?;
        let keeper = Keeper::start()?;
        keeper.ready().await?;
        Ok(Self {
            keeper,
            is_guarded: true,
            command: None,
            changes,
            terminal: Terminal::open(),
            mask,
        })
    }

    /// Starts the command, with the terminal if it probably needs it.
    pub(crate) fn spawn(&mut self, mut command: Command) -> Result<(), Failure> {
        // Before the start: the command may read from the terminal at once.
        if let Some(terminal) = self
            .terminal
            .as_mut()
            .filter(|terminal| terminal.is_stdin())
        {
            terminal.give_to(self.keeper.group());
        }
        command.process_group(self.keeper.group().as_raw());
        match self.mask.during(|| command.spawn()) {
            Ok(child) => {
                let pid = Pid::from_raw(child.id().cast_signed());
                self.command = Some(pid);
                self.keeper.guard(pid);
                Ok(())
            }
            Err(error) => {
                self.take_terminal();
                Err(not_started(&command, &error))
            }
        }
    }

    /// Makes the keeper kill the group at `deadline`, instead of at an earlier deadline.
    pub(crate) fn kill_at(&self, deadline: Instant) {
        self.keeper.kill_at(deadline);
    }

    /// Sends a signal to all processes of the group. The command gets it, too, if it has left the
    /// group, with the group that it leads then.
    pub(crate) fn signal(&self, signal: Signal) {
        // It fails if the group has ended, or if it runs as another user.
        let _ = killpg(self.keeper.group(), signal);
        // The number of a command that has ended stays in use until it is waited for.
        let Some(command) = self.command else {
            return;
        };
        let _ = match getpgid(Some(command)) {
            Ok(group) if group == self.keeper.group() => return,
            Ok(group) if group == command => killpg(group, signal),
            _ => kill(command, signal),
        };
    }

    /// Waits until the command ends or stops. Dropping the future loses no change.
    pub(crate) async fn changed(&mut self) -> Change {
        loop {
            if let Some(change) = self.change() {
                return change;
            }
            self.changes.recv().await;
        }
    }

    /// Collects all children that have changed. There may be children that this process did not
    /// start, for example if it is the first process of a container.
    fn change(&mut self) -> Option<Change> {
        let mut found = None;
        loop {
            let (pid, status) = match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) => (Pid::from_raw(pid.as_raw_pid()), status),
                Ok(None) => return found,
                // Somebody else has waited for the command.
                Err(_) if self.command.take().is_some() => {
                    return Some(Change::Ended(Exit::System));
                }
                Err(_) => return found,
            };
            if Some(pid) == self.command {
                let change = change_of(status);
                if let Change::Ended(_) = change {
                    self.command = None;
                    return Some(change); // even if the keeper was killed with it
                }
                found = Some(change);
            } else if pid == self.keeper.group() && status.stopped() {
                let _ = kill(pid, Signal::SIGCONT); // the command has stopped its whole group
            } else if pid == self.keeper.group() {
                self.is_guarded = false;
                found = found.or(Some(Change::Unguarded));
            }
        }
    }

    /// Returns whether there is a terminal, so that a shell may stop and resume this process.
    pub(crate) fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    /// Returns whether the command has had the terminal.
    pub(crate) fn has_had_terminal(&self) -> bool {
        let terminal = self.terminal.as_ref();
        terminal.is_some_and(Terminal::was_given)
    }

    /// Gives the terminal to a command that has stopped because it needs it. Returns `false` if
    /// this process does not have the terminal.
    pub(crate) fn lend_terminal(&mut self) -> bool {
        let Some(terminal) = self.terminal.as_mut().filter(|terminal| terminal.is_ours()) else {
            return false;
        };
        terminal.give_to(self.keeper.group());
        self.signal(Signal::SIGCONT);
        true
    }

    pub(crate) fn take_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_from(self.keeper.group());
        }
    }

    /// Lets the group go on after a stop, with the terminal if it had it.
    pub(crate) fn resume(&mut self) {
        if !self.has_had_terminal() || !self.lend_terminal() {
            self.signal(Signal::SIGCONT);
        }
    }

    /// Ends the group after the command. What the command has left in the background goes on.
    pub(crate) async fn end(self) {
        self.keeper.say_goodbye();
        self.bury().await;
    }

    /// Kills all processes of the group.
    pub(crate) async fn kill(self) {
        self.signal(Signal::SIGKILL);
        self.bury().await;
    }

    /// Waits for the keeper. Otherwise it would be a zombie, and the first process of a container
    /// may wait for nobody.
    async fn bury(mut self) {
        self.take_terminal();
        let ended = async {
            while self.is_guarded {
                self.changed().await;
            }
        };
        let _ = timeout(KEEPER_LIMIT, ended).await; // it may be stopped
    }
}

fn change_of(status: WaitStatus) -> Change {
    if let Some(signal) = status.stopping_signal() {
        return Change::Stopped(signal);
    }
    Change::Ended(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code as u8),
        (_, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::System,
    })
}

fn not_started(command: &Command, error: &io::Error) -> Failure {
    const NO_FORMAT: i32 = 8; // ENOEXEC
    // The file may have gone since the wait for the lock began.
    if let Err(failure) = program::check(command.get_program()) {
        return failure;
    }
    let program = command.get_program().display();
    let (exit, why) = match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock, _) => {
            (Exit::System, error.to_string())
        }
        (_, Some(NO_FORMAT)) => (
            Exit::NotExecutable,
            "it is no program, and a script must begin with #! and its interpreter".to_owned(),
        ),
        _ => (Exit::NotExecutable, error.to_string()),
    };
    Failure::new(exit, format!("{program}: cannot be executed: {why}"))
}

const KEEPER_LIMIT: Duration = Duration::from_millis(100);
