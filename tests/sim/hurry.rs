//! The rounds that claims make without a pause.

use std::collections::{BTreeMap, BTreeSet};

use super::commands::{By, LockCommand};
use crate::core::{vote::Verb, wait::pauses::Pace};

/// Counts the rounds of claims that follow each other without a pause. Time passes in every round
/// of the simulator, so a short time counts as no pause.
#[derive(Default)]
pub(super) struct Hurry {
    /// The rounds of each owner, for each key and master.
    owners: BTreeMap<(Vec<u8>, String, usize), Rounds>,
}

/// The last rounds of the claims of an owner, which take turns.
#[derive(Default)]
struct Rounds {
    /// The time of the last round.
    last: u64,
    /// How many rounds came without a pause.
    count: u32,
    /// The tickets of the waiters that made these rounds.
    tickets: BTreeSet<Option<Vec<u8>>>,
    /// The last attempt that was extended, so it had won the lock.
    won: Vec<u8>,
}

impl Hurry {
    /// The most rounds of a claim that waits in the queues, without a pause.
    const MOST_IN_QUEUES: u32 = 10;
    /// The same without queues: one for each report of a burst, one before, and one after it. A
    /// holder that enters again and again makes that many reports.
    const MOST_OF_REPORTS: u32 = Pace::OF_REPORTS.burst + 2;
    /// The microseconds from one round to the next that count as a pause. If packets are fast, a
    /// round takes 2 ms, or 4 ms if one master is asked first. The shortest pause takes 5 ms more.
    const PAUSE: u64 = 6_000;

    /// Notes a command to a master. If it begins the first round that is too much, returns how many
    /// rounds its owner has made without a pause.
    pub(super) fn note(&mut self, master: usize, sent: &LockCommand<'_>, now: u64) -> Option<u32> {
        // The attempts at a lock without an owner are claims of their own.
        let Some(By::Owner(owner, attempt)) = sent.by else {
            return None;
        };
        let owner = (owner.to_vec(), sent.key.to_owned(), master);
        let rounds = self.owners.entry(owner).or_default();
        match sent.verb {
            // The words of some heals are those of a round.
            Verb::Acquire if sent.ignores_waiters || rounds.won == attempt => {}
            Verb::Acquire => {
                if now - rounds.last >= Self::PAUSE {
                    rounds.end();
                }
                rounds.last = now;
                rounds.count += 1;
                rounds.tickets.insert(sent.ticket.map(<[u8]>::to_vec));
                let most = match sent.kind.has_queue() {
                    true => Self::MOST_IN_QUEUES * rounds.tickets.len() as u32,
                    false => Self::MOST_OF_REPORTS,
                };
                return (rounds.count == most + 1).then_some(rounds.count);
            }
            // Later rounds belong to another call.
            Verb::Extend => {
                rounds.end();
                rounds.won = attempt.to_vec();
            }
            Verb::Release => rounds.end(),
            Verb::Break | Verb::Heal | Verb::Inspect | Verb::Probe | Verb::Yield => {}
        }
        None
    }
}

impl Rounds {
    fn end(&mut self) {
        self.count = 0;
        self.tickets.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockKind;

    /// Returns the first count of rounds that is too much. Each of `commands` has a verb, its
    /// attempt, and a ticket, and comes 2 ms after the one before, or later after a `Probe`.
    fn too_much(commands: impl IntoIterator<Item = (Verb, u64, &'static str)>) -> Option<u32> {
        too_much_of(LockKind::Semaphore, commands)
    }

    fn too_much_of(
        kind: LockKind,
        commands: impl IntoIterator<Item = (Verb, u64, &'static str)>,
    ) -> Option<u32> {
        let (mut hurry, mut now) = (Hurry::default(), 0);
        let mut counts = commands.into_iter().map(|(verb, attempt, ticket)| {
            now += if verb == Verb::Probe { 4_000 } else { 2_000 };
            let attempt = attempt.to_string();
            let sent = LockCommand {
                verb,
                kind,
                key: "a",
                by: Some(By::Owner(b"u:1", attempt.as_bytes())),
                slot: None,
                ticket: Some(ticket.as_bytes()),
                ignores_waiters: ticket == "none",
            };
            hurry.note(0, &sent, now)
        });
        counts.find_map(|count| count)
    }

    fn rounds(count: u64) -> impl Iterator<Item = (Verb, u64, &'static str)> {
        (1..=count).map(|attempt| (Verb::Acquire, attempt, "5:u:1"))
    }

    #[test]
    fn rounds_without_a_pause_are_counted_until_the_lock_is_held_or_released() {
        assert_eq!(too_much(rounds(10)), None);
        assert_eq!(too_much(rounds(30)), Some(11));
        for (verb, expected) in [
            (Verb::Yield, Some(11)),
            (Verb::Probe, None), // a pause
            (Verb::Release, None),
            (Verb::Extend, None),
        ] {
            let commands = rounds(6).chain([(verb, 6, "")]).chain(rounds(5));
            assert_eq!(too_much(commands), expected, "{verb:?}");
        }
    }

    #[test]
    fn reports_of_a_lock_without_queues_lead_to_one_round_each() {
        assert_eq!(too_much_of(LockKind::Reentrant, rounds(30)), None);
        assert_eq!(too_much_of(LockKind::Reentrant, rounds(40)), Some(31));
    }

    #[test]
    fn each_waiter_of_an_owner_may_make_rounds() {
        let of_two = rounds(30).zip(["5:u:1", "6:u:1"].into_iter().cycle());
        let of_two = of_two.map(|((verb, attempt, _), ticket)| (verb, attempt, ticket));
        assert_eq!(too_much(of_two), Some(21));
    }

    #[test]
    fn heals_are_no_rounds() {
        let heals = |ticket| [(Verb::Acquire, 7, ticket); 30];
        assert_eq!(too_much(heals("none")), None);
        assert_eq!(
            too_much([(Verb::Extend, 7, "")].into_iter().chain(heals("5:u:1"))),
            None
        );
        assert_eq!(
            too_much([(Verb::Extend, 6, "")].into_iter().chain(heals("5:u:1"))),
            Some(11)
        );
    }
}
