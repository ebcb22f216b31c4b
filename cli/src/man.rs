//! The manual page.

use clap::CommandFactory;
use clap_mangen::Man as Page;
use quorlock::tools::SETTINGS;

use crate::{args::Args, exit::Exit, failure::Failure, output::say};

pub(crate) fn man() -> Result<Exit, Failure> {
    let mut all = Args::command().after_long_help(None::<&str>); // the sections say more
    all.build();
    let page = Page::new(all).source(concat!("quorlock ", env!("CARGO_PKG_VERSION")));
    let mut out = Vec::new();
    let written = page.render(&mut out);
    written.map_err(|error| Failure::new(Exit::Output, error.to_string()))?;
    // clap_mangen names a page of each command, and there is none.
    let page = String::from_utf8_lossy(&out).replace("quorlock\\-", "quorlock ");
    let page = page.replace("(1)\n", "\n");
    say(page + &SECTIONS.replace(KEYS, &keys()))?;
    Ok(Exit::Success)
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
