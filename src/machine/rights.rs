//! What is known of the rights of the program on its masters.

use std::mem;

use crate::core::{
    kind::Rights,
    vote::{Round, Verb, Vote},
};

/// The rights that locks of a coordinator have needed so far. The first acquisitions of each kind
/// try them, until a majority has answered.
#[derive(Debug, Default)]
pub(crate) struct KnownRights {
    /// The rights that a majority of every set of masters has given.
    given: u16,
    /// The rights that were needed last, and that too many masters denied.
    missing: u16,
    /// The same for locks whose keys were denied before any lock was answered: the key template may
    /// be wrong. Once a lock was answered, a denied key says nothing about other locks.
    without_key: u16,
    is_warned: bool,
}

impl KnownRights {
    /// Returns the rights to try together with an acquisition that needs `rights`.
    pub(super) fn to_try(&self, rights: Rights) -> Option<Rights> {
        (self.given & bit(rights) == 0).then_some(rights)
    }

    /// Notes what `round` has shown of `rights`, if it is an acquisition that needs them.
    pub(crate) fn note(&mut self, rights: Rights, round: &Round) {
        if round.verb() != Verb::Acquire {
            return;
        }
        let bit = bit(rights);
        if round.every_set_has(Vote::is_answer) {
            self.given |= bit;
            self.missing &= !bit;
            self.without_key = 0;
        } else if round.lacks_rights() && round.denies_key() {
            if self.given == 0 {
                self.without_key |= bit;
            }
        } else if round.lacks_rights() {
            self.given &= !bit;
            self.missing |= bit;
        }
    }

    /// Returns rights that a lock has needed and that too many masters denied, if no such lock was
    /// tried with success since.
    pub(crate) fn missing(&self) -> Option<Rights> {
        let missing = self.missing | self.without_key;
        Rights::all().find(|rights| missing & bit(*rights) != 0)
    }

    /// Returns whether this is the first call.
    pub(crate) fn is_first_warning(&mut self) -> bool {
        !mem::replace(&mut self.is_warned, true)
    }
}

fn bit(rights: Rights) -> u16 {
    1 << rights.index()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        kind::LockKind,
        vote::round::fixture::{acquisition, vote},
    };

    #[test]
    fn rights_are_tried_until_a_majority_has_answered() {
        let [mutex, fenced] = [false, true].map(|is_fenced| Rights::of(LockKind::Mutex, is_fenced));
        for (rounds, tries, misses) in [
            (&[][..], true, false),
            (&["ffg"], true, false),
            (&["ddg"], true, true),
            (&["nnf"], true, true),
            (&["ddg", "ffg"], true, true),
            (&["ggd"], false, false),
            (&["hhd"], false, false),
            (&["ddg", "ghh"], false, false),
            // Taken away later.
            (&["ggg", "ddg"], true, true),
            // Other locks of this kind have other keys.
            (&["ggg", "nng"], false, false),
        ] {
            let mut known = KnownRights::default();
            for letters in rounds {
                known.note(mutex, &acquisition(letters, vote));
            }
            let seen = (known.to_try(mutex), known.missing());
            let expected = (tries.then_some(mutex), misses.then_some(mutex));
            assert_eq!(seen, expected, "{rounds:?}");
            assert_eq!(known.to_try(fenced), Some(fenced), "{rounds:?}");
        }
    }

    #[test]
    fn a_denied_key_says_nothing_once_another_lock_was_answered() {
        let [mutex, fair] = [LockKind::Mutex, LockKind::Fair].map(|kind| Rights::of(kind, false));
        let mut known = KnownRights::default();
        known.note(fair, &acquisition("nnn", vote));
        assert_eq!(known.missing(), Some(fair));
        known.note(mutex, &acquisition("ggg", vote));
        assert_eq!(known.missing(), None);
        known.note(fair, &acquisition("nnn", vote));
        assert_eq!(known.missing(), None);
        known.note(fair, &acquisition("ddd", vote));
        known.note(mutex, &acquisition("ggg", vote));
        assert_eq!(known.missing(), Some(fair));
    }
}
