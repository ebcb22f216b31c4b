//! The answers of a memory master to a check.

use std::{collections::BTreeMap, time::Duration};

use super::{
    connection::{Dialer, MemoryConnection},
    fault::Fault,
    server::ServerState,
};
use crate::{
    core::{restart::ORIGIN_KEY, vote::Failure},
    master::{
        dial_error::DialError,
        question::{Answer, Question},
    },
};

/// A connection for questions.
pub(in crate::master) struct MemoryProbe<'a> {
    dialer: &'a Dialer,
    connection: MemoryConnection,
}

impl<'a> MemoryProbe<'a> {
    pub(in crate::master) async fn dial(dialer: &'a Dialer) -> Result<(Self, Duration), DialError> {
        let (connection, round_trip) = dialer.connect().await?;
        Ok((Self { dialer, connection }, round_trip))
    }

    /// Appends one answer to `answers` for each question.
    pub(in crate::master) async fn ask(
        &self,
        questions: &[Question<'_>],
        answers: &mut Vec<Answer>,
    ) -> Result<(), Failure> {
        let fault = self.connection.arrival().await;
        if fault == Fault::Down {
            return Err(Failure::Disconnected("connection reset".into()));
        }
        let mut state = self.dialer.state.lock();
        for question in questions {
            state.commands += 1;
            answers.push(match (&fault, question) {
                (Fault::ErrorReply(error), _) => Err(Failure::Rejected(error.as_str().into())),
                (_, Question::Connections) => Err(Failure::Rejected(NO_NAMES.into())),
                (_, Question::Counters([_, window])) => Ok(Some(state.counters(window))),
                (_, Question::Facts(_)) => Ok(Some(state.facts())),
                // A memory master has no settings.
                (_, Question::Setting(_)) => Ok(None),
            });
        }
        Ok(())
    }

    pub(in crate::master) fn observe(&self, run_id: Option<&str>) -> Result<(), DialError> {
        let tracker = self.dialer.restart_tracker.detached();
        if !tracker.has_met(self.dialer.master, run_id) {
            self.dialer.loss(&tracker)?;
        }
        Ok(())
    }
}

const NO_NAMES: &str = "ERR a memory master does not know its programs";

impl ServerState {
    /// Returns what `lua/shared/counters.lua` would return.
    fn counters(&mut self, window: &str) -> String {
        let latest = self.clock.wall_micros();
        let window: u64 = window.parse().unwrap_or_default();
        let keys = self.keys();
        let counters = keys.names().into_iter().filter_map(|key| {
            let counter = keys.get(key.strip_prefix("quorlock:fence:").map(|_| &*key)?);
            let ahead = counter.ok()??.parse::<u64>().ok()?.checked_sub(latest)?;
            (ahead > window).then(|| format!("\n{ahead} {key}"))
        });
        "0".to_owned() + &counters.collect::<String>()
    }

    /// Returns what `lua/shared/check.lua` would return on a server that is fit for locks.
    fn facts(&mut self) -> String {
        let (info, time) = (self.info().replace('\r', ""), self.clock.wall_micros());
        let keys = self.keys();
        let record = keys.hash(ORIGIN_KEY).unwrap_or(const { &BTreeMap::new() });
        let field = |name| record.get(name).and_then(|text| text.parse().ok());
        let ago = |millis: u64| keys.now().saturating_sub(millis).to_string();
        let origin_age = match field("since") {
            None => "none".to_owned(),
            Some(0) => "never".to_owned(),
            Some(since) => ago(since),
        };
        let origin_seen = field("seen").map_or_else(|| "0".to_owned(), ago);
        format!("{info}origin_age:{origin_age}\norigin_seen:{origin_seen}\ntime:{time}")
    }
}
