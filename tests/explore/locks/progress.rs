//! Checks that from a state on, every waiter wins in good weather.

use super::{
    client::Phase,
    model::{Locks, MASTERS, State},
};
use crate::{
    core::vote::{Verb, quorum::majority},
    explore::masters::{Call, Cast, Event, Keys},
};

type AllKeys = [Keys; MASTERS];

impl<const C: usize> Locks<C> {
    /// Returns whether a client that waits cannot win once all late commands are over.
    pub(super) fn is_stuck(&self, state: &State<C>) -> bool {
        let waiters: Vec<_> = (0..C)
            .filter(|client| state.clients[*client].is_waiting())
            .collect();
        if self.has_slots() {
            return self.lacks_slot(state, &waiters);
        }
        let backwards: Vec<_> = waiters.iter().rev().copied().collect();
        self.is_stuck_in(state, waiters) || self.is_stuck_in(state, backwards)
    }

    /// Returns whether a slot is free beside the present holders, and a client cannot win any.
    fn lacks_slot(&self, state: &State<C>, waiters: &[usize]) -> bool {
        let is_held = |client: usize| state.clients[client].phase == Phase::Held;
        let holders = (0..C).filter(|client| is_held(*client)).count();
        let keys = self.calm(state, &is_held);
        let wins = |call: Call| {
            let casts = keys.map(|keys| self.masters.call(keys, call).1);
            let same = |cast: &Cast| casts.iter().filter(|one| *one == cast).count();
            let mut granted = casts.iter().filter(|cast| matches!(cast, Cast::Granted(_)));
            granted.any(|cast| same(cast) >= majority(MASTERS))
        };
        waiters.iter().any(|waiter| {
            let mut can_win = false;
            let attempt = state.clients[*waiter].attempt;
            let call = self.call(*waiter, attempt, Verb::Acquire);
            self.any_slot(
                Call {
                    attempt: 100,
                    ..call
                },
                &mut |call| {
                    can_win |= wins(call);
                },
            );
            holders < usize::from(self.permits[*waiter]) && !can_win
        })
    }

    /// Lets all holders leave and all late commands be over. Then lets all clients that wait ask in
    /// turn, with all masters answering. Returns whether one of them cannot win, or whether the one
    /// with the first ticket does not win its next round once all are queued.
    fn is_stuck_in(&self, state: &State<C>, mut waiters: Vec<usize>) -> bool {
        let mut keys = self.calm(state, &|client| state.clients[client].upgrades);
        let ticket = |waiter: usize| self.claim(waiter, state.clients[waiter].attempt).ticket;
        for pass in 0..=waiters.len() {
            let first = waiters.iter().copied().min_by_key(|waiter| ticket(*waiter));
            let mut has_first_won = first.is_none();
            waiters.retain(|waiter| {
                let has_won = self.asks(state, &mut keys, (*waiter, 100 + pass as u8));
                has_first_won |= has_won && Some(*waiter) == first;
                !has_won
            });
            if pass > 0 && !has_first_won {
                return true;
            }
        }
        !waiters.is_empty()
    }

    /// Ends all leases but those of the clients that stay, and removes the waiters that have left.
    fn calm(&self, state: &State<C>, stays: &dyn Fn(usize) -> bool) -> AllKeys {
        let ended = |of: u8, attempt: u8| {
            let client = usize::from(of);
            !stays(client) || attempt != state.clients[client].attempt && self.has_slots()
        };
        let waiting = (0..C).filter(|client| state.clients[*client].is_waiting());
        let waiting = waiting.fold(0, |all: u8, client| {
            all | 1 << self.claim(client, state.clients[client].attempt).ticket
        });
        state.masters.map(|master| {
            let events = self.masters.view(master.keys, |view| {
                let entries = view.entries.iter();
                let entries = entries.filter(|(of, entry)| ended(*of, entry.attempt));
                let leases = entries.map(|(of, _)| Event::LeaseEnds(*of));
                let tickets = (0..8).filter(|ticket| view.tickets & !waiting & 1 << ticket != 0);
                let waiters =
                    tickets.map(|ticket| Event::WaiterEnds(ticket, self.owner_of(ticket)));
                leases.chain(waiters).collect::<Vec<_>>()
            });
            let keys = events.into_iter();
            keys.fold(master.keys, |keys, event| self.masters.end(keys, event))
        })
    }

    /// Lets a waiter make a round, and release the lock if it wins.
    fn asks(&self, state: &State<C>, keys: &mut AllKeys, (client, attempt): (usize, u8)) -> bool {
        let now = state.clients[client];
        let call = Call {
            attempt,
            queues: true,
            ..self.call(client, now.attempt, Verb::Acquire)
        };
        let votes = keys.map(|keys| self.masters.call(keys, call));
        let grants = votes
            .iter()
            .filter(|(_, cast)| matches!(cast, Cast::Granted(_)));
        let has_won = grants.count() >= majority(MASTERS);
        for (keys, (after, cast)) in keys.iter_mut().zip(votes) {
            let verb = if has_won { Verb::Release } else { Verb::Yield };
            *keys = after;
            if has_won || !now.upgrades || matches!(cast, Cast::Granted(_)) {
                *keys = self.masters.call(after, Call { verb, ..call }).0;
            }
        }
        has_won
    }
}
