//! The model: what a client counts, and the guarantees.
//!
//! Not modelled: calls of waiters and reports of changes, fencing tokens, the check of the time in
//! a ticket, and masters that fail for long.

use super::{
    Broken,
    client::{Claim, Client, Extension, Phase, bit},
    master::{Caller, Form, Master, Rules, Vote},
    state::{State, Wrong},
    steps::Step,
};
use crate::{MAJORITY, MASTERS, search::Model};

/// The choice of the states to search.
#[derive(Clone, Debug)]
pub(super) struct ReadWrite<const C: usize> {
    /// The claims of each client, one after the other. All have the same owner.
    pub(super) claims: [Vec<Claim>; C],
    /// The number of rounds in which a claim asks for the lock.
    pub(super) rounds: u8,
    /// The round of a claim with which it joins the queues, starting at 0.
    pub(super) queued_from: u8,
    /// Holders extend the lock, and put it back.
    pub(super) extends: bool,
    pub(super) broken: Broken,
    /// Holders may be broken.
    pub(super) breaks: bool,
    /// Checks that a broken holder does not go on after another had the lock.
    pub(super) strict_breaks: bool,
    /// Acquisitions and heals may be executed long after they were sent, or again.
    pub(super) late: bool,
    /// Masters may forget the ticket of a client that waits, because it asks too seldom.
    pub(super) fades: bool,
    /// What a client gives back is gone from all masters at once.
    pub(super) is_tidy: bool,
    /// A master may lose all data once.
    pub(super) forgets: bool,
    /// Checks the order of the tickets.
    pub(super) is_ordered: bool,
    /// Checks that every waiter can win.
    pub(super) ends: bool,
}

pub(super) const EXCLUSION: &str = "a writer holds the lock beside another holder";
pub(super) const ORDER: &str = "a waiter passes one that was before it on a majority";
pub(super) const ROBBED: &str = "a broken holder goes on after another had the lock";
pub(super) const STUCK: &str = "a waiter cannot win";

impl<const C: usize> ReadWrite<C> {
    pub(super) fn rules(&self) -> Rules {
        let all = self.claims.iter().flat_map(|claims| claims.iter());
        let writers = all.filter(|claim| claim.writes);
        Rules {
            broken: self.broken,
            write_tickets: writers.fold(0, |all, claim| all | claim.ticket),
        }
    }

    pub(super) fn claim(&self, client: usize, attempt: u8) -> Claim {
        let number = (attempt.max(1) - 1) / self.rounds;
        self.claims[client][usize::from(number)]
    }

    pub(super) fn caller(&self, client: usize, attempt: u8) -> Caller {
        let Claim { writes, ticket, .. } = self.claim(client, attempt);
        Caller {
            client,
            attempt,
            ticket,
            writes,
        }
    }

    /// Returns whether an attempt joins the queues.
    pub(super) fn queues(&self, attempt: u8) -> bool {
        (attempt - 1) % self.rounds >= self.queued_from
    }

    fn writes_now(&self, state: &State<C>, client: usize) -> bool {
        let now = state.clients[client];
        self.claim(client, now.attempt).writes && !now.is_lowered() && !now.upgrades
    }

    /// Counts an answer to the round of a client.
    pub(super) fn count(&self, state: &mut State<C>, client: usize, at: usize, vote: Vote) {
        state.masters[at].votes[client] = vote;
        let votes = state.masters.map(|master| master.votes[client]);
        let has = |vote| votes.iter().filter(|cast| **cast == vote).count() >= MAJORITY;
        match state.clients[client].phase {
            Phase::Asking if has(Vote::Grant) => self.win(state, client),
            Phase::Asking if has(Vote::Refuse) => {
                self.lose(state, client);
            }
            Phase::Held if has(Vote::Grant) => {
                let now = &mut state.clients[client];
                if now.extension == Extension::Open {
                    if now.is_robbed && self.strict_breaks {
                        state.flaw = Wrong::Robbed;
                    }
                    now.is_broken = false;
                }
                now.extension = Extension::None;
                state.believe(client);
            }
            Phase::Held if has(Vote::Refuse) => {
                self.leave(state, client);
            }
            _ => {}
        }
    }

