//! The outcome of one command that was sent to all masters.

use std::{iter, num::NonZeroU32, time::Duration};

use smallvec::SmallVec;

use super::{MasterSet, Outcome, Quorum, Refusal, Slot, Verb, Vote};
use crate::core::time::LeaseTick;

/// One command to all masters. Each master counts once, and the round is decided as early as
/// possible.
///
/// The methods in this file only count votes. Those in `evidence.rs` say what the votes mean for a
/// lock.
pub(crate) struct Round {
    verb: Verb,
    start: LeaseTick,
    /// A majority that is reached at this instant or later is too late.
    limit: Option<LeaseTick>,
    pub(super) quorum: Quorum,
    /// The votes, one for each master. Up to five votes need no allocation. This saves time,
    /// because every lock that is held has one or two rounds.
    cast: SmallVec<[Option<CastVote>; 5]>,
    unanswered: MasterSet,
    done: MasterSet,
    /// `true` if a vote granted a slot.
    has_slots: bool,
    outcome: Outcome,
    /// `true` if the masters that refuse the command put the caller into their queues. An agreed
    /// master that is asked first does not do so.
    pub(crate) queues: bool,
}

impl Round {
    pub(crate) fn open(
        verb: Verb,
        quorum: &Quorum,
        start: LeaseTick,
        limit: Option<LeaseTick>,
    ) -> Self {
        let unanswered = quorum.masters();
        Self {
            verb,
            start,
            limit,
            cast: unanswered.iter().map(|_| None).collect(),
            unanswered,
            done: MasterSet::NONE,
            has_slots: false,
            quorum: quorum.clone(),
            outcome: Outcome::Pending,
            queues: false,
        }
    }

    /// Counts the vote of `master`. `now` must have been read after the vote came in.
    ///
    /// Only the first vote of a master counts. After a failure, the master may still answer late.
    /// If the round was won, the late answer replaces the failure in the table of votes. Otherwise
    /// the failure stays in the table, because it explains why the round was not won.
    ///
    /// A late answer to an extension counts, and may still win the round before its limit: the
    /// caller holds the lock until then. What a round asks for that was not won is taken back, so
    /// other late answers do not count.
    #[inline]
    pub(crate) fn count_vote(
        &mut self,
        master: usize,
        vote: impl Into<CastVote>,
        now: LeaseTick,
    ) -> Outcome {
        let may_turn = self.may_turn(now);
        let Some(cast) = self.cast.get_mut(master) else {
            return self.outcome;
        };
        let counts_late = may_turn || self.outcome == Outcome::Won;
        let is_late_answer = |cast: &CastVote| counts_late && cast.vote().is_failure();
        if cast.as_ref().is_none_or(is_late_answer) {
            let vote = vote.into().after(now.micros_since(self.start));
            let is_done = self.verb.is_done(vote.vote());
            self.has_slots |= vote.slot.is_some();
            *cast = Some(vote);
            self.note(MasterSet::only(master), is_done);
        }
        if self.outcome == Outcome::Pending {
            self.outcome = match self.verdict() {
                Outcome::Won if self.is_over(now) => Outcome::TooLate,
                outcome => outcome,
            };
        } else if may_turn && self.verdict() == Outcome::Won {
            self.outcome = Outcome::Won;
        }
        self.outcome
    }

    /// Counts `masters` as done at `now`, because there is nothing to do on them.
    pub(crate) fn skip(&mut self, masters: MasterSet, now: LeaseTick) {
        for master in masters.iter() {
            self.count_vote(master, Vote::Refuse(Refusal::Gone), now);
        }
    }

    /// Ends this round without a majority, if it is pending. Later votes do not change the outcome.
    /// Returns whether it was pending.
    pub(crate) fn give_up(&mut self) -> bool {
        let is_pending = self.outcome == Outcome::Pending;
        if is_pending {
            self.outcome = Outcome::NoMajority;
        }
        is_pending
    }

