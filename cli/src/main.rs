//! Distributed locks for shell scripts, cron jobs and terminals.

use std::{env, process::ExitCode};

use clap::Parser;

use crate::{
    args::{Args, Verb},
    exit::Exit,
    failure::Failure,
};

mod args;
mod ask;
mod bench;
mod break_lock;
#[cfg(feature = "tls")]
mod certificates;
mod client_name;
mod completions;
mod configuration;
mod doctor;
mod exit;
mod failure;
mod histogram;
mod hold;
mod keeper;
mod look;
mod man;
mod masters;
mod output;
mod report;
mod run;
mod runtime;
mod signals;
mod status;
mod style;
mod times;
mod words;

fn main() -> ExitCode {
    if env::args_os()
        .nth(1)
        .is_some_and(|word| word == keeper::WORD)
    {
        return keeper::keep();
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // If nobody reads the text, there is nobody to tell.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Success
            }
            .into();
        }
    };
    let is_verbose = args.common.is_verbose();
    dispatch(args)
        .unwrap_or_else(|failure| failure.report(is_verbose))
        .into()
}

fn dispatch(args: Args) -> Result<Exit, Failure> {
    let common = &args.common;
    match args.verb {
        Verb::Bench(args) => bench::bench(&args, common),
        Verb::Break(args) => break_lock::break_lock(&args, common),
        Verb::Completions(args) => completions::completions(&args),
        Verb::Doctor(args) => doctor::doctor(&args, common),
        Verb::Hold(args) => hold::hold(&args, common),
        Verb::Man => man::man(),
        Verb::Run(args) => run::run(&args, common),
        Verb::Status(args) => status::status(&args, common),
    }
}
