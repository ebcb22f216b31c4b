//! Writing without panics: `println!` panics if the other end of a pipe is gone.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Writes a message for people to stderr. If stderr is closed or full, the message is dropped,
/// because there is nowhere to report that.
pub(crate) fn complain(message: impl Display) {
    let _ = io::stderr()
        .lock()
        .write_all(format!("quorlock: {message}\n").as_bytes());
}

/// Writes text to stdout, and flushes it.
pub(crate) fn print(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.to_string().as_bytes())?;
    stdout.flush()
}
