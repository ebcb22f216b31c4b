//! The terminal, which belongs to one process group at a time.

use std::{
    fs::File,
    io::{IsTerminal, stdin, stdout},
    os::{fd::AsFd, unix::fs::FileTypeExt},
};

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal of this session. A group without the terminal cannot read from it, and Ctrl-C does
/// not reach it.
///
/// SIGTTOU must be blocked, so that a process can take back a terminal that it does not have.
pub(crate) struct Terminal {
    tty: File,
    pub(crate) was_given: bool,
}

impl Terminal {
    /// Returns the terminal. `None` for example in a cron job.
    pub(crate) fn open() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty");
        Some(Self {
            tty: tty.ok()?,
            was_given: false,
        })
    }

    /// Returns whether this process has the terminal, and a command will probably read from it. In
    /// the middle of a pipeline, the other programs may need it, too, so it stays with them until
    /// the command reads.
    pub(crate) fn is_stdin(&self) -> bool {
        let stdout = stdout().as_fd().try_clone_to_owned().map(File::from);
        let kind = stdout.and_then(|stdout| stdout.metadata());
        let kind = kind.map(|kind| kind.file_type());
        let is_pipe = kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket());
        stdin().is_terminal() && self.is_ours() && !is_pipe
    }

    /// Returns whether this process has the terminal, as after `fg` and not after `bg`.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(getpgrp())
    }

    pub(crate) fn give_to(&mut self, group: Pid) {
        self.was_given = true;
        let _ = tcsetpgrp(&self.tty, group); // without it, the command stops when it reads
    }

    /// Takes the terminal back from `group`, unless another process has taken it.
    pub(crate) fn take_from(&self, group: Pid) {
        if tcgetpgrp(&self.tty) == Ok(group) {
            let _ = tcsetpgrp(&self.tty, getpgrp());
        }
    }
}
