//! The outcome of one command that was sent to all masters.

use std::time::{Duration, Instant};

use super::{
    Failure, Refusal, Vote,
    master_set::MasterSet,
    quorum::{Tally, Verdict, majority},
    votes::{CastVote, CastVotes},
};
use crate::core::kind::command::Verb;

/// The outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A majority can no longer say yes.
    Lost,
    /// The round is not decided yet.
    Pending,
    /// A majority said yes, but after the limit. The grants are useless.
    TooLate,
    /// A majority said yes in time.
    Won,
}

/// One command to all masters. Each master counts once, and the round is decided as early as
/// possible.
#[derive(Debug)]
pub(crate) struct Round {
    verb: Verb,
    start: Instant,
    /// A majority that is reached at this instant or later is too late.
    limit: Option<Instant>,
    tally: Tally,
    /// The number of masters whose first vote was a failure.
    failed: u8,
    cast: CastVotes,
    outcome: Outcome,
    /// `true` if a master that refuses the command puts the caller into its queue.
    queues: bool,
}

impl Round {
    pub(crate) fn open(verb: Verb, masters: usize, start: Instant, limit: Option<Instant>) -> Self {
        Self {
            verb,
            start,
            limit,
            tally: Tally::new(masters),
            failed: 0,
            cast: CastVotes::none(masters),
            outcome: Outcome::Pending,
            queues: false,
        }
    }

    /// Marks this round as one that queues: every master that refuses it puts the caller into its
    /// queue.
    pub(crate) fn queue(&mut self) {
        self.queues = true;
    }

    /// Counts the vote of `master`. `now` must have been read after the vote came in.
    ///
    /// Only the first vote of a master counts. After a failure, the master may still answer late.
    /// If the round was won, the late answer replaces the failure in the table of votes. Otherwise
    /// the failure stays in the table, because it explains why the round was not won.
    pub(crate) fn on_vote(&mut self, master: usize, vote: Vote, now: Instant) -> Outcome {
        let Some(slot) = self.cast.get_mut(master) else {
            return self.outcome;
        };
        let latency = now.saturating_duration_since(self.start);
        match slot {
            Some(cast) if self.outcome == Outcome::Won && matches!(cast.vote(), Vote::Fail(_)) => {
                *slot = Some(CastVote::new(vote, latency));
                return self.outcome;
            }
            Some(_) if !mutant!(VotesTwice) => return self.outcome,
            Some(_) | None => {}
        }
        let yes = self.verb.is_done(&vote);
        let is_failure = matches!(vote, Vote::Fail(_));
        self.failed += u8::from(is_failure);
        *slot = Some(CastVote::new(vote, latency));
        let verdict = if mutant!(QuorumOfReachable) && is_failure {
            self.tally.leave_out()
        } else {
            self.tally.count(yes)
        };
        if self.outcome == Outcome::Pending {
            self.outcome = match verdict {
                Verdict::Lost => Outcome::Lost,
                Verdict::Pending => Outcome::Pending,
                Verdict::Won if mutant!(NoValidityCheck) => Outcome::Won,
                Verdict::Won if self.limit.is_none_or(|limit| now < limit) => Outcome::Won,
                Verdict::Won => Outcome::TooLate,
            };
        }
        self.outcome
    }

    /// Decides that this round, which is pending, is lost. Later votes do not change that.
    pub(crate) fn give_up(&mut self) {
        self.outcome = Outcome::Lost;
    }

    pub(crate) fn verb(&self) -> Verb {
        self.verb
    }

    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns whether the round was decided since its outcome was `before`.
    pub(crate) fn was_decided_after(&self, before: Outcome) -> bool {
        before == Outcome::Pending && self.outcome != Outcome::Pending
    }

    /// Returns whether every master has voted. A failure counts as a vote here.
    pub(crate) fn is_settled(&self) -> bool {
        self.tally.is_complete()
    }

    pub(crate) fn votes(&self) -> &[Option<CastVote>] {
        &self.cast
    }

    /// Returns the vote of `master`, if it has voted.
    pub(crate) fn vote(&self, master: usize) -> Option<&Vote> {
        let cast = self.cast.get(master)?.as_ref();
        cast.map(CastVote::vote)
    }

