//! Asks all masters who holds a lock and who waits for it, and breaks the lock of a dead holder.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    clock,
    core::{
        error::InspectError,
        protocol::{
            command::{Action, Command},
            name::LockId,
        },
        time::tick::Tick,
        view::inspection::{self, Inspection, Seen},
        vote::{SlotVote, Verb, Vote, quorum::Outcome, round::Round, votes::Votes},
    },
    driver::{context::Context, live_round::LiveRound},
    master::VoteCounter,
};

/// An inspection that is under way: the votes, and the answer of each master.
#[derive(Debug)]
pub(crate) struct PendingInspection {
    lock_id: LockId,
    round: Arc<LiveRound>,
    seen: Mutex<Vec<Option<Seen>>>,
}

impl VoteCounter for Arc<PendingInspection> {
    fn take_text(&self, master: usize, text: &str) {
        if let Some(seen) = self.seen.lock().get_mut(master) {
            *seen = Seen::parse(text);
        }
    }

    fn count(&self, master: usize, vote: SlotVote, now: Tick) {
        let is_seen = self.seen.lock().get(master).is_some_and(Option::is_some);
        let vote = match vote.vote() {
            Vote::Grant if !is_seen => Vote::nonsense().into(),
            Vote::Grant | Vote::Refuse(_) | Vote::Fail(_) => vote,
        };
        self.round.count(master, vote, now);
    }

    fn wake(&self) {
        self.round.wake();
    }
}

/// Asks all masters who holds `lock_id` and who waits for it.
pub(crate) fn inquire(context: &Context, lock_id: &LockId) -> Arc<PendingInspection> {
    let (masters, is_forked) = (&context.masters, context.is_forked());
    let pending = Arc::new(PendingInspection {
        lock_id: lock_id.clone(),
        round: if is_forked {
            context.closed_round(Verb::Inspect)
        } else {
            context.open_round(Verb::Inspect, clock::now())
        },
        seen: Mutex::new(vec![None; masters.count()]),
    });
    if !is_forked {
        masters.post(Command::new(lock_id, Action::Inspect), pending.clone());
    }
    pending
}

/// Waits for the answers to `pending`.
pub(crate) async fn inspect(
    context: &Context,
    pending: &PendingInspection,
) -> Result<Inspection, InspectError> {
    let (masters, lock_id) = (&context.masters, &pending.lock_id);
    // Waits for all masters. The answers of a majority may not be enough to name the holder.
    pending.round.settled().await;
    let seen = pending.seen.lock().clone();
    let (name, votes) = (lock_id.name().clone(), masters.votes(&pending.round));
    if pending.round.read(Round::outcome) != Outcome::Won {
        return Err(InspectError::NoQuorum {
            name,
            votes,
            views: inspection::views(&seen).collect(),
        });
    }
    Ok(Inspection {
        name,
        holders: inspection::holders(&seen, masters.quorum(), masters.quarantined()),
        queue: inspection::queue(&seen),
        votes,
        lock_id: lock_id.clone(),
        seen,
        only: None,
    })
}

/// Removes the holders that `inspection` names from every master where they still have the lock.
/// Waits for all masters.
pub(crate) async fn break_held(context: &Context, inspection: &Inspection) -> Votes {
    if context.is_forked() {
        return context.masters.votes(&context.closed_round(Verb::Break));
    }
    let round = context.open_round(Verb::Break, clock::now());
    let holders = inspection.named().into();
    let command = Command::new(&inspection.lock_id, Action::Break(holders));
    context.masters.post(command, round.clone());
    round.settled().await;
    context.masters.votes(&round)
}
