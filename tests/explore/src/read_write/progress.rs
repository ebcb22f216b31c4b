//! Checks that from a state on, every waiter wins in good weather.

use super::{
    client::Phase,
    master::{Caller, Entry, Form, Vote},
    model::ReadWrite,
    state::State,
};
use crate::{MAJORITY, MASTERS};

impl<const C: usize> ReadWrite<C> {
    /// Lets all holders leave and all late commands be over. Then lets all clients that wait ask in
    /// turn, with all masters answering. Returns whether one of them cannot win, or whether the one
    /// with the first ticket does not win its next round once all are queued.
    pub(super) fn is_stuck(&self, state: &State<C>) -> bool {
        let waiters: Vec<_> = (0..C)
            .filter(|client| state.clients[*client].is_waiting())
            .collect();
        let backwards: Vec<_> = waiters.iter().rev().copied().collect();
        self.is_stuck_in(*state, waiters) || self.is_stuck_in(*state, backwards)
    }

    fn is_stuck_in(&self, mut state: State<C>, mut waiters: Vec<usize>) -> bool {
        self.calm(&mut state, &waiters);
        for pass in 0..=waiters.len() {
            let first = waiters
                .iter()
                .copied()
                .min_by_key(|waiter| self.caller(*waiter, state.clients[*waiter].attempt).ticket);
            let mut has_first_won = first.is_none();
            waiters.retain(|waiter| {
                let has_won = self.asks(&mut state, *waiter, 100 + pass as u8);
                has_first_won |= has_won && Some(*waiter) == first;
                !has_won
            });
            if pass > 0 && !has_first_won {
                return true;
            }
        }
        !waiters.is_empty()
    }

    /// Removes what leases and late commands have left.
    fn calm(&self, state: &mut State<C>, waiters: &[usize]) {
        for master in &mut state.masters {
            master.is_quarantined = false;
            let mut queued = 0;
            for client in 0..C {
                let now = state.clients[client];
                let is_waiting = waiters.contains(&client);
                if is_waiting {
                    queued |= self.caller(client, now.attempt).ticket;
                }
                if !now.upgrades {
                    master.entries[client] = Entry::default();
                }
                master.votes[client] = Vote::None;
            }
            master.tickets &= queued;
            master.readers = 0;
        }
    }

    /// Lets a waiter make a round, and release the lock if it wins.
    fn asks(&self, state: &mut State<C>, client: usize, attempt: u8) -> bool {
        let now = state.clients[client];
        let by = Caller {
            attempt,
            ..self.caller(client, now.attempt)
        };
        let rules = self.rules();
        let grants = (0..MASTERS).filter(|at| state.masters[*at].acquire(rules, by, true));
        let has_won = grants.count() >= MAJORITY;
        for master in &mut state.masters {
            if has_won {
                master.release(rules, by);
            } else if !now.upgrades || master.entries[client].form == Form::Writes {
                master.give_back(rules, by, true);
            }
        }
        if has_won {
            state.clients[client].phase = Phase::Left;
        }
        has_won
    }
}
