//! Looking at locks and masters without touching them.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::Engine;
use crate::{
    clock,
    core::{
        claim::Claim,
        command::{Command, Verb},
        inspection::{self, Inspection, Seen},
        name::Resource,
        preflight::{self, Facts, Preflight},
        quorum::Vote,
        round::{Outcome, Round},
    },
    error::InspectError,
    live_round::LiveRound,
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

impl Engine {
    /// Asks all masters who holds `resource` and who waits for it.
    pub(crate) async fn inspect(&self, resource: &Resource) -> Result<Inspection, InspectError> {
        let (round, seen) = self.inquire(Verb::Inspect, resource, Seen::parse).await;
        let (name, votes) = (resource.name().clone(), self.votes(&round));
        if round.read(Round::outcome) != Outcome::Won {
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
        let resource = Resource::nothing();
        let asked = clock::wall_micros();
        let parse = move |text: &str| Some(Facts::parse(text, asked, clock::wall_micros()));
        let (_, facts) = self.inquire(Verb::Check, &resource, parse).await;
        let guard = self.config.restart_guard;
        preflight::check(&self.addresses, &facts, guard)
    }

    async fn inquire<T: Clone + Send + 'static>(
        &self,
        verb: Verb,
        resource: &Resource,
        parse: impl Fn(&str) -> Option<T> + Send + Sync + 'static,
    ) -> (Arc<LiveRound>, Vec<Option<T>>) {
        let start = clock::now();
        let round = Round::open(verb, self.size(), start, None);
        let inquiry = Arc::new(Inquiry {
            round: LiveRound::of_acquisition(round),
            parse,
            said: Mutex::new(vec![None; self.size()]),
        });
        let command = Command {
            verb,
            resource: resource.clone(),
            claim: Claim::Nobody,
            ttl: self.config.ttl,
            depth: 0,
            wakes: false,
            patience: None,
            bid: None,
        };
        self.post(&self.ask(command, start, inquiry.clone()));
        // All of them: a majority may name no holder where the rest would.
        inquiry.round.settled().await;
        let said = inquiry.said.lock().clone();
        (inquiry.round.clone(), said)
    }
}