    /// Notes how `master` answered the request to put the key back. From now on, the table of votes
    /// shows this answer. The outcome does not change.
    pub(crate) fn note_heal(&mut self, master: usize, vote: Vote) {
        let slot = if vote.is_grant() { self.slot() } else { None };
        if let Some(Some(cast)) = self.cast.get_mut(master) {
            let is_done = self.verb.is_done(&vote);
            *cast = CastVote::new(CastVote::of(vote, slot), cast.latency());
            self.note(MasterSet::only(master), is_done);
        }
    }

    #[inline]
    fn note(&mut self, master: MasterSet, is_done: bool) {
        self.unanswered = self.unanswered - master;
        self.done = match is_done {
            true => self.done | master,
            false => self.done - master,
        };
    }

    pub(crate) fn verb(&self) -> Verb {
        self.verb
    }

    pub(crate) fn start(&self) -> LeaseTick {
        self.start
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns whether every master has voted. A failure counts as a vote here.
    pub(crate) fn is_settled(&self) -> bool {
        self.unanswered.is_empty()
    }

    pub(crate) fn votes(&self) -> &[Option<CastVote>] {
        &self.cast
    }

    pub(crate) fn votes_cast(&self) -> impl Iterator<Item = &Vote> {
        self.cast.iter().flatten().map(CastVote::vote)
    }

    pub(crate) fn vote(&self, master: usize) -> Option<&Vote> {
        let cast = self.cast.get(master)?.as_ref();
        cast.map(CastVote::vote)
    }

    /// Returns the slot that this round has won. `None` if the lock has no slots, or if no slot has
    /// a majority.
    pub(crate) fn slot(&self) -> Option<Slot> {
        let is_won =
            |slot: &Option<Slot>| self.quorum.has_majority_of_every_set(self.done_for(*slot));
        self.slots().find(is_won).flatten()
    }

    pub(crate) fn first_slot(&self) -> Option<Slot> {
        self.slots().flatten().next()
    }

    /// Returns the masters that can store the slot that was won, but have not granted it.
    pub(crate) fn lack_slot(&self) -> MasterSet {
        self.masters(Vote::may_have_slot) - self.done_for(self.slot())
    }

    /// Returns whether a majority of every set has granted a slot, but no slot has such a majority.
    pub(crate) fn is_split_over_slots(&self) -> bool {
        self.outcome == Outcome::NoMajority && self.every_set_has(Vote::is_grant)
    }

    pub(crate) fn unanswered(&self) -> MasterSet {
        self.unanswered
    }

    pub(crate) fn masters(&self, matches: impl Fn(&Vote) -> bool) -> MasterSet {
        self.masters_where(|cast| matches(cast.vote()))
    }

    /// Returns whether a majority of every set has a vote that matches.
    pub(crate) fn every_set_has(&self, matches: impl Fn(&Vote) -> bool) -> bool {
        self.quorum.has_majority_of_every_set(self.masters(matches))
    }

    /// Returns whether a majority of at least one set has a vote that matches.
    pub(crate) fn any_set_has(&self, matches: impl Fn(&Vote) -> bool) -> bool {
        self.quorum.has_majority_of_any_set(self.masters(matches))
    }

    /// Returns whether a majority of every set has a vote that matches and that came before the
    /// limit.
    pub(crate) fn every_set_has_in_time(&self, matches: impl Fn(&Vote) -> bool) -> bool {
        let time = self.limit.map(|limit| limit.since(self.start));
        let is_in_time = |cast: &CastVote| time.is_none_or(|time| cast.latency() < time);
        let masters = self.masters_where(|cast| is_in_time(cast) && matches(cast.vote()));
        self.quorum.has_majority_of_every_set(masters)
    }

    /// Returns whether an answer at `now` may still win this round, which found no majority.
    fn may_turn(&self, now: LeaseTick) -> bool {
        self.verb == Verb::Extend && self.outcome == Outcome::NoMajority && !self.is_over(now)
    }

    /// Returns whether a majority that is reached at `now` is too late.
    fn is_over(&self, now: LeaseTick) -> bool {
        self.limit.is_some_and(|limit| limit <= now)
    }

    fn verdict(&self) -> Outcome {
        if !self.has_slots {
            return self.quorum.verdict(iter::once(self.done), self.unanswered);
        }
        let yes = self.slots().map(|slot| self.done_for(slot));
        self.quorum.verdict(yes, self.unanswered())
    }

    /// Returns the slots in the votes of the masters that did what was asked. A slot may come
    /// several times. `None` stands for a vote without a slot. If no vote has a slot, one `None`
    /// stands for all masters.
    fn slots(&self) -> impl Iterator<Item = Option<Slot>> + Clone {
        let done = self.done.iter();
        let done = done.take(if self.has_slots { usize::MAX } else { 1 });
        done.map(|master| self.cast[master].as_ref().and_then(|cast| cast.slot))
    }

    /// Returns the masters that did what was asked, and have `slot` in their votes.
    fn done_for(&self, slot: Option<Slot>) -> MasterSet {
        if self.has_slots {
            self.masters_where(|cast| cast.slot == slot).and(self.done)
        } else {
            self.done
        }
    }

    fn masters_where(&self, matches: impl Fn(&CastVote) -> bool) -> MasterSet {
        let cast = self.cast.iter().enumerate();
        let masters = cast.filter(|(_, cast)| cast.as_ref().is_some_and(&matches));
        masters.map(|(master, _)| master).collect()
    }
}

/// One vote, the slot that it grants, and the time from the start of the round until the vote was
/// counted. Before that, the time is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CastVote {
    /// The vote, or `None` for a grant. It is boxed to save memory: most votes on a held lock are
    /// grants.
    other: Option<Box<Vote>>,
    /// One more than the latency in microseconds, for latencies up to about an hour. This number is
    /// never 0, so `Option<CastVote>` is as small as `CastVote`.
    micros: NonZeroU32,
    /// The slot that is granted. `None` if the lock has no slots, or if nothing is granted.
    pub(crate) slot: Option<Slot>,
}

