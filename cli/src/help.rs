//! What `--help` and the manual page say about settings, and after the arguments.

use clap::{Arg, Command};
use quorlock::tools::SETTINGS;

/// Gives an option without a text that of the setting with its name. `-h` shows the first sentence.
pub(crate) fn of_table(option: Arg) -> Arg {
    let id = option.get_id().clone();
    let row = SETTINGS.iter().find(|[_, key, ..]| id == *key);
    let Some([_, _, kind, text]) = row.filter(|_| option.get_help().is_none()) else {
        return option;
    };
    let text = text.trim_end_matches('.');
    let (short, _) = text.split_once(". ").unwrap_or((text, ""));
    let long = text.replacen(". ", ".\n\n", 1);
    option.value_name(*kind).help(short).long_help(long)
}

/// Gives a command the text of the file after its arguments, if there is one.
pub(crate) fn of_file(command: Command) -> Command {
    match after(command.get_name()) {
        text if text.is_empty() => command,
        text => command.after_long_help(text),
    }
}

/// Returns what the help of a command says after its arguments.
pub(crate) fn after(command: &str) -> String {
    let mut parts = include_str!("help.md").split("\n## ");
    let part = parts.find_map(|part| part.strip_prefix(command)?.strip_prefix("\n\n"));
    let paragraphs = part.unwrap_or_default().trim_end().split("\n\n");
    let paragraphs = paragraphs.map(|one| one.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}
