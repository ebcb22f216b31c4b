//! The output of commands on stdout.

use std::{fmt::Display, io};

use serde::Serialize;

use crate::{exit::Exit, failure::Failure, output};

/// Writes text to stdout.
pub(crate) fn say(text: impl Display) -> Result<(), Failure> {
    output::print(text).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::silent(Exit::Output), // as after `| head`
        _ => Failure::new(Exit::Output, format!("cannot write the output: {error}")),
    })
}

/// Writes one line of JSON to stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value);
    let line = line.map_err(|error| Failure::new(Exit::Output, error.to_string()))?;
    say(line + "\n")
}
