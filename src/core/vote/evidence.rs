//! What the votes of a round say of its lock, and why an attempt did not end in a lock. Each method
//! of a round says whether it needs a majority of every set, or of at least one set.

use std::time::Duration;

use super::{Failure, MasterSet, Outcome, Refusal, Round, ServerError, Vote};
use crate::core::reason::Reason;

impl Round {
    pub(crate) fn granted(&self) -> MasterSet {
        self.masters(Vote::is_grant)
    }

    pub(crate) fn not_failed(&self) -> MasterSet {
        MasterSet::ALL - self.masters(Vote::is_failure)
    }

    pub(crate) fn held_by_others(&self) -> MasterSet {
        self.masters(|vote| matches!(vote, Vote::Refuse(Refusal::Held { .. })))
    }

    /// Returns the masters that may have the key because of this round.
    pub(crate) fn may_have_key(&self) -> MasterSet {
        let may_have_key = self.masters(|vote| match vote {
            Vote::Grant => true,
            Vote::Refuse(_) => false,
            Vote::Fail(failure) => failure.may_have_executed(),
        });
        may_have_key | self.unanswered()
    }

    /// Returns the masters that may have the key, or the caller's ticket, because of this round.
    pub(crate) fn may_keep(&self) -> MasterSet {
        self.may_have_key() | self.masters(|vote| self.queues && vote.is_refusal())
    }

    /// Returns the time until a majority of every set will be free, if no holder extends the lock.
    /// `None` if too few masters have said how long the lock will live on them.
    pub(crate) fn free_in(&self) -> Option<Duration> {
        self.quorum
            .least_of_every(|master| self.vote(master)?.held_for())
    }

    /// Returns the time until a majority of every set is out of quarantine. `None` if such a
    /// majority is out of it already.
    pub(crate) fn quarantined(&self) -> Option<Duration> {
        self.quorum
            .least_of_every(|master| Some(self.vote(master).and_then(Vote::quarantined_for)))?
    }

    /// Returns whether so many masters failed that no one can get the lock: in some set, the
    /// masters that did not fail are no majority.
    pub(crate) fn lacks_masters(&self) -> bool {
        !self.quorum.has_majority_of_every_set(self.not_failed())
    }

    /// Returns whether so many masters deny a right, or lack a command, that in some set the others
    /// are no majority.
    pub(crate) fn lacks_rights(&self) -> bool {
        let others = MasterSet::ALL - self.masters(Vote::is_denial);
        !self.quorum.has_majority_of_every_set(others)
    }

    pub(crate) fn denies_key(&self) -> bool {
        let is_key = |error: &str| ServerError::of(error) == ServerError::KeyDenied;
        let mut votes = self.votes_cast();
        votes.any(|vote| matches!(vote, Vote::Fail(Failure::ErrorReply(error)) if is_key(error)))
    }

    /// Returns whether a majority of every set has answered without an error, and at least one
    /// master refused.
    pub(crate) fn is_disputed(&self) -> bool {
        self.votes_cast().any(Vote::is_refusal) && self.every_set_has(Vote::is_answer)
    }

    /// Returns whether a majority of at least one set says that the caller does not hold the lock.
    pub(crate) fn is_taken_away(&self) -> bool {
        self.any_set_has(Vote::is_refusal)
    }

    /// Returns whether a majority of at least one set says that another kind of lock is held under
    /// the name.
    pub(crate) fn is_other_kind(&self) -> bool {
        self.any_set_has(|vote| *vote == Vote::Refuse(Refusal::OtherKind))
    }

    /// Returns whether a majority of at least one set agrees on one owner that holds the lock.
    /// While that owner holds the lock, the caller cannot get it. After a split vote, no owner has
    /// such a majority.
    pub(crate) fn is_held_for_sure(&self) -> bool {
        self.votes_cast()
            .flat_map(Vote::owners)
            .any(|one| self.any_set_has(|vote| vote.owners().contains(one)))
    }

    /// Returns whether a majority of every set has put the caller into its queues, or granted the
    /// lock to the caller.
    pub(crate) fn is_queued(&self) -> bool {
        self.queues
            && self.every_set_has(|vote| {
                matches!(
                    vote,
                    Vote::Grant | Vote::Refuse(Refusal::Held { .. } | Refusal::Queued { .. })
                )
            })
    }

