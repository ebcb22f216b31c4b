//! The arguments.

use std::{ffi::OsString, mem, path::PathBuf, time::Duration};

use clap::{ArgAction, Args as Group, Parser, Subcommand};
use clap_complete::Shell;

/// Distributed locks, held by a majority of independent Redis or Valkey masters.
///
/// The masters come from --master, from QUORLOCK_MASTERS (URLs with commas between them), or from a
/// set in the configuration file, in this order.
#[derive(Debug, Parser)]
#[command(name = "quorlock", version, max_term_width = 80, disable_help_subcommand = true, after_long_help = AFTER)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(Run),
    Hold(Hold),
    Status(Status),
    Doctor(Doctor),
    Break(Break),
    Bench(Bench),
    Completions(Completions),
    /// Prints the manual page, for `man -l -`.
    Man,
}

/// The options of all commands.
///
/// They may stand before and after the name of the command.
#[derive(Debug, Default, Group)]
#[command(next_help_heading = "Options of all commands")]
pub(crate) struct Common {
    /// URL of a master, repeated for each master.
    ///
    /// For example redis://10.0.0.1. Other users see it in `ps`, so give passwords by file.
    #[arg(long = "master", value_name = "URL")]
    pub(crate) masters: Vec<String>,
    /// Set of masters in the configuration file.
    #[arg(long, value_name = "NAME")]
    pub(crate) set: Option<String>,
    /// Configuration file [~/.config/quorlock.toml].
    ///
    /// A set has masters, and may have user, password_file, ttl, max_ttl, key_template, strict, and
    /// for TLS ca_file, cert_file and key_file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Password of masters whose URLs have none.
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Say more on stderr, such as all votes.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Common {
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Joins the options before the name of the command with those after it. `Err` names options
    /// that exclude each other.
    pub(crate) fn join(self, after: Self) -> Result<Self, &'static str> {
        let Self {
            mut masters,
            set,
            config,
            password_file,
            verbose,
        } = self;
        masters.extend(after.masters);
        let set = one(set, after.set).ok_or("--set is given twice")?;
        if set.is_some() && !masters.is_empty() {
            return Err("--set and --master exclude each other");
        }
        let file = one(password_file, after.password_file);
        Ok(Self {
            masters,
            set,
            config: one(config, after.config).ok_or("--config is given twice")?,
            password_file: file.ok_or("--password-file is given twice")?,
            verbose: verbose.saturating_add(after.verbose),
        })
    }
}

/// Returns the option that is given. `None` if it is given twice.
fn one<T>(before: Option<T>, after: Option<T>) -> Option<Option<T>> {
    match (before, after) {
        (Some(_), Some(_)) => None,
        (before, after) => Some(before.or(after)),
    }
}

impl Verb {
    /// Takes the options after the name of the command.
    pub(crate) fn take_common(&mut self) -> Common {
        match self {
            Self::Run(Run { asking, .. }) | Self::Hold(Hold { asking, .. }) => {
                mem::take(&mut asking.common)
            }
            Self::Status(Status { common, .. })
            | Self::Doctor(Doctor { common, .. })
            | Self::Break(Break { common, .. })
            | Self::Bench(Bench { common, .. }) => mem::take(common),
            Self::Completions(_) | Self::Man => Common::default(),
        }
    }
}

/// Reads a time such as `500ms`. A time that no clock can be moved by is refused.
fn time(text: &str) -> Result<Duration, String> {
    const MOST: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time > MOST {
        return Err("it is longer than 100 years".to_owned());
    }
    Ok(time)
}

/// The options of commands that ask for a lock and keep it.
#[derive(Debug, Group)]
pub(crate) struct Asking {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Give up after this time, such as 500ms or 10s [never].
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "nonblock")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait for another holder.
    #[arg(short = 'n', long)]
    pub(crate) nonblock: bool,
    /// Wait up to this time for masters that can vote [with --nonblock: 1s].
    ///
    /// After a restart of most masters, that takes up to a minute.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ready: Option<Duration>,
    /// Exit with this status if another holder has the lock [75].
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Say nothing if another holder has the lock.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Serve waiters in the order in which they came.
    #[arg(long)]
    pub(crate) fair: bool,
    /// Time for which the lock outlives a dead holder [10s].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ttl: Option<Duration>,
    /// Keep others out for at least this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) min_hold: Option<Duration>,
    /// Renew the lock for at most this time [no limit].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) max_hold: Option<Duration>,
    /// Get a fencing token.
    ///
    /// The token is a number larger than that of every earlier holder.
    #[arg(long)]
    pub(crate) fence: bool,
}

