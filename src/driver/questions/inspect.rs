//! Asks all masters who holds a lock and who waits for it, and breaks the lock of a dead holder.

use std::sync::Arc;

use crate::{
    core::{
        config_error::ConfigError,
        error::{AskError, Asked, QuorumError},
        protocol::{Action, Command, LockId},
        view::inspection::{self, Inspection},
        vote::{Outcome, Round, Votes},
    },
    driver::context::Context,
};

/// Asks all masters who holds `lock_id` and who waits for it, and waits for the answers.
pub(crate) async fn inspect(context: &Context, lock_id: &LockId) -> Result<Inspection, AskError> {
    let masters = &context.machine;
    let name = lock_id.name().clone();
    if context.is_forked() {
        return Err(AskError::Closed);
    }
    let round = context.ask(Command::new(lock_id, Action::Inspect), None);
    // Waits for all masters. The answers of a majority may not be enough to name the holder.
    round.settled().await;
    let (votes, seen) = (round.votes(), round.seen());
    if votes.are_closed() {
        return Err(AskError::Closed);
    }
    if round.read(Round::outcome) != Outcome::Won {
        let views = Asked::Inspect(inspection::views(&seen).collect());
        return Err(QuorumError::new(&name, votes, views).into());
    }
    let holders = inspection::holders(&seen, masters.quorum(), masters.quarantined());
    Ok(Inspection {
        name,
        waiters: inspection::queue(&seen, &holders),
        holders,
        votes,
        lock_id: lock_id.clone(),
        seen,
        only: None,
    })
}

/// Removes the holders that `inspection` names from every master where they still have the lock.
/// Waits for all masters.
pub(crate) async fn break_held(
    context: &Context,
    inspection: &Inspection,
) -> Result<Votes, AskError> {
    if context.is_forked() {
        return Err(AskError::Closed);
    }
    if !Arc::ptr_eq(&context.machine.roster, &inspection.votes.roster) {
        return Err(ConfigError::ForeignInspection.into());
    }
    let holders = inspection.named().into();
    let round = context.ask(
        Command::new(&inspection.lock_id, Action::Break(holders)),
        None,
    );
    round.settled().await;
    let votes = round.votes();
    if votes.are_closed() {
        return Err(AskError::Closed);
    }
    match round.read(Round::outcome) {
        Outcome::Won => Ok(votes),
        _ => Err(QuorumError::new(&inspection.name, votes, Asked::Break).into()),
    }
}
