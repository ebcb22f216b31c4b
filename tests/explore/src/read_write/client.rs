//! What one client does, and what it has sent.

/// A wait for the lock, and its hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) writes: bool,
    /// The bit of its ticket. A lower bit is an earlier ticket.
    pub(super) ticket: u8,
    /// The writer may become a reader. With [`UpgradeInPlace`](super::Broken::UpgradeInPlace), the
    /// reader may become a writer.
    pub(super) changes: bool,
}

pub(super) const fn reads(number: u8) -> Claim {
    Claim {
        writes: false,
        ticket: 1 << number,
        changes: false,
    }
}

pub(super) const fn writes(number: u8) -> Claim {
    Claim {
        writes: true,
        ..reads(number)
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Phase {
    #[default]
    Idle,
    Asking,
    /// A round was lost, and the claim goes on.
    Waiting,
    Held,
    /// The claim is over.
    Left,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Extension {
    #[default]
    None,
    Open,
    /// The holder was broken after the extension began.
    Stale,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// The number of the claim.
    pub(super) claim: u8,
    /// The number of the newest attempt. 0 before the first one.
    pub(super) attempt: u8,
    /// The attempts that were begun and won, and those that became readers: a bit for each.
    pub(super) begun: u8,
    pub(super) won: u8,
    pub(super) lowered: u8,
    pub(super) extension: Extension,
    /// The holder was broken, and nothing has confirmed it since.
    pub(super) is_broken: bool,
    /// Another client got the lock after the break.
    pub(super) is_robbed: bool,
    /// The client holds the lock as a reader, and asks for it as a writer.
    pub(super) upgrades: bool,
}

/// Returns the bit of an attempt.
pub(super) fn bit(attempt: u8) -> u8 {
    1 << (attempt - 1)
}

impl Client {
    /// Returns all fields as one number.
    pub(super) fn packed(&self) -> u64 {
        let masks = [self.begun, self.won, self.lowered, self.claim, self.attempt];
        let packed = masks
            .iter()
            .fold(0, |packed, mask| packed << 8 | u64::from(*mask));
        let flags = [self.is_broken, self.is_robbed, self.upgrades];
        let packed = flags
            .iter()
            .fold(packed, |packed, flag| packed << 1 | u64::from(*flag));
        packed << 5 | (self.phase as u64) << 2 | self.extension as u64
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Asking | Phase::Waiting)
    }

    pub(super) fn is_lowered(&self) -> bool {
        self.attempt > 0 && self.lowered & bit(self.attempt) != 0
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

    pub(super) fn leave(&mut self) {
        self.phase = Phase::Left;
        self.extension = Extension::None;
        self.is_broken = false;
        self.is_robbed = false;
        self.upgrades = false;
    }

    /// Notes that an entry was broken. It `is_used` if a round or a lease counts on it.
    pub(super) fn on_break(&mut self, is_used: bool) {
        if is_used {
            self.is_broken = true;
            if self.extension == Extension::Open {
                self.extension = Extension::Stale;
            }
        }
    }
}
