//! Which master chooses the slot of a semaphore.
//!
//! While few ask, all masters choose the same slot by themselves, in one round trip. While many
//! ask, masters get the commands in different orders, and choose different slots. Then one master,
//! on which all clients agree, chooses first, and the others are asked for its slot.

use crate::{
    core::{
        protocol::name::LockId,
        vote::{master_set::MasterSet, round::Round},
        wait::rivals::Met,
    },
    driver::{context::Context, live_round::LiveRound, time::clock},
};

/// Returns the master that chooses the slot, if masters have lately chosen different ones. It is
/// none of those that failed in the `last` round. While the masters are changed, all choose first,
/// because no single master may know all holders.
pub(super) fn likely_chooser(
    context: &Context,
    lock_id: &LockId,
    last: Option<&LiveRound>,
) -> Option<usize> {
    let waiters = &context.local_waiters;
    let may_choose = lock_id.kind().spec().has_slots && !context.masters.quorum().is_of_lists();
    if may_choose && waiters.rivals(lock_id, |rivals| rivals.are_likely()) {
        chooser(context, lock_id, last)
    } else {
        None
    }
}

/// Notes that all masters chose the same slot.
pub(super) fn note_won(context: &Context, lock_id: &LockId) {
    note(context, lock_id, Met::NoOne);
}

/// Notes a `round` that was lost. Returns whether masters chose different slots in it.
pub(super) fn note_lost(context: &Context, lock_id: &LockId, round: &LiveRound) -> bool {
    let is_split = round.read(Round::is_split_over_slots);
    note(
        context,
        lock_id,
        if is_split { Met::Rival } else { Met::NoOne },
    );
    is_split
}

fn note(context: &Context, lock_id: &LockId, met: Met) {
    if lock_id.kind().spec().has_slots {
        let waiters = &context.local_waiters;
        waiters.rivals(lock_id, |rivals| rivals.note_met(met));
    }
}

/// Returns the master on which all clients agree. While the masters are changed, it is that of
/// either list, by chance: other programs may hold permits only on the masters of one.
pub(super) fn chooser(
    context: &Context,
    lock_id: &LockId,
    last: Option<&LiveRound>,
) -> Option<usize> {
    let quorum = context.masters.quorum();
    let mut among = last.map_or(MasterSet::ALL, |round| round.read(Round::not_failed));
    if quorum.is_of_lists() {
        let which = (clock::random_u64() & 1) as usize;
        let list = quorum.lists().nth(which);
        among = list.map_or(among, |(_, masters)| among.and(masters));
    }
    context.masters.chooser(lock_id.key(), among)
}
