//! The arguments.

use std::{
    ffi::OsString,
    io::{IsTerminal, stderr},
    ops::Deref,
    path::PathBuf,
    time::Duration,
};

use clap::{
    ArgAction, Args as Group, Parser, Subcommand, ValueHint,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};
use clap_complete::Shell;
use quorlock::Quarantine;

use crate::{
    help::{after, of_file, of_table},
    values::{quarantine, textfile, time},
};

/// Distributed locks, held by a majority of independent Redis or Valkey masters.
///
/// The masters come from the first of these: the options --master; the profile that --profile
/// names; the file that --config names; QUORLOCK_MASTERS, which has URLs with commas between them;
/// the default profile of the usual configuration file.
#[derive(Debug, Parser)]
#[command(name = "quorlock", version, max_term_width = 80)]
#[command(after_long_help = after("quorlock"), mut_subcommands(of_file))]
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
    Acquire(Acquire),
    Release(Release),
    Status(Status),
    Doctor(Doctor),
    Plan(Plan),
    Break(Break),
    Completions(Completions),
    /// Prints the manual page, for `man -l -`.
    Man,
}

/// The heading of the options of all commands.
pub(crate) const COMMON: &str = "Options of all commands";

/// The options of all commands. Those without a text here are settings.
///
/// Each may stand before or after the name of the command.
#[derive(Clone, Debug, Group)]
#[command(next_help_heading = COMMON, mut_args = of_table)]
pub(crate) struct Common {
    /// URL of a master, repeated for each master.
    ///
    /// For example redis://10.0.0.1. Other users see it in `ps`, so give passwords by file.
    #[arg(global = true, long = "master", value_name = "URL")]
    pub(crate) masters: Vec<String>,
    #[arg(global = true, long = "old-master")]
    pub(crate) old_masters: Vec<String>,
    /// Profile in the configuration file: masters and their settings.
    ///
    /// Options override its settings.
    #[arg(global = true, long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Configuration file [~/.config/quorlock.toml].
    ///
    /// The manual page has its keys.
    #[arg(global = true, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[arg(global = true, long)]
    pub(crate) password_file: Option<PathBuf>,
    // If two programs differ in one of the next three, then both may hold the lock of one name.
    #[arg(global = true, long)]
    pub(crate) key_template: Option<String>,
    #[arg(global = true, long, value_parser = time)]
    pub(crate) max_ttl: Option<Duration>,
    #[arg(global = true, long, value_parser = quarantine())]
    pub(crate) quarantine: Option<Quarantine>,
    #[arg(global = true, long, value_parser = time)]
    pub(crate) connect_timeout: Option<Duration>,
    #[arg(global = true, long, value_parser = time)]
    pub(crate) response_timeout: Option<Duration>,
    /// Say more on stderr, such as all votes.
    #[arg(global = true, short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Common {
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Returns whether a person reads stderr.
    pub(crate) fn wants_news(&self) -> bool {
        self.is_verbose() || stderr().is_terminal()
    }
}

/// The options of commands that ask for a lock.
#[derive(Clone, Debug, Group)]
pub(crate) struct Request {
    /// Give up after this time, such as 500ms or 10s; 5 is 5s [never].
    #[arg(short, long, alias = "timeout", value_name = "TIME", value_parser = time, allow_hyphen_values = true, conflicts_with = "nonblock")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait for another holder.
    #[arg(short = 'n', long, alias = "no-wait")]
    pub(crate) nonblock: bool,
    /// Wait up to this time for masters that can vote [with --nonblock: 1s].
    ///
    /// After a restart of most masters, that takes up to a minute. Without --ready and --nonblock,
    /// only --wait limits it.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) ready: Option<Duration>,
    /// Exit with this status if another holder has the lock [75].
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Say nothing of another holder, nor of outages that do not cost the lock.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// What `status` shows beside the host and the process ID [of `run`: the name of CMD].
    ///
    /// It is cut to what fits, and everyone who can read the locks can read it.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) label: Option<String>,
    /// Serve waiters in the order in which they came.
    #[arg(long)]
    pub(crate) fair: bool,
    /// Acquire the lock as a reader: readers share it, and keep writers out.
    ///
    /// Waiters are served in the order in which they came, so readers and writers all get their
    /// turn. The status is 75 only if a writer holds the lock or waits for it.
    #[arg(long, conflicts_with_all = ["fair", "fence", "write"])]
    pub(crate) read: bool,
    /// Acquire the lock as the writer, who holds it alone, with a name that readers use, too.
    #[arg(long, conflicts_with = "fair")]
    pub(crate) write: bool,
    /// Let at most N holders have the lock at once.
    ///
    /// N is from 1 to 1000, and should be the same for all. Each holder has a slot of its own.
    /// Waiters are served in the order in which they came, but those that come close together may
    /// swap.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000), conflicts_with_all = ["fair", "read", "write"])]
    pub(crate) permits: Option<usize>,
    /// Get a fencing token. Not with --read.
    ///
    /// The token is a number larger than that of every earlier holder.
    #[arg(long)]
    pub(crate) fence: bool,
}