    pub(super) fn lose(&self, state: &mut State<C>, client: usize) {
        state.close(client);
        state.clients[client].phase = Phase::Waiting;
        if self.is_tidy {
            let by = self.caller(client, state.clients[client].attempt);
            let queues = self.queues(by.attempt);
            for master in &mut state.masters {
                master.give_back(self.rules(), by, queues);
            }
        }
    }

    pub(super) fn leave(&self, state: &mut State<C>, client: usize) {
        state.clients[client].leave();
        state.close(client);
        let by = self.caller(client, state.clients[client].attempt);
        for master in &mut state.masters {
            master.counted[client] = false;
            if self.is_tidy {
                master.release(self.rules(), by);
            }
        }
    }

    fn win(&self, state: &mut State<C>, client: usize) {
        for other in 0..C {
            let masters = state.masters.iter();
            let ahead = masters.filter(|master| master.ahead[client] & 1 << other != 0);
            if ahead.count() >= MAJORITY {
                state.flaw = Wrong::Order;
            }
            let writes = self.writes_now(state, client) || self.writes_now(state, other);
            let held = &mut state.clients[other];
            if other != client && held.phase == Phase::Held && held.is_broken && writes {
                held.is_robbed = true;
            }
        }
        let now = &mut state.clients[client];
        now.phase = Phase::Held;
        now.won |= bit(now.attempt);
        now.upgrades = false;
        state.believe(client);
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
            let is_before = claim.ticket < mine.ticket && (claim.writes || mine.writes);
            for at in 0..MASTERS {
                if is_before && self.is_present(state, other, at) {
                    state.masters[at].ahead[client] |= 1 << other;
                }
            }
        }
    }

    /// Returns whether a client waits, and a master has its ticket, or its entry.
    fn is_present(&self, state: &State<C>, client: usize, at: usize) -> bool {
        let now = state.clients[client];
        let (master, ticket) = (state.masters[at], self.claim(client, now.attempt).ticket);
        let entry = master.entries[client];
        let is_entered = matches!(entry.form, Form::Reads | Form::Writes)
            && (entry.attempt - 1) / self.rounds == now.claim;
        now.is_waiting() && (master.tickets & ticket != 0 || is_entered)
    }

    /// Drops what no longer holds, and forgets the names of the masters.
    fn settle(&self, mut state: State<C>) -> State<C> {
        if self.is_ordered {
            for client in 0..C {
                for at in 0..MASTERS {
                    for other in 0..C {
                        if !self.is_present(&state, other, at) {
                            state.masters[at].ahead[client] &= !(1 << other);
                        }
                    }
                }
            }
        }
        state.masters.sort_unstable_by_key(Master::packed);
        state
    }
}

impl<const C: usize> Model for ReadWrite<C> {
    type State = State<C>;
    type Step = Step;

    fn start(&self) -> State<C> {
        State {
            masters: [Master::EMPTY; MASTERS],
            clients: [Client::default(); C],
            has_forgotten: false,
            flaw: Wrong::Nothing,
        }
    }

    fn steps(&self, state: &State<C>, visit: &mut dyn FnMut(Step, State<C>)) {
        let mut visit = |step, next| visit(step, self.settle(next));
        for client in 0..C {
            self.client_steps(state, client, &mut visit);
        }
        for at in 0..MASTERS {
            if at == 0 || state.masters[at] != state.masters[at - 1] {
                self.master_steps(state, at, &mut visit);
                self.command_steps(state, at, &mut visit);
            }
        }
    }

    fn flaw(&self, state: &State<C>) -> Option<&'static str> {
        let holders = state.clients.iter().filter(|client| client.believes());
        let has_writer =
            (0..C).any(|client| state.clients[client].believes() && self.writes_now(state, client));
        if has_writer && holders.count() > 1 {
            return Some(EXCLUSION);
        }
        match state.flaw {
            Wrong::Order => Some(ORDER),
            Wrong::Robbed => Some(ROBBED),
            Wrong::Nothing => (self.ends && self.is_stuck(state)).then_some(STUCK),
        }
    }
}
