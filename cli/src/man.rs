//! The manual pages: one about all commands, and one about each of them.

use clap::{Command, CommandFactory};
use clap_mangen::Man as Page;

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
    let mut page = Vec::new();
    let is_about_all = args.command.is_none();
    let written = render(wanted, is_about_all, &mut page);
    written.map_err(|error| Failure::new(Exit::Output, error.to_string()))?;
    say(String::from_utf8_lossy(&page))?;
    Ok(Exit::Success)
}

fn render(command: Command, is_about_all: bool, page: &mut Vec<u8>) -> std::io::Result<()> {
    Page::new(command).render(page)?;
    if is_about_all {
        page.extend_from_slice(SECTIONS.as_bytes());
    }
    Ok(())
}

/// The sections that are written by hand: statuses, variables and files.
const SECTIONS: &str = include_str!("../man/sections.roff");
