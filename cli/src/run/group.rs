//! The process group of the command.

use std::{io, os::unix::process::CommandExt, process::Command, time::Instant};

use nix::{
    sys::{
        signal::{SigSet, Signal, killpg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use tokio::signal::unix::{self, SignalKind};

use super::terminal::Terminal;
use crate::{exit::Exit, failure::Failure, keeper::Keeper};

/// The process group of the command. If it is dropped before the [end](Self::end), it is killed.
pub(crate) struct Group {
    keeper: Keeper,
    command: Option<Pid>,
    changes: unix::Signal,
    terminal: Option<Terminal>,
}

/// A change of the command.
pub(crate) enum Change {
    Ended(Exit),
    Stopped(Signal),
    /// The keeper was killed.
    Unguarded,
}

impl Group {
    /// Starts a group with only its keeper.
    pub(crate) async fn start() -> Result<Self, Failure> {
        let group = Self::try_start().await;
        group.map_err(|error| {
            let sentence = format!("cannot start the process that guards the command: {error}");
            Failure::new(Exit::System, sentence)
        })
    }

    async fn try_start() -> io::Result<Self> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTTOU);
        mask.thread_block()?; // processes that are started get an empty mask
        let changes = unix::signal(SignalKind::child())?;
        let keeper = Keeper::start()?;
        keeper.ready().await?;
        Ok(Self {
            keeper,
            command: None,
            changes,
            terminal: Terminal::of_stdin(),
        })
    }

    /// Starts the command, with the terminal if there is one.
    pub(crate) fn spawn(&mut self, mut command: Command) -> Result<(), Failure> {
        // Before the start: the command may read from the terminal at once.
        if let Some(terminal) = &self.terminal {
            terminal.give_to(self.keeper.group());
        }
        command.process_group(self.keeper.group().as_raw());
        match command.spawn() {
            Ok(child) => {
                self.command = Some(Pid::from_raw(child.id().cast_signed()));
                Ok(())
            }
            Err(error) => {
                self.take_terminal();
                let program = command.get_program().display();
                let sentence = format!("{program}: cannot be executed: {error}");
                let exit = match error.kind() {
                    io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => Exit::System,
                    _ => Exit::NotExecutable,
                };
                Err(Failure::new(exit, sentence))
            }
        }
    }

    /// Makes the keeper kill the group at `deadline`, instead of at an earlier deadline.
    pub(crate) fn kill_at(&self, deadline: Instant) {
        self.keeper.kill_at(deadline);
    }

    /// Sends a signal to all processes of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = killpg(self.keeper.group(), signal); // fails only if nobody is left
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
    fn change(&self) -> Option<Change> {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        loop {
            let change = match waitpid(None, Some(flags)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return None,
                Ok(WaitStatus::Exited(pid, code)) => (pid, Change::Ended(Exit::Code(code as u8))),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    (pid, Change::Ended(Exit::Signal(signal)))
                }
                Ok(WaitStatus::Stopped(pid, signal)) => (pid, Change::Stopped(signal)),
                Ok(_) => continue,
            };
            if change.0 == self.keeper.group() {
                return Some(Change::Unguarded);
            }
            if Some(change.0) == self.command {
                return Some(change.1);
            }
        }
    }

    /// Returns whether the command has had the terminal.
    pub(crate) fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    pub(crate) fn take_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_from(self.keeper.group());
        }
    }

    /// Lets the group go on after a stop, with the terminal if this process has it.
    pub(crate) fn resume(&self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|terminal| terminal.is_ours()) {
            terminal.give_to(self.keeper.group());
        }
        self.signal(Signal::SIGCONT);
    }

    /// Ends the group after the command. What the command has left in the background goes on.
    pub(crate) fn end(self) {
        self.take_terminal();
        self.keeper.say_goodbye();
    }
}
