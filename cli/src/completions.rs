//! `quorlock completions`: what shells complete.

use clap::CommandFactory;

use crate::{
    args::{Args, Completions},
    exit::Exit,
    failure::Failure,
    report::say,
};

pub(crate) fn completions(args: &Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "quorlock", &mut script);
    say(String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
