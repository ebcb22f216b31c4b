//! `quorlock completions`: what shells complete.

use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::Shell;

use crate::{
    args::{Args, Completions},
    exit::Exit,
    failure::Failure,
    output::say,
};

pub(crate) fn completions(args: &Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    let mut command = Args::command()
        .mut_args(no_file)
        .mut_subcommands(|verb: Command| verb.mut_args(no_file));
    if args.shell == Shell::Zsh {
        // After several names, its script would offer no command.
        command = command.mut_subcommand("run", |run| run.mut_arg("names", |arg| arg.num_args(1)));
    }
    clap_complete::generate(args.shell, &mut command, "quorlock", &mut script);
    if args.shell == Shell::Bash {
        script.extend_from_slice(BASH.as_bytes());
    }
    say(String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}

/// Shells offer files for an argument about which nothing is known, such as a time.
fn no_file(arg: Arg) -> Arg {
    match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() => arg.value_hint(ValueHint::Other),
        _ => arg,
    }
}

/// What the other shells do by themselves, and the profiles of the configuration file.
const BASH: &str = include_str!("completions.bash");