    /// Returns the masters that may have the key because of this round.
    pub(crate) fn may_hold(&self) -> MasterSet {
        self.masters(|vote| match vote {
            None | Some(Vote::Grant) => true,
            Some(Vote::Refuse(_)) => false,
            Some(Vote::Fail(failure)) => failure.may_have_executed(),
        })
    }

    /// Returns the masters that granted.
    pub(crate) fn granted(&self) -> MasterSet {
        self.masters(|vote| vote == Some(&Vote::Grant))
    }

    /// Returns whether any master refused, and all refusals say that the fair lock is free but
    /// other waiters come first.
    pub(crate) fn lets_others_pass(&self) -> bool {
        let mut refusals = self.votes_cast().filter_map(|vote| match vote {
            Vote::Refuse(refusal) => Some(refusal),
            Vote::Grant | Vote::Fail(_) => None,
        });
        let is_queue = |refusal: &Refusal| matches!(refusal, Refusal::Queued { .. });
        refusals.next().is_some_and(is_queue) && refusals.all(is_queue)
    }

    /// Returns the masters that have not voted yet.
    pub(crate) fn unanswered(&self) -> MasterSet {
        self.masters(|vote| vote.is_none())
    }

    /// Returns the masters that may have the key, or the caller's ticket, because of this round.
    pub(crate) fn may_keep(&self) -> MasterSet {
        self.may_hold() | self.masters(|vote| self.queues && matches!(vote, Some(Vote::Refuse(_))))
    }

    /// Returns the masters on which the lock is free after this round, which is a release.
    pub(crate) fn freed(&self) -> MasterSet {
        self.masters(|vote| matches!(vote, Some(Vote::Grant | Vote::Refuse(Refusal::Gone))))
    }

    /// Returns the masters that say that they do not have the key.
    pub(crate) fn missing_key(&self) -> MasterSet {
        self.masters(|vote| matches!(vote, Some(Vote::Refuse(Refusal::Gone))))
    }

    /// Notes that the key was put back on `master`.
    pub(crate) fn healed(&mut self, master: usize) {
        if let Some(Some(cast)) = self.cast.get_mut(master) {
            *cast = CastVote::new(Vote::Grant, cast.latency());
        }
    }

    /// Returns the masters that say that another holds the lock.
    pub(crate) fn held(&self) -> MasterSet {
        self.masters(|vote| matches!(vote, Some(Vote::Refuse(Refusal::Held(_)))))
    }

    /// Returns whether a majority of masters say that the caller does not hold the lock.
    pub(crate) fn is_disowned(&self) -> bool {
        self.majority_say(|vote| matches!(vote, Vote::Refuse(_)))
    }

    /// Returns whether a majority of masters say that another kind of lock is held under the name.
    pub(crate) fn is_other_kind(&self) -> bool {
        self.majority_say(|vote| matches!(vote, Vote::Refuse(Refusal::OtherKind)))
    }

    /// Returns whether a majority of masters have put the caller into their queues, or granted the
    /// lock to the caller.
    pub(crate) fn is_queued(&self) -> bool {
        let has_position = |vote: &Vote| {
            matches!(
                vote,
                Vote::Grant | Vote::Refuse(Refusal::Held(_) | Refusal::Queued { .. })
            )
        };
        self.queues && self.majority_say(has_position)
    }

    /// Returns whether a majority of masters name the same owner as the holder. While that owner
    /// holds the lock, no one else can get it. After a split vote, no owner has such a majority.
    pub(crate) fn is_held_by_one(&self) -> bool {
        self.votes_cast()
            .filter_map(owner)
            .any(|one| self.majority_say(|vote| owner(vote) == Some(one)))
    }

    /// Returns whether any master has the caller first in its queue, or has granted the lock to the
    /// caller.
    pub(crate) fn is_next(&self) -> bool {
        self.votes_cast().any(|vote| match vote {
            Vote::Grant => true,
            Vote::Refuse(Refusal::Held(report)) => report.position() == Some(1),
            Vote::Refuse(Refusal::Queued { position }) => *position == Some(1),
            _ => false,
        })
    }

