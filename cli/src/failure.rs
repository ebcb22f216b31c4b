//! Errors as people see them: one sentence on stderr, with the next step.

use std::{fmt::Display, time::Duration};

use humantime::format_duration;
use quorlock::{AcquireError, AskError, ConfigError, Reason, votes::Votes};

use crate::{
    args::Asking,
    exit::Exit,
    output::complain,
    times::{brief, rounded},
    words::in_words_of_the_file,
};

/// An error that ends the program.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    sentence: String,
    votes: Option<Votes>,
}

impl Failure {
    /// Creates a failure with its exit status. `sentence` says what happened and what to do. It has
    /// no full stop and no password, and is empty if nobody wants to read it.
    pub(crate) fn new(exit: Exit, sentence: impl Into<String>) -> Self {
        Self {
            exit,
            sentence: sentence.into(),
            votes: None,
        }
    }

    /// Creates a failure that nobody wants to read of.
    pub(crate) fn silent(exit: impl Into<Exit>) -> Self {
        Self::new(exit.into(), "")
    }

    /// Creates the failure of something that the system refused.
    pub(crate) fn system(what: &str, error: impl Display) -> Self {
        Self::new(Exit::System, format!("{what}: {error}"))
    }

    /// Returns the failure of a call for a lock. `holder` is the client that has the lock, if it is
    /// known.
    pub(crate) fn not_acquired(
        error: &AcquireError,
        holder: Option<&str>,
        asking: &Asking,
    ) -> Self {
        let (waited, wait) = match asking.wait {
            Some(waited) if !waited.is_zero() => {
                let waited = format_duration(waited);
                (format!(" (waited {waited})"), "or with a longer --wait")
            }
            _ => (String::new(), "or wait with --wait"),
        };
        let holder = holder.unwrap_or("another");
        let name = error.name();
        let (exit, sentence) = match error.reason() {
            // Readers may hold it.
            Reason::Queued if asking.read => (
                Exit::Busy,
                format!("a writer waits for {name:?}{waited}; try again later, {wait}"),
            ),
            _ => describe(error, holder, &waited, wait),
        };
        let failure = Self::new(exit, sentence);
        error.votes().into_iter().fold(failure, Self::with_votes)
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Blames the profile called `profile` in the configuration file.
    pub(crate) fn in_profile(self, profile: &str) -> Self {
        Self {
            sentence: format!("the profile {profile:?}: {}", self.sentence),
            ..self
        }
    }

    pub(crate) fn with_votes(self, votes: &Votes) -> Self {
        Self {
            votes: Some(votes.clone()),
            ..self
        }
    }

    /// Writes the sentence to stderr, and the votes if they are wanted. Returns the exit status.
    pub(crate) fn report(self, is_verbose: bool) -> Exit {
        if !self.sentence.is_empty() {
            complain(&self.sentence);
        }
        if let Some(votes) = self.votes.filter(|_| is_verbose) {
            complain(format_args!("the votes were\n{}", table(&votes)));
        }
        self.exit
    }
}

/// Returns one line for each master: its address, its vote, and how long that took.
pub(crate) fn table(votes: &Votes) -> String {
    let width = votes.iter().map(|row| row.master.len()).max();
    let width = width.unwrap_or_default();
    let lines = votes.iter().map(|row| {
        let vote = row
            .vote
            .map_or_else(|| "no vote yet".to_owned(), ToString::to_string);
        let vote = in_words_of_the_file(&vote);
        let time = row
            .latency
            .map_or_else(String::new, |time| format!("  {}", brief(time)));
        format!("  {:width$}  {vote}{time}", row.master)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the exit status and the sentence for the error of an attempt. `waited` says how long the
/// program has waited, and `wait` how it can wait longer.
fn describe(error: &AcquireError, holder: &str, waited: &str, wait: &str) -> (Exit, String) {
    let name = error.name();
    let by = match error.reason() {
        Reason::Held { remaining, .. } => held_by(holder, *remaining),
        Reason::Queued => "free, but others came first".to_owned(),
        Reason::Split => "wanted by several at once, and none got it".to_owned(),
        Reason::OtherKind => {
            let sentence = format!(
                "cannot lock {name:?}: it is held as another kind of lock; \
                 use each name always with --fair, always with --read or --write, always with \
                 --permits, or always without"
            );
            return (Exit::Configuration, sentence);
        }
        Reason::Config(error) => {
            let exit = match error {
                ConfigError::OutOfRange { setting: "TTL", .. } => Exit::Configuration,
                _ => Exit::Usage, // a name
            };
            return (exit, in_words_of_the_file(&error.to_string()));
        }
        _ => return (Exit::Unavailable, in_words_of_the_file(&error.to_string())),
    };
    let sentence = format!("{name:?} is {by}{waited}; try again later, {wait}");
    (Exit::Busy, sentence)
}

/// Says who holds a lock, and for how long.
pub(crate) fn held_by(holder: &str, remaining: Option<Duration>) -> String {
    let left = remaining.map(rounded);
    let left = left.map(|left| format!(" for {left} more, or longer if it is renewed"));
    format!("held by {holder}{}", left.unwrap_or_default())
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(
            Exit::Configuration,
            in_words_of_the_file(&error.to_string()),
        )
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        match &error {
            AskError::Config(error) => Self::from(error.clone()).with_exit(Exit::Usage),
            error => Self::new(Exit::Unavailable, error.to_string()),
        }
    }
}
