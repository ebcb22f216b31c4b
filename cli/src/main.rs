//! Distributed locks for shell scripts, cron jobs and terminals.

use std::{env, process::ExitCode};

use clap::error::ErrorKind::{MissingRequiredArgument as Missing, UnknownArgument as Unknown};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};

use crate::{
    args::{Args, Common, Verb},
    exit::Exit,
    failure::Failure,
    output::complain,
    run::starter,
    values::time,
};

mod acquire;
mod args;
mod ask;
mod attach;
mod break_lock;
mod client_name;
mod completions;
mod configuration;
mod doctor;
mod exit;
mod failure;
mod handle;
mod help;
mod hold;
mod holders;
mod keeper;
mod lists;
mod look;
mod loss;
mod man;
mod masters;
mod news;
mod outage;
mod output;
mod owner;
mod plan;
mod rights;
mod run;
mod runtime;
mod signals;
mod status;
mod style;
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
    let Args { common, verb } = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return not_parsed(error).code().into(),
    };
    if let Some(why) = misread() {
        return Failure::new(Exit::Usage, why).report(false).code().into();
    }
    dispatch(&verb, &common)
        .unwrap_or_else(|failure| failure.report(common.is_verbose()))
        .code()
        .into()
}

/// Says what is wrong with arguments that would mean something else than they say: an option on
/// both sides of the command, and a unit that was taken for a name.
fn misread() -> Option<String> {
    let words = env::args_os().skip(1).take_while(|word| word != "--");
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let words: Vec<_> = words.collect();
    let option = |word: &str| word.split('=').next().map(str::to_owned);
    let mut command = Args::command();
    command.build();
    let verb = |word: &String| command.find_subcommand(word);
    let (before, after) = words.split_at(words.iter().position(|word| verb(word).is_some())?);
    let is_twice = |given: &&String| {
        let mut after = after.iter();
        given.starts_with("--") && after.any(|word| option(word) == option(given))
    };
    if let Some(option) = before.iter().find(is_twice).and_then(|word| option(word)) {
        return Some(format!("give {option} on one side of the command"));
    }
    let options = verb(&after[0])?.get_arguments();
    let options: Vec<_> = options.map(ToString::to_string).collect(); // such as --ttl <TIME>
    words.iter().enumerate().find_map(|(at, word)| {
        let [value, next] = [1, 2].map(|by| words.get(at + by).map_or("", String::as_str));
        let has_time = options.contains(&format!("{word} <TIME>"));
        let is_time = has_time || word == "-w" || word == "--timeout";
        let is_apart = time(&[value, next].concat()).is_ok();
        let is_unit = is_time && is_apart && next.starts_with(char::is_alphabetic);
        is_unit.then(|| {
            format!("write {word} {value}{next}; if {next} is a name, put it before {word}")
        })
    })
}

/// Prints the help, or what is wrong with the arguments.
fn not_parsed(mut error: clap::Error) -> Exit {
    error.remove(ContextKind::Suggested); // a name begins with no -
    let printed = error.print();
    if !error.use_stderr() {
        return printed.map_or(Exit::Output, |()| Exit::Success);
    }
    if let Some(hint) = hint(&error) {
        complain(hint);
    }
    Exit::Usage
}

/// Returns what is probably wrong with the place of names, options and a command.
fn hint(error: &clap::Error) -> Option<&'static str> {
    let has = |word: &str| env::args_os().any(|arg| arg == word);
    let missing = error.get(ContextKind::InvalidArg);
    let lacks_only_command = matches!(missing, Some(ContextValue::Strings(all)) if matches!(&all[..], [only] if only.starts_with("<CMD>")));
    let is_long = error.to_string().contains("argument '--");
    match (error.kind(), has("--")) {
        (Missing | Unknown, false) if has("run") => {
            Some("put -- before the command: quorlock run NAME -- CMD")
        }
        (Missing, true) if has("run") && lacks_only_command => {
            Some("the command after -- is missing: quorlock run NAME -- CMD")
        }
        (Missing | Unknown, true) if (has("run") || has("hold")) && !is_long => {
            Some("names stand before --, and begin with no -")
        }
        _ => None,
    }
}

fn dispatch(verb: &Verb, common: &Common) -> Result<Exit, Failure> {
    match verb {
        Verb::Acquire(args) => acquire::acquire(args, common),
        Verb::Break(args) => break_lock::break_lock(args, common),
        Verb::Completions(args) => completions::completions(args),
        Verb::Doctor(args) => doctor::doctor(args, common),
        Verb::Hold(args) => hold::hold(args, common),
        Verb::Man => man::man(),
        Verb::Plan(args) => plan::plan(args, common),
        Verb::Release(args) => attach::release(args, common),
        Verb::Run(args) => run::run(args, common),
        Verb::Status(args) => status::status(args, common),
    }
}
