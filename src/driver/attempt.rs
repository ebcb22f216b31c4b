//! One attempt at a lock.

use std::time::Instant;

use super::{
    claim::{Claim, Level, LockRequest, ballots::MORE_BALLOTS, extension::NotExtended},
    clock,
    denied::{Denied, NotAcquired},
    owned_lock::OwnedLock,
    select::first_of,
    shared::Shared,
};
use crate::core::{
    config_error::ConfigError,
    identity::{Identity, Ticket},
    name::{Kind, Token},
    refused::Refused,
    round::{Outcome, Round},
};

/// Makes one attempt. A task of an owner makes it only if the owner's other attempts are over by
/// the instant that `permit_by` returns.
pub(super) async fn attempt(
    shared: &Shared,
    request: &LockRequest,
    permit_by: impl FnOnce() -> Instant,
) -> Result<Level, NotAcquired> {
    shared.check_open()?;
    let Some(owner) = &request.owner else {
        let identity = Identity::Token(Token::new(clock::random()));
        let claim = Claim::begin(&shared.context, request, identity, None);
        return Ok(decide(shared, Level::new(claim)).await?);
    };
    let owned = owner.lock(&request.resource);
    // This comes before the wait for the permit, too: another task that waits for the lock may
    // have the permit, and not be polled while it reenters.
    if let Some(reentered) = reenter(request, &owned).await {
        return reentered;
    }
    let Some(_permit) = owned.permit(Some(permit_by())).await else {
        return Err(Denied::owner_busy().into());
    };
    if let Some(reentered) = reenter(request, &owned).await {
        return reentered;
    }
    let ticket = match request.resource.kind() {
        Kind::Fair => Some(Ticket::new(shared.masters().timestamps.next(), owner.id())),
        Kind::Mutex | Kind::Reentrant => None,
    };
    let identity = owner.identity(ticket);
    let claim = Claim::begin(&shared.context, request, identity, Some(owned.clone()));
    let level = decide(shared, Level::new(claim)).await?;
    owned.won(&level);
    Ok(level)
}

/// Waits for the outcome of the first round, and of further ballots for a fencing token.
async fn decide(shared: &Shared, level: Level) -> Result<Level, Denied> {
    let mut outcome = level.decided_for_ballot().await;
    for _ in 0..MORE_BALLOTS {
        if outcome != Outcome::Lost || !level.raise_ballot(None) {
            break;
        }
        outcome = level.decided_for_ballot().await;
    }
    match outcome {
        Outcome::Won => Ok(level),
        outcome => Err(give_back(shared, &level, outcome).await),
    }
}

/// Takes back what a round that was not won may have left on the masters. Returns why it was not
/// won.
///
/// The answers to the release say how long others hold the lock. The answers to the acquisition of
/// a mutex by `SET` do not.
async fn give_back(shared: &Shared, level: &Level, outcome: Outcome) -> Denied {
    let release = level.release();
    let acquisition = level.newest_round();
    if outcome == Outcome::Lost && !acquisition.read(Round::lacks_masters) {
        release.decided().await;
    } else {
        // Waits for the other votes, so that the table of votes is complete. Masters that are down
        // have failed already, and the time is limited, so this waits for no connection.
        let end = clock::now() + shared.masters().node_timeout();
        first_of(release.settled(), clock::sleep_until(end)).await;
    }
    if release.read(Round::is_other_kind) {
        // The acquisition of a mutex by `SET` learns only that the key exists.
        return Denied {
            refused: Refused::OtherKind,
            round: Some(release),
        };
    }
    Denied::by(acquisition, outcome, release.read(Round::free_in))
}

/// Adds a level to the claim of the owner. Returns `None` if the owner does not hold the lock, or
/// loses it meanwhile.
pub(super) async fn reenter(
    request: &LockRequest,
    owned: &OwnedLock<Claim>,
) -> Option<Result<Level, NotAcquired>> {
    let claim = owned.claim().filter(|claim| claim.can_reenter())?;
    if request.counter.is_some() && claim.fencing_token().is_none() {
        return Some(Err(NotAcquired::Config(ConfigError::NotFenced)));
    }
    let (level, extension) = claim.reenter(request.ttl)?;
    let round = extension.round.clone();
    let refused = match claim.extended(&extension).await {
        Ok(()) => return Some(Ok(level)),
        Err(NotExtended::NoQuorum { .. }) => Refused::NoQuorum,
        Err(NotExtended::TooSlow(_)) => Refused::TooSlow(round.elapsed(clock::now())),
        // The lock was lost, which the other guards report. The caller goes on as if the owner had
        // never held the lock.
        Err(NotExtended::Config(_) | NotExtended::Expired { .. } | NotExtended::Lost(_)) => {
            return None;
        }
    };
    let denied = Denied {
        refused,
        round: Some(round),
    };
    Some(Err(denied.into()))
}
