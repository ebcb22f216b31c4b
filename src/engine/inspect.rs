//! Looking at a lock without touching it.

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
        quorum::Vote,
        round::{Outcome, Round},
    },
    error::InspectError,
    live_round::LiveRound,
    master::CountVotes,
};

/// An inspection under way: who has answered, and what.
#[derive(Debug)]
struct Inquiry {
    round: Arc<LiveRound>,
    seen: Mutex<Box<[Option<Seen>]>>,
}

impl CountVotes for Arc<Inquiry> {
    fn note(&self, master: usize, text: &str) {
        if let Some(seen) = self.seen.lock().get_mut(master) {
            *seen = Seen::parse(text);
        }
    }

    fn count(&self, master: usize, vote: Vote, now: Instant) {
        self.round.count(master, vote, now);
    }
}

impl Engine {
    /// Asks all masters who holds `resource` and who waits for it.
    pub(crate) async fn inspect(&self, resource: &Resource) -> Result<Inspection, InspectError> {
        let start = clock::now();
        let round = Round::open(Verb::Inspect, self.size(), start, None);
        let inquiry = Arc::new(Inquiry {
            round: LiveRound::of_acquisition(round),
            seen: Mutex::new(vec![None; self.size()].into()),
        });
        let command = Command {
            verb: Verb::Inspect,
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
        let (name, votes) = (resource.name().clone(), self.votes(&inquiry.round));
        if inquiry.round.decided().await != Outcome::Won {
            return Err(InspectError::NoQuorum { name, votes });
        }
        let seen = inquiry.seen.lock();
        Ok(Inspection {
            name,
            holding: inspection::holding(&seen),
            queue: inspection::queue(&seen),
            votes,
        })
    }
}