    /// Returns whether at least one master has the caller first in its queue, or has granted the
    /// lock to the caller. One master is enough, because a waiter that is first in one queue must
    /// watch the lock.
    pub(crate) fn is_next(&self) -> bool {
        self.votes_cast().any(|vote| match vote {
            Vote::Refuse(Refusal::Held { position, .. } | Refusal::Queued { position }) => {
                *position == Some(1)
            }
            vote => vote.is_grant(),
        })
    }

    /// Returns whether the lock is free but other waiters come first: all masters that refused say
    /// so, or a majority of at least one set says so.
    pub(crate) fn lets_others_pass(&self) -> bool {
        let queued = self.masters(|vote| matches!(vote, Vote::Refuse(Refusal::Queued { .. })));
        let is_majority = self.quorum.has_majority_of_any_set(queued);
        is_majority || !queued.is_empty() && queued == self.masters(Vote::is_refusal)
    }

    /// Returns a candidate above the counters of all masters that refused the candidate of this
    /// round as stale. `None` if there is no such master. Also `None` if, in some set, these
    /// masters and those that granted the lock are together no majority.
    pub(crate) fn next_candidate(&self) -> Option<u64> {
        let highest = self.votes_cast().filter_map(Vote::counter).max()?;
        self.every_set_has(|vote| vote.is_grant() || vote.counter().is_some())
            .then(|| highest.saturating_add(1))
    }

    /// Returns the median clock of the masters whose clocks are too far from the time in the ticket
    /// or in the candidate. `None` if there is no such master. Also `None` if, in every set, these
    /// masters and those that granted the lock or refused the candidate as stale are together no
    /// majority.
    pub(crate) fn skewed_to(&self) -> Option<Duration> {
        let mut clocks: Vec<_> = self.votes_cast().filter_map(Vote::skewed_to).collect();
        clocks.sort_unstable();
        let middle = clocks.get(clocks.len() / 2).copied();
        let is_free =
            |vote: &Vote| vote.is_grant() || vote.skewed_to().is_some() || vote.counter().is_some();
        middle.filter(|_| self.any_set_has(is_free))
    }

    /// Returns whether later votes may complete a majority of every set for [`next_candidate`] or
    /// [`skewed_to`]: some set has no such majority yet, and every set can still get one. The round
    /// may be decided before these votes, because other masters failed or because another client
    /// holds the lock on them.
    ///
    /// [`next_candidate`]: Self::next_candidate
    /// [`skewed_to`]: Self::skewed_to
    pub(crate) fn may_raise_ballot(&self) -> bool {
        let may_come = |free: MasterSet| {
            let later = free | self.unanswered();
            !self.quorum.has_majority_of_every_set(free)
                && self.quorum.has_majority_of_every_set(later)
        };
        let stale = self.masters(|vote| vote.counter().is_some());
        let skewed = self.masters(|vote| vote.skewed_to().is_some());
        let free = stale | self.granted();
        !skewed.is_empty() && may_come(free | skewed) || !stale.is_empty() && may_come(free)
    }
}

impl Vote {
    /// Returns the time for which the lock is held on the master. `None` if the vote does not say
    /// this.
    pub(crate) fn held_for(&self) -> Option<Duration> {
        match self {
            Self::Refuse(Refusal::Held { remaining, .. }) => *remaining,
            Self::Refuse(Refusal::OtherKind) | Self::Fail(_) => None,
            Self::Grant
            | Self::Refuse(
                Refusal::Gone
                | Refusal::Queued { .. }
                | Refusal::Skewed { .. }
                | Refusal::Stale { .. },
            ) => Some(Duration::ZERO),
        }
    }

    /// Returns whether the master says that it does not have the key.
    pub(crate) fn is_gone(&self) -> bool {
        *self == Self::Refuse(Refusal::Gone)
    }

    /// Returns whether the lock is free after this vote on a release.
    pub(crate) fn is_freed(&self) -> bool {
        self.is_grant() || self.is_gone()
    }

    /// Returns the clock of the master, if the time in the ticket or in the candidate is too far
    /// from that clock.
    pub(crate) fn skewed_to(&self) -> Option<Duration> {
        let Self::Refuse(Refusal::Skewed { clock }) = self else {
            return None;
        };
        Some(*clock)
    }

