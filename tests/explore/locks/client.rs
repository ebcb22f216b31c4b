//! What one client does, and what it has sent.

/// A wait for the lock, and its hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) reads: bool,
    /// The time in its ticket. A lower number is an earlier ticket.
    pub(super) ticket: u8,
    /// The writer may become a reader. With [`UpgradeInPlace`](super::Broken::UpgradeInPlace), the
    /// reader may become a writer.
    pub(super) changes: bool,
}

pub(super) const fn reads(ticket: u8) -> Claim {
    Claim {
        reads: true,
        ..writes(ticket)
    }
}

pub(super) const fn writes(ticket: u8) -> Claim {
    Claim {
        reads: false,
        ticket,
        changes: false,
    }
}

impl Claim {
    pub(super) const fn changes(self) -> Self {
        Self {
            changes: true,
            ..self
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    Idle,
    Asking,
    /// A round was lost, and the claim goes on.
    Waiting,
    Held,
    /// The claim is over. All that it has sent may still be executed.
    Left,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Extension {
    #[default]
    None,
    Open,
    /// The holder was broken after the extension began.
    Stale,
}

/// A set of slots, or of attempts: a bit for each. A lock without slots has one.
pub(super) type Bits = u8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// The number of the claim.
    pub(super) claim: u8,
    /// The number of the newest attempt. 0 before the first one.
    pub(super) attempt: u8,
    /// The attempts that were begun and won, those that became readers, and those that have had a
    /// second round.
    pub(super) begun: Bits,
    pub(super) won: Bits,
    pub(super) lowered: Bits,
    pub(super) again: Bits,
    /// The slots that each round of an attempt has asked for by number: two rounds an attempt.
    pub(super) wanted: [Bits; 6],
    /// The slot that the round asks for. 0 while masters choose.
    pub(super) asks_for: u8,
    /// The slot that is held.
    pub(super) slot: u8,
    pub(super) extension: Extension,
    /// The holder was broken, and nothing has confirmed it since.
    pub(super) is_broken: bool,
    /// Another client got the lock after the break.
    pub(super) is_robbed: bool,
    /// The client holds the lock as a reader, and asks for it as a writer.
    pub(super) upgrades: bool,
}

/// Returns the bit of a slot, or of an attempt. Both are numbered from 1.
pub(super) fn bit(number: u8) -> Bits {
    1 << (number.max(1) - 1)
}

impl Client {
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Asking | Phase::Waiting)
    }

    pub(super) fn is_lowered(&self) -> bool {
        self.attempt > 0 && self.lowered & bit(self.attempt) != 0
    }

    /// Returns whether the newest attempt is in its second round.
    pub(super) fn is_again(&self) -> bool {
        self.attempt > 0 && self.again & bit(self.attempt) != 0
    }

    /// Returns whether the client may act as a holder.
    pub(super) fn believes(&self) -> bool {
        !self.is_broken && (self.phase == Phase::Held || self.upgrades)
    }

    /// Returns the attempts that were begun.
    pub(super) fn attempts(&self) -> impl Iterator<Item = u8> + use<> {
        let begun = self.begun;
        (1..=8).filter(move |attempt| begun & bit(*attempt) != 0)
    }

    /// Notes that the round has asked for a slot by number.
    pub(super) fn wants(&mut self, slot: u8) {
        if slot > 0 {
            self.wanted[round_of(self.attempt, self.is_again())] |= bit(slot);
        }
    }

    pub(super) fn leave(&mut self) {
        *self = Self {
            phase: Phase::Left,
            claim: self.claim,
            attempt: self.attempt,
            begun: self.begun,
            won: self.won,
            lowered: self.lowered,
            again: self.again,
            wanted: self.wanted,
            ..Self::default()
        };
    }

    /// Notes that an entry was broken that a round or a lease counts on.
    pub(super) fn on_break(&mut self) {
        self.is_broken = true;
        if self.extension == Extension::Open {
            self.extension = Extension::Stale;
        }
    }
}

/// Returns the number of a round among those of all attempts.
pub(super) fn round_of(attempt: u8, is_again: bool) -> usize {
    usize::from(attempt - 1) * 2 + usize::from(is_again)
}
