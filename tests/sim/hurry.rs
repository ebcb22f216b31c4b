//! The rounds that a claim makes without a pause.

use std::collections::BTreeMap;

use super::commands::{By, LockCommand};
use crate::core::vote::Verb;

/// Counts the rounds of claims that follow each other without a pause. Time passes in every round
/// of the simulator, so a short time counts as no pause.
#[derive(Default)]
pub(super) struct Hurry {
    /// For each owner, key and master: the time of the last round, and how many came without a
    /// pause.
    claims: BTreeMap<(Vec<u8>, String, usize), (u64, u32)>,
}

impl Hurry {
    /// The most rounds of a claim without a pause.
    pub(super) const MOST: u32 = 10;
    /// The microseconds from one round to the next that count as a pause. If packets are fast, a
    /// round takes 2 ms, or 4 ms if one master is asked first. The shortest pause takes 5 ms more.
    const PAUSE: u64 = 6_000;

    /// Notes a command to a master. Returns how many rounds its claim has made without a pause.
    pub(super) fn note(&mut self, master: usize, sent: &LockCommand<'_>, now: u64) -> u32 {
        // The attempts at a lock without an owner are claims of their own.
        let Some(By::Owner(owner, _)) = sent.by else {
            return 0;
        };
        let claim = (owner.to_vec(), sent.key.to_owned(), master);
        match sent.verb {
            Verb::Acquire => {
                let (last, rounds) = self.claims.entry(claim).or_insert((now, 0));
                *rounds = if now - *last < Self::PAUSE {
                    *rounds + 1
                } else {
                    1
                };
                *last = now;
                *rounds
            }
            // Later rounds put the key of a held lock back, or belong to another call.
            Verb::Extend | Verb::Release => {
                self.claims.remove(&claim);
                0
            }
            Verb::Break | Verb::Heal | Verb::Inspect | Verb::Probe | Verb::Yield => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn rounds_without_a_pause_are_counted_until_the_lock_is_held_or_released() {
        let mut hurry = Hurry::default();
        let mut note = |verb, now| {
            let sent = LockCommand {
                verb,
                kind: Kind::Semaphore,
                key: "a",
                by: Some(By::Owner(b"u:1", b"7")),
                slot: None,
            };
            hurry.note(0, &sent, now)
        };
        let acquired = [0, 2_000, 6_000, 13_000, 15_000].map(|now| note(Verb::Acquire, now));
        assert_eq!(acquired, [1, 2, 3, 1, 2]);
        assert_eq!(note(Verb::Yield, 16_000), 0);
        assert_eq!(note(Verb::Acquire, 17_000), 3);
        for (verb, now) in [(Verb::Release, 18_000), (Verb::Extend, 20_000)] {
            note(verb, now);
            assert_eq!(note(Verb::Acquire, now + 1_000), 1);
        }
    }
}
