//! Looking at locks and masters without touching them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::engine::Engine;
use crate::{
    check::{self, Asked, Facts, Ours, Preflight, SETTINGS},
    core::{
        command::{Action, Command, Probe},
        inspection::{self, Inspection, Seen},
        name::Resource,
        quorum::{Failure, Vote},
        restart::quarantine,
        round::{Outcome, Round},
    },
    driver::clock,
    driver::live_round::LiveRound,
    error::InspectError,
    master::CountVotes,
};

/// A question under way that is answered in words: who has answered, and what.
struct Inquiry<T, P> {
    round: Arc<LiveRound>,
    parse: P,
    said: Mutex<Vec<Option<T>>>,
}

impl<T: Send, P: Fn(&str) -> Option<T> + Send + Sync> CountVotes for Arc<Inquiry<T, P>> {
    fn note(&self, master: usize, text: &str) {
        if let Some(said) = self.said.lock().get_mut(master) {
            *said = (self.parse)(text);
        }
    }

    fn count(&self, master: usize, vote: Vote, now: Instant) {
        self.round.count(master, vote, now);
    }
}

impl<T: Clone, P> Inquiry<T, P> {
    /// What each master said, if anything, or why not.
    async fn answers(&self) -> Vec<Result<Option<T>, Failure>> {
        self.round.settled().await;
        let votes = self.round.votes();
        let said = self.said.lock().clone();
        let answers = votes.into_iter().zip(said);
        answers
            .map(|(cast, said)| match cast.map(|cast| cast.vote) {
                Some(Vote::Fail(failure)) => Err(failure),
                Some(Vote::Grant | Vote::Refuse(_)) | None => Ok(said),
            })
            .collect()
    }
}

impl Engine {
    /// Asks all masters who holds `resource` and who waits for it.
    pub(crate) async fn inspect(&self, resource: &Resource) -> Result<Inspection, InspectError> {
        let inquiry = self.inquire(Action::Inspect, resource, Seen::parse);
        // All of them: a majority may name no holder where the rest would.
        inquiry.round.settled().await;
        let seen = inquiry.said.lock().clone();
        let (name, votes) = (resource.name().clone(), self.votes(&inquiry.round));
        if inquiry.round.read(Round::outcome) != Outcome::Won {
            return Err(InspectError::NoQuorum { name, votes });
        }
        Ok(Inspection {
            name,
            holding: inspection::holding(&seen),
            queue: inspection::queue(&seen),
            votes,
        })
    }

    /// Asks all masters for what matters to locks.
    pub(crate) async fn check(&self) -> Preflight {
        /// For clocks to move on.
        const MOMENT: Duration = Duration::from_millis(2);
        let nobodys = self.config.key_template.nobodys();
        let mut masters = self.look(&nobodys).await;
        tokio::time::sleep(MOMENT).await;
        for (master, later) in masters.iter_mut().zip(self.look(&nobodys).await) {
            if let (Ok(facts), Ok(later)) = (&mut master.facts, later.facts) {
                facts.compare(&later);
            }
        }
        check::check(&masters, &self.ours())
    }

    /// What all masters say of themselves.
    async fn look(&self, nobodys: &Resource) -> Vec<Asked> {
        let asked = clock::wall_micros();
        let parse = move |text: &str| Some(Facts::parse(text, asked, clock::wall_micros()));
        let probe = Probe::Facts {
            counter: nobodys.counter(),
        };
        let facts = self.inquire(Action::Probe(probe), nobodys, parse);
        let value = |text: &str| Some(text.to_owned());
        let settings = SETTINGS.map(|name| {
            let probe = Action::Probe(Probe::Setting(name));
            (name, self.inquire(probe, nobodys, value))
        });
        let masters = self.addresses.iter().zip(facts.answers().await);
        let masters = masters.map(|(address, facts)| Asked {
            address: address.clone(),
            facts: facts.map(Option::unwrap_or_default),
        });
        let mut masters: Vec<_> = masters.collect();
        for (name, inquiry) in settings {
            for (master, answer) in masters.iter_mut().zip(inquiry.answers().await) {
                if let Ok(facts) = &mut master.facts {
                    facts.add(name, answer);
                }
            }
        }
        masters
    }

    fn ours(&self) -> Ours {
        let config = &self.config;
        Ours {
            guard: config.restart_guard,
            is_durable: config.durable_masters,
            quarantine: quarantine(config.max_ttl, config.drift),
            ttl: config.ttl.duration(),
            node_timeout: self.node_timeout(),
            drift: config.drift,
        }
    }

    /// Puts a question to all masters.
    fn inquire<T: Clone + Send + 'static, P>(
        &self,
        action: Action,
        resource: &Resource,
        parse: P,
    ) -> Arc<Inquiry<T, P>>
    where
        P: Fn(&str) -> Option<T> + Send + Sync + 'static,
    {
        let start = clock::now();
        let command = Command::new(resource, action);
        let round = Round::open(command.verb(), self.size(), start, None);
        let inquiry = Arc::new(Inquiry {
            round: LiveRound::of_acquisition(round),
            parse,
            said: Mutex::new(vec![None; self.size()]),
        });
        self.post(&self.ask(command, inquiry.clone()));
        inquiry
    }
}

#[cfg(test)]
mod tests {
    use crate::{Coordinator, MemoryMaster, Severity};

    #[tokio::test(start_paused = true)]
    async fn clocks_that_are_off() {
        let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
        let locks = Coordinator::new(&masters).unwrap();
        for (ahead, worst) in [
            ([0, 0, 900_000], None),
            ([0, 0, 3_000_000], Some(Severity::Warn)),
            ([0, -3_000_000, 3_000_000], Some(Severity::Refuse)),
            ([3_000_000, 3_000_000, 3_000_000], Some(Severity::Warn)),
        ] {
            for (master, ahead) in masters.iter().zip(ahead) {
                master.set_clock(ahead);
            }
            let report = locks.check().await;
            assert_eq!(report.worst(), worst, "{report}");
            let mut settings = report.findings.iter().map(|finding| finding.setting);
            assert!(settings.all(|setting| setting == "TIME"), "{report}");
        }
    }
}