impl CastVote {
    pub(crate) fn of(vote: Vote, slot: Option<Slot>) -> Self {
        Self {
            other: (!vote.is_grant()).then(|| Box::new(vote)),
            micros: NonZeroU32::MIN,
            slot,
        }
    }

    pub(crate) fn new(vote: impl Into<Self>, latency: Duration) -> Self {
        let micros = u64::try_from(latency.as_micros());
        vote.into().after(micros.unwrap_or(u64::MAX))
    }

    /// Returns the same vote, counted `micros` microseconds after the start of its round.
    fn after(mut self, micros: u64) -> Self {
        let micros = u32::try_from(micros).unwrap_or(u32::MAX);
        self.micros = NonZeroU32::MIN.saturating_add(micros);
        self
    }

    pub(crate) fn vote(&self) -> &Vote {
        self.other.as_deref().unwrap_or(&Vote::Grant)
    }

    pub(crate) fn into_vote(self) -> Vote {
        self.other.map_or(Vote::Grant, |vote| *vote)
    }

    pub(crate) fn latency(&self) -> Duration {
        Duration::from_micros((self.micros.get() - 1).into())
    }
}

impl From<Vote> for CastVote {
    fn from(vote: Vote) -> Self {
        Self::of(vote, None)
    }
}

#[cfg(test)]
pub(crate) mod fixture {
    use testkit::times::millis;

    use super::*;
    use crate::core::vote::{Failure, Refusal};

    /// Returns the vote for a letter: `g` is granted, `h` is held by another, `0` is gone, `f` is
    /// timed out, `u` is unreachable, `a` and `b` are held by an owner of that name, `o` is held as
    /// another kind, `q` is free but others come first, `s` has seen a later candidate, `k` has
    /// another clock, `r` is in quarantine, `d` denies a command, and `n` denies a key.
    pub(crate) fn vote(letter: char) -> Vote {
        match letter {
            'g' => Vote::Grant,
            'h' => Vote::Refuse(Refusal::held(None)),
            '0' => Vote::Refuse(Refusal::Gone),
            'q' => Vote::Refuse(Refusal::Queued { position: None }),
            's' => Vote::Refuse(Refusal::Stale { counter: 7 }),
            'k' => Vote::Refuse(Refusal::Skewed { clock: millis(1) }),
            'a' | 'b' => Vote::Refuse(Refusal::held_by(&letter.to_string(), None, 1, None)),
            'r' => Vote::Fail(Failure::Quarantined {
                remaining: millis(9),
            }),
            'o' => Vote::Refuse(Refusal::OtherKind),
            'd' => Vote::Fail(Failure::ErrorReply("NOPERM x".into())),
            'n' => Vote::Fail(Failure::ErrorReply(
                "NOPERM No permissions to access a key".into(),
            )),
            'f' => Vote::Fail(Failure::timed_out(millis(50))),
            'u' => Vote::Fail(Failure::Unreachable("refused".into())),
            other => panic!("no vote is written {other:?}"),
        }
    }