    fn quarantined_for(&self) -> Option<Duration> {
        let Self::Fail(Failure::Quarantined { remaining }) = self else {
            return None;
        };
        Some(*remaining)
    }

    fn owners(&self) -> &[String] {
        match self {
            Self::Refuse(Refusal::Held { owners, .. }) => owners,
            _ => &[],
        }
    }

    /// Returns the counter of a master that has seen a later candidate.
    fn counter(&self) -> Option<u64> {
        let Self::Refuse(Refusal::Stale { counter }) = self else {
            return None;
        };
        Some(*counter)
    }
}

impl Reason {
    /// Returns why an acquisition did not end in a lock. `round` is the round of the acquisition.
    /// `free_in` is the time after which the lock will be free, according to the masters. `elapsed`
    /// is the time since the start of the round.
    pub(crate) fn of(
        round: &Round,
        outcome: Outcome,
        free_in: Option<Duration>,
        elapsed: Duration,
    ) -> Self {
        if outcome == Outcome::TooLate {
            Self::TooSlow { elapsed }
        } else if round.lacks_rights() {
            Self::denied(round)
        } else if let Some(left) = round.quarantined() {
            Self::Quarantined { remaining: left }
        } else if round.lacks_masters() {
            Self::NoQuorum
        } else if round.is_other_kind() {
            Self::OtherKind
        } else if round.lets_others_pass() {
            // This stays the reason even if `free_in` shows that another client has the lock by
            // now.
            Self::Queued
        } else if free_in == Some(Duration::ZERO) {
            Self::Split
        } else {
            Self::Held { remaining: free_in }
        }
    }

    /// Returns why `round` did not give the lock to a waiter in the queues. A waiter that is first
    /// in no queue waits until a master calls it, however long the lock will live.
    pub(crate) fn in_queue(round: &Round) -> Self {
        if round.lacks_rights() {
            Self::denied(round)
        } else if let Some(left) = round.quarantined() {
            Self::Quarantined { remaining: left }
        } else if round.lacks_masters() {
            Self::NoQuorum
        } else if round.next_candidate().is_some() {
            Self::Split // a majority is free, and other clients were faster
        } else if !round.is_next() {
            Self::Held { remaining: None }
        } else if round.is_held_for_sure() {
            let remaining = round.free_in();
            Self::Held { remaining }
        } else {
            Self::Split
        }
    }

    /// Returns why `round` did not give a read-write lock to a reader in the queues. Readers do not
    /// compete, so after a split vote, a reader gains nothing by asking again soon.
    pub(crate) fn of_reader(round: &Round) -> Self {
        let free_in = round.free_in().filter(|_| !round.lets_others_pass());
        match Self::in_queue(round) {
            Self::Split if free_in != Some(Duration::ZERO) => Self::Held { remaining: free_in },
            reason => reason,
        }
    }

    fn denied(round: &Round) -> Self {
        let mut denials = round.votes_cast().filter_map(|vote| match vote {
            Vote::Fail(Failure::ErrorReply(error)) if vote.is_denial() => Some(error.clone()),
            _ => None,
        });
        let reply = denials.next().unwrap_or_default();
        Self::Denied { reply }
    }
}

#[cfg(test)]
mod tests {
    use testkit::times::millis;

    use super::*;
    use crate::core::vote::{
        Verb,
        quorum::{Outcome, Quorum},
        round::fixture::{round, vote},
    };

    /// Returns the refusal of a master on which `owner` holds the lock. The caller is at `position`
    /// in the queue. A position of 0 means that the caller is not queued.
    fn by(owner: &str, position: u64) -> Vote {
        let position = (position > 0).then_some(position);
        Vote::Refuse(Refusal::held_by(owner, Some(millis(5)), 1, position))
    }

    fn round_of(votes: Vec<Vote>) -> Round {
        let mut round = five("");
        for (master, vote) in votes.into_iter().enumerate() {
            round.count_vote(master, vote, round.start());
        }
        round
    }

    /// Returns a round of five masters, with one letter for each vote.
    fn five(letters: &str) -> Round {
        round(Verb::Acquire, &Quorum::of(5), letters)
    }

