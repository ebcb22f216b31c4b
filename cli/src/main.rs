//! Distributed locks for shell scripts, cron jobs and terminals.

use std::{env, ffi::OsString, process::ExitCode};

use clap::{Parser, error::ErrorKind};

use crate::{
    args::{Args, Common, Verb},
    exit::Exit,
    failure::Failure,
    output::complain,
    run::starter,
};

mod args;
mod ask;
mod break_lock;
mod client_name;
mod completions;
mod configuration;
mod doctor;
mod exit;
mod failure;
mod help;
mod hold;
mod holders;
mod input;
mod keeper;
mod lists;
mod look;
mod loss;
mod man;
mod masters;
mod news;
mod outage;
mod output;
mod plan;
mod report;
mod run;
mod runtime;
mod signals;
mod status;
mod style;
mod textfile;
mod times;
mod values;
mod waiting;
mod wanted;
mod words;

fn main() -> ExitCode {
    match env::args_os().nth(1) {
        Some(word) if word == keeper::WORD => return keeper::keep(),
        Some(word) if word == starter::WORD => return starter::start(),
        _ => {}
    }
    let Args { common, mut verb } = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return not_parsed(&error).into(),
    };
    if let Some(why) = misread_strict() {
        return Failure::new(Exit::Usage, why).report(false).into();
    }
    let common = match common.join(verb.take_common()) {
        Ok(common) => common,
        Err(why) => return Failure::new(Exit::Usage, why).report(false).into(),
    };
    dispatch(&verb, &common)
        .unwrap_or_else(|failure| failure.report(common.is_verbose()))
        .into()
}

/// Says what is wrong if a value of `--strict` was taken for a name.
fn misread_strict() -> Option<String> {
    let words = env::args_os().take_while(|word| word != "--");
    let words: Vec<_> = words.collect();
    let is_bool = |word: &OsString| word == "true" || word == "false";
    let mut pairs = words.windows(2);
    let pair = pairs.find(|pair| pair[0] == "--strict" && is_bool(&pair[1]))?;
    let value = pair[1].display();
    Some(format!(
        "--strict {value} would be --strict and the name {value}; \
         give --strict={value}, or the name before --strict"
    ))
}

/// Prints the help, or what is wrong with the arguments.
fn not_parsed(error: &clap::Error) -> Exit {
    let printed = error.print();
    if !error.use_stderr() {
        return printed.map_or(Exit::Output, |()| Exit::Success);
    }
    let has = |word: &str| env::args_os().any(|arg| arg == word);
    let kinds = [
        ErrorKind::UnknownArgument,
        ErrorKind::MissingRequiredArgument,
    ];
    if kinds.contains(&error.kind()) && has("run") && !has("--") {
        complain("put -- before the command: quorlock run NAME -- CMD");
    }
    Exit::Usage
}

fn dispatch(verb: &Verb, common: &Common) -> Result<Exit, Failure> {
    match verb {
        Verb::Break(args) => break_lock::break_lock(args, common),
        Verb::Completions(args) => completions::completions(args),
        Verb::Doctor(args) => doctor::doctor(args, common),
        Verb::Hold(args) => hold::hold(args, common),
        Verb::Man(args) => man::man(args),
        Verb::Plan(args) => plan::plan(args, common),
        Verb::Run(args) => run::run(args, common),
        Verb::Status(args) => status::status(args, common),
    }
}
