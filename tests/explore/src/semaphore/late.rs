//! Commands that masters execute at any time, without an answer that counts.

use super::{
    Broken,
    master::{SLOTS, token},
    model::{Semaphore, Step},
    state::{Client, Phase, State},
};

impl<const C: usize> Semaphore<C> {
    /// Lets a master execute the commands of an attempt, without an answer.
    pub(super) fn late(
        &self,
        state: &State<C>,
        (client, attempt, at): (usize, u8, usize),
        visit: &mut dyn FnMut(Step, State<C>),
    ) {
        let (now, token) = (state.clients[client], token(client, attempt));
        let mut step = |what, change: &dyn Fn(&mut State<C>)| {
            let mut next = *state;
            change(&mut next);
            if next != *state {
                visit(Step::Unanswered(client, attempt, what, at), next);
            }
        };
        for slot in state.masters[at].free(token, self.sizes[client]) {
            step("takes any", &|next| {
                next.masters[at].take(token, slot);
            });
        }
        let wanted = now.wanted[usize::from(attempt)];
        for slot in (0..SLOTS).filter(|slot| wanted & 1 << slot != 0) {
            step("takes one", &|next| {
                let master = &mut next.masters[at];
                if !self.is_refused(now, slot) {
                    master.take(token, slot);
                } else if master.slots[slot] != 0 {
                    master.leave_others(token, slot);
                }
            });
            if now.won & 1 << attempt != 0 && !self.is_refused(now, slot) {
                step("heals", &|next| {
                    next.masters[at].heal(self.broken, token, slot);
                });
                step("extends", &|next| {
                    next.masters[at].leave_others(token, slot);
                });
            }
        }
        if attempt < now.attempt || now.phase == Phase::Left {
            step("releases", &|next| next.masters[at].release(token));
        }
        if self.breaks && now.won & 1 << attempt != 0 {
            step("breaks", &|next| {
                let held = &mut next.clients[client];
                let is_used = attempt == now.attempt && now.phase == Phase::Held;
                if is_used && next.masters[at].slot_of(token) == Some(held.slot.into()) {
                    held.is_broken = true;
                    held.is_stale = held.is_extending;
                }
                next.masters[at].break_held(self.broken, token);
            });
        }
    }

    /// Returns whether a command that asked for a slot in the first round has too old a candidate.
    fn is_refused(&self, now: Client, slot: usize) -> bool {
        let is_wanted =
            now.asks_for == 1 << slot || now.phase == Phase::Held && usize::from(now.slot) == slot;
        self.broken == Broken::ChoosesAgain
            && !is_wanted
            && (now.is_again || now.phase == Phase::Held)
    }
}
