//! One question to all masters: votes in, one outcome out.

use std::time::{Duration, Instant};

use super::{
    command::Verb,
    master_set::MasterSet,
    quorum::{Failure, Refusal, Tally, Verdict, Vote, majority},
    votes::{CastVote, CastVotes},
};

/// How a round ended, or that it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A majority cannot be reached any more.
    Lost,
    /// Not decided yet.
    Pending,
    /// A majority said yes, but after `limit`: what they granted is of no use to anybody.
    TooLate,
    /// A majority said yes in time.
    Won,
}

/// One question to all masters, counted once per master, decided as early as it can be.
#[derive(Debug)]
pub(crate) struct Round {
    verb: Verb,
    start: Instant,
    /// A majority that comes together at or after this instant is too late.
    limit: Option<Instant>,
    tally: Tally,
    /// Masters that failed when it counted, whatever they said later.
    failed: u8,
    cast: CastVotes,
    outcome: Outcome,
    /// Whether masters that refuse keep a place for us in their queues.
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

    /// Has masters that refuse count as keeping something of ours.
    pub(crate) fn queue(&mut self) {
        self.queues = true;
    }

    /// Counts what `master` said. `now` must have been read after the vote came in.
    ///
    /// A master counts once, for what it said first. A late answer of one that was given up on only
    /// corrects the table, and only when the round was won: otherwise the table says why it was not.
    pub(crate) fn on_vote(&mut self, master: usize, vote: Vote, now: Instant) -> Outcome {
        let Some(slot) = self.cast.get_mut(master) else {
            return self.outcome;
        };
        let latency = now.saturating_duration_since(self.start);
        match slot {
            Some(CastVote {
                vote: Vote::Fail(_),
                ..
            }) if self.outcome == Outcome::Won => {
                *slot = Some(CastVote::new(vote, latency));
                return self.outcome;
            }
            Some(_) => return self.outcome,
            None => {}
        }
        let yes = self.verb.is_done(&vote);
        self.failed += u8::from(matches!(vote, Vote::Fail(_)));
        *slot = Some(CastVote::new(vote, latency));
        let verdict = self.tally.count(yes);
        if self.outcome == Outcome::Pending {
            self.outcome = match verdict {
                Verdict::Lost => Outcome::Lost,
                Verdict::Pending => Outcome::Pending,
                Verdict::Won if self.limit.is_none_or(|limit| now < limit) => Outcome::Won,
                Verdict::Won => Outcome::TooLate,
            };
        }
        self.outcome
    }

    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether every master has answered or was given up on.
    pub(crate) fn is_settled(&self) -> bool {
        self.tally.is_complete()
    }

    pub(crate) fn votes(&self) -> &[Option<CastVote>] {
        &self.cast
    }

    /// The masters on which the key may be because of this round.
    pub(crate) fn may_hold(&self) -> MasterSet {
        self.masters(|vote| match vote {
            None | Some(Vote::Grant) => true,
            Some(Vote::Refuse(_)) => false,
            Some(Vote::Fail(failure)) => failure.may_have_executed(),
        })
    }

    /// Returns whether others may have been refused because of this round, although it was not won:
    /// a majority of masters may have the key, and nobody else is known to hold the lock.
    pub(crate) fn may_have_barred(&self) -> bool {
        let is_held_by_others = self.outcome == Outcome::Lost && !self.lacks_masters();
        !is_held_by_others && self.may_hold().is_majority_of(self.cast.len())
    }

    /// Returns the masters that granted.
    pub(crate) fn granted(&self) -> MasterSet {
        self.masters(|vote| vote == Some(&Vote::Grant))
    }

    /// Returns whether any master says that the fair lock is free there, but other waiters come first.
    pub(crate) fn lets_others_pass(&self) -> bool {
        let is_queue = |vote: &Vote| matches!(vote, Vote::Refuse(Refusal::Queued { .. }));
        self.votes_cast().any(is_queue)
    }

    /// The masters that have not answered and were not given up on.
    pub(crate) fn unheard(&self) -> MasterSet {
        self.masters(|vote| vote.is_none())
    }

    /// The masters that may hold the key or a place in a queue because of this round.
    pub(crate) fn may_keep(&self) -> MasterSet {
        self.may_hold() | self.masters(|vote| self.queues && matches!(vote, Some(Vote::Refuse(_))))
    }

