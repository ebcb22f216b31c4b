//! The file of a handle: the text of a lock that was detached. It is a secret, so no message shows
//! it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write, stdin},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use quorlock::Detached;

use crate::{
    exit::Exit,
    failure::Failure,
    output::{complain, print},
};

/// The longest text that is read. All names of a handle are on the command line of `acquire`.
const MOST: u64 = 8 << 20;

const USED: &str = "; a handle is removed once its lock is released or gone: see `quorlock status`";

/// The input or the output.
const STREAM: &str = "-";

/// Reads a handle. Warns if other users can read it, too.
pub(crate) fn read(file: &Path) -> Result<Detached, Failure> {
    let detached = try_read(file).map_err(|error| {
        let sentence = format!("there is no handle in {}: {error}{USED}", file.display());
        Failure::new(Exit::Usage, sentence)
    })?;
    if file != STREAM && can_be_read(file, 0o044) {
        let file = file.display();
        complain(format_args!(
            "other users could read the handle in {file}, with which they can release its lock; \
             leave it the mode 600 of `quorlock acquire`"
        ));
    }
    Ok(detached)
}

/// Returns whether the file can be read by one of these groups of users: the bits of a mode.
pub(crate) fn can_be_read(file: &Path, by: u32) -> bool {
    let mode = fs::metadata(file).map(|found| found.permissions().mode());
    mode.is_ok_and(|mode| mode & by != 0)
}

fn try_read(file: &Path) -> io::Result<Detached> {
    let input: Box<dyn Read> = match file == STREAM {
        true => Box::new(stdin()),
        false => Box::new(File::open(file)?),
    };
    let text = io::read_to_string(input.take(MOST))?;
    text.parse().map_err(io::Error::other)
}

/// Checks that a handle may be written. A file that is there may have the handle of a held lock.
pub(crate) fn check_room(file: &Path) -> Result<(), Failure> {
    let is_new = file == STREAM || fs::symlink_metadata(file).is_err();
    let new = is_new.then_some(()).ok_or(io::Error::other(EXISTS));
    new.map_err(|error| failure(file, &error))
}

const EXISTS: &str = "it exists; if it is the handle of a lock, run `quorlock release` first";

/// Writes a handle to a new file.
pub(crate) fn write(file: &Path, detached: &Detached) -> Result<(), Failure> {
    let text = format!("{detached}\n");
    let written = match file == STREAM {
        true => print(text),
        false => create(file, &text),
    };
    written.map_err(|error| failure(file, &error))
}

fn create(file: &Path, text: &str) -> io::Result<()> {
    // Fails if anything is there, also a symbolic link.
    let new = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    let mut new = new?;
    let written = new.write_all(text.as_bytes()).and_then(|()| new.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(file);
    }
    written
}

/// Removes the file of a handle if its lock was released or is gone, unless a newer one is in its
/// place.
pub(crate) fn remove_used(file: &Path, used: &Detached, ended: &Result<Exit, Failure>) {
    let is_used = |other: Detached| other.to_string() == used.to_string();
    if !matches!(ended, Err(failure) if failure.exit != Exit::Lost)
        && file != STREAM
        && try_read(file).is_ok_and(is_used)
        && let Err(error) = fs::remove_file(file)
    {
        complain(format_args!("cannot remove {}: {error}", file.display()));
    }
}

fn failure(file: &Path, error: &io::Error) -> Failure {
    let sentence = format!("cannot write the handle to {}: {error}", file.display());
    Failure::new(Exit::Output, sentence)
}
