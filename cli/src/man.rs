//! The manual page: all commands on one page.

use clap::{Arg, Command, CommandFactory};

use crate::{
    args::{Args, COMMON},
    exit::Exit,
    failure::Failure,
    report::say,
    style::wrap,
};

pub(crate) fn man() -> Result<Exit, Failure> {
    say(page())?;
    Ok(Exit::Success)
}

fn page() -> String {
    let mut command = Args::command();
    command.build();
    let about = command.get_about().map(ToString::to_string);
    let mut page = format!(
        ".TH QUORLOCK 1 \"\" \"quorlock {}\" \"User Commands\"\n\
         .SH NAME\nquorlock \\- {}\n.SH SYNOPSIS\n",
        env!("CARGO_PKG_VERSION"),
        about.unwrap_or_default()
    );
    let subs = command.get_subcommands_mut();
    let subs = subs.filter(|sub| sub.get_name() != HELP);
    let usages: Vec<_> = subs.map(synopsis).collect();
    page.push_str(&usages.join(".br\n"));
    page.push_str(".SH DESCRIPTION\n");
    page.push_str(&description(&command));
    page.push_str(".SH COMMANDS\n");
    let subs = command.get_subcommands();
    let subs: Vec<_> = subs.filter(|sub| sub.get_name() != HELP).collect();
    let shared = shared_options(&subs);
    let is_shared = |arg: &Arg| shared.iter().any(|one| one.get_id() == arg.get_id());
    for sub in &subs {
        page.push_str(&section(sub, is_shared));
    }
    page.push_str(".SS \"Options of run and hold\"\n");
    page.extend(shared.into_iter().map(option));
    page.push_str(".SH OPTIONS\nAll commands have these options:\n");
    page.extend(command.get_arguments().map(option));
    page + SECTIONS
}

/// Returns the line of a command, from the usage that its help shows.
fn synopsis(command: &mut Command) -> String {
    let usage = command.render_usage().to_string();
    let words = usage.split_whitespace().skip(1); // "Usage:"
    let words = words.map(|word| match word.split_once('>') {
        Some((name, rest)) => format!("{}{rest}", italic(name.trim_start_matches('<'))),
        None if word.starts_with('[') => format!("[{}]", italic(word.trim_matches(['[', ']']))),
        None => bold(word),
    });
    words.collect::<Vec<_>>().join(" ") + "\n"
}

fn description(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about());
    paragraphs(&about.map(ToString::to_string).unwrap_or_default(), ".PP")
}

/// Returns the options that both `run` and `hold` have.
fn shared_options<'a>(commands: &[&'a Command]) -> Vec<&'a Arg> {
    let own = |name: &str| {
        let command = commands.iter().find(|command| command.get_name() == name);
        let args = command.map(|command| command.get_arguments());
        let args = args.into_iter().flatten();
        args.filter(|arg| !is_common(arg) && arg.get_id() != HELP && !arg.is_positional())
    };
    own("run")
        .filter(|arg| own("hold").any(|other| other.get_id() == arg.get_id()))
        .collect()
}

/// Returns whether all commands have the option.
fn is_common(arg: &Arg) -> bool {
    arg.get_help_heading() == Some(COMMON)
}

/// Returns the part about one command. The statuses and variables of all commands stand together in
/// sections of their own.
fn section(command: &Command, is_shared: impl Fn(&Arg) -> bool) -> String {
    let (name, help) = (command.get_name(), command.get_after_long_help());
    let mut text = format!(".SS {name}\n{}", description(command));
    let help = help.map(ToString::to_string).unwrap_or_default();
    let elsewhere = ["Exit status", "Environment"];
    let notes = help.split("\n\n");
    for note in notes.filter(|note| !elsewhere.iter().any(|start| note.starts_with(start))) {
        if !note.is_empty() {
            text.push_str(".PP\n");
            text.push_str(&paragraphs(note, ".PP"));
        }
    }
    let args = command.get_arguments();
    let args = args.filter(|arg| !is_common(arg) && arg.get_id() != HELP);
    let (shared, own): (Vec<_>, Vec<_>) = args.partition(|arg| is_shared(arg));
    let (operands, options): (Vec<_>, Vec<_>) =
        own.into_iter().partition(|arg| arg.is_positional());
    text.extend(operands.into_iter().chain(options).map(option));
    if !shared.is_empty() {
        text.push_str(
            ".PP\nThe options of \\fBrun\\fR and \\fBhold\\fR come after the commands.\n",
        );
    }
    text
}

