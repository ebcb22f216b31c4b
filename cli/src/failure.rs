//! Errors as people see them: one sentence on stderr, with the next step.

use std::{fmt::Display, time::Duration};

use humantime::format_duration;
use quorlock::{AcquireError, AskError, ConfigError, Reason, votes::Votes};

use crate::{
    args::Asking, exit::Exit, output::complain, times::rounded, words::in_words_of_the_file,
};

/// An error that ends the program.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) sentence: String,
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
        let name = error.name();
        let what = match error.reason() {
            Reason::Held { remaining, .. } => {
                let by = held_by(holder.unwrap_or("another"), *remaining);
                format!("{name:?} is {by}")
            }
            // Readers may hold it.
            Reason::Queued if asking.read => format!("a writer waits for {name:?}"),
            Reason::Queued => format!("{name:?} is free, but others came first"),
            Reason::Split => format!("{name:?} is wanted by several at once, and none got it"),
            Reason::OtherKind => {
                let sentence = format!("cannot lock {name:?}: {OTHER_KIND}");
                return Self::new(Exit::Configuration, sentence);
            }
            Reason::Config(wrong @ ConfigError::OutOfRange { setting: "TTL", .. }) => {
                return wrong.clone().into();
            }
            Reason::Config(name) => return Self::from(name.clone()).with_exit(Exit::Usage),
            _ => {
                let sentence = in_words_of_the_file(&error.to_string());
                return Self::new(Exit::Unavailable, sentence);
            }
        };
        Self::new(
            Exit::Busy,
            format!("{what}{waited}; try again later, {wait}"),
        )
    }

    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    pub(crate) fn with_votes<'a>(self, votes: impl Into<Option<&'a Votes>>) -> Self {
        let votes = votes.into().cloned();
        Self { votes, ..self }
    }

    /// Writes the sentence to stderr, and the votes if they are wanted. Returns the exit status.
    pub(crate) fn report(self, is_verbose: bool) -> Exit {
        if !self.sentence.is_empty() {
            complain(&self.sentence);
        }
        if let Some(votes) = self.votes.filter(|_| is_verbose) {
            let votes = in_words_of_the_file(&votes.to_string());
            complain(format_args!("the votes were {votes}"));
        }
        self.exit
    }
}

const OTHER_KIND: &str = "it is held as another kind of lock; use each name always with --fair, \
    always with --read or --write, always with --permits, or always without";

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
