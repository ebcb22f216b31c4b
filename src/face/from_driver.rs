//! Makes the errors of the API from the values that the driver returns.

use crate::{
    core::{
        error::{AcquireError, Contention, ExtendError, InspectError, ReleaseError},
        protocol::name::LockId,
        vote::{obstacle::Obstacle, round::Round, verb::Verb, votes::Votes},
    },
    driver::{
        acquire::denied::{Denied, NotAcquired},
        claim::{Claim, extension::NotExtended, request::LockRequest},
        context::Context,
        live_round::LiveRound,
        masters::Masters,
        query::inspect::NotInspected,
    },
};

impl AcquireError {
    pub(crate) fn from_driver(
        error: NotAcquired,
        request: &LockRequest,
        context: &Context,
    ) -> Self {
        match error {
            NotAcquired::Closed => Self::Closed,
            NotAcquired::Config(error) => Self::Config(error),
            NotAcquired::Denied(denied) => Self::from_denied(denied, request, context),
            NotAcquired::Deadline {
                waited,
                attempts,
                last,
            } => Self::Deadline {
                name: request.lock_id.name().clone(),
                waited,
                attempts,
                last: Box::new(Self::from_denied(last, request, context)),
            },
        }
    }

    fn from_denied(denied: Denied, request: &LockRequest, context: &Context) -> Self {
        let name = request.lock_id.name().clone();
        let Some(round) = denied.round else {
            return Self::OwnerBusy { name };
        };
        let votes = context.masters.votes(&round);
        match denied.obstacle {
            Obstacle::HeldFor(remaining) => Self::Contended {
                name,
                reason: Contention::Held { remaining },
                own_guard: context.renewer.holds(&request.lock_id),
                votes,
            },
            Obstacle::NoQuorum => Self::NoQuorum { name, votes },
            Obstacle::OtherKind => Self::OtherKind {
                name,
                asked: request.lock_id.kind(),
                votes,
            },
            Obstacle::OwnerBusy => Self::OwnerBusy { name },
            Obstacle::Quarantined(remaining) => Self::Quarantined {
                name,
                remaining,
                votes,
            },
            obstacle @ (Obstacle::Queued | Obstacle::Split) => Self::Contended {
                name,
                reason: match obstacle {
                    Obstacle::Queued => Contention::Queued,
                    _ => Contention::Split,
                },
                own_guard: false,
                votes,
            },
            Obstacle::TooSlow(elapsed) => Self::TooSlow {
                name,
                elapsed,
                ttl: request.ttl.duration(),
                votes,
            },
        }
    }
}

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
