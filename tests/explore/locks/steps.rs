//! The steps of clients and of masters.

use super::{
    Broken,
    client::{Claim, Client, Extension, Phase, bit},
    model::{ANSWERED, Locks, State},
};
use crate::{
    core::vote::Verb,
    explore::masters::{Call, Cast, Event, Keys},
};

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "to be printed")]
pub(super) enum Step {
    /// A master executes a command, and the answer counts.
    Answered(Call, usize),
    /// A master executes a command, and the answer does not count.
    Unanswered(Call, usize),
    /// A client begins a round, or goes on without the missing answers.
    Client(usize, &'static str),
    /// A lease or a waiter ends.
    Ends(Event, usize),
    Forget(usize),
    EndQuarantine(usize),
}

/// Visits a step of a client: its name, and what it changes.
type ClientStep<'a, const C: usize> = dyn FnMut(&'static str, &dyn Fn(&mut State<C>)) + 'a;

impl<const C: usize> Locks<C> {
    pub(super) fn client_steps(
        &self,
        state: &State<C>,
        client: usize,
        visit: &mut dyn FnMut(Step, State<C>),
    ) {
        let now = state.clients[client];
        let mut step = |what, change: &dyn Fn(&mut State<C>)| {
            let mut next = *state;
            change(&mut next);
            visit(Step::Client(client, what), next);
        };
        let next_claim = |now: Client| now.claim + u8::from(now.attempt > 0);
        let leave = |next: &mut State<C>| self.leave(next, client);
        match now.phase {
            Phase::Idle | Phase::Left => {
                if usize::from(next_claim(now)) < self.claims[client].len() {
                    let first = next_claim(now) * self.rounds + 1;
                    step("claims", &|next| self.ask(next, client, first));
                }
            }
            Phase::Asking => {
                step("gives up a round", &|next| self.lose(next, client));
                self.asking_steps(state, client, &mut step);
            }
            Phase::Waiting => {
                if !now.attempt.is_multiple_of(self.rounds) && !now.upgrades {
                    step("asks again", &|next| {
                        self.ask(next, client, now.attempt + 1);
                    });
                }
                step("leaves", &leave);
            }
            Phase::Held => {
                self.held_steps(state, client, &mut step);
                step("leaves", &leave);
            }
        }
    }

    /// Chooses a slot that a master has granted in this round, or begins the second round.
    fn asking_steps(&self, state: &State<C>, client: usize, step: &mut ClientStep<'_, C>) {
        let now = state.clients[client];
        let votes = state.masters.iter().map(|master| master.votes[client]);
        let granted = votes.fold(0, |all, vote| all | vote & !ANSWERED);
        let may_choose = self.has_slots() && now.asks_for == 0 && !self.asks_again();
        for slot in (1..=self.permits[client]).filter(|slot| granted & bit(*slot) != 0) {
            if may_choose {
                step("asks for one slot", &|next| {
                    next.clients[client].asks_for = slot;
                    next.clients[client].wants(slot);
                });
            }
        }
        if self.has_ballots && !now.is_again() {
            step("asks with another candidate", &|next| {
                next.close(client);
                let now = &mut next.clients[client];
                now.again |= bit(now.attempt);
                if self.broken == Broken::ChoosesAgain {
                    now.asks_for = 0;
                }
                now.wants(now.asks_for);
            });
        }
    }

    fn held_steps(&self, state: &State<C>, client: usize, step: &mut ClientStep<'_, C>) {
        let now = state.clients[client];
        let opens = |next: &mut State<C>| {
            next.close(client);
            next.clients[client].extension = Extension::Open;
        };
        if self.extends && now.extension == Extension::None {
            step("extends", &opens);
        }
        if now.extension != Extension::None {
            step("gives up an extension", &|next| {
                next.close(client);
                next.clients[client].extension = Extension::None;
            });
        }
        let claim = self.claim(client, now.attempt);
        if claim.changes && !claim.reads && !now.is_lowered() {
            step("becomes a reader", &|next| {
                opens(next);
                next.clients[client].lowered |= bit(now.attempt);
            });
        }
        if claim.changes && self.broken == Broken::UpgradeInPlace && claim.reads {
            step("asks to write", &|next| {
                next.close(client);
                self.ask(next, client, now.attempt + self.rounds);
                next.clients[client].upgrades = true;
            });
        }
    }

    pub(super) fn master_steps(
        &self,
        state: &State<C>,
        at: usize,
        visit: &mut dyn FnMut(Step, State<C>),
    ) {
        let master = state.masters[at];
        let is_relied_on = (0..C).any(|client| state.is_relied_on(client, at));
        if master.is_quarantined {
            if !is_relied_on {
                let mut next = *state;
                next.masters[at].is_quarantined = false;
                visit(Step::EndQuarantine(at), next);
            }
            return;
        }
        if self.forgets && !state.has_forgotten {
            let mut next = *state;
            next.has_forgotten = true;
            next.masters[at].keys = Keys::default();
            next.masters[at].is_quarantined = self.broken != Broken::NoQuarantine;
            visit(Step::Forget(at), next);
        }
        for event in self.ends_of(state, at) {
            let mut next = *state;
            next.masters[at].keys = self.masters.end(master.keys, event);
            visit(Step::Ends(event, at), next);
        }
    }