    /// The masters that say that they hold nothing.
    pub(crate) fn missing_key(&self) -> MasterSet {
        self.masters(|vote| matches!(vote, Some(Vote::Refuse(Refusal::Gone))))
    }

    /// Notes that the key was put back on `master`.
    pub(crate) fn healed(&mut self, master: usize) {
        if let Some(Some(cast)) = self.cast.get_mut(master) {
            cast.vote = Vote::Grant;
        }
    }

    /// Whether a majority of masters say that the lock is not ours.
    pub(crate) fn is_disowned(&self) -> bool {
        self.majority_say(|vote| matches!(vote, Vote::Refuse(_)))
    }

    /// Whether a majority of masters hold the name as another kind of lock.
    pub(crate) fn is_other_kind(&self) -> bool {
        self.majority_say(|vote| matches!(vote, Vote::Refuse(Refusal::OtherKind)))
    }

    /// Whether a majority of masters have us in their queues, or granted.
    pub(crate) fn is_queued(&self) -> bool {
        let keeps_place = |vote: &Vote| {
            matches!(
                vote,
                Vote::Grant | Vote::Refuse(Refusal::Held(_) | Refusal::Queued { .. })
            )
        };
        self.queues && self.majority_say(keeps_place)
    }

    /// Whether a majority of masters say that one and the same owner holds the lock: nobody can have it before
    /// that gives it up. In a split vote there is no such owner.
    pub(crate) fn is_held_by_one(&self) -> bool {
        self.votes_cast()
            .filter_map(owner)
            .any(|one| self.majority_say(|vote| owner(vote) == Some(one)))
    }

    /// Whether any master says that we are the next one in its queue, or has granted us the lock.
    pub(crate) fn is_next(&self) -> bool {
        self.votes_cast().any(|vote| match vote {
            Vote::Grant => true,
            Vote::Refuse(Refusal::Held(report)) => report.position() == Some(1),
            Vote::Refuse(Refusal::Queued { position }) => *position == Some(1),
            _ => false,
        })
    }

    /// For how long still so many masters are quarantined that the others are no majority, if they are.
    pub(crate) fn quarantined(&self) -> Option<Duration> {
        let mut left: Vec<_> = self
            .votes_cast()
            .filter_map(|vote| match vote {
                Vote::Fail(Failure::Quarantined { remaining }) => Some(*remaining),
                _ => None,
            })
            .collect();
        left.sort_unstable();
        let others = self.cast.len() - left.len();
        let missing = majority(self.cast.len()).checked_sub(others)?;
        left.get(missing.checked_sub(1)?).copied()
    }

    /// A candidate above all counters, when a majority of masters are free to accept one, and did not all accept
    /// this.
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

    /// The clocks of the masters to which our ticket's time is off, when they are a majority: the middle one.
    pub(crate) fn skewed_to(&self) -> Option<Duration> {
        let mut clocks: Vec<_> = self
            .votes_cast()
            .filter_map(|vote| match vote {
                Vote::Refuse(Refusal::Skewed { clock }) => Some(*clock),
                _ => None,
            })
            .collect();
        clocks.sort_unstable();
        let middle = clocks.get(clocks.len() / 2).copied();
        middle.filter(|_| clocks.len() >= majority(self.cast.len()))
    }

    /// Whether one of these may show only when more masters have answered: masters that failed have decided the round
    /// before.
    pub(crate) fn may_need_another_ballot(&self) -> bool {
        let majority = majority(self.cast.len());
        let unheard = self.unheard().len();
        let is_skewed = |vote: &&Vote| matches!(vote, Vote::Refuse(Refusal::Skewed { .. }));
        let is_stale = |vote: &&Vote| matches!(vote, Vote::Refuse(Refusal::Stale { .. }));
        let skewed = self.votes_cast().filter(is_skewed).count();
        let stale = self.votes_cast().filter(is_stale).count();
        let granted = self
            .votes_cast()
            .filter(|vote| **vote == Vote::Grant)
            .count();
        let may_come =
            |some: usize, all: usize| some > 0 && all < majority && all + unheard >= majority;
        may_come(skewed, skewed) || may_come(stale, stale + granted)
    }

