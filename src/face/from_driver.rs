//! Makes the errors of the API from the values that the driver returns.

use crate::{
    core::{
        error::{ExtendError, InspectError, ReleaseError},
        protocol::name::LockId,
        vote::{round::Round, verb::Verb, votes::Votes},
    },
    driver::{
        claim::{Claim, extension::NotExtended},
        live_round::LiveRound,
        masters::Masters,
        query::inspect::NotInspected,
    },
};

impl ExtendError {
    pub(crate) fn from_driver(error: NotExtended, claim: &Claim) -> Self {
        let name = claim.name().clone();
        let votes = |round| -> Votes { claim.votes(round) };
        match error {
            NotExtended::Config(error) => Self::Config(error),
            NotExtended::Expired { since } => Self::Expired { name, since },
            NotExtended::Lost(round) => Self::Lost {
                name,
                votes: votes(&round),
            },
            NotExtended::NoQuorum { remaining, round } => Self::NoQuorum {
                name,
                remaining,
                votes: votes(&round),
            },
            NotExtended::TooSlow(round) => Self::TooSlow {
                name,
                votes: votes(&round),
            },
        }
    }
}

impl InspectError {
    pub(crate) fn from_driver(error: NotInspected, lock_id: &LockId, masters: &Masters) -> Self {
        Self::NoQuorum {
            name: lock_id.name().clone(),
            votes: masters.votes(&error.round),
            views: error.views,
        }
    }
}

impl ReleaseError {
    /// `release` is the round that should have removed a level of `claim`.
    pub(crate) fn from_driver(release: &LiveRound, claim: &Claim) -> Self {
        let (name, votes) = (claim.name().clone(), claim.votes(release));
        if release.read(Round::verb) == Verb::Extend {
            Self::NotLeft { name, votes }
        } else {
            Self::NoQuorum { name, votes }
        }
    }
}