    /// Returns the time until a majority of masters is out of quarantine. `None` if a majority
    /// already is.
    pub(crate) fn quarantined(&self) -> Option<Duration> {
        let left = self.sorted(|vote| match vote {
            Vote::Fail(Failure::Quarantined { remaining }) => Some(*remaining),
            _ => None,
        });
        let others = self.cast.len() - left.len();
        let missing = majority(self.cast.len()).checked_sub(others)?;
        left.get(missing.checked_sub(1)?).copied()
    }

    /// Returns a candidate above the counters of all masters that refused the candidate of this
    /// round as stale. `None` if there is no such master, or if fewer than a majority of masters
    /// granted the lock or refused the candidate as stale.
    pub(crate) fn next_candidate(&self) -> Option<u64> {
        let counter = |vote: &Vote| match vote {
            Vote::Refuse(Refusal::Stale { counter }) => Some(*counter),
            _ => None,
        };
        let highest = self.votes_cast().filter_map(counter).max()?;
        let is_free = |vote: &Vote| *vote == Vote::Grant || counter(vote).is_some();
        self.majority_say(is_free)
            .then(|| highest.saturating_add(1))
    }

    /// Returns the median clock of the masters that say that the time in the ticket or in the
    /// candidate is too far from their clocks. `None` if there is no such master, or if fewer than
    /// a majority of masters say so, granted the lock, or refused the candidate as stale.
    pub(crate) fn skewed_to(&self) -> Option<Duration> {
        let clocks = self.sorted(|vote| match vote {
            Vote::Refuse(Refusal::Skewed { clock }) => Some(*clock),
            _ => None,
        });
        let middle = clocks.get(clocks.len() / 2).copied();
        let is_free = |vote: &Vote| *vote == Vote::Grant || is_skewed(vote) || is_stale(vote);
        middle.filter(|_| self.majority_say(is_free))
    }

    /// Returns whether a later vote may give a value to [`next_candidate`] or [`skewed_to`], if
    /// that method has none yet. The round may be lost before that vote, because other masters
    /// failed or because another client holds the lock on them.
    ///
    /// [`next_candidate`]: Self::next_candidate
    /// [`skewed_to`]: Self::skewed_to
    pub(crate) fn may_raise_ballot(&self) -> bool {
        let majority = majority(self.cast.len());
        let (granted, unanswered) = (self.granted().len(), self.unanswered().len());
        let (skewed, stale) = (self.count(is_skewed), self.count(is_stale));
        let may_come =
            |some: usize, all: usize| some > 0 && all < majority && all + unanswered >= majority;
        may_come(skewed, skewed + stale + granted) || may_come(stale, stale + granted)
    }

    /// Returns whether any master says that the time in the ticket or in the candidate is too far
    /// from its clock.
    pub(crate) fn is_skewed_to_any(&self) -> bool {
        self.votes_cast().any(is_skewed)
    }

    /// Returns whether so many masters failed that the others are fewer than a majority. In this
    /// case, no one can get the lock.
    pub(crate) fn lacks_masters(&self) -> bool {
        self.cast.len() - usize::from(self.failed) < majority(self.cast.len())
    }

    /// Returns whether a majority of masters have answered before the limit, without an error.
    pub(crate) fn majority_answered_in_time(&self) -> bool {
        self.majority_say_in_time(|vote| !matches!(vote, Vote::Fail(_)))
    }

    /// Returns whether a majority of masters have answered without an error, and some refused.
    pub(crate) fn is_contested(&self) -> bool {
        let refused = self.count(|vote| matches!(vote, Vote::Refuse(_)));
        refused > 0 && refused + self.granted().len() >= majority(self.cast.len())
    }

    /// Returns whether a majority of masters have replied before the limit, even with an error.
    pub(crate) fn majority_replied_in_time(&self) -> bool {
        self.majority_say_in_time(|vote| match vote {
            Vote::Grant | Vote::Refuse(_) | Vote::Fail(Failure::Rejected(_)) => true,
            Vote::Fail(_) => false,
        })
    }

    fn majority_say_in_time(&self, of: impl Fn(&Vote) -> bool) -> bool {
        let time = self
            .limit
            .map(|limit| limit.saturating_duration_since(self.start));
        let is_in_time = |cast: &&CastVote| time.is_none_or(|time| cast.latency() < time);
        let in_time = self.cast.iter().flatten().filter(is_in_time);
        let count = in_time.filter(|cast| of(cast.vote())).count();
        count >= majority(self.cast.len())
    }

