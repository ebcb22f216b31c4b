//! The keeper: a small process that kills the command if the wrapper can no longer do that.
//!
//! The wrapper starts the keeper before the command. The keeper joins the group of the command
//! before the first instruction of the command. So the number of the group is not used again while
//! the keeper lives.
//!
//! A pipe leads from the wrapper to the keeper. The wrapper writes until when the lock is valid.
//! If the time has come, or if the pipe ends because the wrapper is dead, the keeper kills the
//! group and itself. The wrapper may be stopped, hung or killed.

use std::{
    env,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{SigSet, Signal, killpg},
    time::{ClockId, clock_gettime},
    unistd::{Pid, getpgrp, getpid, setpgid},
};
use tokio::net::unix::pipe;

/// The argument that makes this program a keeper.
pub(crate) const WORD: &str = "--keeper";

/// The keeper, as the wrapper sees it. If the wrapper drops it without a
/// [goodbye](Self::say_goodbye), the group is killed.
pub(crate) struct Keeper {
    pub(crate) pid: Pid,
    deadlines: pipe::Sender,
    answers: pipe::Receiver,
}

impl Keeper {
    /// Starts a keeper.
    pub(crate) fn start() -> io::Result<Self> {
        let mut child = Command::new(program()?)
            .arg0(NAME)
            .arg(WORD)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(Self {
            pid: Pid::from_raw(child.id().cast_signed()),
            deadlines: pipe::Sender::from_owned_fd(OwnedFd::from(stdin))?,
            answers: pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))?,
        })
    }

    /// Waits until the keeper has started, or has joined the group that it guards.
    pub(crate) async fn ready(&self) -> io::Result<()> {
        match self.answer().await? {
            Some(READY) => Ok(()),
            _ => Err(io::Error::other("its keeper was killed")),
        }
    }

    /// Waits for the end of the keeper. Returns whether it has killed the group because of the
    /// deadline.
    pub(crate) async fn has_killed(&self) -> bool {
        matches!(self.answer().await, Ok(Some(KILLS)))
    }

    /// Waits for the next answer. `None` if the keeper is dead.
    async fn answer(&self) -> io::Result<Option<u8>> {
        let mut answer = [0];
        loop {
            self.answers.readable().await?;
            match self.answers.try_read(&mut answer) {
                Ok(count) => return Ok(Some(answer[0]).filter(|_| count > 0)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the keeper guard a group, and waits until it does.
    pub(crate) async fn guard(&self, group: Pid) -> io::Result<()> {
        let number = GROUP | u64::from(group.as_raw().cast_unsigned());
        let _ = self.deadlines.try_write(&number.to_ne_bytes());
        self.ready().await
    }

    /// Makes the keeper kill the group at `deadline`, instead of at an earlier deadline.
    pub(crate) fn kill_at(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        let at = u64::try_from((now() + left).as_nanos()).unwrap_or(u64::MAX) & !GROUP;
        // The pipe is full only if the whole group has been stopped for hours.
        let _ = self.deadlines.try_write(&at.to_ne_bytes());
    }

    /// Ends the keeper without killing the group.
    pub(crate) fn say_goodbye(&self) {
        let _ = self.deadlines.try_write(&GOODBYE.to_ne_bytes());
    }
}

/// Returns the file of this program. During an upgrade, its path may lead to no program, or to a
/// newer one.
pub(crate) fn program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        Ok("/proc/self/exe".into())
    } else {
        env::current_exe()
    }
}

/// Runs the keeper.
pub(crate) fn keep() -> ExitCode {
    // A keeper that does not lead a group would kill the wrong one.
    if getpgrp() != getpid() || SigSet::all().thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    rename();
    if answer(READY).and_then(|()| wait()).is_ok() {
        return ExitCode::SUCCESS;
    }
    let _ = killpg(getpgrp(), Signal::SIGKILL); // this process is in the group, too
    ExitCode::FAILURE
}

/// Waits for the goodbye. Returns an error if the group must be killed.
fn wait() -> io::Result<()> {
    let mut pipe = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut deadline = None;
    let mut bytes = [0; 512];
    loop {
        if let Err(error) = wait_for_bytes(&pipe, deadline) {
            let _ = answer(KILLS); // the wrapper may be dead
            return Err(error);
        }
        let count = pipe.read(&mut bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into()); // the wrapper is dead
        }
        // Each write is small enough to arrive as a whole.
        for bytes in bytes[..count].chunks_exact(8) {
            let mut number = [0; 8];
            number.copy_from_slice(bytes);
            match u64::from_ne_bytes(number) {
                GOODBYE => return Ok(()),
                group if group & GROUP != 0 => {
                    setpgid(Pid::from_raw(0), Pid::from_raw((group & !GROUP) as i32))?;
                    answer(READY)?;
                }
                at => deadline = Some(Duration::from_nanos(at)),
            }
        }
    }
}

fn answer(answer: u8) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(&[answer])?;
    stdout.flush()
}

/// Waits until the pipe has bytes or ends. If both have come, bytes count more than the deadline:
/// the group may have been stopped, and its keeper with it.
fn wait_for_bytes(pipe: &File, deadline: Option<Duration>) -> io::Result<()> {
    loop {
        let left = deadline.map(|at| at.saturating_sub(now()));
        // Whole milliseconds, rounded down: rather early than late. The clock of `poll` stands
        // still while the machine is suspended.
        let limit = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left.min(LONGEST)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], limit) {
            Ok(0) if left.is_some_and(|left| left < Duration::from_millis(1)) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the time of a clock that all processes share and that nobody sets. On Linux, it goes on
/// while the machine is suspended, as the TTLs on the masters do.
fn now() -> Duration {
    clock_gettime(CLOCK).map_or(Duration::MAX, Duration::from)
}

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// The longest time from the end of a suspension to a look at the clock.
const LONGEST: Duration = Duration::from_secs(1);

/// The name of the keeper's process. A person who kills all processes called `quorlock` must not
/// kill the keepers, because nobody would be left to kill the commands.
const NAME: &str = "lock-keeper";

#[cfg(target_os = "linux")]
fn rename() {
    if let Ok(name) = std::ffi::CString::new(NAME) {
        let _ = nix::sys::prctl::set_name(&name); // the name on the command line is set anyway
    }
}

#[cfg(not(target_os = "linux"))]
fn rename() {}

const READY: u8 = b'k';
/// The answer before the keeper kills the group because of the deadline.
const KILLS: u8 = b'd';
const GOODBYE: u64 = 0;
/// The bit of a message that contains the number of a group. No deadline has it for 292 years.
const GROUP: u64 = 1 << 63;
