//! The process group of the command.

use std::{convert::Infallible, io, mem, process::Command, rc::Rc, time::Duration};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::{Pid, getpgid},
};
use quorlock::Guard;
use rustix::process::{WaitOptions, WaitStatus, wait};
use tokio::{
    signal::unix::{self, SignalKind},
    time::{sleep, timeout},
};

use super::{LOOK_EVERY, deadline, killed_by_keeper, starter, terminal::Terminal};
use crate::{exit::Exit, failure::Failure, keeper::Keeper, signals::OriginalMask};

/// The process group of the command. If it is dropped before the [end](Self::end), it is killed.
pub(crate) struct Group {
    pub(super) keeper: Rc<Keeper>,
    is_guarded: bool,
    /// The group, which the command leads. `None` before the start of the command.
    group: Option<Pid>,
    /// `true` from the start of the command to its end.
    has_command: bool,
    changes: unix::Signal,
    /// A shell may stop and resume this process if there is a terminal.
    pub(super) terminal: Option<Terminal>,
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
        const WHAT: &str =
            "cannot start the process that guards the command, which needs /proc and /dev/null";
        let started = async {
            let changes = unix::signal(SignalKind::child())?;
            let keeper = Keeper::start()?;
            keeper.ready().await?;
            Ok(Self {
                keeper: Rc::new(keeper),
                is_guarded: true,
                group: None,
                has_command: false,
                changes,
                terminal: Terminal::open(),
                mask,
            })
        };
        let started: io::Result<_> = started.await;
        started.map_err(|error| Failure::system(WHAT, error))
    }

    /// Starts a command with its [starter], and with the terminal if it probably needs it.
    /// Meanwhile, each renewal of the lock moves the deadline of the keeper.
    pub(crate) async fn spawn(
        mut self,
        command: impl FnOnce(&mut Command),
        guard: &Guard,
    ) -> Result<Self, Failure> {
        let keeper = self.keeper.clone();
        let started = tokio::select! {
            started = timeout(START_LIMIT, self.try_spawn(command)) => started,
            never = follow(&keeper, guard) => match never {},
        };
        let Err(error) = started.unwrap_or_else(|late| Err(late.into())) else {
            return Ok(self);
        };
        // The lock is released after this, so nothing of the command may be left.
        self.kill().await;
        if self.end().await {
            return Err(killed_by_keeper(guard));
        }
        Err(Failure::system("cannot start the command", error))
    }

    async fn try_spawn(&mut self, command: impl FnOnce(&mut Command)) -> io::Result<()> {
        let mut starter = starter::command(self.keeper.pid)?;
        command(&mut starter);
        let child = self.mask.during(|| starter.spawn())?;
        let group = Pid::from_raw(child.id().cast_signed());
        (self.group, self.has_command) = (Some(group), true);
        let Change::Stopped(_) = self.changed().await else {
            return Err(io::Error::other("a process that prepares it was killed"));
        };
        self.keeper.guard(group).await?;
        // Before the start: the command may read from the terminal at once.
        let terminal = self.terminal.as_mut();
        if let Some(terminal) = terminal.filter(|terminal| terminal.is_stdin()) {
            terminal.give_to(group);
        }
        self.signal(Signal::SIGCONT);
        Ok(())
    }

    /// Sends a signal to all processes of the group, and to the command if it has left the group.
    pub(crate) fn signal(&self, signal: Signal) {
        let Some(group) = self.group else {
            return;
        };
        // The keeper and the command keep the number of the group from being used again. This fails
        // if the group runs as another user.
        if self.is_guarded || self.has_command {
            let _ = killpg(group, signal);
        }
        if self.has_command && getpgid(Some(group)) != Ok(group) {
            let _ = kill(group, signal);
        }
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
                // Somebody else has waited for the command.
                Err(_) if mem::take(&mut self.has_command) => {
                    return Some(Change::Ended(Exit::System));
                }
                Ok(None) | Err(_) => return found,
            };
            if self.has_command && Some(pid) == self.group {
                let change = change_of(status);
                if let Change::Ended(_) = change {
                    self.has_command = false;
                    return Some(change); // even if the keeper was killed with it
                }
                found = Some(change);
            } else if pid == self.keeper.pid && status.stopped() {
                let _ = kill(pid, Signal::SIGCONT); // the command has stopped its whole group
            } else if pid == self.keeper.pid {
                self.is_guarded = false;
                found = found.or(Some(Change::Unguarded));
            }
        }
    }

    /// Returns whether the command has had the terminal.
    pub(crate) fn has_had_terminal(&self) -> bool {
        let terminal = self.terminal.as_ref();
        terminal.is_some_and(|terminal| terminal.was_given)
    }

    /// Gives the terminal to a command that has stopped because it needs it. Returns `false` if
    /// this process does not have the terminal.
    pub(crate) fn lend_terminal(&mut self) -> bool {
        let terminal = self.terminal.as_mut().filter(|terminal| terminal.is_ours());
        let (Some(terminal), Some(group)) = (terminal, self.group) else {
            return false;
        };
        terminal.give_to(group);
        self.signal(Signal::SIGCONT);
        true
    }

    pub(crate) fn take_terminal(&self) {
        if let (Some(terminal), Some(group)) = (&self.terminal, self.group) {
            terminal.take_from(group);
        }
    }

    /// Lets the group go on after a stop, with the terminal if it had it.
    pub(crate) fn resume(&mut self) {
        if !self.has_had_terminal() || !self.lend_terminal() {
            self.signal(Signal::SIGCONT);
        }
    }

    /// Kills all processes of the group. Returns whether the command is dead.
    pub(crate) async fn kill(&mut self) -> bool {
        self.signal(Signal::SIGKILL);
        let ended = async {
            while self.has_command {
                self.changed().await;
            }
        };
        timeout(KILL_LIMIT, ended).await.is_ok()
    }

    /// Ends the group after the command. What the command has left in the background goes on.
    /// Returns whether the keeper has killed the group because of its deadline.
    ///
    /// Waits for the keeper. Otherwise it would be a zombie, and the first process of a container
    /// may wait for nobody.
    pub(crate) async fn end(mut self) -> bool {
        self.take_terminal();
        self.keeper.say_goodbye();
        let ended = async {
            while self.is_guarded {
                self.changed().await;
            }
            self.keeper.has_killed().await
        };
        timeout(KEEPER_LIMIT, ended).await.unwrap_or(false) // it may be stopped
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The keeper may not be in the group yet.
        if self.has_command {
            self.signal(Signal::SIGKILL);
        }
    }
}

/// Moves the deadline of the keeper with each renewal of the lock.
async fn follow(keeper: &Keeper, guard: &Guard) -> Infallible {
    loop {
        keeper.kill_at(deadline(guard));
        sleep(LOOK_EVERY).await;
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

/// The longest start of the command. Somebody may have stopped the keeper.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The longest wait for a process that was killed.
const KILL_LIMIT: Duration = Duration::from_secs(5);
const KEEPER_LIMIT: Duration = Duration::from_millis(100);
