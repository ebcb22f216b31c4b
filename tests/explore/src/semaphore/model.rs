//! The model: its states, and the steps between them.

use super::{
    Broken,
    master::{Master, SLOTS, Slots, Token, client_of, token},
    state::{Client, Phase, State},
};
use crate::{MAJORITY, MASTERS, search::Model};

/// The choice of the states to search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Semaphore<const C: usize> {
    /// The number of slots, as each client knows it.
    pub(super) sizes: [usize; C],
    /// The number of attempts of each client, at most 3.
    pub(super) attempts: u8,
    pub(super) broken: Broken,
    /// Holders extend their slots, and put them back.
    pub(super) extends: bool,
    pub(super) breaks: bool,
    /// A master may lose all data once.
    pub(super) forgets: bool,
    /// Attempts may have a second round.
    pub(super) has_ballots: bool,
    /// Checks that every client that waits can win.
    pub(super) ends: bool,
}

pub(super) const TWO: &str = "two hold the same slot";
pub(super) const MORE: &str = "more than the number of slots are held";
pub(super) const STUCK: &str = "a waiter cannot win, though a slot is free";

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "to be printed")]
pub(super) enum Step {
    /// A master answers a client, whose attempt has this number. The answer counts.
    Answered(usize, u8, &'static str, usize),
    /// A master executes a command, and the answer does not count.
    Unanswered(usize, u8, &'static str, usize),
    Client(usize, &'static str),
    EntryVanishes(Token, usize),
    Forget(usize),
    EndQuarantine(usize),
}

impl<const C: usize> Semaphore<C> {
    /// Counts the answers to the round of a client.
    fn count(&self, state: &mut State<C>, client: usize) {
        let granted = state.masters.map(|master| master.granted[client]);
        let has = |slots: Slots| {
            granted
                .iter()
                .filter(|granted| **granted & slots != 0)
                .count()
                >= MAJORITY
        };
        let most = state
            .masters
            .iter()
            .filter(|master| master.answered[client]);
        let is_over = most.count() == MASTERS;
        let now = &mut state.clients[client];
        if now.phase == Phase::Held {
            if has(1 << now.slot) {
                now.is_broken &= now.is_stale;
                now.is_extending = false;
                state.believe(client);
            } else if is_over {
                state.leave(client);
            }
            return;
        }
        let any_slot = self.broken == Broken::CountsGrants && has(Slots::MAX);
        let won = (0..SLOTS).find(|slot| {
            has(1 << slot) || any_slot && granted.iter().any(|granted| granted & 1 << slot != 0)
        });
        if let Some(slot) = won {
            now.phase = Phase::Held;
            now.slot = slot as u8;
            now.asks_for = 0;
            now.is_again = false;
            now.won |= 1 << now.attempt;
            now.wanted[usize::from(now.attempt)] |= 1 << slot;
            state.believe(client);
        } else if is_over {
            state.leave(client);
        }
    }

    fn ask(
        &self,
        state: &State<C>,
        (client, at): (usize, usize),
        visit: &mut dyn FnMut(Step, State<C>),
    ) {
        let now = state.clients[client];
        let (attempt, token) = (now.attempt, token(client, now.attempt));
        let asks_again = self.asks_again();
        if state.masters[at].answered[client] && !asks_again {
            return;
        }
        let mut answered = |what, mut next: State<C>, slot: Option<usize>| {
            let master = &mut next.masters[at];
            let slots = slot.map_or(0, |slot| 1 << slot);
            let keeps = self.broken == Broken::KeepsVotes;
            master.granted[client] = if keeps {
                master.granted[client] | slots
            } else {
                slots
            };
            master.answered[client] = true;
            self.count(&mut next, client);
            visit(Step::Answered(client, attempt, what, at), next);
        };
        let free = state.masters[at].free(token, self.sizes[client]);
        for slot in free.iter().filter(|_| now.asks_for == 0) {
            let mut next = *state;
            next.masters[at].take(token, *slot);
            answered("takes any", next, Some(*slot));
        }
        if free.is_empty() && now.asks_for == 0 {
            answered("takes any", *state, None);
        }
        for slot in 0..self.sizes[client] {
            let mut next = *state;
            if asks_again {
                next.clients[client].wanted[usize::from(attempt)] |= 1 << slot;
            } else if now.asks_for != 1 << slot {
                continue;
            }
            let is_mine = next.masters[at].take(token, slot);
            answered("takes one", next, is_mine.then_some(slot));
        }
    }

    /// Returns whether masters that have answered a round are asked again in it, for any slot.
    fn asks_again(&self) -> bool {
        self.broken == Broken::KeepsVotes || self.broken == Broken::ChangesSlot
    }

    /// Chooses a slot that a master has granted in this round, or begins the second round.
    fn asking_steps(&self, state: &State<C>, client: usize, visit: &mut dyn FnMut(Step, State<C>)) {
        let now = state.clients[client];
        let granted = state.masters.map(|master| master.granted[client]);
        let granted = granted.iter().fold(0, |all, granted| all | granted);
        let may_choose = now.asks_for == 0 && !self.asks_again();
        for slot in (0..self.sizes[client]).filter(|slot| may_choose && granted & 1 << slot != 0) {
            let mut next = *state;
            next.clients[client].asks_for = 1 << slot;
            next.clients[client].wanted[usize::from(now.attempt)] |= 1 << slot;
            visit(Step::Client(client, "asks for one slot"), next);
        }
        if self.has_ballots && !now.is_again {
            let mut next = *state;
            next.close(client);
            next.clients[client].is_again = true;
            if self.broken == Broken::ChoosesAgain {
                next.clients[client].asks_for = 0;
            }
            visit(Step::Client(client, "asks again"), next);
        }
    }

    fn extend(
        &self,
        state: &State<C>,
        (client, at): (usize, usize),
        visit: &mut dyn FnMut(Step, State<C>),
    ) {
        let (mut next, now) = (*state, state.clients[client]);
        let (slot, held) = (usize::from(now.slot), &mut next.masters[at]);
        let is_mine = held.slots[slot] == token(client, now.attempt);
        held.leave_others(token(client, now.attempt), slot);
        held.answered[client] = true;
        held.granted[client] = Slots::from(is_mine) << slot;
        self.count(&mut next, client);
        visit(Step::Answered(client, now.attempt, "extends", at), next);
    }

    fn client_steps(&self, state: &State<C>, client: usize, visit: &mut dyn FnMut(Step, State<C>)) {
        let now = state.clients[client];
        let mut next = *state;
        match now.phase {
            Phase::Idle | Phase::Left if now.attempt < self.attempts => {
                next.clients[client].phase = Phase::Asking;
                next.clients[client].attempt += 1;
                visit(Step::Client(client, "asks"), next);
            }
            Phase::Idle | Phase::Left => {}
            Phase::Asking | Phase::Held => {
                next.leave(client);
                visit(Step::Client(client, "leaves"), next);
            }
        }
        if now.phase == Phase::Asking {
            self.asking_steps(state, client, visit);
        }
        if now.phase == Phase::Held && self.extends {
            let mut next = *state;
            next.close(client);
            next.clients[client].is_extending = !now.is_extending;
            next.clients[client].is_stale = false;
            visit(Step::Client(client, "extends, or stops"), next);
        }
    }

    fn master_steps(&self, state: &State<C>, at: usize, visit: &mut dyn FnMut(Step, State<C>)) {
        let master = state.masters[at];
        if master.is_quarantined {
            if !(0..C).any(|client| master.counted[client] || master.granted[client] != 0) {
                let mut next = *state;
                next.masters[at].is_quarantined = false;
                visit(Step::EndQuarantine(at), next);
            }
            return;
        }
        if self.forgets && !state.has_forgotten {
            let mut next = *state;
            next.has_forgotten = true;
            next.masters[at].slots = [0; SLOTS];
            next.masters[at].is_quarantined = self.broken != Broken::NoQuarantine;
            visit(Step::Forget(at), next);
        }
        for (slot, held) in master.slots.into_iter().enumerate() {
            let Some(client) = client_of(held) else {
                continue;
            };
            let now = state.clients[client];
            let is_used = master.counted[client] && usize::from(now.slot) == slot
                || master.granted[client] & 1 << slot != 0;
            if !(is_used && held == token(client, now.attempt)) {
                let mut next = *state;
                next.masters[at].slots[slot] = 0;
                visit(Step::EntryVanishes(held, at), next);
            }
        }
    }

    /// Returns whether a client that waits cannot win any slot, in good weather.
    fn is_stuck(&self, state: &State<C>) -> bool {
        let holders = state
            .clients
            .iter()
            .filter(|client| client.phase == Phase::Held);
        let holders = holders.count();
        let mut waiters = (0..C).filter(|client| state.clients[*client].phase == Phase::Asking);
        waiters.any(|waiter| {
            let size = self.sizes[waiter];
            let wins = |start: usize| {
                let took = state.masters.map(|master| {
                    let held = |slot: &usize| match client_of(master.slots[*slot]) {
                        Some(client) => {
                            state.clients[client].phase == Phase::Held
                                && master.slots[*slot]
                                    == token(client, state.clients[client].attempt)
                        }
                        None => false,
                    };
                    let used = (0..SLOTS).filter(held).count();
                    let free = (0..size)
                        .map(|slot| (start + slot) % size)
                        .find(|slot| !held(slot));
                    free.filter(|_| used < size)
                });
                let same = |one: &Option<usize>| took.iter().filter(|slot| *slot == one).count();
                took.iter()
                    .any(|slot| slot.is_some() && same(slot) >= MAJORITY)
            };
            holders < size && !(0..size).any(wins)
        })
    }
}

impl<const C: usize> Model for Semaphore<C> {
    type State = State<C>;
    type Step = Step;

    fn start(&self) -> State<C> {
        State {
            masters: [Master::EMPTY; MASTERS],
            clients: [Client::default(); C],
            has_forgotten: false,
        }
    }

    fn steps(&self, state: &State<C>, visit: &mut dyn FnMut(Step, State<C>)) {
        let mut visit = |step, mut next: State<C>| {
            next.masters.sort_unstable_by_key(Master::packed);
            visit(step, next);
        };
        for client in 0..C {
            self.client_steps(state, client, &mut visit);
        }
        for at in 0..MASTERS {
            let master = state.masters[at];
            if at > 0 && master == state.masters[at - 1] {
                continue;
            }
            self.master_steps(state, at, &mut visit);
            for client in (0..C).filter(|_| !master.is_quarantined) {
                let now = state.clients[client];
                for attempt in 1..=now.attempt {
                    self.late(state, (client, attempt, at), &mut visit);
                }
                if now.phase == Phase::Asking {
                    self.ask(state, (client, at), &mut visit);
                }
                if now.is_extending && !master.answered[client] {
                    self.extend(state, (client, at), &mut visit);
                }
            }
        }
    }

    fn flaw(&self, state: &State<C>) -> Option<&'static str> {
        let believes = |client: &&Client| client.phase == Phase::Held && !client.is_broken;
        let holders = state.clients.iter().filter(believes);
        let slots = holders
            .clone()
            .fold(0, |slots: u8, client| slots | 1 << client.slot);
        let (held, most) = (holders.count(), self.sizes.iter().max());
        if most.is_some_and(|most| held > *most) {
            return Some(MORE);
        }
        let is_double = held > slots.count_ones() as usize && self.broken != Broken::CountsGrants;
        if is_double {
            return Some(TWO);
        }
        (self.ends && self.is_stuck(state)).then_some(STUCK)
    }
}
