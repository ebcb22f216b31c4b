//! The rounds of clients: how they begin, and what their answers decide.

use super::{
    Broken,
    client::{Bits, Extension, Phase, bit},
    model::{ANSWERED, Locks, MASTERS, ORDER, ROBBED, State},
};
use crate::{
    core::vote::{
        Verb,
        quorum::{Outcome, Quorum, majority},
    },
    explore::masters::{Cast, decided},
};

impl<const C: usize> Locks<C> {
    /// Counts an answer to the round of a client.
    pub(super) fn count(&self, state: &mut State<C>, client: usize, at: usize, cast: Cast) {
        let vote = &mut state.masters[at].votes[client];
        if self.broken != Broken::KeepsVotes {
            *vote = 0;
        }
        *vote |= ANSWERED;
        if let Cast::Granted(slot) = cast {
            *vote |= bit(slot);
        }
        let now = state.clients[client];
        let (outcome, slot) = self.outcome(state, client);
        match (now.phase, outcome) {
            (Phase::Asking, Outcome::Won) => self.win(state, client, slot),
            (Phase::Asking, Outcome::NoMajority) => {
                let may_ask_again = self.asks_again() || self.has_ballots && !now.is_again();
                if !may_ask_again {
                    self.lose(state, client);
                }
            }
            (Phase::Held, Outcome::Won) => {
                let now = &mut state.clients[client];
                if now.extension == Extension::Open {
                    if now.is_robbed && self.strict_breaks {
                        state.flaw = Some(ROBBED);
                    }
                    now.is_broken = false;
                }
                now.extension = Extension::None;
                state.believe(client, !ANSWERED);
            }
            (Phase::Held, Outcome::NoMajority) => self.leave(state, client),
            _ => {}
        }
    }

    /// Returns the outcome of the round of a client, and the slot that it has won.
    fn outcome(&self, state: &State<C>, client: usize) -> (Outcome, u8) {
        let is_held = state.clients[client].phase == Phase::Held;
        let votes = state.masters.map(|master| master.votes[client]);
        let known = self.decisions.borrow().get(&(is_held, votes)).copied();
        known.unwrap_or_else(|| {
            let decision = self.decide(is_held, votes);
            let decisions = &mut self.decisions.borrow_mut();
            decisions.insert((is_held, votes), decision);
            decision
        })
    }

    fn decide(&self, is_held: bool, votes: [Bits; MASTERS]) -> (Outcome, u8) {
        let verb = if is_held { Verb::Extend } else { Verb::Acquire };
        let of = |slots: Bits| {
            let votes = votes.iter().enumerate().map(|(at, vote)| {
                let granted = vote & slots;
                let cast = match granted {
                    _ if *vote == 0 => Cast::None,
                    0 => Cast::Refused,
                    _ if is_held || !self.has_slots() || self.broken == Broken::CountsGrants => {
                        Cast::Granted(0)
                    }
                    _ => Cast::Granted(first_in(granted)),
                };
                (at, cast)
            });
            let decision = decided(verb, &Quorum::of(MASTERS), votes);
            (decision.outcome, decision.slot)
        };
        match self.broken {
            Broken::CountsGrants => {
                let all = votes.iter().fold(0, |all, vote| all | vote & !ANSWERED);
                (of(!ANSWERED).0, first_in(all))
            }
            Broken::KeepsVotes if !is_held => {
                let won = (1..=3).find(|slot| of(bit(*slot)).0 == Outcome::Won);
                won.map_or((Outcome::Pending, 0), |slot| (Outcome::Won, slot))
            }
            _ => of(!ANSWERED),
        }
    }

    /// Returns whether masters that have answered a round are asked again in it, for any slot.
    pub(super) fn asks_again(&self) -> bool {
        matches!(self.broken, Broken::ChangesSlot | Broken::KeepsVotes)
    }

    pub(super) fn lose(&self, state: &mut State<C>, client: usize) {
        let attempt = state.clients[client].attempt;
        if !self.is_ordered && attempt.is_multiple_of(self.rounds) {
            return self.leave(state, client);
        }
        state.close(client);
        state.clients[client].phase = Phase::Waiting;
        self.give_back(state, client, self.lost_verb(attempt));
    }

    pub(super) fn leave(&self, state: &mut State<C>, client: usize) {
        state.clients[client].leave();
        state.close(client);
        for master in &mut state.masters {
            master.counted &= !(1 << client);
        }
        self.give_back(state, client, Verb::Release);
    }

    /// Returns the command with which an attempt that was lost gives back what it got.
    pub(super) fn lost_verb(&self, attempt: u8) -> Verb {
        if self.queues(attempt) {
            Verb::Yield
        } else {
            Verb::Release
        }
    }

    fn give_back(&self, state: &mut State<C>, client: usize, verb: Verb) {
        let call = self.call(client, state.clients[client].attempt, verb);
        for master in state.masters.iter_mut().filter(|_| self.is_tidy) {
            master.keys = self.masters.call(master.keys, call).0;
        }
    }

    fn win(&self, state: &mut State<C>, client: usize, slot: u8) {
        for other in 0..C {
            let masters = state.masters.iter();
            let ahead = masters.filter(|master| master.ahead[client] & 1 << other != 0);
            if ahead.count() >= majority(MASTERS) {
                state.flaw = Some(ORDER);
            }
            let writes = self.writes_now(state, client) || self.writes_now(state, other);
            let held = &mut state.clients[other];
            if other != client && held.phase == Phase::Held && held.is_broken && writes {
                held.is_robbed = true;
            }
        }
        let now = &mut state.clients[client];
        now.wants(slot);
        now.phase = Phase::Held;
        now.won |= bit(now.attempt);
        now.upgrades = false;
        now.slot = slot;
        now.asks_for = 0;
        state.believe(client, if slot > 0 { bit(slot) } else { !ANSWERED });
    }

    /// Begins a round of a client.
    pub(super) fn ask(&self, state: &mut State<C>, client: usize, attempt: u8) {
        let now = &mut state.clients[client];
        now.phase = Phase::Asking;
        now.claim = (attempt - 1) / self.rounds;
        now.attempt = attempt;
        now.begun |= bit(attempt);
        now.is_broken = false;
        if !self.is_ordered {
            return;
        }
        let mine = self.claim(client, attempt);
        for other in (0..C).filter(|other| *other != client) {
            let claim = self.claim(other, state.clients[other].attempt);
            let is_before = claim.ticket < mine.ticket && !(claim.reads && mine.reads);
            for at in 0..MASTERS {
                if is_before && self.is_present(state, other, at) {
                    state.masters[at].ahead[client] |= 1 << other;
                }
            }
        }
    }

    /// Returns whether a client waits, and a master has its ticket, or its entry.
    pub(super) fn is_present(&self, state: &State<C>, client: usize, at: usize) -> bool {
        let now = state.clients[client];
        let ticket = self.claim(client, now.attempt).ticket;
        let is_entry = |of: u8, attempt: u8| {
            usize::from(of) == client && (attempt - 1) / self.rounds == now.claim
        };
        let is_there = self.masters.view(state.masters[at].keys, |view| {
            let mut entries = view.entries.iter();
            view.tickets & 1 << ticket != 0
                || entries.any(|(of, entry)| is_entry(*of, entry.attempt))
        });
        now.is_waiting() && is_there
    }
}

fn first_in(slots: Bits) -> u8 {
    slots.trailing_zeros() as u8 + 1
}