    #[test]
    fn votes_show_what_the_table_says() {
        type Question = (&'static str, fn(&Round) -> bool);
        const QUESTIONS: [Question; 16] = [
            ("answers", |round| {
                round.every_set_has_in_time(Vote::is_answer)
            }),
            ("has no majority", |round| {
                round.outcome() == Outcome::NoMajority
            }),
            ("is taken away", Round::is_taken_away),
            ("is disputed", Round::is_disputed),
            ("is free", |round| round.free_in().is_some()),
            ("is held for sure", Round::is_held_for_sure),
            ("is other kind", Round::is_other_kind),
            ("is pending", |round| round.outcome() == Outcome::Pending),
            ("is queued", Round::is_queued),
            ("is won", |round| round.outcome() == Outcome::Won),
            ("lacks masters", Round::lacks_masters),
            ("lets others pass", Round::lets_others_pass),
            ("may raise", Round::may_raise_ballot),
            ("next candidate", |round| round.next_candidate().is_some()),
            ("quarantined", |round| round.quarantined().is_some()),
            ("skewed", |round| round.skewed_to().is_some()),
        ];
        let two = [[0, 1, 2], [3, 4, 5]].map(|set| set.into_iter().collect());
        let lines = include_str!("../../../tests/tables/evidence.txt").lines();
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let (_, question) = QUESTIONS
                .iter()
                .find(|(name, _)| *name == cells[0])
                .unwrap();
            let quorum = match cells[1].parse() {
                Ok(masters) => Quorum::of(masters),
                Err(_) => Quorum::of_sets(&two),
            };
            for (cell, expected) in [(2, true), (3, false)] {
                for letters in cells[cell].split_whitespace() {
                    let mut round = round(Verb::Acquire, &quorum, letters);
                    round.queues = true;
                    assert_eq!(question(&round), expected, "{line}: {letters}");
                }
            }
        }
    }

    #[test]
    fn the_last_set_decides_when_a_lock_is_free() {
        let two = [[0, 1, 2], [3, 4, 5]].map(|set| set.into_iter().collect());
        let mut round = round(Verb::Acquire, &Quorum::of_sets(&two), "");
        for (master, left) in [5, 9, 7, 1, 8, 2].into_iter().enumerate() {
            let held = Vote::Refuse(Refusal::held(Some(millis(left))));
            round.count_vote(master, held, round.start());
        }
        assert_eq!(round.free_in(), Some(millis(7)));
    }

    #[test]
    fn after_a_split_vote_no_one_holds_the_lock_for_sure() {
        for (owners, for_sure) in [
            (["a\nb", "b\nc", "c\nb"], true),
            (["a\nb", "c\nd", "e"], false),
        ] {
            let votes = owners.map(|owners| by(owners, 0));
            assert_eq!(
                round_of(votes.into()).is_held_for_sure(),
                for_sure,
                "{owners:?}"
            );
        }
    }

    #[test]
    fn is_next_if_one_master_says_so() {
        let queued = |position| Vote::Refuse(Refusal::Queued { position });
        for (votes, next) in [
            (vec![by("a", 2), by("a", 3)], false),
            (vec![by("a", 2), by("a", 1)], true),
            (vec![queued(None), queued(Some(2))], false),
            (vec![queued(Some(1))], true),
            (vec![Vote::Grant], true), // no one else can get the lock on this master now
        ] {
            assert_eq!(round_of(votes.clone()).is_next(), next, "{votes:?}");
        }
    }

    #[test]
    fn is_queued_if_a_majority_says_so() {
        let queued = Vote::Refuse(Refusal::Queued { position: Some(1) });
        let fail = vote('f');
        let mut round = round_of(vec![queued.clone(), fail.clone(), by("a", 1), fail.clone()]);
        round.queues = true;
        assert!(!round.is_queued());
        let mut round = round_of(vec![queued, by("a", 1), fail, Vote::Grant]);
        assert!(!round.is_queued(), "it did not ask to be queued");
        round.queues = true;
        assert!(round.is_queued());
    }

    #[test]
    fn a_round_that_queues_may_keep_a_ticket_where_it_is_refused() {
        let mut round = five("ghfu");
        let may_have_key = [0, 2, 4].into_iter().collect();
        assert_eq!(
            (round.may_keep(), round.may_have_key()),
            (may_have_key, may_have_key)
        );
        round.queues = true;
        assert_eq!(
            (round.may_keep(), round.may_have_key()),
            (may_have_key | MasterSet::only(1), may_have_key)
        );
    }

