//! The states of the model.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use super::{
    client::{Client, Extension},
    master::{Master, Vote},
};
use crate::MASTERS;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State<const C: usize> {
    pub(super) masters: [Master<C>; MASTERS],
    pub(super) clients: [Client; C],
    pub(super) has_forgotten: bool,
    pub(super) flaw: Wrong,
}

impl<const C: usize> Hash for State<C> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let masters = self.masters.iter().map(Master::packed);
        let clients = self.clients.iter().map(Client::packed);
        masters
            .chain(clients)
            .for_each(|word| hasher.write_u64(word));
        hasher.write_u8(u8::from(self.has_forgotten) << 2 | self.flaw as u8);
    }
}

impl<const C: usize> fmt::Debug for State<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for client in 0..C {
            let now = self.clients[client];
            write!(f, "{client}:{:?}", now.phase)?;
            for (shown, is_shown) in [
                (" as reader", now.is_lowered()),
                (" extending", now.extension != Extension::None),
                (" broken", now.is_broken),
            ] {
                f.write_str(if is_shown { shown } else { "" })?;
            }
            f.write_str(", ")?;
        }
        self.masters
            .iter()
            .try_for_each(|master| write!(f, "{master:?} "))
    }
}

/// A flaw of the step that led to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wrong {
    Nothing,
    Order,
    Robbed,
}

impl<const C: usize> State<C> {
    /// Forgets the votes in the round of a client.
    pub(super) fn close(&mut self, client: usize) {
        for master in &mut self.masters {
            master.votes[client] = Vote::None;
            master.ahead[client] = 0;
        }
    }

    /// Lets a lease count on the masters that granted the round of a client.
    pub(super) fn believe(&mut self, client: usize) {
        for master in &mut self.masters {
            master.counted[client] = master.votes[client] == Vote::Grant;
        }
        self.close(client);
    }

    /// Returns whether a lease or an open round counts on a master.
    pub(super) fn is_relied_on(&self, client: usize, at: usize) -> bool {
        let master = &self.masters[at];
        master.counted[client] || master.votes[client] == Vote::Grant
    }
}
