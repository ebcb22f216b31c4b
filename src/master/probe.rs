//! A separate connection to one master, opened for a check.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

#[cfg(feature = "test-util")]
use super::memory::{connection::Dialer as MemoryDialer, probe::MemoryProbe};
use super::redis::{Dialer as RedisDialer, RedisProbe};
use super::{
    connect_error::{ConnectError, in_time},
    dial_error::DialError,
    question::{Answer, Question, is_unknown_script},
};
use crate::core::{time::timeout::NodeTimeout, vote::Failure};

/// Dials one master for a check. The connection carries no lock commands.
pub(crate) struct Probe {
    pub(crate) address: Arc<str>,
    pub(super) connect_timeout: Duration,
    pub(super) node_timeout: NodeTimeout,
    pub(super) dialer: Dialer,
}

pub(super) enum Dialer {
    #[cfg(feature = "test-util")]
    Memory(MemoryDialer),
    Redis(Box<RedisDialer>),
}

/// The reason why a master does not answer a check.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("{0}")]
    Failed(Failure),
}

impl From<ConnectError> for ProbeError {
    fn from(error: ConnectError) -> Self {
        Self::Dial(error.into())
    }
}

impl From<Failure> for ProbeError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Probe {
    /// Connects and logs in, as every connection to the master does.
    pub(crate) async fn dial(&self) -> Result<Interview<'_>, DialError> {
        let dial = async {
            Ok::<_, DialError>(match &self.dialer {
                #[cfg(feature = "test-util")]
                Dialer::Memory(dialer) => {
                    let (probe, round_trip) = MemoryProbe::dial(dialer).await?;
                    (Line::Memory(probe), round_trip)
                }
                Dialer::Redis(dialer) => {
                    let (probe, round_trip) = RedisProbe::dial(dialer).await?;
                    (Line::Redis(probe), round_trip)
                }
            })
        };
        let progress = match &self.dialer {
            Dialer::Redis(dialer) => dialer.greeter.progress.clone(),
            #[cfg(feature = "test-util")]
            _ => Default::default(),
        };
        let (line, round_trip) = in_time(self.connect_timeout, &progress, dial).await?;
        let timeout = self.node_timeout.limits(round_trip).timeout;
        Ok(Interview { line, timeout })
    }
}

/// An open connection for questions.
pub(crate) struct Interview<'a> {
    line: Line<'a>,
    /// The time for all answers of one call.
    timeout: Duration,
}

enum Line<'a> {
    #[cfg(feature = "test-util")]
    Memory(MemoryProbe<'a>),
    Redis(RedisProbe<'a>),
}

impl Interview<'_> {
    /// Asks all `questions` at once. Returns one answer for each question.
    pub(crate) async fn ask(&mut self, questions: &[Question<'_>]) -> Vec<Answer> {
        let mut answers = Vec::new();
        let asking = async {
            match &mut self.line {
                #[cfg(feature = "test-util")]
                Line::Memory(probe) => probe.ask(questions, &mut answers).await,
                Line::Redis(probe) => probe.ask(questions, &mut answers).await,
            }
        };
        let failure = match timeout(self.timeout, asking).await {
            Ok(Ok(())) => return answers,
            Ok(Err(failure)) => failure,
            Err(_) => Failure::timed_out(self.timeout),
        };
        for answer in &mut answers {
            if is_unknown_script(answer) {
                *answer = Err(failure.clone());
            }
        }
        answers.resize(questions.len(), Err(failure));
        answers
    }

    /// Asks whether the master restarted, as every dial does. Does nothing if the coordinator has
    /// asked the process with this run id before. The question writes the origin key. Asking the
    /// same process again would hide that the key was lost.
    pub(crate) async fn observe(&mut self, run_id: Option<&str>) -> Result<(), ProbeError> {
        let asking = async {
            match &mut self.line {
                #[cfg(feature = "test-util")]
                Line::Memory(probe) => probe.observe(run_id),
                Line::Redis(probe) => probe.observe(run_id).await,
            }
        };
        let asked: Result<Result<(), DialError>, _> = timeout(self.timeout, asking).await;
        Ok(asked.map_err(|_| Failure::timed_out(self.timeout))??)
    }
}