    /// Returns the time until a majority of masters will be free, if no holder extends the lock. If
    /// k masters are a majority, this is the k-th smallest remaining TTL. `None` if fewer than k
    /// masters have said how long the lock will live there.
    pub(crate) fn free_in(&self) -> Option<Duration> {
        let left = self.sorted(held_for);
        left.get(majority(self.cast.len()) - 1).copied()
    }

    /// Returns the masters that will be free after `time`, if no holder extends the lock.
    pub(crate) fn free_within(&self, time: Duration) -> MasterSet {
        self.masters(|vote| vote.and_then(held_for).is_some_and(|left| left <= time))
    }

    fn masters(&self, of: impl Fn(Option<&Vote>) -> bool) -> MasterSet {
        self.cast
            .iter()
            .enumerate()
            .filter(|(_, cast)| of(cast.as_ref().map(CastVote::vote)))
            .map(|(master, _)| master)
            .collect()
    }

    fn majority_say(&self, of: impl Fn(&Vote) -> bool) -> bool {
        self.count(of) >= majority(self.cast.len())
    }

    fn count(&self, of: impl Fn(&Vote) -> bool) -> usize {
        self.votes_cast().filter(|vote| of(vote)).count()
    }

    fn sorted<T: Ord>(&self, of: impl Fn(&Vote) -> Option<T>) -> Vec<T> {
        let mut values: Vec<_> = self.votes_cast().filter_map(of).collect();
        values.sort_unstable();
        values
    }

    fn votes_cast(&self) -> impl Iterator<Item = &Vote> {
        self.cast.iter().flatten().map(CastVote::vote)
    }
}

/// Returns the time for which the lock is held on a master with this vote. `None` if the vote does
/// not say this.
pub(crate) fn held_for(vote: &Vote) -> Option<Duration> {
    match vote {
        Vote::Refuse(Refusal::Held(report)) => report.remaining(),
        Vote::Refuse(Refusal::OtherKind) | Vote::Fail(_) => None,
        Vote::Grant
        | Vote::Refuse(
            Refusal::Gone | Refusal::Queued { .. } | Refusal::Skewed { .. } | Refusal::Stale { .. },
        ) => Some(Duration::ZERO),
    }
}

fn is_skewed(vote: &Vote) -> bool {
    matches!(vote, Vote::Refuse(Refusal::Skewed { .. }))
}

fn is_stale(vote: &Vote) -> bool {
    matches!(vote, Vote::Refuse(Refusal::Stale { .. }))
}