    /// Returns the leases and the waiters that may end on a master.
    fn ends_of(&self, state: &State<C>, at: usize) -> Vec<Event> {
        let master = state.masters[at];
        let is_needed = |client: usize, attempt: u8, slot: u8| {
            let now = state.clients[client];
            let has_vote = match now.phase {
                Phase::Asking => master.votes[client] & bit(slot) != 0,
                _ => master.votes[client] & !ANSWERED != 0 && slot == now.slot,
            };
            let is_counted = master.counted & 1 << client != 0 && slot == now.slot;
            attempt == now.attempt && (has_vote || is_counted) || now.upgrades
        };
        let mut needed_tickets = 0;
        for client in (0..C).filter(|client| !self.fades && state.clients[*client].is_waiting()) {
            needed_tickets |= 1 << self.claim(client, state.clients[client].attempt).ticket;
        }
        self.masters.view(master.keys, |view| {
            let clients = (0..C).filter(|client| {
                let of = |(of, _): &&(u8, _)| usize::from(*of) == *client;
                let mut entries = view.entries.iter().filter(of).peekable();
                entries.peek().is_some()
                    && !entries.any(|(_, entry)| is_needed(*client, entry.attempt, entry.slot))
            });
            let leases = clients.map(|client| Event::LeaseEnds(client as u8));
            let tickets = (0..8).filter(|ticket| view.tickets & !needed_tickets & 1 << ticket != 0);
            let waiters = tickets.map(|ticket| Event::WaiterEnds(ticket, self.owner_of(ticket)));
            leases.chain(waiters).collect()
        })
    }

    /// Returns the client with a ticket.
    pub(super) fn owner_of(&self, ticket: u8) -> u8 {
        let has = |claims: &Vec<Claim>| claims.iter().any(|claim| claim.ticket == ticket);
        self.claims.iter().position(has).unwrap() as u8
    }

    pub(super) fn command_steps(
        &self,
        state: &State<C>,
        at: usize,
        visit: &mut dyn FnMut(Step, State<C>),
    ) {
        if state.masters[at].is_quarantined {
            return;
        }
        for client in 0..C {
            self.sent(state, client, &mut |call| {
                let mut next = *state;
                self.execute(&mut next, call, at);
                if next != *state {
                    visit(Step::Unanswered(call, at), next);
                }
            });
            let now = state.clients[client];
            let is_open = state.masters[at].votes[client] == 0;
            let mut answered = |call: Call| {
                let mut next = *state;
                next.clients[client].wants(if self.asks_again() { call.slot } else { 0 });
                let cast = self.execute(&mut next, call, at);
                self.count(&mut next, client, at, cast);
                visit(Step::Answered(call, at), next);
            };
            match (now.phase, now.extension) {
                (Phase::Asking, _) if is_open || self.asks_again() => {
                    self.asked(now, client, &mut answered);
                }
                (Phase::Held, Extension::Open | Extension::Stale) if is_open => {
                    let call = self.call(client, now.attempt, Verb::Extend);
                    let reads = call.reads || now.is_lowered();
                    let slot = now.slot;
                    answered(Call {
                        reads,
                        slot,
                        ..call
                    });
                }
                _ => {}
            }
        }
    }

    /// The commands of the open round of a client.
    fn asked(&self, now: Client, client: usize, visit: &mut dyn FnMut(Call)) {
        let call = Call {
            candidate: self.candidate(client, now.attempt, now.is_again()),
            slot: now.asks_for,
            ..self.call(client, now.attempt, Verb::Acquire)
        };
        if now.asks_for > 0 || !self.has_slots() {
            visit(call);
        } else {
            self.any_slot(call, visit);
        }
        for slot in (1..=call.permits).filter(|_| self.asks_again()) {
            visit(Call { slot, ..call });
        }
    }

    /// Lets a master choose a slot. It begins to look at any of them, which depends on the ticket.
    pub(super) fn any_slot(&self, call: Call, visit: &mut dyn FnMut(Call)) {
        for ticket in 0..call.permits {
            visit(Call { ticket, ..call });
        }
    }

    /// Lets a master execute a command. Returns the answer.
    fn execute(&self, state: &mut State<C>, call: Call, at: usize) -> Cast {
        let client = usize::from(call.client);
        let before = state.masters[at].keys;
        let (after, cast) = self.masters.call(before, call);
        state.masters[at].keys = after;
        let now = &mut state.clients[client];
        let (attempt, slot) = (now.attempt, now.slot);
        let was_held = self.masters.view(before, |view| {
            let mut entries = view.entries.iter();
            entries.any(|(of, entry)| {
                usize::from(*of) == client && entry.attempt == attempt && entry.slot == slot
            })
        });
        if call.verb == Verb::Break && was_held && state.is_relied_on(client, at) {
            state.clients[client].on_break();
        }
        cast
    }
}
