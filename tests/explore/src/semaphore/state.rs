//! The states of the model.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use super::master::{Master, Slots};
use crate::MASTERS;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Idle,
    Asking,
    Held,
    /// The attempt is over. All that it has sent may still be executed.
    Left,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) phase: Phase,
    pub(super) attempt: u8,
    /// The slots that each attempt has asked for by number.
    pub(super) wanted: [Slots; 4],
    /// The slot that the round asks for. 0 while masters choose.
    pub(super) asks_for: Slots,
    /// The attempt is in its second round.
    pub(super) is_again: bool,
    /// The attempts that have won: a bit for each.
    pub(super) won: u8,
    /// The slot that is held.
    pub(super) slot: u8,
    pub(super) is_extending: bool,
    pub(super) is_broken: bool,
    /// The holder was broken after the extension began.
    pub(super) is_stale: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State<const C: usize> {
    pub(super) masters: [Master<C>; MASTERS],
    pub(super) clients: [Client; C],
    pub(super) has_forgotten: bool,
}

impl Client {
    fn packed(&self) -> u64 {
        let wanted = self.wanted.iter();
        let packed = wanted.fold(u64::from(self.won), |packed, slots| {
            packed << 3 | u64::from(*slots)
        });
        let packed = packed << 8 | u64::from(self.attempt << 2) | u64::from(self.slot);
        let packed = packed << 3 | u64::from(self.asks_for);
        let flags = [
            self.is_again,
            self.is_extending,
            self.is_broken,
            self.is_stale,
        ];
        let packed = flags
            .iter()
            .fold(packed, |packed, flag| packed << 1 | u64::from(*flag));
        packed << 2 | self.phase as u64
    }
}

impl<const C: usize> State<C> {
    /// Forgets the votes in the round of a client.
    pub(super) fn close(&mut self, client: usize) {
        for master in &mut self.masters {
            master.granted[client] = 0;
            master.answered[client] = false;
        }
    }

    /// Lets a lease count on the masters that granted the slot.
    pub(super) fn believe(&mut self, client: usize) {
        let slot = self.clients[client].slot;
        for master in &mut self.masters {
            master.counted[client] = master.granted[client] & 1 << slot != 0;
        }
        self.close(client);
    }

    pub(super) fn leave(&mut self, client: usize) {
        self.close(client);
        for master in &mut self.masters {
            master.counted[client] = false;
        }
        let now = &mut self.clients[client];
        *now = Client {
            phase: Phase::Left,
            slot: 0,
            asks_for: 0,
            is_again: false,
            is_extending: false,
            is_broken: false,
            is_stale: false,
            ..*now
        };
    }
}

impl<const C: usize> Hash for State<C> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let masters = self.masters.iter().map(Master::packed);
        let clients = self.clients.iter().map(Client::packed);
        masters
            .chain(clients)
            .for_each(|word| hasher.write_u64(word));
        hasher.write_u8(self.has_forgotten.into());
    }
}

impl<const C: usize> fmt::Debug for State<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (client, now) in self.clients.iter().enumerate() {
            write!(f, "{client}:{:?}", now.phase)?;
            f.write_str(if now.is_broken { " broken, " } else { ", " })?;
        }
        self.masters
            .iter()
            .try_for_each(|master| write!(f, "{master:?} "))
    }
}
