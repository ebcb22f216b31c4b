//! Which master chooses the slot of a semaphore.
//!
//! While few clients ask, all masters choose the same slot by themselves, in one round trip. While
//! many ask, masters get the commands in different orders, and choose different slots. Then the
//! agreed master chooses, and the other masters are asked for that slot.

use std::time::Duration;

use super::attempt::{Attempted, attempt};
use crate::{
    clock,
    core::{
        error::AcquireError,
        protocol::{identity::QueueOptions, name::LockId},
        vote::{MasterSet, Vote, obstacle::Obstacle, round::Round},
    },
    driver::{
        claim::{Claim, ask::LockRequest},
        context::Context,
        live_round::LiveRound,
    },
};

/// Makes one attempt at a permit. If the votes are split, makes a second attempt, in which the
/// agreed master chooses the slot.
pub(super) async fn attempt_for_slot(request: &LockRequest) -> Result<Attempted, AcquireError> {
    let mut slot = SlotChoice::new(request);
    slot.choose_if_likely();
    let attempted = attempt(request, None, slot.agreed, None).await?;
    match &attempted {
        Attempted::Won(_) => slot.note_win(),
        Attempted::Denied(denied) => {
            let Some(round) = &denied.round else {
                return Ok(attempted);
            };
            slot.note_denied(round);
            if denied.obstacle == Obstacle::Split {
                // The agreed master chooses even if it chose in the first attempt: by now, the slot
                // that it chose may be free on the other masters, too.
                slot.choose(Some(round));
                return attempt(request, None, slot.agreed, None).await;
            }
        }
    }
    Ok(attempted)
}

/// Who chooses the slot in each round of a call. For a lock without slots, no master chooses.
pub(super) struct SlotChoice<'a> {
    context: &'a Context,
    lock_id: &'a LockId,
    has_slots: bool,
    /// The agreed master, if it chooses the slot in the newest round. `None` if each master chooses
    /// by itself.
    pub(super) agreed: Option<usize>,
    /// The agreed master, if it was asked to choose the slot in the newest attempt. All masters may
    /// have chosen since, in a further ballot or because the agreed master puts others first.
    chooser: Option<usize>,
    /// The agreed master, if it was asked to choose in the last attempt that was denied.
    last: Option<usize>,
    /// The round before the newest one, if the newest one keeps the grants of that earlier round.
    kept: Option<LiveRound>,
    /// `true` if the agreed master was asked to choose after a split vote, since the last wait.
    has_chosen: bool,
}

impl<'a> SlotChoice<'a> {
    pub(super) fn new(request: &'a LockRequest) -> Self {
        Self {
            context: &request.context,
            lock_id: &request.lock_id,
            has_slots: request.lock_id.kind().spec().has_slots,
            agreed: None,
            chooser: None,
            last: None,
            kept: None,
            has_chosen: false,
        }
    }

    /// Lets the agreed master choose if masters have lately chosen different slots. While the list
    /// of masters is being changed, all masters choose in the first round, because perhaps no
    /// master knows all holders.
    pub(super) fn choose_if_likely(&mut self) {
        let waiters = &self.context.local_waiters;
        let may_choose = self.has_slots && !self.context.masters.quorum().is_of_lists();
        if may_choose && waiters.history(self.lock_id, |history| history.are_rivals_likely()) {
            self.choose(None);
        }
    }

    /// Lets the agreed master choose. Only masters that can vote are considered. While the list of
    /// masters is being changed, takes the agreed master of the old list or of the new one, at
    /// random: other programs may hold permits on the masters of one list only.
    pub(super) fn choose(&mut self, last: Option<&LiveRound>) {
        let masters = &self.context.masters;
        let quorum = masters.quorum();
        let mut among = masters.able();
        among = among.and(last.map_or(MasterSet::ALL, |round| round.read(Round::not_failed)));
        if quorum.is_of_lists() {
            let which = (clock::random_u64() & 1) as usize;
            let list = quorum.lists().nth(which);
            among = list.map_or(among, |(_, masters)| among.and(masters));
        }
        self.agreed = masters.agreed(self.lock_id.key(), among);
        self.chooser = self.agreed;
    }

    /// If the agreed master chooses, waits for its answer. If it grants a slot, asks the other
    /// masters for that slot in the same round. If it puts other clients first, the last round asks
    /// the other masters nevertheless. An earlier round gives back the kept grants, and returns the
    /// longest time for which the caller waits for a call. In the next round, all masters choose,
    /// because the agreed master may be wrong.
    pub(super) async fn await_choice(
        &mut self,
        claim: &Claim,
        queue: Option<QueueOptions>,
        is_last: bool,
    ) -> Option<Duration> {
        claim.ask_agreed(self.agreed?, queue, is_last).await?;
        let timeout = queue.map_or_else(
            || self.context.waiter_timeout(),
            |queue| queue.waiter_timeout,
        );
        if let Some(round) = self.kept.take() {
            claim.yield_grants(round.read(Round::may_have_key), timeout);
        }
        self.agreed = None;
        let delay = self.context.config.retry.delay(0, clock::random_u64());
        Some(delay.min(timeout / 4)) // the next round keeps the position in the queues
    }

    /// Notes that a round was won.
    pub(super) fn note_win(&self) {
        self.note(false);
    }

    /// Notes a `round` that was not won. If masters chose different slots, lets the agreed master
    /// choose in the next round. It does not choose twice in a row, because it may be wrong, and
    /// only once before the caller [waits](Self::note_wait), because the votes may be split again.
    /// Returns whether the grants are kept for the next round, which then begins at once.
    pub(super) fn note_denied(&mut self, round: &LiveRound) -> bool {
        (self.last, self.agreed) = (self.chooser.take(), None);
        let is_split = self.has_slots && round.read(Round::is_split_over_slots);
        self.note(is_split);
        if is_split && self.last.is_none() && !self.has_chosen {
            self.choose(Some(round));
            self.has_chosen = true;
        }
        self.kept = self.agreed.map(|_| round.clone());
        self.kept.is_some()
    }

    /// Notes that the caller waits before its next round.
    pub(super) fn note_wait(&mut self) {
        self.has_chosen = false;
    }

    /// Returns whether the other masters refused the slot that the agreed master has granted in
    /// `round`. The agreed master may not know the holder of that slot. Another slot may be free,
    /// but no master calls the waiter for another slot.
    pub(super) fn is_taken(&self, round: &Round) -> bool {
        let granting = round.masters(Vote::is_grant);
        self.last.is_some_and(|agreed| granting.contains(agreed))
    }

    fn note(&self, is_split: bool) {
        if self.has_slots {
            let waiters = &self.context.local_waiters;
            waiters.history(self.lock_id, |history| history.note(is_split));
        }
    }
}
