//! The command line shared by all benches.

use std::env;
use std::process;
use std::time::Duration;

use crate::load::Length;

/// The requested options. `None` leaves the choice to the bench.
#[derive(Debug, Default)]
pub struct Options {
    pub quick: bool,
    pub only: Option<Vec<String>>,
    pub widths: Option<Vec<usize>>,
    pub rounds: Option<usize>,
    pub seconds: Option<f64>,
}

/// How often and for how long a bench runs closed loops, and with how many tasks.
pub struct Extent {
    pub rounds: usize,
    pub widths: Vec<usize>,
    pub length: Length,
}

const USAGE: &str =
    "usage: [--quick] [--rounds N] [--seconds S] [--widths 1,16] [--only name,name]";

impl Options {
    /// Reads the command line. Ends the process if it is malformed.
    pub fn from_args() -> Self {
        let mut options = Self::default();
        let mut args = env::args().skip(1);
        while let Some(arg) = args.next() {
            if options.set(&arg, &mut args).is_none() {
                eprintln!("{USAGE}");
                process::exit(2);
            }
        }
        options
    }

    fn set(&mut self, arg: &str, args: &mut impl Iterator<Item = String>) -> Option<()> {
        if arg == "--quick" {
            self.quick = true;
            return Some(());
        }
        let value = args.next()?;
        match arg {
            "--only" => self.only = Some(value.split(',').map(str::to_owned).collect()),
            "--rounds" => self.rounds = Some(value.parse().ok()?),
            "--seconds" => self.seconds = Some(value.parse().ok()?),
            "--widths" => {
                let widths = value.split(',').map(|width| width.parse().ok());
                self.widths = Some(widths.collect::<Option<_>>()?);
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns whether to run `name`, which is a contestant, a fault or a scenario.
    pub fn wants(&self, name: &str) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|only| only.iter().any(|one| one == name))
    }

    /// Returns the extent of a bench, with these values where the options say nothing. The lengths
    /// of the warm-up and of the measurement are in milliseconds.
    pub fn extent(&self, rounds: usize, widths: &[usize], warm_up: u64, measured: u64) -> Extent {
        Extent {
            rounds: self.rounds.unwrap_or(rounds),
            widths: self.widths.clone().unwrap_or_else(|| widths.to_vec()),
            length: Length {
                warm_up: Duration::from_millis(warm_up),
                measured: self.measured(measured),
            },
        }
    }

    /// Returns the measured time of a run: `--seconds` if it is given, otherwise `millis`.
    pub fn measured(&self, millis: u64) -> Duration {
        self.seconds
            .map_or(Duration::from_millis(millis), Duration::from_secs_f64)
    }
}