/// Returns the owner that holds the lock according to the vote of one master.
fn owner(vote: &Vote) -> Option<&str> {
    match vote {
        Vote::Refuse(Refusal::Held(report)) => report.owner(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "an origin for the tables")]

    use proptest::prelude::*;

    use super::*;
    use crate::core::kind::held_report::HeldReport;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Returns the vote for a letter: `g` is granted, `h` is held by another, `0` is gone, `f` is
    /// timed out, and `u` is unreachable.
    fn vote(letter: char) -> Vote {
        match letter {
            'g' => Vote::Grant,
            'h' => Vote::Refuse(Refusal::held(None)),
            '0' => Vote::Refuse(Refusal::Gone),
            'f' => Vote::Fail(Failure::TimedOut(millis(50))),
            'u' => Vote::Fail(Failure::Unreachable("refused".into())),
            other => panic!("no vote is written {other:?}"),
        }
    }

    fn outcome(verb: Verb, masters: usize, letters: &str, limit: Option<u64>) -> Outcome {
        let start = Instant::now();
        let mut round = Round::open(verb, masters, start, limit.map(|at| start + millis(at)));
        for (master, letter) in letters.chars().enumerate() {
            // Vote number n comes n milliseconds after the start. The first vote has the number 0.
            round.on_vote(master, vote(letter), start + millis(master as u64));
        }
        round.outcome()
    }

    #[test]
    fn contested_table() {
        for (letters, expected) in [
            ("gg", false),
            ("ggg", false),
            ("gh", false),
            ("ghf", false),
            ("ggh", true),
            ("ghhf", true),
        ] {
            let start = Instant::now();
            let mut round = Round::open(Verb::Acquire, 5, start, None);
            for (master, letter) in letters.chars().enumerate() {
                round.on_vote(master, vote(letter), start);
            }
            assert_eq!(round.is_contested(), expected, "{letters}");
            if expected {
                round.give_up();
                assert_eq!(round.on_vote(4, vote('g'), start), Outcome::Lost);
                assert_eq!(round.on_vote(3, vote('g'), start), Outcome::Lost);
            }
        }
    }

    #[test]
    fn outcome_table() {
        use Outcome::{Lost, Pending, TooLate, Won};
        use Verb::{Acquire, Extend, Release};
        for (verb, masters, letters, limit, expected) in [
            (Acquire, 1, "g", None, Won),
            (Acquire, 3, "gg", Some(9), Won),
            (Acquire, 3, "gg", Some(1), TooLate), // a late majority is not a lock
            (Acquire, 3, "gg", Some(2), Won),
            (Acquire, 3, "hfg", Some(9), Lost),
            (Acquire, 3, "fh", Some(9), Lost), // lost before the last master has voted
            (Acquire, 5, "gghf", Some(9), Pending),
            (Acquire, 5, "gghfg", Some(9), Won),
            (Extend, 3, "0g0", Some(9), Lost), // a key that is gone is not extended
            (Extend, 3, "0gg", Some(9), Won),
            (Release, 3, "0h", None, Won), // gone or another's: counts as released
            (Release, 3, "fu", None, Lost),
            (Release, 3, "f0f", None, Lost),
        ] {
            assert_eq!(
                outcome(verb, masters, letters, limit),
                expected,
                "{verb:?} {masters} {letters} {limit:?}"
            );
        }
    }

    #[test]
    fn a_master_counts_once() {
        let start = Instant::now();
        let mut round = Round::open(Verb::Acquire, 3, start, None);
        for _ in 0..3 {
            round.on_vote(1, Vote::Grant, start);
        }
        round.on_vote(7, Vote::Grant, start); // no such master
        assert_eq!(round.outcome(), Outcome::Pending);
    }

    #[test]
    fn a_late_answer_corrects_the_table_of_a_round_that_was_won() {
        let start = Instant::now();
        for (letters, outcome, late) in [("fgg", Outcome::Won, "g"), ("ffg", Outcome::Lost, "f")] {
            let mut round = Round::open(Verb::Acquire, 3, start, None);
            for (master, letter) in letters.chars().enumerate() {
                round.on_vote(master, vote(letter), start);
            }
            assert_eq!(round.on_vote(0, Vote::Grant, start), outcome);
            let expected = late.chars().next().map(vote);
            assert_eq!(round.vote(0), expected.as_ref(), "{letters}");
            assert_eq!(round.vote(3), None);
            assert!(round.is_settled());
        }
    }

    #[test]
    fn a_master_that_granted_or_may_have_executed_may_hold_the_key() {
        let start = Instant::now();
        let mut round = Round::open(Verb::Acquire, 5, start, None);
        for (master, letter) in "ghfu".chars().enumerate() {
            round.on_vote(master, vote(letter), start);
        }
        assert_eq!(round.may_hold(), [0, 2, 4].into_iter().collect());
    }

    /// Returns the refusal of a master on which `owner` holds the lock. The caller is at `position`
    /// in the queue. A position of 0 means that the caller is not queued.
    fn by(owner: &str, position: u64) -> Vote {
        let position = (position > 0).then_some(position);
        let report = HeldReport::owned(Some(millis(5)), owner.to_owned(), 1, position);
        Vote::Refuse(Refusal::Held(report))
    }

    fn round_of(votes: Vec<Vote>) -> Round {
        let start = Instant::now();
        let mut round = Round::open(Verb::Acquire, 5, start, None);
        for (master, vote) in votes.into_iter().enumerate() {
            round.on_vote(master, vote, start);
        }
        round
    }

    #[test]
    fn a_split_vote_has_no_single_holder() {
        for (owners, by_one) in [
            ("aaa", true),
            ("aabba", true),
            ("aabbc", false),
            ("aa", false),
        ] {
            let votes = owners.chars().map(|owner| by(&owner.to_string(), 0));
            assert_eq!(
                round_of(votes.collect()).is_held_by_one(),
                by_one,
                "{owners}"
            );
        }
        let mutexes = vec![Vote::Refuse(Refusal::held(None)); 5];
        assert!(!round_of(mutexes).is_held_by_one());
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
        round.queue();
        assert!(!round.is_queued());
        let mut round = round_of(vec![queued, by("a", 1), fail, Vote::Grant]);
        assert!(!round.is_queued(), "it did not ask to be queued");
        round.queue();
        assert!(round.is_queued());
    }

    #[test]
    fn a_round_that_queues_may_keep_a_ticket_where_it_is_refused() {
        let start = Instant::now();
        for queues in [false, true] {
            let mut round = Round::open(Verb::Acquire, 5, start, None);
            if queues {
                round.queue();
            }
            for (master, letter) in "ghfu".chars().enumerate() {
                round.on_vote(master, vote(letter), start);
            }
            let expected = if queues {
                &[0, 1, 2, 4][..]
            } else {
                &[0, 2, 4]
            };
            assert_eq!(round.may_keep(), expected.iter().copied().collect());
            assert_eq!(round.may_hold(), [0, 2, 4].into_iter().collect()); // regardless of queues
        }
    }

    #[test]
    fn the_next_candidate_needs_a_majority_that_is_free() {
        let stale = |counter| Vote::Refuse(Refusal::Stale { counter });
        let [granted, held, failed] = ['g', 'h', 'f'].map(vote);
        let skewed = Vote::Refuse(Refusal::Skewed { clock: millis(1) });
        let [granted, held, failed, skewed] = &[granted, held, failed, skewed];
        for (votes, candidate) in [
            (vec![stale(7), stale(9), stale(8)], Some(10)), // above all counters, in any order
            (vec![granted.clone(), granted.clone(), stale(9)], Some(10)),
            (
                vec![granted.clone(), stale(9), held.clone(), held.clone()],
                None,
            ),
            (
                vec![stale(7), stale(9), failed.clone(), failed.clone()],
                None,
            ),
            (
                vec![
                    stale(7),
                    stale(9),
                    skewed.clone(),
                    skewed.clone(),
                    skewed.clone(),
                ],
                None,
            ),
            (vec![granted.clone(); 3], None), // no master has seen a later candidate
            (vec![held.clone(); 5], None),
            (vec![stale(u64::MAX); 3], Some(u64::MAX)),
            (vec![], None),
        ] {
            assert_eq!(
                round_of(votes.clone()).next_candidate(),
                candidate,
                "{votes:?}"
            );
        }
    }

    #[test]
    fn waits_for_late_votes_only_if_they_could_win() {
        for (letters, waits) in [
            ("ffs", true),
            ("ffss", true),
            ("ffsg", true),
            ("ffsh", false), // a majority can no longer be free
            ("hhs", true),
            ("hhsf", false),
            ("sss", false), // a majority has answered
            ("ssg", false),
            ("ffgg", false), // no master has seen a later candidate
            ("ffk", true),
            ("hhk", true),
            ("hhkh", false),
            ("fgk", true),
            ("ffgk", true),
            ("gkg", false),
            ("kkk", false),
            ("fskf", true),
            ("hhsk", true),
            ("hhskh", false),
            ("sk", true),
            ("sskkg", false),
            ("ffh", false),
            ("", false),
        ] {
            let votes = letters.chars().map(|letter| match letter {
                's' => Vote::Refuse(Refusal::Stale { counter: 7 }),
                'k' => Vote::Refuse(Refusal::Skewed { clock: millis(1) }),
                letter => vote(letter),
            });
            let round = round_of(votes.collect());
            assert_eq!(round.may_raise_ballot(), waits, "{letters}");
        }
    }

    #[test]
    fn skewed_to_the_median_of_a_majority() {
        let skewed = |clock| {
            Vote::Refuse(Refusal::Skewed {
                clock: millis(clock),
            })
        };
        assert_eq!(round_of(vec![skewed(1), skewed(2)]).skewed_to(), None);
        let round = round_of(vec![skewed(9), vote('f'), skewed(1), skewed(2)]);
        assert_eq!(round.skewed_to(), Some(millis(2)));
        // The masters disagree on the time, and some have granted the lock.
        let round = round_of(vec![skewed(2), vote('g'), skewed(1), vote('g')]);
        assert_eq!(round.skewed_to(), Some(millis(2)));
        let round = round_of(vec![skewed(2), vote('g'), vote('h'), vote('h')]);
        assert_eq!(round.skewed_to(), None);
        assert_eq!(round_of(vec![vote('g'), vote('g')]).skewed_to(), None);
        let stale = || Vote::Refuse(Refusal::Stale { counter: 7 });
        // Some masters refuse the candidate because of the counter, others because of the clock.
        let round = round_of(vec![skewed(2), stale(), vote('f'), stale()]);
        assert_eq!(round.skewed_to(), Some(millis(2)));
        let round = round_of(vec![skewed(2), stale(), vote('g'), vote('h')]);
        assert_eq!(round.skewed_to(), Some(millis(2)));
        let round = round_of(vec![skewed(2), stale(), vote('h'), vote('f')]);
        assert_eq!(round.skewed_to(), None);
        let round = round_of(vec![stale(), stale(), stale(), vote('f')]);
        assert_eq!(round.skewed_to(), None);
        let round = round_of(vec![skewed(9), skewed(1), skewed(7), skewed(2)]);
        assert_eq!(round.skewed_to(), Some(millis(7)));
        assert!(round_of(vec![vote('h'), skewed(1)]).is_skewed_to_any());
        assert!(!round_of(vec![vote('h'), vote('g')]).is_skewed_to_any());
    }

    #[test]
    fn masters_are_listed_by_their_votes() {
        let other_kind = Vote::Refuse(Refusal::OtherKind);
        let votes = "gh0f".chars().map(vote).chain([other_kind]);
        let start = Instant::now();
        let mut round = Round::open(Verb::Release, 6, start, None);
        assert_eq!(round.unanswered().len(), 6);
        for (master, vote) in votes.enumerate() {
            assert!(!round.is_settled());
            round.on_vote(master, vote, start);
        }
        for (name, found, expected) in [
            ("granted", round.granted(), &[0][..]),
            ("freed", round.freed(), &[0, 2]),
            ("held", round.held(), &[1]),
            ("missing_key", round.missing_key(), &[2]),
            ("unanswered", round.unanswered(), &[5]),
        ] {
            assert_eq!(found, expected.iter().copied().collect(), "{name}");
        }
    }

    #[test]
    fn a_master_that_was_healed_counts_as_granted() {
        let start = Instant::now();
        let mut round = Round::open(Verb::Extend, 4, start, None);
        for (master, letter) in "g0g".chars().enumerate() {
            round.on_vote(master, vote(letter), start + millis(7));
        }
        round.healed(1);
        round.healed(3); // has not voted
        round.healed(4); // no such master
        assert_eq!(round.granted(), [0, 1, 2].into_iter().collect());
        let latencies: Vec<_> = round
            .votes()
            .iter()
            .flatten()
            .map(CastVote::latency)
            .collect();
        assert_eq!(latencies, [millis(7); 3]);
    }

    #[test]
    fn others_pass_if_all_refusals_are_of_waiters_that_come_first() {
        let queued = Vote::Refuse(Refusal::Queued { position: Some(2) });
        let [granted, held, failed] = ['g', 'h', 'f'].map(vote);
        let [queued, granted, held, failed] = [&queued, &granted, &held, &failed];
        for (votes, passes) in [
            (vec![queued, granted, failed], true),
            (vec![queued, queued], true),
            (vec![queued, held], false),
            (vec![held, queued], false),
            (vec![held, held], false),
            (vec![granted, failed], false),
            (vec![], false),
        ] {
            let round = round_of(votes.into_iter().cloned().collect());
            assert_eq!(round.lets_others_pass(), passes, "{:?}", round.votes());
        }
    }

    #[test]
    fn another_kind_is_held_if_a_majority_says_so() {
        let other = Vote::Refuse(Refusal::OtherKind);
        let votes = |others: usize| vec![other.clone(); others];
        assert!(round_of(votes(3)).is_other_kind());
        assert!(!round_of(votes(2)).is_other_kind());
        assert!(!round_of(vec![vote('h'); 5]).is_other_kind());
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
    fn a_majority_answers_in_time_or_replies_in_time() {
        let rejected = Vote::Fail(Failure::Rejected("OOM".into()));
        for (letters, limit, answered, replied) in [
            ("gh", None, false, false),
            ("gh0", None, true, true),
            ("gh0", Some(3), true, true),
            ("gh0", Some(2), false, false), // the third vote comes at the limit
            ("ghf", Some(9), false, false),
            ("ghr", Some(9), false, true),
            ("rrr", Some(9), false, true),
            ("fghr", Some(4), false, true),
            ("fghr", Some(3), false, false),
        ] {
            let start = Instant::now();
            let limit = limit.map(|at| start + millis(at));
            let mut round = Round::open(Verb::Acquire, 5, start, limit);
            for (master, letter) in letters.chars().enumerate() {
                let vote = match letter {
                    'r' => rejected.clone(),
                    letter => vote(letter),
                };
                round.on_vote(master, vote, start + millis(master as u64));
            }
            let found = (
                round.majority_answered_in_time(),
                round.majority_replied_in_time(),
            );
            assert_eq!(found, (answered, replied), "{letters} {limit:?}");
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
        for (time, free) in [(0, &[4][..]), (4, &[4]), (5, &[0, 4]), (9, &[0, 1, 4])] {
            let found = round.free_within(millis(time));
            assert_eq!(found, free.iter().copied().collect(), "{time}");
        }
        assert_eq!(round.free_in(), Some(millis(9)));
        let free = [
            vote('g'),
            vote('0'),
            Vote::Refuse(Refusal::Stale { counter: 1 }),
        ];
        assert_eq!(round_of(free.to_vec()).free_in(), Some(Duration::ZERO));
    }

    #[test]
    fn masters_that_fail_are_not_contention() {
        for (masters, letters, lacks) in [
            (3, "ff", true),
            (3, "fhh", false),
            (5, "ffh", false),
            (5, "fuf", true),
            (4, "ff", true),
        ] {
            let start = Instant::now();
            let mut round = Round::open(Verb::Acquire, masters, start, None);
            for (master, letter) in letters.chars().enumerate() {
                round.on_vote(master, vote(letter), start);
            }
            assert_eq!(round.lacks_masters(), lacks, "{masters} {letters}");
        }
    }

    #[test]
    fn is_disowned_if_a_majority_says_so() {
        for (masters, letters, disowned) in [
            (3, "0", false),
            (3, "0h", true),
            (3, "0ff", false),  // a failure says nothing about the lock
            (4, "g0gh", false), // two of four masters refuse, which is no majority
            (5, "ff00", false),
            (5, "f0h0g", true),
        ] {
            let start = Instant::now();
            let mut round = Round::open(Verb::Extend, masters, start, None);
            for (master, letter) in letters.chars().enumerate() {
                round.on_vote(master, vote(letter), start);
            }
            assert_eq!(round.is_disowned(), disowned, "{masters} {letters}");
        }
    }

    #[test]
    fn free_when_the_last_master_of_a_majority_is() {
        let start = Instant::now();
        for (masters, left, free) in [
            (3, vec![Some(5u64)], None),
            (3, vec![Some(5), Some(9)], Some(9)),
            (3, vec![Some(7), Some(9), Some(5)], Some(7)),
            (5, vec![Some(1), None, Some(3), Some(2)], Some(3)),
        ] {
            let mut round = Round::open(Verb::Release, masters, start, None);
            for (master, left) in left.iter().enumerate() {
                let remaining = left.map(millis);
                round.on_vote(master, Vote::Refuse(Refusal::held(remaining)), start);
            }
            assert_eq!(round.free_in(), free.map(millis), "{masters} {left:?}");
        }
    }

    proptest! {
        #[test]
        fn an_acquisition_is_won_if_and_only_if_a_majority_granted_in_time(
            letters in prop::collection::vec(prop::sample::select(vec!['g', 'h', 'f']), 1..=9),
            limit in 0..12u64,
        ) {
            let text: String = letters.iter().collect();
            let grants: Vec<_> = letters.iter().enumerate().filter(|(_, l)| **l == 'g').collect();
            let need = letters.len() / 2 + 1;
            let expected = match grants.get(need - 1) {
                Some((at, _)) if (*at as u64) < limit => Outcome::Won,
                Some(_) => Outcome::TooLate,
                None => Outcome::Lost,
            };
            prop_assert_eq!(outcome(Verb::Acquire, letters.len(), &text, Some(limit)), expected);
        }
    }
}