/// The options of commands that ask for a lock and keep it.
#[derive(Clone, Debug, Group)]
#[command(mut_args = of_table)]
pub(crate) struct Asking {
    #[command(flatten)]
    pub(crate) request: Request,
    #[arg(long, value_parser = time, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// Keep others out for at least this time.
    ///
    /// A lock that is released earlier stays on the masters until this time has passed since it was
    /// acquired, and until the TTL has passed since its last renewal. It looks like a lock that is
    /// held. `quorlock break` ends it earlier. The time may be longer than --max-ttl. Then masters
    /// that lose their data may give the lock to another after --max-ttl. If quorlock itself is
    /// killed by KILL, or its host ends, the lock ends with its TTL.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) min_hold: Option<Duration>,
    /// Hold the lock for at most this time [no limit].
    ///
    /// Then CMD gets TERM, as if the lock were lost, and `hold` releases it. The status is 76.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) max_hold: Option<Duration>,
}

impl Deref for Asking {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

const RUN_USAGE: &str = "\
quorlock run [OPTIONS] <NAME>... -- <CMD>...
       quorlock run [OPTIONS] --attach <FILE> -- <CMD>...";

/// Runs a command while the lock is held.
///
/// Exits with the status of the command, or with 128+n if signal n ended it.
#[derive(Debug, Group)]
#[command(override_usage = RUN_USAGE)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) asking: Asking,
    /// CMD gets TERM this long before its lock would end [TTL/3, at most 10s].
    ///
    /// Then it gets KILL just before that end. If the lock is lost earlier, TERM comes at once, and
    /// KILL this long after it, but no later. With 0s, CMD gets no TERM: it is killed at once.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) kill_after: Option<Duration>,
    /// Take over the lock that `acquire` wrote into this file [- for the input].
    ///
    /// The lock keeps its TTL, its fencing token, its slot and the label of `acquire`, so --label and
    /// -n cannot be given. The file is removed when the lock is released or gone.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "wait", "nonblock", "conflict_exit_code", "label", "fair", "read", "write", "permits", "fence", "ttl", "min_hold"])]
    pub(crate) attach: Option<PathBuf>,
    /// Name of the lock, or names of mutexes to hold all at once.
    ///
    /// --fair, --read, --write, --permits and --fence take one name. No name begins with -, or has
    /// a line break.
    #[arg(required_unless_present = "attach", value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Command and its arguments. There is no shell in between.
    #[arg(required = true, last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Holds the lock until it gets a signal such as Ctrl-C or TERM.
///
/// Prints one line when the lock is held, and releases the lock after the signal. With
/// --until-eof, the end of its input ends it, too.
#[derive(Debug, Group)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(crate) asking: Asking,
    /// End with the input, for example with the script that holds a pipe open.
    ///
    /// Then a script that is killed leaves no lock. The manual page has such a script. Commands
    /// that the script starts have the pipe open, too, as with `flock 9`.
    #[arg(long)]
    pub(crate) until_eof: bool,
    /// Print the line as JSON.
    ///
    /// The fields are `name` and `names`; `granted`, the number of votes so far; `masters`, the
    /// number of masters; `fencing_token`, which is null without --fence; `slot`, which is null
    /// without --permits; and `valid_until_ms`, as QUORLOCK_VALID_UNTIL_MS of `quorlock run`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Name of the lock, or several as for `run`.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// A command, by mistake.
    #[arg(last = true, hide = true)]
    pub(crate) command: Vec<OsString>,
}

