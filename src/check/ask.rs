//! Asks all masters at once, each over a connection of its own.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, task::JoinSet, time::sleep};

use super::{
    counters::Counters,
    facts::{Facts, MasterAnswer, Ours, SETTINGS},
    judge::judge,
    report::CheckReport,
};
use crate::{
    core::{
        config::Config,
        kind::table,
        protocol::name::LockId,
        vote::{Failure, quorum::Quorum},
    },
    master::{
        dial_error::DialError,
        probe::{Interview, Probe, ProbeError},
        question::{Answer, Question},
    },
};

/// Checks the masters of one coordinator.
pub(crate) struct Checker {
    probes: Vec<Arc<Probe>>,
    /// The runtime of the coordinator. It has timers and sockets. The caller's runtime may have
    /// none.
    runtime: Handle,
    /// Our wall clock, in microseconds since 1970.
    clock: fn() -> u64,
}

impl Checker {
    pub(crate) fn new(probes: Vec<Probe>, runtime: Handle, clock: fn() -> u64) -> Self {
        Self {
            probes: probes.into_iter().map(Arc::new).collect(),
            runtime,
            clock,
        }
    }

    /// Asks all masters, and judges their answers. The check tries the commands that locks need on
    /// the keys of an example lock, which is called `quorlock:check`.
    pub(crate) async fn run(
        &self,
        config: &Config,
        quorum: &Quorum,
        node_timeout: Duration,
    ) -> CheckReport {
        let example = config.key_template.example();
        // To find counters means to look at all keys. They matter only while masters are changed.
        let (is_change, clock) = (quorum.is_of_lists(), self.clock);
        let answers = self.each(|probe| {
            let example = example.clone();
            async move { ask_twice(&probe, &example, clock, is_change).await }
        });
        let answers = answers.await.into_iter();
        let answers = answers.map(|(address, facts)| MasterAnswer { address, facts });
        let answers: Vec<_> = answers.collect();
        judge(
            &answers,
            &Ours {
                config,
                quorum,
                node_timeout,
            },
        )
    }

    /// Asks all masters at once. Returns the address of each master with its answer, which is
    /// `Closed` if the runtime shuts down.
    pub(super) async fn each<T, F>(
        &self,
        ask: impl Fn(Arc<Probe>) -> F,
    ) -> Vec<(Arc<str>, Result<T, ProbeError>)>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ProbeError>> + Send + 'static,
    {
        let closed = || Err(ProbeError::Failed(Failure::Closed));
        let answers = self.probes.iter();
        let answers = answers.map(|probe| (probe.address.clone(), closed()));
        let mut answers: Vec<_> = answers.collect();
        let mut tasks = JoinSet::new();
        for (master, probe) in self.probes.iter().enumerate() {
            let asking = ask(probe.clone());
            tasks.spawn_on(async move { (master, asking.await) }, &self.runtime);
        }
        while let Some(done) = tasks.join_next().await {
            // A runtime that shuts down drops its tasks.
            if let Ok((master, answer)) = done {
                answers[master].1 = answer;
            }
        }
        answers
    }
}

/// Asks one master for its facts and for `settings`, in one round trip.
async fn facts(
    interview: &mut Interview<'_>,
    example: &LockId,
    settings: &[Question<'_>],
    clock: fn() -> u64,
) -> Result<(Facts, Vec<Answer>), ProbeError> {
    let mut arguments = vec![&**example.key()];
    for companion in table::companion_keys() {
        let of_type = companion.of_type();
        let tried = of_type.map(|of_type| [companion.name, of_type, example.companion(companion)]);
        arguments.extend(tried.into_iter().flatten());
    }
    let questions = [&[Question::Facts(&arguments)], settings].concat();
    let sent = clock();
    let mut answers = interview.ask(&questions).await;
    let text = answers.remove(0)?.unwrap_or_default();
    Ok((Facts::parse(&text, sent, clock()), answers))
}

/// Asks one master twice. The second answer shows whether the master's clock stands still. If
/// the masters are changed (`is_change`), it is also asked for its counters.
async fn ask_twice(
    probe: &Probe,
    example: &LockId,
    clock: fn() -> u64,
    is_change: bool,
) -> Result<Facts, ProbeError> {
    /// The pause between the questions. A clock that does not move on in this time stands still.
    const MOMENT: Duration = Duration::from_millis(2);
    let mut interview = probe.dial().await?;
    let settings = SETTINGS.map(Question::Setting);
    let (first, answers) = facts(&mut interview, example, &settings, clock).await?;
    let observed = interview.observe(first.get("run_id")).await;
    let no_vote = match observed {
        // Its settings may say why it refuses writes.
        Err(ProbeError::Dial(DialError::RestartUnknown { why })) => Some(why),
        observed => observed.map(|()| None)?,
    };
    sleep(MOMENT).await;
    let (mut facts, _) = facts(&mut interview, example, &[], clock).await?;
    facts.compare(&first);
    facts.restart_unknown = no_vote;
    for (setting, answer) in SETTINGS.into_iter().zip(answers) {
        facts.add(setting, answer);
    }
    if is_change {
        facts.counters = Counters::ask(&mut interview).await;
    }
    Ok(facts)
}
