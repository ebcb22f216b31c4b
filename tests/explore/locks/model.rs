//! The model: its states, what a client counts, and the guarantees.

use std::{cell::RefCell, collections::HashMap};

use super::{
    Broken,
    client::{Bits, Claim, Client, bit},
    steps::Step,
};
use crate::{
    core::vote::{Verb, quorum::Outcome},
    explore::{
        masters::{Call, Keys, Masters},
        search::Model,
    },
};

pub(super) const MASTERS: usize = 3;

/// The choice of the states to search.
pub(super) struct Locks<const C: usize> {
    pub(super) masters: Masters,
    pub(super) broken: Broken,
    /// The claims of each client, one after the other. All have the same owner.
    pub(super) claims: [Vec<Claim>; C],
    /// The number of slots, as each client knows it. 0 for a lock without slots.
    pub(super) permits: [u8; C],
    /// The number of rounds in which a claim asks for the lock.
    pub(super) rounds: u8,
    /// The round of a claim with which it joins the queues, starting at 0.
    pub(super) queued_from: u8,
    /// Holders extend the lock.
    pub(super) extends: bool,
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
    /// Attempts may have a second round.
    pub(super) has_ballots: bool,
    /// The lock is fenced: a round has a candidate.
    pub(super) is_fenced: bool,
    pub(super) decisions: RefCell<Decisions>,
}

/// The outcome of a round of a holder or of another client by its votes, and the slot that it won.
pub(super) type Decisions = HashMap<(bool, [Bits; MASTERS]), (Outcome, u8)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State<const C: usize> {
    pub(super) masters: [Master<C>; MASTERS],
    pub(super) clients: [Client; C],
    pub(super) has_forgotten: bool,
    pub(super) flaw: Option<&'static str>,
}

/// A master, and what the clients have of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Master<const C: usize> {
    pub(super) keys: Keys,
    pub(super) is_quarantined: bool,
    /// The answers to the round of each client: [`ANSWERED`], and the slots that it granted.
    pub(super) votes: [Bits; C],
    /// The clients whose lease counts on this master: a bit for each.
    pub(super) counted: u8,
    /// For each client in a round: the clients that were queued before it here when its round
    /// began, and have been since. One bit for each.
    pub(super) ahead: [u8; C],
}

pub(super) const ANSWERED: Bits = 0x80;

pub(super) const EXCLUSION: &str = "a writer holds the lock beside another holder";
pub(super) const MORE: &str = "more than the number of slots are held";
pub(super) const ORDER: &str = "a waiter passes one that was before it on a majority";
pub(super) const ROBBED: &str = "a broken holder goes on after another had the lock";
pub(super) const STUCK: &str = "a waiter cannot win";
pub(super) const TWO: &str = "two hold the same slot";

impl<const C: usize> State<C> {
    /// Forgets the votes in the round of a client.
    pub(super) fn close(&mut self, client: usize) {
        for master in &mut self.masters {
            master.votes[client] = 0;
            master.ahead[client] = 0;
        }
    }

    /// Lets a lease count on the masters that granted the round of a client.
    pub(super) fn believe(&mut self, client: usize, slots: Bits) {
        for master in &mut self.masters {
            master.counted &= !(1 << client);
            master.counted |= u8::from(master.votes[client] & slots != 0) << client;
        }
        self.close(client);
    }

    /// Returns whether a lease or an open round counts on a master.
    pub(super) fn is_relied_on(&self, client: usize, at: usize) -> bool {
        let master = &self.masters[at];
        master.counted & 1 << client != 0 || master.votes[client] & !ANSWERED != 0
    }
}

impl<const C: usize> Locks<C> {
    pub(super) fn claim(&self, client: usize, attempt: u8) -> Claim {
        let number = (attempt.max(1) - 1) / self.rounds;
        self.claims[client][usize::from(number)]
    }

    pub(super) fn call(&self, client: usize, attempt: u8, verb: Verb) -> Call {
        let Claim { reads, ticket, .. } = self.claim(client, attempt);
        Call {
            reads,
            ticket,
            queues: self.queues(attempt),
            permits: self.permits[client],
            ..Call::new(verb, client, attempt)
        }
    }

    /// Returns the candidate of a round. Those of second rounds are above all of first rounds.
    pub(super) fn candidate(&self, client: usize, attempt: u8, is_again: bool) -> u32 {
        let round = u32::from(attempt) + 4 * u32::from(is_again);
        u32::from(self.is_fenced) * (round * 4 + client as u32)
    }

    /// Returns whether an attempt joins the queues.
    pub(super) fn queues(&self, attempt: u8) -> bool {
        (attempt - 1) % self.rounds >= self.queued_from
    }

    pub(super) fn has_slots(&self) -> bool {
        self.permits != [0; C]
    }

    pub(super) fn writes_now(&self, state: &State<C>, client: usize) -> bool {
        let now = state.clients[client];
        !self.claim(client, now.attempt).reads && !now.is_lowered() && !now.upgrades
    }

    /// Drops what no longer holds, and forgets the names of the masters.
    fn settle(&self, mut state: State<C>) -> State<C> {
        if self.is_ordered {
            for (client, at) in (0..C).flat_map(|client| (0..MASTERS).map(move |at| (client, at))) {
                let ahead = state.masters[at].ahead[client];
                let gone = (0..C).filter(|other| !self.is_present(&state, *other, at));
                let gone = gone.fold(0, |gone, other| gone | 1 << other);
                state.masters[at].ahead[client] = ahead & !gone;
            }
        }
        state.masters.sort_unstable();
        state
    }
}

impl<const C: usize> Model for Locks<C> {
    type State = State<C>;
    type Step = Step;

    fn starts(&self) -> Vec<State<C>> {
        let master = Master {
            keys: Keys::default(),
            is_quarantined: false,
            votes: [0; C],
            counted: 0,
            ahead: [0; C],
        };
        vec![State {
            masters: [master; MASTERS],
            clients: [Client::default(); C],
            has_forgotten: false,
            flaw: None,
        }]
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
        let held = |client: &usize| state.clients[*client].believes();
        let holders = (0..C).filter(held).count();
        if self.has_slots() {
            let slots = (0..C).filter(held).fold(0, |slots: Bits, client| {
                slots | bit(state.clients[client].slot)
            });
            let most = self.permits.iter().max();
            if most.is_some_and(|most| holders > usize::from(*most)) {
                return Some(MORE);
            }
            if holders > slots.count_ones() as usize && self.broken != Broken::CountsGrants {
                return Some(TWO);
            }
        } else if holders > 1
            && (0..C)
                .filter(held)
                .any(|client| self.writes_now(state, client))
        {
            return Some(EXCLUSION);
        }
        let is_stuck = || self.ends && self.is_stuck(state);
        state.flaw.or_else(|| is_stuck().then_some(STUCK))
    }

    fn shown(&self, state: &State<C>) -> String {
        let clients = state.clients.iter();
        let clients = clients.map(|now| format!("{:?} {}", now.phase, now.attempt));
        let masters = state.masters.iter();
        let masters = masters.map(|master| {
            let keys = self.masters.view(master.keys, |view| format!("{view:?}"));
            format!("\n      {keys} {master:?}")
        });
        clients.chain(masters).collect::<Vec<_>>().join(", ")
    }
}
