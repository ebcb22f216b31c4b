//! The manual pages: one about all commands, and one about each of them.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_mangen::Man as Page;
use quorlock::tools::SETTINGS;

use crate::{
    args::{Args, Man},
    exit::Exit,
    failure::Failure,
    report::say,
};

pub(crate) fn man(args: &Man) -> Result<Exit, Failure> {
    let mut all = Args::command();
    all.build();
    let wanted = match &args.command {
        None => all,
        Some(name) => {
            let sub = all.find_subcommand(name).cloned();
            let why = format!("there is no command {name:?}; `quorlock help` lists them");
            sub.ok_or_else(|| Failure::new(Exit::Usage, why))?
        }
    };
    let page = render(wanted, args.command.is_none());
    let page = page.map_err(|error| Failure::new(Exit::Output, error.to_string()))?;
    say(String::from_utf8_lossy(&page))?;
    Ok(Exit::Success)
}

fn render(mut command: Command, is_about_all: bool) -> io::Result<Vec<u8>> {
    let usage = command.render_usage().to_string().replace('-', "\\-");
    let page = Page::new(command).source(concat!("quorlock ", env!("CARGO_PKG_VERSION")));
    let mut out = Vec::new();
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    // The usage of clap_mangen lacks the `--` before the command.
    let usage = usage.trim_start_matches("Usage: ");
    writeln!(out, ".SH SYNOPSIS\n.nf\n{usage}\n.fi")?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    if is_about_all {
        page.render_subcommands_section(&mut out)?;
        out.extend_from_slice(SECTIONS.replace(KEYS, &keys()).as_bytes());
    } else {
        page.render_extra_section(&mut out)?;
    }
    Ok(out)
}

/// Returns the keys of the configuration file, with their variables.
fn keys() -> String {
    let rows = SETTINGS.iter().filter(|[_, key, ..]| !key.is_empty());
    rows.map(|[variable, key, _, text]| format!(".TP\n.IR {key} \", {variable}\"\n{text}\n"))
        .collect()
}

/// The sections that are written by hand: statuses, variables and files.
const SECTIONS: &str = include_str!("../man/sections.roff");
/// The line in the place of the keys.
const KEYS: &str = ".\\\" keys\n";