    #[test]
    fn the_next_candidate_needs_a_majority_that_is_free() {
        let stale = |counter| Vote::Refuse(Refusal::Stale { counter });
        for (counters, others, candidate) in [
            (&[7, 9, 8][..], "", Some(10)), // above all counters, in any order
            (&[9], "gg", Some(10)),
            (&[9], "ghh", None),
            (&[7, 9], "ff", None),
            (&[7, 9], "kkk", None),
            (&[], "ggg", None), // no master has seen a later candidate
            (&[], "hhhhh", None),
            (&[u64::MAX; 3], "", Some(u64::MAX)),
            (&[], "", None),
        ] {
            let votes = counters.iter().map(|counter| stale(*counter));
            let round = round_of(votes.chain(others.chars().map(vote)).collect());
            assert_eq!(round.next_candidate(), candidate, "{counters:?} {others}");
        }
    }

    #[test]
    fn skewed_to_the_median_of_a_majority() {
        let skewed = |clock| {
            Vote::Refuse(Refusal::Skewed {
                clock: millis(clock),
            })
        };
        for (clocks, others, expected) in [
            (&[1, 2][..], "", None),
            (&[9, 1, 2], "f", Some(2)),
            // The masters disagree on the time, and some have granted the lock.
            (&[2, 1], "gg", Some(2)),
            (&[2], "ghh", None),
            (&[], "gg", None),
            // Some masters refuse because of the counter, others because of the clock.
            (&[2], "sfs", Some(2)),
            (&[2], "sgh", Some(2)),
            (&[2], "shf", None),
            (&[], "sssf", None),
            (&[9, 1, 7, 2], "", Some(7)),
        ] {
            let votes = clocks.iter().map(|clock| skewed(*clock));
            let round = round_of(votes.chain(others.chars().map(vote)).collect());
            assert_eq!(
                round.skewed_to(),
                expected.map(millis),
                "{clocks:?} {others}"
            );
        }
    }

    #[test]
    fn masters_are_listed_by_their_votes() {
        let round = round(Verb::Release, &Quorum::of(6), "gh0fo");
        for (name, found, expected) in [
            ("granted", round.granted(), &[0][..]),
            ("freed", round.masters(Vote::is_freed), &[0, 2]),
            ("held", round.held_by_others(), &[1]),
            ("gone", round.masters(Vote::is_gone), &[2]),
            ("unanswered", round.unanswered(), &[5]),
        ] {
            assert_eq!(found, expected.iter().copied().collect(), "{name}");
        }
    }

    #[test]
    fn quarantined_until_a_majority_is_not() {
        let quarantined = |left| {
            Vote::Fail(Failure::Quarantined {
                remaining: millis(left),
            })
        };
        for (left, others, expected) in [
            (vec![], 0, None),
            (vec![5, 9], 0, None), // three masters of five are not quarantined
            (vec![9, 5, 7], 0, Some(5)),
            (vec![9, 5, 7], 2, Some(5)),
            (vec![9, 5, 7, 3], 1, Some(5)),
            (vec![9, 5, 7, 3, 1], 0, Some(5)),
        ] {
            let votes = left.iter().map(|left| quarantined(*left));
            let votes = votes.chain(vec![vote('g'); others]).collect();
            let expected = expected.map(millis);
            assert_eq!(round_of(votes).quarantined(), expected, "{left:?} {others}");
        }
    }

    #[test]
    fn a_vote_says_how_long_the_master_is_not_free() {
        let held = |left: u64| Vote::Refuse(Refusal::held(Some(millis(left))));
        let round = round_of(vec![
            held(5),
            held(9),
            Vote::Refuse(Refusal::OtherKind),
            vote('f'),
            Vote::Refuse(Refusal::Queued { position: None }),
        ]);
        assert_eq!(round.free_in(), Some(millis(9)));
        let free = [
            vote('g'),
            vote('0'),
            Vote::Refuse(Refusal::Stale { counter: 1 }),
        ];
        assert_eq!(round_of(free.to_vec()).free_in(), Some(Duration::ZERO));
    }

