//! Asks all masters at once, each over a connection of its own.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, task::JoinSet, time::sleep};

use super::{
    facts::{Asked, Facts, Ours, SETTINGS},
    judge::judge,
    report::Preflight,
};
use crate::{
    core::{config::Config, name::Resource, quorum::Failure},
    master::{
        probe::{Probe, ProbeError, Session},
        question::{Answer, Question},
    },
};

/// Checks the masters of one coordinator.
pub(crate) struct Checker {
    probes: Arc<[Probe]>,
    /// The runtime of the coordinator, which has timers and sockets. The caller's may have none.
    runtime: Handle,
    /// Our wall clock, in microseconds since 1970.
    clock: fn() -> u64,
}

impl Checker {
    pub(crate) fn new(probes: Vec<Probe>, runtime: Handle, clock: fn() -> u64) -> Self {
        Self {
            probes: probes.into(),
            runtime,
            clock,
        }
    }

    /// Asks all masters. Commands of locks are tried on the keys of a lock that no user can name.
    pub(crate) async fn run(&self, config: &Config, node_timeout: Duration) -> Preflight {
        let example = config.key_template.nobodys();
        let asked = self.probes.iter().map(|probe| Asked {
            address: probe.address.clone(),
            facts: Err(ProbeError::Failed(Failure::Closed)),
        });
        let mut asked: Vec<_> = asked.collect();
        let mut tasks = JoinSet::new();
        for master in 0..asked.len() {
            let (probes, example, clock) = (self.probes.clone(), example.clone(), self.clock);
            let task = async move { (master, look(&probes[master], &example, clock).await) };
            tasks.spawn_on(task, &self.runtime);
        }
        while let Some(done) = tasks.join_next().await {
            // A runtime that shuts down drops its tasks.
            if let Ok((master, facts)) = done {
                asked[master].facts = facts;
            }
        }
        judge(
            &asked,
            &Ours {
                config,
                node_timeout,
            },
        )
    }
}

/// Asks for facts and settings at once.
async fn facts(
    session: &mut Session<'_>,
    example: &Resource,
    settings: &[Question<'_>],
    clock: fn() -> u64,
) -> Result<(Facts, Vec<Answer>), ProbeError> {
    let (key, counter) = (example.key(), example.counter());
    let names = [key, example.queue(), example.deadlines(), &*counter];
    let questions = [&[Question::Facts(&names)], settings].concat();
    let asked = clock();
    let mut answers = session.ask(&questions).await;
    let text = answers.remove(0)?.unwrap_or_default();
    Ok((Facts::parse(&text, asked, clock()), answers))
}

/// Looks at one master twice, since a clock that stands still shows only then.
async fn look(probe: &Probe, example: &Resource, clock: fn() -> u64) -> Result<Facts, ProbeError> {
    /// The time in which a clock must move on.
    const MOMENT: Duration = Duration::from_millis(2);
    let mut session = probe.dial().await?;
    let settings = SETTINGS.map(Question::Setting);
    let (first, answers) = facts(&mut session, example, &settings, clock).await?;
    session.observe(first.get("run_id")).await?;
    sleep(MOMENT).await;
    let (mut facts, _) = facts(&mut session, example, &[], clock).await?;
    facts.compare(&first);
    for (setting, answer) in SETTINGS.into_iter().zip(answers) {
        facts.add(setting, answer);
    }
    Ok(facts)
}