/// Acquires a lock, and leaves it to another process.
///
/// Writes a handle and ends. With the handle, `quorlock release` releases the lock, and `quorlock
/// run --attach` runs a command under it, also on another host. In between nobody renews the lock.
/// The handle is a secret: whoever has it can release the lock. Let one process at a time use it: two
/// that attach it both run, and the first to end releases the lock.
///
/// Set quarantine to strict in all programs. Otherwise, masters that restart without their data while
/// no process knows them give the lock to another.
#[derive(Debug, Group)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) request: Request,
    /// Time until the lock ends, unless it is taken over or released.
    ///
    /// At most --max-ttl, which must be the same in all programs of these masters.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,
    /// New file for the handle [- for the output].
    ///
    /// Only its owner can read it. A file that exists is refused.
    #[arg(long, value_name = "FILE")]
    pub(crate) handle_file: PathBuf,
    /// Name of the lock, or several as for `run`.
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

/// Releases a lock that `acquire` left.
#[derive(Debug, Group)]
pub(crate) struct Release {
    /// File with the handle, which is removed when the lock is released or gone [- for the input].
    #[arg(long, value_name = "FILE")]
    pub(crate) handle_file: PathBuf,
}

/// Shows who holds locks, since when, and who waits in queues.
///
/// Without a name, lists all locks of quorlock that are held. A lock of another library is shown by
/// its name only.
#[derive(Debug, Group)]
pub(crate) struct Status {
    /// Names of the locks [all that are held].
    pub(crate) names: Vec<String>,
    /// List all locks even if the key template is {name}: any key may be that of a lock.
    ///
    /// Then the masters look at the value of each key of the database.
    #[arg(long, conflicts_with = "names")]
    pub(crate) all_keys: bool,
    /// Look once. Otherwise status looks twice at a held lock that is named, to see whether it is
    /// renewed: with the default TTL, within 4 s.
    #[arg(long)]
    pub(crate) now: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Checks the masters, and says how to fix what is wrong.
#[derive(Debug, Group)]
pub(crate) struct Doctor {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing, and replace this file with metrics.
    ///
    /// The textfile collector of the Prometheus node exporter reads them. The name must end with
    /// .prom.
    #[arg(long, value_name = "FILE", value_parser = textfile, conflicts_with = "json")]
    pub(crate) textfile: Option<PathBuf>,
}

/// Shows the steps to other masters, and whether it is time for the next one.
#[derive(Debug, Group)]
pub(crate) struct Plan {
    /// URL of a new master, repeated for each, also for those that stay.
    #[arg(long, required = true, value_name = "URL")]
    pub(crate) to: Vec<String>,
    /// URL of an old master, repeated for each [those of the settings].
    #[arg(long, value_name = "URL")]
    pub(crate) from: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Takes a lock away from its holder.
///
/// Shows the holder and the waiters, and asks for a confirmation. A newer holder keeps the lock. A
/// holder that is alive goes on with its work until its next renewal fails, or without renewal
/// until its TTL ends. Until then, it may work at the same time as the next holder.
///
/// A holder without a client name may be a lock of another library, or data with a TTL. Look at the
/// key with redis-cli first.
#[derive(Debug, Group)]
pub(crate) struct Break {
    /// Name of the lock.
    pub(crate) name: String,
    /// Break the lock only if this holder has it, and leave others alone [all holders].
    ///
    /// WHO is a client such as web-3/812, or the ID of an owner, as `status` shows it, or the whole
    /// client_name of `status --json`.
    #[arg(long, value_name = "WHO")]
    pub(crate) holder: Option<String>,
    /// Do not ask.
    #[arg(short, long, alias = "force", short_alias = 'f')]
    pub(crate) yes: bool,
    /// Break a key without a TTL, too, which may be data.
    #[arg(long)]
    pub(crate) without_ttl: bool,
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