    #[test]
    fn free_when_the_last_master_of_a_majority_is() {
        for (masters, left, free) in [
            (3, vec![Some(5u64)], None),
            (3, vec![Some(5), Some(9)], Some(9)),
            (3, vec![Some(7), Some(9), Some(5)], Some(7)),
            (5, vec![Some(1), None, Some(3), Some(2)], Some(3)),
        ] {
            let mut round = round(Verb::Release, &Quorum::of(masters), "");
            for (master, left) in left.iter().enumerate() {
                let remaining = left.map(millis);
                round.count_vote(
                    master,
                    Vote::Refuse(Refusal::held(remaining)),
                    round.start(),
                );
            }
            assert_eq!(round.free_in(), free.map(millis), "{masters} {left:?}");
        }
    }
}

#[cfg(test)]
mod reasons {
    use testkit::times::{millis, seconds};

    use super::*;
    use crate::core::vote::{
        Refusal, Vote,
        round::fixture::{acquisition, vote},
    };

    /// Returns a round. Each letter is the [`vote`] of one master, but with `h`, another holds the
    /// lock for 5 s and the caller comes next, and with `q`, the caller is second.
    fn round(letters: &str) -> Round {
        acquisition(letters, |letter| match letter {
            'h' => Vote::Refuse(Refusal::held_by("u:1", Some(seconds(5)), 1, Some(1))),
            'q' => Vote::Refuse(Refusal::Queued { position: Some(2) }),
            other => vote(other),
        })
    }

    fn held(remaining: Option<Duration>) -> Reason {
        Reason::Held { remaining }
    }

    fn quarantined() -> Reason {
        let remaining = millis(9);
        Reason::Quarantined { remaining }
    }

    fn denied() -> Reason {
        Reason::denied(&round("d"))
    }

    #[test]
    fn refused_table() {
        use Reason::{NoQuorum, OtherKind, Queued, Split};
        let zero = Some(Duration::ZERO);
        for (letters, free_in, expected) in [
            ("hhg", Some(seconds(5)), held(Some(seconds(5)))),
            ("hhg", None, held(None)),
            ("ghg", zero, Split),
            ("gqq", zero, Queued),
            // Another holder has taken the lock since the masters answered.
            ("qqq", Some(seconds(10)), Queued),
            ("qhh", Some(seconds(5)), held(Some(seconds(5)))),
            ("oog", None, OtherKind),
            ("ffg", None, NoQuorum),
            ("dfg", None, NoQuorum),
            ("ddg", None, denied()),
            ("ddf", None, denied()),
            ("ddr", None, denied()),
            ("rrg", None, quarantined()),
        ] {
            let refused = Reason::of(
                &round(letters),
                Outcome::NoMajority,
                free_in,
                Duration::ZERO,
            );
            assert_eq!(refused, expected, "{letters} {free_in:?}");
        }
        let late = Reason::of(&round("ggg"), Outcome::TooLate, None, seconds(1));
        let elapsed = seconds(1);
        assert_eq!(late, Reason::TooSlow { elapsed });
    }

    #[test]
    fn in_queue_table() {
        use Reason::{NoQuorum, Split};
        for (letters, expected) in [
            ("dqd", denied()),
            ("qqq", held(None)), // not the next one
            ("hhh", held(Some(seconds(5)))),
            ("ghf", Split), // granted by a minority
            ("ssq", Split), // free, but others have offered later candidates
            ("sqq", held(None)),
            ("ffg", NoQuorum),
            ("rrg", quarantined()),
        ] {
            assert_eq!(Reason::in_queue(&round(letters)), expected, "{letters}");
        }
    }

    #[test]
    fn of_reader_table() {
        use Reason::{NoQuorum, Split};
        let left = held(Some(seconds(5)));
        for (letters, expected) in [
            ("hhh", left.clone()),
            ("ghf", left.clone()), // nothing is gained by another attempt
            ("gghho", left),
            ("gof", held(None)), // no one says when a majority will be free
            ("gqf", held(None)), // a writer comes first, and its release calls the reader
            ("gghqf", Split),    // a majority may be free
            ("ggg", Split),      // too late
            ("ffg", NoQuorum),
        ] {
            let reason = Reason::of_reader(&round(letters));
            assert_eq!(reason, expected, "{letters}");
        }
    }
}
