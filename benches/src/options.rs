//! The command line shared by all benches.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{self, Command};
use std::time::Duration;

/// The requested options. `None` leaves the choice to the bench.
#[derive(Debug, Default)]
pub struct Options {
    pub quick: bool,
    pub only: Option<Vec<String>>,
    pub widths: Option<Vec<usize>>,
    pub rounds: Option<usize>,
    pub runtimes: Option<Vec<String>>,
    pub seconds: Option<f64>,
}

const USAGE: &str = "usage: [--quick] [--rounds N] [--seconds S] [--widths 1,16] [--only name,name] \
     [--runtimes current,multi] [--server PROGRAM]";

/// The variable that names the server program, also for processes that a bench starts.
const SERVER: &str = "QUORLOCK_TEST_SERVER";

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
            "--only" => self.only = Some(list(&value)),
            "--rounds" => self.rounds = Some(value.parse().ok()?),
            "--runtimes" => self.runtimes = Some(list(&value)),
            "--server" => use_server(&value)?,
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
        contains(self.only.as_deref(), name)
    }

    /// Returns whether this runtime takes part.
    pub fn wants_runtime(&self, name: &str) -> bool {
        contains(self.runtimes.as_deref(), name)
    }

    /// Returns the measured time of a run: `--seconds` if it is given, otherwise `millis`.
    pub fn measured(&self, millis: u64) -> Duration {
        self.seconds
            .map_or(Duration::from_millis(millis), Duration::from_secs_f64)
    }
}

/// Starts this process again with the server program in its environment, unless it is there.
fn use_server(program: &str) -> Option<()> {
    if env::var_os(SERVER).is_some_and(|set| set == program) {
        return Some(());
    }
    let bench = env::current_exe().ok()?;
    let mut command = Command::new(bench);
    let error = command
        .args(env::args_os().skip(1))
        .env(SERVER, program)
        .exec();
    eprintln!("cannot start again: {error}");
    None
}

fn list(value: &str) -> Vec<String> {
    value.split(',').map(str::to_owned).collect()
}

fn contains(wanted: Option<&[String]>, name: &str) -> bool {
    wanted.is_none_or(|wanted| wanted.iter().any(|one| one == name))
}
