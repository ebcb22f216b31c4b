//! Which master chooses the slot of a semaphore.
//!
//! While few clients ask, all masters choose the same slot by themselves, in one round trip. While
//! many ask, masters get the commands in different orders, and choose different slots. Then the
//! agreed master chooses, and the other masters are asked for that slot.

use std::time::Duration;

use super::{attempt::attempt, denied::Denied};
use crate::{
    clock,
    core::{protocol::QueueOptions, reason::Reason, vote::Round},
    driver::{
        claim::{ClaimHandle, Level, ask::LockRequest},
        context::Context,
        round_handle::RoundHandle,
    },
};

/// Makes one attempt at a permit. If the votes are split, makes a second attempt, in which the
/// agreed master chooses the slot.
pub(super) async fn attempt_for_slot(request: &LockRequest) -> Result<Level, Denied> {
    let attempted = attempt(request, None, None, None).await;
    if let Err(denied) = &attempted
        && denied.reason == Reason::Split
        && let Some(round) = &denied.round
    {
        return attempt(request, None, agreed(request, round), None).await;
    }
    attempted
}

/// Returns the agreed master that chooses the slot after the `last` round. Only masters that can
/// vote are considered. While the list of masters is being changed, takes the agreed master of the
/// old list or of the new one, at random: other programs may hold permits on the masters of one
/// list only.
fn agreed(request: &LockRequest, last: &RoundHandle) -> Option<usize> {
    let masters = &request.context.machine;
    let among = masters.able().and(last.read(Round::not_failed));
    let which = (clock::random_u64() & 1) as usize;
    let list = masters.quorum().lists().nth(which).unwrap_or(among);
    masters.agreed(request.lock_id.key(), among.and(list))
}

/// Who chooses the slot in each round of a call. For a lock without slots, no master chooses.
#[derive(Default)]
pub(super) struct SlotChoice {
    /// The agreed master, if it chooses the slot in the newest round. `None` if each master chooses
    /// by itself.
    pub(super) agreed: Option<usize>,
    /// The agreed master, if it was asked to choose after a split vote, since the last wait.
    pub(super) chosen_by: Option<usize>,
    /// The round before the newest one, if the newest one keeps the grants of that earlier round.
    kept: Option<RoundHandle>,
}

impl SlotChoice {
    /// If the agreed master chooses, waits for its answer. If it grants a slot, asks the other
    /// masters for that slot in the same round. If it puts other clients first, the last round asks
    /// the other masters nevertheless. An earlier round gives back the kept grants, and returns the
    /// longest time for which the caller waits for a call. In the next round, all masters choose,
    /// because the agreed master may be wrong.
    pub(super) async fn await_choice(
        &mut self,
        context: &Context,
        claim: &ClaimHandle,
        queue: Option<QueueOptions>,
        is_last: bool,
    ) -> Option<Duration> {
        claim.ask_agreed(self.agreed?, is_last).await?;
        let timeout = queue.map(|queue| queue.silent_waiter_timeout);
        let timeout = timeout.unwrap_or_else(|| context.silent_waiter_timeout());
        if let Some(round) = self.kept.take() {
            claim.yield_grants(round.read(Round::may_have_key), timeout);
        }
        self.agreed = None;
        let delay = context.config.retry.delay(0, clock::random_u64());
        Some(delay.min(timeout / 4)) // the next round keeps the position in the queues
    }

    /// Notes a `round` that was not won. If masters chose different slots, lets the agreed master
    /// choose in the next round, but only once before the caller waits, because it may be wrong,
    /// and the votes may be split again. Returns whether the grants are kept for the next round,
    /// which then begins at once.
    pub(super) fn note_denied(&mut self, request: &LockRequest, round: &RoundHandle) -> bool {
        let has_slots = request.lock_id.kind().spec().has_slots;
        let is_split = has_slots && round.read(Round::is_split_over_slots);
        self.agreed = None;
        if is_split && self.chosen_by.is_none() {
            self.agreed = agreed(request, round);
            self.chosen_by = self.agreed;
        }
        self.kept = self.agreed.map(|_| round.clone());
        self.kept.is_some()
    }
}
