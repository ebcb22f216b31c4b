//! What one master does: the scripts of the semaphore.

use std::fmt;

use super::Broken;

/// The most slots.
pub(super) const SLOTS: usize = 3;

/// A token: a client and the number of its attempt, in one number. 0 for none.
pub(super) type Token = u8;

pub(super) const fn token(client: usize, attempt: u8) -> Token {
    (client as u8 + 1) << 2 | attempt
}

/// Returns the client of a token.
pub(super) fn client_of(token: Token) -> Option<usize> {
    usize::from(token >> 2).checked_sub(1)
}

/// A set of slots: a bit for each.
pub(super) type Slots = u8;

/// A master, and what the clients have of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Master<const C: usize> {
    pub(super) slots: [Token; SLOTS],
    pub(super) is_quarantined: bool,
    /// The slots that the master granted in the round of each client, and whether it has answered.
    pub(super) granted: [Slots; C],
    pub(super) answered: [bool; C],
    /// Whether the lease of each client counts on this master.
    pub(super) counted: [bool; C],
}

impl<const C: usize> Master<C> {
    pub(super) const EMPTY: Self = Self {
        slots: [0; SLOTS],
        is_quarantined: false,
        granted: [0; C],
        answered: [false; C],
        counted: [false; C],
    };

    /// Returns all fields as one number.
    pub(super) fn packed(&self) -> u64 {
        let slots = self.slots.iter();
        let mut packed = slots.fold(u64::from(self.is_quarantined), |packed, token| {
            packed << 4 | u64::from(*token)
        });
        for client in 0..C {
            packed = packed << 5 | u64::from(self.granted[client]) << 2;
            packed |= u64::from(self.answered[client]) << 1 | u64::from(self.counted[client]);
        }
        packed
    }

    pub(super) fn slot_of(&self, token: Token) -> Option<usize> {
        self.slots.iter().position(|held| *held == token)
    }

    /// Returns the slots below `size` that may be granted to a token that names none.
    pub(super) fn free(&self, token: Token, size: usize) -> Vec<usize> {
        if let Some(mine) = self.slot_of(token) {
            return vec![mine];
        }
        let used = self.slots.iter().filter(|held| **held != 0).count();
        let free = (0..size).filter(|slot| used < size && self.slots[*slot] == 0);
        free.collect()
    }

    /// Takes this slot, unless another token has it. Leaves any other slot in both cases, because
    /// the token has the wanted one on other masters. Returns whether the token has the slot.
    pub(super) fn take(&mut self, token: Token, slot: usize) -> bool {
        self.leave_others(token, slot);
        let is_mine = self.slots[slot] == 0 || self.slots[slot] == token;
        if is_mine {
            self.slots[slot] = token;
        }
        is_mine
    }

    /// Leaves the slot of a token, unless it is this one.
    pub(super) fn leave_others(&mut self, token: Token, slot: usize) {
        if self.slots[slot] != token {
            self.release(token);
        }
    }

    /// Puts a holder back in its slot.
    pub(super) fn heal(&mut self, broken: Broken, token: Token, slot: usize) {
        if broken == Broken::HealTakesHeld {
            self.slots[slot] = 0;
        }
        self.take(token, slot);
    }

    /// Leaves the slot of a token, whatever slot it is.
    pub(super) fn release(&mut self, token: Token) {
        if let Some(mine) = self.slot_of(token) {
            self.slots[mine] = 0;
        }
    }

    /// Removes a holder that an inspection has shown.
    pub(super) fn break_held(&mut self, broken: Broken, token: Token) {
        if broken == Broken::BreakDeletesKey && self.slot_of(token).is_some() {
            self.slots = [0; SLOTS];
        }
        self.release(token);
    }
}

/// Shows the client and the attempt in each slot, and `*` if a lease counts on it.
impl<const C: usize> fmt::Debug for Master<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_quarantined {
            "[quarantine"
        } else {
            "["
        })?;
        for token in self.slots {
            match client_of(token) {
                None => f.write_str(" -")?,
                Some(client) => {
                    let star = if self.counted[client] { "*" } else { "" };
                    write!(f, " {client}.{}{star}", token & 3)?;
                }
            }
        }
        f.write_str("]")
    }
}
