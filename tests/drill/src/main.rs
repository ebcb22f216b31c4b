//! Drills: real servers, client processes that share locks, and faults. See the README.

mod availability;
mod change;
mod check;
mod client;
mod clock;
mod command;
mod episode;
mod fleet;
mod history;
mod links;
mod locks;
mod masters;
mod nemesis;
mod note;
mod plan;
mod report;
mod spans;
mod store;
mod verdict;
mod watch;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use testkit::random::Random;
use testkit::server;

use crate::episode::{Outcome, Setting};
use crate::plan::{Class, Episode};
use crate::report::Report;

/// The result of a part of the drill that is not itself under test.
pub type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const USAGE: &str = "usage: drill [MINUTES] [--short] [--seed NUMBER] [--episode NUMBER], \
     or drill change [ROUNDS] [--short] [--seed NUMBER]";

/// The folder for the report, under the folder in which the program is started.
const OUTPUT: &str = "target/drill";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((first, orders)) if first == "client" => serde_json::from_str(&orders.concat())
            .map_err(Into::into)
            .and_then(client::run)
            .map(|()| true),
        Some((first, arguments)) if first == command::WORD => {
            command::run(arguments).map(|()| true)
        }
        Some((first, arguments)) if first == "change" => {
            Options::parse(arguments).and_then(|options| change::run(&options))
        }
        _ => Options::parse(&arguments).and_then(|options| options.run()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("drill: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    /// The length in minutes, or the number of rounds of changes.
    count: Option<u64>,
    is_short: bool,
    seed: u64,
    /// Runs only this episode.
    only: Option<usize>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            count: None,
            is_short: false,
            seed: Random::fresh_seed(),
            only: None,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut number = || {
                arguments
                    .next()
                    .ok_or(USAGE)?
                    .parse::<u64>()
                    .map_err(|_| USAGE)
            };
            match argument.as_str() {
                "--short" => options.is_short = true,
                "--seed" => options.seed = number()?,
                "--episode" => options.only = Some(number()? as usize),
                count => options.count = Some(count.parse().map_err(|_| USAGE)?),
            }
        }
        Ok(options)
    }

    /// Returns whether there was no violation.
    fn run(self) -> Result<bool> {
        println!("seed {}", self.seed);
        let output = Path::new(OUTPUT);
        fs::create_dir_all(output)?;
        let programs = masters::programs();
        let name = |program: &Option<PathBuf>| {
            program
                .as_ref()
                .map_or_else(server::binary, PathBuf::clone)
                .display()
                .to_string()
        };
        println!(
            "servers: {}",
            programs.iter().map(name).collect::<Vec<_>>().join(", ")
        );
        // The path of a socket must be short.
        let directory = std::env::temp_dir().join(format!("quorlock-drill-{}", std::process::id()));
        let setting = Setting {
            shim: masters::compile_shim(output),
            programs,
            directory: directory.clone(),
        };
        let mut outcomes = Vec::new();
        let ended = self.episodes(&setting, output, &mut outcomes);
        let _ = fs::remove_dir_all(directory);
        let report = Report {
            seed: self.seed,
            outcomes: &outcomes,
        };
        print!("\n{report}");
        fs::write(output.join("report.txt"), report.to_string())?;
        println!("\nsee {OUTPUT}/report.txt");
        ended?;
        Ok(outcomes.iter().all(|outcome| outcome.violations.is_empty()))
    }

    /// Runs all episodes. After an error, `outcomes` has those before it.
    fn episodes(
        &self,
        setting: &Setting,
        output: &Path,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60 * self.count.unwrap_or(5));
        let has_command_line = command::is_there();
        for number in self.only.unwrap_or_default().. {
            let is_over = match (self.only, self.is_short) {
                (Some(only), _) => number > only,
                (None, true) => number >= 3,
                (None, false) => Instant::now() + LENGTH > deadline && number > 0,
            };
            if is_over {
                break;
            }
            let mut episode = self.draw(number);
            if !has_command_line {
                episode.runners = 0;
            }
            println!(
                "episode {number}: {}, guard {:?}, TTLs from {:?}, {} clients run commands, \
                 {} faults",
                episode.class,
                episode.quarantine,
                episode.least_ttl,
                episode.runners,
                episode.events.len()
            );
            let outcome = setting.run(&episode)?;
            for violation in &outcome.violations {
                println!("VIOLATION: {violation}");
            }
            if !outcome.violations.is_empty() {
                write_log(&outcome, &output.join(format!("episode-{number}.log")))?;
            }
            outcomes.push(outcome);
        }
        Ok(())
    }

    fn draw(&self, number: usize) -> Episode {
        if self.is_short {
            let class = [Class::InModel, Class::LateWriters, Class::OutOfModel][number % 3];
            return Episode::draw(self.seed, number, class, SHORT);
        }
        let class = match number % 4 {
            1 => Class::LateWriters,
            3 => Class::OutOfModel,
            _ => Class::InModel,
        };
        Episode::draw(self.seed, number, class, LENGTH)
    }
}

const LENGTH: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(10);

/// Writes everything that the clients have logged, and the faults.
fn write_log(outcome: &Outcome, path: &Path) -> Result<()> {
    let lines = outcome.log.iter().map(|line| format!("{line:?}\n"));
    let faults = outcome.done.iter().map(|done| format!("{done:?}\n"));
    fs::write(path, lines.chain(faults).collect::<String>())?;
    println!("see {}", path.display());
    Ok(())
}