/// Runs a command while the lock is held.
///
/// Exits with the status of the command, or with 128+n if a signal ended it.
#[derive(Debug, Group)]
#[command(after_long_help = RUN)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) asking: Asking,
    /// Time from TERM to KILL if the lock is lost [TTL/3].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) kill_after: Option<Duration>,
    /// Name of the lock.
    pub(crate) name: String,
    /// Command and its arguments. There is no shell in between.
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Holds the lock until interrupted.
///
/// Prints one line when the lock is held.
#[derive(Debug, Group)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(crate) asking: Asking,
    /// Print the line as JSON: name, granted, masters, fencing_token (or null), and deadline_ms,
    /// the Unix time at which the lock ends unless it is renewed.
    #[arg(long)]
    pub(crate) json: bool,
    /// Name of the lock.
    pub(crate) name: String,
}

/// Shows who holds locks, for how long, and who waits.
#[derive(Debug, Group)]
#[command(after_long_help = STATUS)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Names of the locks.
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Show a live table until interrupted.
    #[arg(long)]
    pub(crate) watch: bool,
    /// Time between two looks of --watch.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) interval: Duration,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Checks the masters, and says how to fix what is wrong.
#[derive(Debug, Group)]
#[command(after_long_help = DOCTOR)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Takes a lock away from its holder.
///
/// Shows the holder and the waiters, and asks. A newer holder keeps the lock. A holder that is
/// alive works on beside the next one until its next renewal fails.
#[derive(Debug, Group)]
#[command(after_long_help = BREAK)]
pub(crate) struct Break {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Name of the lock.
    pub(crate) name: String,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measures how long it takes to acquire and release a lock.
///
/// Uses locks of its own, and leaves nothing on the masters.
#[derive(Debug, Group)]
#[command(after_long_help = BENCH)]
pub(crate) struct Bench {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Time for which to measure.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) time: Duration,
    /// Number of tasks that work at the same time, each with its own lock.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) tasks: u32,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints a completion script for a shell.
#[derive(Debug, Group)]
pub(crate) struct Completions {
    /// Shell that reads the script.
    pub(crate) shell: Shell,
}

const AFTER: &str = "\
Exit status: 0 success, 64 wrong arguments, 69 no majority of masters, 71 the system refused \
something, 74 output could not be written, 75 another holder has the lock, 76 the lock was lost, \
78 wrong configuration.";

const RUN: &str = "\
Exit status: that of CMD, or 128+n if the signal n ended it or the wait for the lock. Otherwise \
64 wrong arguments, 69 no majority of masters, 71 no more processes, 75 another holder has the \
lock, 76 the lock was lost while CMD ran, 78 wrong configuration, 126 CMD cannot be executed, \
127 CMD was not found.

Environment of CMD: QUORLOCK_LOCK (the name), QUORLOCK_VOTES (such as 3/5), QUORLOCK_DEADLINE_MS \
(Unix time in milliseconds at which the lock ends unless it is renewed, as of the start: it moves \
on with each renewal), and with --fence QUORLOCK_FENCING_TOKEN.

CMD gets the signals HUP, INT, QUIT, TERM, USR1 and USR2. If the lock is lost, or about to end \
without a renewal, CMD gets TERM. It gets KILL after the time of --kill-after, and a little before \
the end of the lock at the latest. CMD is also killed if quorlock itself is killed or hangs. \
Processes that CMD leaves in the background go on without the lock.";

const STATUS: &str = "\
Exit status: 0 free, 75 held or contested, 69 no majority of masters answered. \
With several names, 69 comes before 75, and 75 before 0.";

const DOCTOR: &str = "\
Exit status, by the worst finding: 0 none or info, 1 unknown, 2 warn, 3 refuse.";

const BREAK: &str = "\
Exit status: 0 a majority of masters is free of that holder, 64 nobody said yes, \
69 too few masters answered, 75 a newer holder has the lock, 78 the key is not a \
lock.";

const BENCH: &str = "\
Exit status: 0 no failures, 1 some failures, 69 nothing worked.";
