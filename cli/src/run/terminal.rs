//! The terminal, which belongs to one process group at a time.

use std::{
    fs::File,
    io::{IsTerminal, stdin, stdout},
    os::{fd::AsFd, unix::fs::FileTypeExt},
};

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal on stdin, which this process had at the start. A group without the terminal cannot
/// read from it, and Ctrl-C does not reach it.
///
/// SIGTTOU must be blocked, so that a process can take back a terminal that it does not have.
pub(crate) struct Terminal;

impl Terminal {
    /// Returns the terminal if this process has it. In the middle of a pipeline, the other programs
    /// need it, too, so it stays with them.
    pub(crate) fn of_stdin() -> Option<Self> {
        let is_ours = stdin().is_terminal() && has_it();
        (is_ours && !is_pipe()).then_some(Self)
    }

    pub(crate) fn give_to(&self, group: Pid) {
        let _ = tcsetpgrp(stdin(), group); // without it, the command stops when it reads
    }

    /// Takes the terminal back from `group`, unless another process has taken it.
    pub(crate) fn take_from(&self, group: Pid) {
        if tcgetpgrp(stdin()) == Ok(group) {
            let _ = tcsetpgrp(stdin(), getpgrp());
        }
    }

    /// Returns whether this process has the terminal, as after `fg` and not after `bg`.
    pub(crate) fn is_ours(&self) -> bool {
        has_it()
    }
}

fn has_it() -> bool {
    tcgetpgrp(stdin()) == Ok(getpgrp())
}

fn is_pipe() -> bool {
    let stdout = stdout().as_fd().try_clone_to_owned().map(File::from);
    let kind = stdout.and_then(|stdout| stdout.metadata());
    kind.is_ok_and(|kind| kind.file_type().is_fifo() || kind.file_type().is_socket())
}
