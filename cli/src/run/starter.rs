//! The starter: the process that becomes the command.
//!
//! The starter leads the process group of the command. It stops itself until the keeper has joined
//! the group. Then it executes the command, unless the wrapper is dead.

use std::{
    env, io,
    os::unix::process::CommandExt,
    process::{self, Command, ExitCode},
};

use nix::{
    sys::signal::{Signal, raise},
    unistd::{Pid, getpgid, getpid, getppid},
};

use super::program;
use crate::{exit::Exit, failure::Failure, keeper};

/// The argument that makes this program a starter.
pub(crate) const WORD: &str = "--starter";

/// Returns the command that starts a starter. The arguments of the command follow.
pub(super) fn command(keeper: Pid) -> io::Result<Command> {
    let mut command = Command::new(keeper::program()?);
    command.arg(WORD);
    command.args([process::id().to_string(), keeper.to_string()]);
    command.process_group(0);
    Ok(command)
}

/// Runs the starter. Returns only if the command cannot be executed.
pub(crate) fn start() -> ExitCode {
    let failed = try_start();
    failed.map_or(ExitCode::FAILURE, |failure| {
        failure.report(false).code().into()
    })
}

/// Returns why the command cannot be executed. `None` if it must not be.
fn try_start() -> Option<Failure> {
    let mut words = env::args_os().skip(2);
    let mut pid = || {
        let word = words.next()?;
        word.to_str()?.parse().ok().map(Pid::from_raw)
    };
    let (wrapper, keeper, program) = (pid()?, pid()?, words.next()?);
    die_with_parent();
    // Anybody may resume this process.
    while getpgid(Some(keeper)) != Ok(getpid()) {
        let is_dead = getppid() != wrapper || getpgid(Some(keeper)).is_err();
        if is_dead || raise(Signal::SIGSTOP).is_err() {
            return None;
        }
    }
    if getppid() != wrapper {
        return None;
    }
    let mut command = Command::new(program);
    command.args(words);
    let error = command.exec();
    Some(not_executed(&command, &error))
}

/// Makes the system kill this process when the wrapper dies. That holds for the command, too, even
/// if it leaves its group.
#[cfg(target_os = "linux")]
fn die_with_parent() {
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL); // the keeper kills the group anyway
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent() {}

fn not_executed(command: &Command, error: &io::Error) -> Failure {
    const NO_FORMAT: i32 = 8; // ENOEXEC
    // The file may have gone since the wait for the lock began.
    if let Err(failure) = program::check(command.get_program()) {
        return failure;
    }
    let program = command.get_program().display();
    let why = if error.raw_os_error() == Some(NO_FORMAT) {
        "it is no program, and a script must begin with #! and its interpreter".to_owned()
    } else if error.kind() == io::ErrorKind::NotFound {
        "its interpreter does not exist: the one in its first line (#!), without a line break of \
         Windows, or the loader of a program"
            .to_owned()
    } else {
        error.to_string()
    };
    let sentence = format!("{program}: cannot be executed: {why}");
    Failure::new(Exit::NotExecutable, sentence)
}
