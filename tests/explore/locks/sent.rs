//! The commands that masters may execute at any time, because they were sent.

use super::{
    client::{Phase, bit, round_of},
    model::{Locks, State},
};
use crate::{core::vote::Verb, explore::masters::Call};

impl<const C: usize> Locks<C> {
    pub(super) fn sent(&self, state: &State<C>, client: usize, visit: &mut dyn FnMut(Call)) {
        let now = state.clients[client];
        for attempt in now.attempts() {
            self.late(state, (client, attempt), visit);
            let was_won = now.won & bit(attempt) != 0;
            let is_newest = attempt == now.attempt;
            let is_asking = is_newest && now.phase == Phase::Asking;
            let call = |verb| {
                let is_again = now.again & bit(attempt) != 0;
                let candidate = match verb {
                    Verb::Release => self.candidate(client, attempt, is_again),
                    _ => 0,
                };
                let call = self.call(client, attempt, verb);
                Call { candidate, ..call }
            };
            if was_won && self.breaks {
                visit(call(Verb::Break));
            }
            let is_over = (attempt - 1) / self.rounds < now.claim || now.phase == Phase::Left;
            let is_last = !now.attempts().any(|later| {
                later > attempt && (later - 1) / self.rounds == (attempt - 1) / self.rounds
            });
            if is_over && is_last {
                visit(call(Verb::Release));
            } else if !was_won && !is_asking {
                visit(call(self.lost_verb(attempt)));
            }
        }
    }

    /// The acquisitions of an attempt, and what it has sent as a holder.
    fn late(&self, state: &State<C>, (client, attempt): (usize, u8), visit: &mut dyn FnMut(Call)) {
        let now = state.clients[client];
        let was_won = now.won & bit(attempt) != 0;
        let is_held = attempt == now.attempt && now.phase == Phase::Held && !now.is_broken;
        for is_again in [false, true] {
            if is_again && now.again & bit(attempt) == 0 {
                continue;
            }
            let slots: Vec<_> = if self.has_slots() {
                let wanted = now.wanted[round_of(attempt, is_again)];
                (1..=3).filter(|slot| wanted & bit(*slot) != 0).collect()
            } else {
                vec![0]
            };
            let call = Call {
                candidate: self.candidate(client, attempt, is_again),
                ..self.call(client, attempt, Verb::Acquire)
            };
            if self.late && self.has_slots() {
                self.any_slot(call, visit);
            }
            for slot in slots {
                let call = Call { slot, ..call };
                if self.late {
                    visit(call);
                }
                if was_won && (self.extends || self.has_slots()) {
                    self.holds(
                        now.lowered & bit(attempt) != 0,
                        is_held || self.late,
                        call,
                        visit,
                    );
                }
            }
        }
    }

    /// The extensions and the heals of a holder.
    fn holds(&self, is_lowered: bool, heals: bool, call: Call, visit: &mut dyn FnMut(Call)) {
        let candidate = call.candidate;
        for reads in [call.reads, true] {
            if reads != call.reads && !is_lowered {
                continue;
            }
            let call = Call {
                reads,
                candidate: 0,
                queues: false,
                ..call
            };
            visit(Call {
                verb: Verb::Extend,
                ..call
            });
            if heals {
                visit(Call {
                    verb: Verb::Heal,
                    candidate,
                    ..call
                });
            }
        }
    }
}
