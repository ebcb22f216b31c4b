//! The locks for which clients of other processes contend, too.

/// Remembers for which locks other clients contend at the same time as this one. It remembers them
/// by a hash of the key. Two locks may share an entry, which only costs one of them a round trip.
#[derive(Debug)]
pub(crate) struct Rivalry {
    /// For each hash, the number of attempts without a rival until the lock counts as uncontested.
    left: [u8; Self::ENTRIES],
}

impl Rivalry {
    const ENTRIES: usize = 256;
    const MEMORY: u8 = 8;

    /// Returns whether another client is likely to ask for the lock at the same moment.
    pub(crate) fn is_likely(&self, hash: u64) -> bool {
        self.left[Self::entry(hash)] > 0
    }

    /// Returns whether another client asks for the lock all the time: the last attempt met a rival,
    /// or the one before it.
    pub(crate) fn is_certain(&self, hash: u64) -> bool {
        self.left[Self::entry(hash)] + 1 >= Self::MEMORY
    }

    /// Notes whether an attempt met a rival.
    pub(crate) fn note(&mut self, hash: u64, met_a_rival: bool) {
        let left = &mut self.left[Self::entry(hash)];
        *left = if met_a_rival {
            Self::MEMORY
        } else {
            left.saturating_sub(1)
        };
    }

    fn entry(hash: u64) -> usize {
        (hash % Self::ENTRIES as u64) as usize
    }
}

impl Default for Rivalry {
    fn default() -> Self {
        Self {
            left: [0; Self::ENTRIES],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_is_remembered_for_some_attempts() {
        let mut rivalry = Rivalry::default();
        assert!(!rivalry.is_likely(7));
        rivalry.note(7, true);
        assert!(rivalry.is_likely(7) && !rivalry.is_likely(8));
        for attempt in 0..8 {
            assert!(rivalry.is_likely(7));
            assert_eq!(rivalry.is_certain(7), attempt < 2);
            rivalry.note(7, false);
        }
        assert!(!rivalry.is_likely(7));
        rivalry.note(7, false);
        assert!(!rivalry.is_likely(7));
    }
}
