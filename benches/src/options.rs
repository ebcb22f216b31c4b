//! The command line that all benches share.

use std::env;
use std::process;

/// What was asked for; `None` is the bench's own choice.
#[derive(Debug, Default)]
pub struct Options {
    pub quick: bool,
    pub only: Option<Vec<String>>,
    pub widths: Option<Vec<usize>>,
    pub rounds: Option<usize>,
}

impl Options {
    /// Reads the command line; ends the process when it makes no sense.
    pub fn from_args() -> Self {
        let mut options = Self::default();
        let mut args = env::args().skip(1);
        while let Some(arg) = args.next() {
            let known = match arg.as_str() {
                "--quick" => {
                    options.quick = true;
                    true
                }
                "--only" => options.set_only(args.next()),
                "--widths" => options.set_widths(args.next()),
                "--rounds" => options.set_rounds(args.next()),
                _ => false,
            };
            if !known {
                eprintln!("usage: [--quick] [--rounds N] [--widths 1,16] [--only name,name]");
                process::exit(2);
            }
        }
        options
    }

    /// Whether `name` takes part.
    pub fn wants(&self, name: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.iter().any(|one| one == name))
    }

    fn set_only(&mut self, value: Option<String>) -> bool {
        self.only = value.map(|names| names.split(',').map(str::to_owned).collect());
        self.only.is_some()
    }

    fn set_widths(&mut self, value: Option<String>) -> bool {
        let parse = |widths: String| widths.split(',').map(|width| width.parse().ok()).collect();
        self.widths = value.and_then(parse);
        self.widths.is_some()
    }

    fn set_rounds(&mut self, value: Option<String>) -> bool {
        self.rounds = value.and_then(|rounds| rounds.parse().ok());
        self.rounds.is_some()
    }
}
