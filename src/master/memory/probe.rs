//! The answers of a memory master to a check.

use std::time::Duration;

use super::{
    connection::{Dialer, MemoryConnection},
    fault::Fault,
    server::State,
};
use crate::{
    core::vote::Failure,
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

impl State {
    /// Returns what `lua/shared/check.lua` would return on a server that is fit for locks.
    fn facts(&mut self) -> String {
        let (run_id, time) = (self.address.clone(), self.wall_micros());
        let now = self.keys().now();
        let seen = self.guard.as_ref().map_or(now, |record| record.seen);
        let seen = now.saturating_sub(seen);
        let guard = match self.guard.as_ref().map(|record| record.since) {
            None => "none".to_owned(),
            Some(0) => "never".to_owned(),
            Some(since) => now.saturating_sub(since).to_string(),
        };
        format!(
            "run_id:{run_id}\nmaster_replid:{run_id}\nredis_version:7.0.0\n\
             redis_mode:standalone\nrole:master\nmaxmemory_policy:noeviction\naof_enabled:1\n\
             guard_age:{guard}\nguard_seen:{seen}\nguard_durable:0\ntime:{time}"
        )
    }
}
