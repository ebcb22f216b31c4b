//! Writing without panics: `println!` panics if the other end of a pipe is gone.

use std::{
    fmt::Display,
    io::{self, Write},
    os::fd::AsFd,
};

use nix::poll::{PollFd, PollFlags, poll};
use serde::Serialize;

use crate::{exit::Exit, failure::Failure, style::clean};

/// Writes a message for people to stderr. If stderr is closed or full, or if nobody reads from it,
/// the rest of the message is dropped: there is nowhere to report that, and a command must not run
/// on because a message about it waits.
pub(crate) fn complain(message: impl Display) {
    let message = message.to_string();
    let lines: Vec<_> = message.lines().map(clean).collect();
    let text = format!("quorlock: {}\n", lines.join("\n"));
    for piece in text.as_bytes().chunks(PIECE) {
        let stderr = io::stderr();
        let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        let is_ready = poll(&mut ready, STDERR_LIMIT).is_ok_and(|count| count > 0);
        if !is_ready || stderr.lock().write_all(piece).is_err() {
            return;
        }
    }
}

/// The bytes that a pipe takes at once, if it takes any.
const PIECE: usize = 512;
/// The longest wait for the reader of stderr, in milliseconds.
const STDERR_LIMIT: u8 = 100;

/// Writes text to stdout, and flushes it.
pub(crate) fn print(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.to_string().as_bytes())?;
    stdout.flush()
}

/// Writes the output of a command to stdout.
pub(crate) fn say(text: impl Display) -> Result<(), Failure> {
    print(text).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::silent(Exit::Output), // as after `| head`
        _ => Failure::new(Exit::Output, format!("cannot write the output: {error}")),
    })
}

/// Writes the output of a command as one line of JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value);
    let line = line.map_err(|error| Failure::new(Exit::Output, error.to_string()))?;
    say(line + "\n")
}
