//! The manual page: all commands on one page.

use std::io;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::{args::Args, exit::Exit, failure::Failure, report::say};

pub(crate) fn man() -> Result<Exit, Failure> {
    let page = page().map_err(|error| {
        Failure::new(
            Exit::Output,
            format!("cannot write the manual page: {error}"),
        )
    })?;
    say(page)?;
    Ok(Exit::Success)
}

fn page() -> io::Result<String> {
    let command = Args::command();
    let mut page = Vec::new();
    let man = Man::new(command.clone()).manual("User Commands");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    for sub in command.get_subcommands() {
        page.push_str(&section(sub)?);
    }
    let mut end = Vec::new();
    man.render_extra_section(&mut end)?;
    Ok(tidy(&(page + &String::from_utf8_lossy(&end))))
}

/// Keeps the definition of the apostrophe once, before the first use, and names the last part.
fn tidy(page: &str) -> String {
    let is_definition =
        |line: &str| line.starts_with(".ie \\n(.g") || line.starts_with(".el .ds Aq");
    let lines = page.lines().enumerate();
    let lines = lines.filter(|(at, line)| *at < 2 || !is_definition(line));
    let lines = lines.map(|(_, line)| match line {
        ".SH EXTRA" | ".SS EXTRA" => line.replace("EXTRA", "NOTES") + "\n",
        line => format!("{line}\n"),
    });
    lines.collect()
}

/// Returns the section about one command. Its parts are subsections.
fn section(command: &Command) -> io::Result<String> {
    let name = format!("quorlock {}", command.get_name());
    let heading = format!(".SH \"{}\"\n", name.to_uppercase());
    let man = Man::new(
        command
            .clone()
            .disable_help_flag(true)
            .bin_name(&name)
            .display_name(&name),
    );
    let mut text = Vec::new();
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_after_long_help().is_some() {
        man.render_extra_section(&mut text)?;
    }
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(|line| match line.strip_prefix(".SH ") {
        Some(rest) => format!(".SS {rest}\n"),
        None => format!("{line}\n"),
    });
    Ok(heading + &lines.collect::<String>())
}
