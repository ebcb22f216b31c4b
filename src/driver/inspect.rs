//! Looks at locks without touching them.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::engine::Engine;
use crate::{
    core::{
        command::{Command, Verb, WakeScope},
        identity::Identity,
        inspection::{self, Inspection, Seen},
        name::Resource,
        quorum::Vote,
        round::{Outcome, Round},
    },
    driver::clock,
    driver::live_round::LiveRound,
    error::InspectError,
    master::CountVotes,
};

/// An inspection under way: the votes, and what each master says.
struct Inquiry {
    round: Arc<LiveRound>,
    seen: Mutex<Vec<Option<Seen>>>,
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
        let round = Round::open(Verb::Inspect, self.size(), clock::now(), None);
        let inquiry = Arc::new(Inquiry {
            round: LiveRound::of_acquisition(round),
            seen: Mutex::new(vec![None; self.size()]),
        });
        let command = self.inquiry(Verb::Inspect, resource);
        self.post(&self.ask(command, inquiry.clone()));
        // Waits for all masters, since the rest may name a holder where a majority names none.
        inquiry.round.settled().await;
        let seen = inquiry.seen.lock().clone();
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

    /// Returns a command that changes nothing.
    pub(super) fn inquiry(&self, verb: Verb, resource: &Resource) -> Command {
        Command {
            verb,
            resource: resource.clone(),
            identity: Identity::Nobody,
            ttl: self.config.ttl,
            depth: 0,
            wakes: WakeScope::Nobody,
            patience: None,
            ballot: None,
        }
    }
}