    /// Returns a round with one letter for the vote of each master, from the first master on. A
    /// master without a vote is `-`.
    pub(crate) fn round(verb: Verb, quorum: &Quorum, letters: &str) -> Round {
        voted(verb, quorum, letters, vote)
    }

    /// Returns an acquisition with one letter for each master. `vote` says what a letter means.
    pub(crate) fn acquisition(letters: &str, vote: impl Fn(char) -> Vote) -> Round {
        voted(Verb::Acquire, &Quorum::of(letters.len()), letters, vote)
    }

    fn voted(verb: Verb, quorum: &Quorum, letters: &str, vote: impl Fn(char) -> Vote) -> Round {
        let mut round = Round::open(verb, quorum, LeaseTick::some(), None);
        for (master, letter) in letters
            .chars()
            .enumerate()
            .filter(|(_, letter)| *letter != '-')
        {
            round.count_vote(master, vote(letter), round.start());
        }
        round
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use testkit::times::millis;

    use super::{fixture::vote, *};
    use crate::core::vote::{Failure, Refusal};

    fn outcome(verb: Verb, masters: usize, letters: &str, limit: Option<u64>) -> Outcome {
        let start = LeaseTick::some();
        let mut round = Round::open(
            verb,
            &Quorum::of(masters),
            start,
            limit.map(|at| start + millis(at)),
        );
        for (master, letter) in letters.chars().enumerate() {
            // Vote number n comes n milliseconds after the start. The first vote has the number 0.
            round.count_vote(master, vote(letter), start + millis(master as u64));
        }
        round.outcome()
    }

    #[test]
    fn outcome_table() {
        use Outcome::{NoMajority, Pending, TooLate, Won};
        use Verb::{Acquire, Extend, Release};
        for (verb, masters, letters, limit, expected) in [
            (Acquire, 1, "g", None, Won),
            (Acquire, 3, "gg", Some(9), Won),
            (Acquire, 3, "gg", Some(1), TooLate), // a late majority is not a lock
            (Acquire, 3, "gg", Some(2), Won),
            (Acquire, 3, "hfg", Some(9), NoMajority),
            (Acquire, 3, "fh", Some(9), NoMajority), // decided before the last master has voted
            (Acquire, 5, "gghf", Some(9), Pending),
            (Acquire, 5, "gghfg", Some(9), Won),
            (Extend, 3, "0g0", Some(9), NoMajority), // a key that is gone is not extended
            (Extend, 3, "0gg", Some(9), Won),
            (Release, 3, "0h", None, Won), // gone or another's: counts as released
            (Release, 3, "fu", None, NoMajority),
            (Release, 3, "f0f", None, NoMajority),
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
        let mut round = fixture::round(Verb::Acquire, &Quorum::of(3), "");
        for master in [1, 1, 1, 7] {
            round.count_vote(master, Vote::Grant, round.start()); // there is no master 7
        }
        assert_eq!(round.outcome(), Outcome::Pending);
    }

    /// Returns the round in which the masters granted these slots, from the first master on.
    fn granted(quorum: &Quorum, slots: &[u16]) -> Round {
        let mut round = fixture::round(Verb::Acquire, quorum, "");
        for (master, slot) in slots.iter().enumerate() {
            let slot = Slot::new(*slot);
            let vote = Vote::Grant;
            round.count_vote(master, CastVote::of(vote, slot), round.start());
        }
        round
    }

    #[test]
    fn a_round_wins_the_slot_that_a_majority_granted() {
        let two = [[0, 1, 2], [3, 4, 5]].map(|set| set.into_iter().collect());
        let two = Quorum::of_sets(&two);
        for (quorum, slots, slot) in [
            (Quorum::of(3), &[2, 7, 7][..], Some(7)),
            (Quorum::of(5), &[3, 1, 3, 2, 3], Some(3)),
            (Quorum::of(3), &[0, 0, 0], None), // the lock has no slots
            (two, &[1, 2, 1, 2, 1, 1], Some(1)),
        ] {
            let round = granted(&quorum, slots);
            let slot = slot.and_then(Slot::new);
            assert_eq!(
                (round.outcome(), round.slot()),
                (Outcome::Won, slot),
                "{slots:?}"
            );
        }
    }

    #[test]
    fn a_master_that_was_healed_has_the_slot_that_was_won() {
        let mut round = granted(&Quorum::of(3), &[7, 7]);
        round.count_vote(2, vote('0'), round.start());
        round.note_heal(2, Vote::Grant);
        let slot = round.votes()[2].as_ref().and_then(|cast| cast.slot);
        assert_eq!(slot, Slot::new(7));
    }

    #[test]
    fn grants_of_different_slots_do_not_win() {
        let round = granted(&Quorum::of(3), &[1, 2, 3]);
        assert_eq!((round.outcome(), round.slot()), (Outcome::NoMajority, None));
    }

    #[test]
    fn a_round_is_split_over_slots_if_a_majority_of_every_set_granted_one() {
        let two = [[0, 1, 2], [3, 4, 5]].map(|set| set.into_iter().collect());
        let two = Quorum::of_sets(&two);
        for (quorum, slots, letters, expected) in [
            (Quorum::of(3), &[1, 2, 3][..], "", true),
            (Quorum::of(3), &[1, 2, 2], "", false),
            (Quorum::of(3), &[1], "hh", false),
            (Quorum::of(5), &[1, 2], "hhh", false),
            (two.clone(), &[1, 2, 3, 4, 5], "h", true),
            (two, &[1, 2, 3, 4], "hh", false),
        ] {
            let mut round = granted(&quorum, slots);
            for (master, letter) in letters.chars().enumerate() {
                round.count_vote(slots.len() + master, vote(letter), round.start());
            }
            assert_eq!(round.is_split_over_slots(), expected, "{slots:?} {letters}");
        }
    }

    #[test]
    fn a_round_that_was_given_up_stays_lost() {
        let mut round = fixture::round(Verb::Acquire, &Quorum::of(5), "ggh");
        round.give_up();
        for master in [3, 4] {
            let outcome = round.count_vote(master, Vote::Grant, round.start());
            assert_eq!(outcome, Outcome::NoMajority);
        }
    }

    /// Each master fails 5 ms after the start, and then answers, one master each millisecond.
    #[test]
    fn a_late_answer_may_win_an_extension_before_its_limit() {
        use Outcome::{NoMajority, Won};
        use Verb::{Acquire, Extend, Release};
        for (verb, first, late, limit, expected) in [
            (Extend, "fff", "gg", 90, &[NoMajority, Won][..]),
            (Extend, "fff", "ngg", 90, &[NoMajority, NoMajority, Won]),
            (Extend, "ff", "gg", 90, &[NoMajority, Won]), // the third master has not voted
            (Extend, "gff", "-g", 90, &[Won]),
            (Extend, "fff", "gg", 7, &[NoMajority, NoMajority]),
            (Extend, "hhf", "--g", 90, &[NoMajority]),
            (Extend, "fff", "nng", 90, &[NoMajority; 3]),
            (Acquire, "fff", "ggg", 90, &[NoMajority; 3]),
            (Release, "fff", "ggg", 90, &[NoMajority; 3]),
        ] {
            let start = LeaseTick::some();
            let mut round = Round::open(verb, &Quorum::of(3), start, Some(start + millis(limit)));
            let answer = |letter| match letter {
                'n' => Vote::Refuse(Refusal::Gone),
                letter => vote(letter),
            };
            for (master, letter) in first.chars().enumerate() {
                round.count_vote(master, answer(letter), start + millis(5));
            }
            let late = late
                .chars()
                .enumerate()
                .filter(|(_, letter)| *letter != '-');
            let outcomes: Vec<_> = late
                .map(|(master, letter)| {
                    let now = start + millis(6 + master as u64);
                    round.count_vote(master, answer(letter), now)
                })
                .collect();
            assert_eq!(outcomes, expected, "{verb:?} {first} {limit}");
        }
    }

    /// A round that was won too late stays lost.
    #[test]
    fn no_answer_wins_a_round_that_was_won_too_late() {
        let start = LeaseTick::some();
        let mut round = Round::open(Verb::Extend, &Quorum::of(3), start, Some(start + millis(5)));
        round.count_vote(0, Vote::Grant, start + millis(5));
        round.count_vote(1, Vote::Grant, start + millis(5));
        assert_eq!(round.count_vote(2, Vote::Grant, start), Outcome::TooLate);
    }

    #[test]
    fn a_late_answer_corrects_the_table_of_a_round_that_was_won() {
        let start = LeaseTick::some();
        for (letters, outcome, late) in [
            ("fgg", Outcome::Won, "g"),
            ("ffg", Outcome::NoMajority, "f"),
        ] {
            let mut round = Round::open(Verb::Acquire, &Quorum::of(3), start, None);
            for (master, letter) in letters.chars().enumerate() {
                round.count_vote(master, vote(letter), start);
            }
            assert_eq!(round.count_vote(0, Vote::Grant, start), outcome);
            let expected = late.chars().next().map(vote);
            assert_eq!(round.vote(0), expected.as_ref(), "{letters}");
            assert_eq!(round.vote(3), None);
            assert!(round.is_settled());
        }
    }

    #[test]
    fn a_master_that_was_healed_counts_as_granted() {
        let start = LeaseTick::some();
        let mut round = Round::open(Verb::Extend, &Quorum::of(4), start, None);
        for (master, letter) in "g0g".chars().enumerate() {
            round.count_vote(master, vote(letter), start + millis(7));
        }
        round.note_heal(1, Vote::Grant);
        round.note_heal(3, Vote::Grant); // has not voted
        round.note_heal(4, Vote::Grant); // no such master
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
    fn a_cast_vote_is_small_and_keeps_all_that_it_is_made_of() {
        assert_eq!(size_of::<Option<CastVote>>(), 16);
        for (vote, slot) in [
            (Vote::Grant, 0),
            (Vote::Grant, 1),
            (Vote::Grant, u16::MAX),
            (Vote::Refuse(Refusal::Gone), 0),
            (Vote::Fail(Failure::Closed), 0),
        ] {
            let slot = Slot::new(slot);
            for micros in [0, 1_000_000, u32::MAX - 1] {
                let latency = Duration::from_micros(micros.into());
                let (expected, vote) = ((&vote, slot, latency), vote.clone());
                let cast = CastVote::new(CastVote::of(vote, slot), latency);
                assert_eq!((cast.vote(), cast.slot, cast.latency()), expected);
            }
        }
        let longest = CastVote::new(Vote::Grant, Duration::MAX).latency();
        assert_eq!(longest.as_secs() / 60, 71);
    }

    #[test]
    fn a_majority_answers_in_time_or_replies_in_time() {
        let rejected = Vote::Fail(Failure::ErrorReply("OOM".into()));
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
            let start = LeaseTick::some();
            let limit = limit.map(|at| start + millis(at));
            let mut round = Round::open(Verb::Acquire, &Quorum::of(5), start, limit);
            for (master, letter) in letters.chars().enumerate() {
                let vote = match letter {
                    'r' => rejected.clone(),
                    letter => vote(letter),
                };
                round.count_vote(master, vote, start + millis(master as u64));
            }
            let found = (
                round.every_set_has_in_time(Vote::is_answer),
                round.every_set_has_in_time(Vote::is_reply),
            );
            assert_eq!(found, (answered, replied), "{letters} {limit:?}");
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
                None => Outcome::NoMajority,
            };
            prop_assert_eq!(outcome(Verb::Acquire, letters.len(), &text, Some(limit)), expected);
        }
    }
}