    /// Whether any master says that our ticket's time is off.
    pub(crate) fn is_skewed_to_any(&self) -> bool {
        self.votes_cast()
            .any(|vote| matches!(vote, Vote::Refuse(Refusal::Skewed { .. })))
    }

    /// Whether more masters failed than a majority can do without: nobody can get the lock.
    pub(crate) fn lacks_masters(&self) -> bool {
        self.cast.len() - usize::from(self.failed) < majority(self.cast.len())
    }

    /// Whether a majority of masters have answered before the limit, and not with an error.
    pub(crate) fn is_heard(&self) -> bool {
        self.have_most_said_in_time(|vote| !matches!(vote, Vote::Fail(_)))
    }

    /// Whether a majority of masters have answered before the limit, if only with an error.
    pub(crate) fn is_answered(&self) -> bool {
        self.have_most_said_in_time(|vote| match vote {
            Vote::Grant | Vote::Refuse(_) | Vote::Fail(Failure::Rejected(_)) => true,
            Vote::Fail(_) => false,
        })
    }

    fn have_most_said_in_time(&self, of: impl Fn(&Vote) -> bool) -> bool {
        let time = self
            .limit
            .map(|limit| limit.saturating_duration_since(self.start));
        let is_in_time = |cast: &&CastVote| time.is_none_or(|time| cast.latency() < time);
        let in_time = self.cast.iter().flatten().filter(is_in_time);
        let count = in_time.filter(|cast| of(&cast.vote)).count();
        count >= majority(self.cast.len())
    }

    /// When enough of those who hold the lock elsewhere will have let go of it for a majority to be
    /// free, as far as the masters have said: the k-th smallest remaining TTL.
    pub(crate) fn free_in(&self) -> Option<Duration> {
        let mut free = Tally::new(self.cast.len());
        let mut left: Vec<_> = self
            .votes_cast()
            .filter_map(|vote| match vote {
                Vote::Refuse(Refusal::Held(report)) => report.remaining(),
                Vote::Refuse(Refusal::OtherKind) => None,
                Vote::Grant
                | Vote::Refuse(
                    Refusal::Gone
                    | Refusal::Queued { .. }
                    | Refusal::Skewed { .. }
                    | Refusal::Stale { .. },
                ) => Some(Duration::ZERO),
                Vote::Fail(_) => None,
            })
            .collect();
        left.sort_unstable();
        left.into_iter().find(|_| free.count(true) == Verdict::Won)
    }

    fn masters(&self, of: impl Fn(Option<&Vote>) -> bool) -> MasterSet {
        self.cast
            .iter()
            .enumerate()
            .filter(|(_, cast)| of(cast.as_ref().map(|cast| &cast.vote)))
            .map(|(master, _)| master)
            .collect()
    }

    fn majority_say(&self, of: impl Fn(&Vote) -> bool) -> bool {
        self.votes_cast().filter(|vote| of(vote)).count() >= majority(self.cast.len())
    }

    fn votes_cast(&self) -> impl Iterator<Item = &Vote> {
        self.cast.iter().flatten().map(|cast| &cast.vote)
    }
}

