//! Which master chooses the slot of a semaphore.
//!
//! While few ask, all masters choose the same slot by themselves, in one round trip. While many
//! ask, masters get the commands in different orders, and choose different slots. Then one master,
//! on which all clients agree, chooses first, and the others are asked for its slot.

use crate::{
    core::{protocol::name::LockId, vote::master_set::MasterSet},
    driver::{context::Context, time::clock},
};

/// Returns the master that chooses the slot, if masters have lately chosen different ones. While
/// the masters are changed, all choose first, because no single master may know all holders.
pub(super) fn likely_chooser(context: &Context, lock_id: &LockId) -> Option<usize> {
    let may_choose = lock_id.kind().spec().has_slots && !context.masters.quorum().is_of_lists();
    let is_likely = may_choose
        && context
            .local_waiters
            .rivals(lock_id, |rivals| rivals.are_likely());
    is_likely.then(|| chooser(context, lock_id)).flatten()
}

/// Notes whether masters have chosen different slots in an attempt. If so, returns the master that
/// chooses in the next one.
pub(super) fn note(context: &Context, lock_id: &LockId, is_split: bool) -> Option<usize> {
    if lock_id.kind().spec().has_slots {
        let waiters = &context.local_waiters;
        waiters.rivals(lock_id, |rivals| rivals.note_met(is_split));
    }
    is_split.then(|| chooser(context, lock_id)).flatten()
}

/// Returns the master on which all clients agree. While the masters are changed, it is that of
/// either list, by chance: other programs may hold permits only on the masters of one.
fn chooser(context: &Context, lock_id: &LockId) -> Option<usize> {
    let quorum = context.masters.quorum();
    let mut among = MasterSet::ALL;
    if quorum.is_of_lists() {
        let which = (clock::random_u64() & 1) as usize;
        among = quorum
            .lists()
            .nth(which)
            .map_or(among, |(_, masters)| masters);
    }
    context.masters.agreed(lock_id.key(), among)
}
