//! Finding a program as shells do.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use nix::unistd::{AccessFlags, access};

use crate::{exit::Exit, failure::Failure};

/// Checks that `program` exists and can be executed.
///
/// # Errors
///
/// The statuses 126 and 127.
pub(crate) fn check(program: &OsStr) -> Result<(), Failure> {
    let mut found = candidates(program);
    found.retain(|path| path.is_file());
    let can_run = |path: &PathBuf| access(path, AccessFlags::X_OK).is_ok();
    if found.iter().any(can_run) {
        return Ok(());
    }
    let shown = program.display();
    if found.is_empty() && !Path::new(program).is_dir() {
        let sentence = format!("{shown}: command not found; {}", advice(program));
        return Err(Failure::new(Exit::NotFound, sentence));
    }
    let sentence =
        format!("{shown}: cannot be executed; it is a directory, or its permissions forbid it");
    Err(Failure::new(Exit::NotExecutable, sentence))
}

/// Says what to do about a program that was not found, and is perhaps a line for a shell.
fn advice(program: &OsStr) -> &'static str {
    let mut bytes = program.as_encoded_bytes().iter();
    match bytes.any(|byte| b" ;&|<>$".contains(byte)) {
        true => "there is no shell in between, so give a line for a shell as sh -c '..'",
        false => "check its name and the PATH",
    }
}

fn candidates(program: &OsStr) -> Vec<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return vec![program.into()];
    }
    // Without a PATH, the system looks here.
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .collect()
}