/// Returns the owner that holds the lock, as one master says.
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
    use crate::core::held_report::HeldReport;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// `g` grants, `h` held by another, `0` gone, `f` timed out, `u` unreachable.
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
            // Vote number n comes in n milliseconds after the start, the first one at once.
            round.on_vote(master, vote(letter), start + millis(master as u64));
        }
        round.outcome()
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
            (Acquire, 3, "fh", Some(9), Lost), // lost before the last one has spoken
            (Acquire, 5, "gghf", Some(9), Pending),
            (Acquire, 5, "gghfg", Some(9), Won),
            (Extend, 3, "0g0", Some(9), Lost), // gone is no yes to an extension
            (Extend, 3, "0gg", Some(9), Won),
            (Release, 3, "0h", None, Won), // already gone, or somebody else's: released
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
            let said = round.votes()[0].as_ref().map(|cast| cast.vote.clone());
            assert_eq!(said, late.chars().next().map(vote), "{letters}");
            assert!(round.is_settled());
        }
    }

    #[test]
    fn where_the_key_may_be() {
        let start = Instant::now();
        let mut round = Round::open(Verb::Acquire, 5, start, None);
        for (master, letter) in "ghfu".chars().enumerate() {
            round.on_vote(master, vote(letter), start);
        }
        assert_eq!(round.may_hold(), [0, 2, 4].into_iter().collect());
    }

    fn by(owner: &str, place: u64) -> Vote {
        let position = (place > 0).then_some(place);
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
    fn a_split_vote_is_held_by_nobody() {
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
    fn next_where_one_master_says_so() {
        let queued = |position| Vote::Refuse(Refusal::Queued { position });
        for (votes, next) in [
            (vec![by("a", 2), by("a", 3)], false),
            (vec![by("a", 2), by("a", 1)], true),
            (vec![queued(None), queued(Some(2))], false),
            (vec![queued(Some(1))], true),
            (vec![Vote::Grant], true), // a minority that nobody else may have
        ] {
            assert_eq!(round_of(votes.clone()).is_next(), next, "{votes:?}");
        }
    }

    #[test]
    fn queued_when_a_majority_says_so() {
        let queued = Vote::Refuse(Refusal::Queued { position: Some(1) });
        let fail = vote('f');
        let mut round = round_of(vec![queued.clone(), fail.clone(), by("a", 1), fail.clone()]);
        round.queue();
        assert!(!round.is_queued());
        let mut round = round_of(vec![queued, by("a", 1), fail, Vote::Grant]);
        assert!(!round.is_queued(), "it did not ask for a place");
        round.queue();
        assert!(round.is_queued());
    }

    #[test]
    fn what_queues_keeps_a_place_where_it_is_refused() {
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
            assert_eq!(round.may_hold(), [0, 2, 4].into_iter().collect()); // what it may have been granted
        }
    }

    #[test]
    fn outbid_where_a_majority_is_free() {
        let stale = |counter| Vote::Refuse(Refusal::Stale { counter });
        let [granted, held, failed] = ['g', 'h', 'f'].map(vote);
        let skewed = Vote::Refuse(Refusal::Skewed { clock: millis(1) });
        let [granted, held, failed, skewed] = &[granted, held, failed, skewed];
        for (votes, candidate) in [
            (vec![stale(7), stale(9), stale(8)], Some(10)), // above all, whoever said so first
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
            (vec![granted.clone(); 3], None), // nobody has seen a later one
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
    fn what_is_worth_to_be_heard_out() {
        for (letters, is_worth) in [
            ("ffs", true),
            ("ffss", true),
            ("ffsg", true),
            ("ffsh", false), // no majority is free any more
            ("hhs", true),
            ("hhsf", false),
            ("sss", false), // enough is known
            ("ssg", false),
            ("ffgg", false), // nobody has seen a later one
            ("ffk", true),
            ("hhk", true),
            ("hhkh", false),
            ("kkk", false),
            ("ffh", false),
            ("", false),
        ] {
            let votes = letters.chars().map(|letter| match letter {
                's' => Vote::Refuse(Refusal::Stale { counter: 7 }),
                'k' => Vote::Refuse(Refusal::Skewed { clock: millis(1) }),
                letter => vote(letter),
            });
            let round = round_of(votes.collect());
            assert_eq!(round.may_need_another_ballot(), is_worth, "{letters}");
        }
    }

    #[test]
    fn skewed_to_the_middle_of_a_majority() {
        let skewed = |clock| {
            Vote::Refuse(Refusal::Skewed {
                clock: millis(clock),
            })
        };
        assert_eq!(round_of(vec![skewed(1), skewed(2)]).skewed_to(), None);
        let round = round_of(vec![skewed(9), vote('f'), skewed(1), skewed(2)]);
        assert_eq!(round.skewed_to(), Some(millis(2)));
    }

    #[test]
    fn lacking_masters_is_not_contention() {
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
    fn disowned_when_a_majority_says_so() {
        for (masters, letters, disowned) in [
            (3, "0", false),
            (3, "0h", true),
            (3, "0ff", false),  // ignorance is no knowledge
            (4, "g0gh", false), // half of them is in the way, and nobody else can have a majority
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
    fn free_when_the_last_of_a_majority_is() {
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
        fn an_acquisition_is_won_iff_a_majority_granted_in_time(
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