/// Returns the entry of an option or an operand.
fn option(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| bold(&format!("-{short}")));
    let long = arg.get_long().map(|long| bold(&format!("--{long}")));
    let names = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    let takes_value = arg.get_action().takes_values();
    let values = arg.get_value_names().unwrap_or_default();
    let values = values.iter().filter(|_| takes_value);
    let values: Vec<_> = values.map(|value| italic(value)).collect();
    let values = values.join(" ");
    let head = match (&*names, &*values) {
        (name, value) if arg.is_require_equals_set() => format!("{name}[={value}]"),
        ("", only) | (only, "") => only.to_owned(),
        (name, value) => format!("{name} {value}"),
    };
    let help = arg.get_long_help().or(arg.get_help());
    let mut help = help.map(ToString::to_string).unwrap_or_default();
    let defaults = arg.get_default_values().iter().filter(|_| takes_value);
    for default in defaults.filter_map(|default| default.to_str()) {
        help.push_str(&format!(" [{default}]"));
    }
    let choices = arg.get_possible_values();
    if takes_value && !choices.is_empty() {
        let choices: Vec<_> = choices.iter().map(|choice| choice.get_name()).collect();
        help.push_str(&format!(": {}", choices.join(", ")));
    }
    format!(".TP\n{head}\n{}", paragraphs(&help, ".IP"))
}

/// Returns a text with `macro_name` between its paragraphs, and each sentence on a line of its own.
fn paragraphs(text: &str, macro_name: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let lines: Vec<_> = paragraph.split_whitespace().collect();
        let sentences = lines.join(" ").replace(". ", ".\n");
        let lines = sentences.lines().flat_map(|sentence| wrap(sentence, 60));
        let lines = lines.collect::<Vec<_>>().join("\n");
        full_stop(&styled(&lines))
    });
    paragraphs
        .collect::<Vec<_>>()
        .join(&format!("{macro_name}\n"))
}

/// Ends a text with a full stop. The help of an option has none if it is one sentence.
fn full_stop(text: &str) -> String {
    let end = if text.ends_with('.') { "\n" } else { ".\n" };
    text.to_owned() + end
}

/// Returns a text with what people type in bold: code in backticks, options and variables.
fn styled(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    let pieces = pieces.map(|(at, piece)| match at % 2 {
        1 => bold(piece),
        _ => piece
            .split_inclusive([' ', '\n'])
            .map(styled_word)
            .collect(),
    });
    pieces.collect()
}

fn styled_word(word: &str) -> String {
    let end = word.find(|letter: char| !letter.is_alphanumeric() && !"-_".contains(letter));
    let (name, rest) = word.split_at(end.unwrap_or(word.len()));
    if name.starts_with('-') || name.starts_with("QUORLOCK_") {
        return bold(name) + rest;
    }
    match name {
        "CMD" | "NAME" => italic(name) + rest,
        _ => name.to_owned() + &escaped(rest),
    }
}

fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", escaped(text).replace('-', "\\-"))
}

fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('\'', "\\(aq")
        .replace('~', "\\(ti")
}

/// The command and the option that every program has. They are not on the page.
const HELP: &str = "help";

/// The sections that are written by hand.
const SECTIONS: &str = include_str!("../man/sections.roff");
