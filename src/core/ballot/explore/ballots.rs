//! The design that is in use.
//!
//! A command that was sent may be executed at any later time, any number of times, or never. So
//! delays, losses, copies and reordering need no steps of their own. An answer is counted at once
//! or never. A late count would only delay the next commands of the attempt, and any command may be
//! late already.
//!
//! A lock may vanish at any time, because it expires, a clock jumps, or its holder stands still.
//! This has no effect until the master executes the next command. So a lock vanishes in the model
//! only at that moment, or not at all.

use std::{array::from_fn, cell::RefCell, ops::Range, time::Duration};

use super::*;
use crate::core::{
    ballot::{BallotReply, ballot_reply},
    vote::verb::Verb,
    vote::{
        Failure, Refusal, Vote,
        master_set::MasterSet,
        quorum::{Outcome, Quorum},
        round::Round,
    },
};

/// The way in which a rule is broken, to test that the search finds the flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A counter that an accepted candidate has raised may vanish.
    AcceptedFades,
    /// A candidate may win although another attempt has won with the same candidate.
    EqualWins,
    /// Grants for the first candidate also count for the second one.
    KeepsGrants,
    /// A candidate may be any distance below the masters' clocks.
    NoLowerClamp,
    /// A master that lost its data votes again at once.
    NoQuarantine,
    /// A candidate may be any distance above the masters' clocks.
    NoUpperClamp,
    /// No rule is broken.
    Not,
}

/// The model of the design, and the choice of the states to search.
pub(super) struct Ballots<const A: usize, const M: usize = MASTERS> {
    broken: Broken,
    /// `true` if all attempts belong to one owner of a reentrant or a fair lock. A later attempt
    /// then takes over the lock of an earlier one.
    is_one_owner: bool,
    /// The number of candidates that an attempt may try.
    rounds: u8,
    /// The masters that each attempt asks.
    voters: [Voters; A],
    /// The attempts may differ in the masters that they ask.
    has_sets: bool,
    /// The sets that have each master: a bit for each set of each attempt.
    classes: [u8; M],
    starts: Vec<[u8; M]>,
    time: Option<Time>,
    /// The least time from the end of the first attempt to the second one. No master loses its
    /// data then.
    pause: Option<u8>,
    /// A number above all candidates and counters that occur.
    top: u8,
    bits: usize,
    /// The candidates of a search without clocks, below, equal to and above the highest counter.
    /// Several attempts may have the same candidate.
    candidates: Vec<u8>,
    /// What each attempt does after these votes.
    decisions: [RefCell<Vec<Option<Decision>>>; A],
}

/// The settings of a search with clocks. In such a search, one master may lose its data once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    pub(super) tick: u8,
    pub(super) end: u8,
    pub(super) window: u8,
    /// The time for which a master that lost its data does not vote.
    pub(super) quarantine: u8,
    /// The differences between the candidates and the clock.
    pub(super) off: &'static [i8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Master {
    /// The number of the attempt that holds the lock, starting at 1. 0 if the lock is free.
    holder: u8,
    counter: u8,
    /// Set if there was no counter before releases raised it. It then vanishes after a while.
    fades: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    // In the order of time.
    Idle,
    Asking,
    Failed,
    Reported,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt<const M: usize> {
    phase: Phase,
    /// The candidates that the attempt has tried. 0 means none.
    candidates: [u8; 2],
    /// The largest token that was reported before the attempt began.
    above: u8,
    /// The answers to the newest round, as the numbers from `UNANSWERED` to `STALE`.
    votes: [u8; M],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State<const A: usize, const M: usize> {
    masters: [Master; M],
    attempts: [Attempt<M>; A],
    clock: u8,
    /// The number of the master that lost its data, starting at 1, and the clock at that time. 0 if
    /// no master has lost its data.
    lost: (u8, u8),
    /// The clock at the end of the first attempt, if the second one has to wait for it.
    ended: u8,
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "to be printed")]
pub(super) enum Step {
    /// A master gets a candidate, and its answer counts.
    Answered(Put),
    Begin {
        attempt: usize,
        candidate: u8,
    },
    Drop {
        attempt: usize,
    },
    Fade {
        master: usize,
    },
    Heal(Put),
    Lose {
        master: usize,
    },
    Release {
        attempt: usize,
        master: usize,
    },
    Tick,
    /// The client gives up on the masters that have not answered.
    TimeOut {
        attempt: usize,
    },
    /// A master gets a candidate, and its answer does not count.
    Unanswered(Put),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    attempt: usize,
    candidate: u8,
    master: usize,
    /// `true` if the lock that was held on the master vanishes before this step.
    vanished: bool,
    heals: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Fail,
    /// Tries this candidate next.
    Raise(u8),
    Report,
    /// Tries a candidate next that is derived from the masters' clocks.
    Resync,
    Wait,
}

const UNANSWERED: u8 = 0;
const GRANTED: u8 = 1;
const HELD: u8 = 2;
const SKEWED: u8 = 3;
const FAILED: u8 = 4;
/// The vote for a stale candidate is this number plus the master's counter.
const STALE: u8 = 5;

impl<const A: usize, const M: usize> Ballots<A, M> {
    pub(super) fn new(starts: &[[u8; M]], time: Option<Time>) -> Self {
        let highest = starts.iter().flatten().max().unwrap();
        let top = match time {
            // The first candidate is at most one above the highest counter, and each attempt may
            // add one. `top` is one above that.
            None => highest.max(&1) + 2 + A as u8,
            Some(time) => {
                let off = time.off.iter().max().unwrap();
                time.end * time.tick + off.unsigned_abs() + 1 + A as u8
            }
        };
        Self {
            broken: Broken::Not,
            is_one_owner: false,
            rounds: 2,
            voters: from_fn(|_| Voters::of(&[0..M])),
            has_sets: false,
            classes: [0; M],
            starts: starts.to_vec(),
            time,
            pause: None,
            top,
            bits: (top + STALE).next_power_of_two().ilog2() as usize,
            candidates: match highest {
                0 | 1 => vec![1, 2],
                _ => vec![1, *highest, highest + 1],
            },
            decisions: from_fn(|_| {
                RefCell::new(vec![None; usize::from(top + STALE).pow(M as u32)])
            }),
        }
    }

    pub(super) fn broken(broken: Broken, starts: &[[u8; M]], time: Option<Time>) -> Self {
        Self {
            broken,
            ..Self::new(starts, time)
        }
    }

    /// Lets each attempt ask its own sets of masters.
    pub(super) fn ask(self, sets: [&[Range<usize>]; A]) -> Self {
        let all = || sets.iter().copied().flatten();
        Self {
            classes: from_fn(|at| all().fold(0, |of, set| of << 1 | u8::from(set.contains(&at)))),
            has_sets: true,
            voters: sets.map(Voters::of),
            ..self
        }
    }

    /// Lets the second attempt begin this time after the end of the first one.
    pub(super) fn pause(self, pause: u8) -> Self {
        Self {
            pause: Some(pause),
            ..self
        }
    }

    /// Returns whether enough time has passed since the end of the first attempt.
    fn has_paused(&self, state: &State<A, M>) -> bool {
        let (Some(pause), Some(time)) = (self.pause, self.time) else {
            return true;
        };
        state.ended > 0 && (state.clock - state.ended) * time.tick >= pause
    }

    /// Notes the clock at the end of the first attempt.
    fn note_end(&self, mut state: State<A, M>) -> State<A, M> {
        let is_over = state.attempts[0].phase >= Phase::Failed;
        if self.pause.is_some() && is_over && state.ended == 0 {
            state.ended = state.clock;
        }
        state
    }

    /// Lets each attempt try only one candidate.
    pub(super) fn once(self) -> Self {
        Self { rounds: 1, ..self }
    }

    fn candidates(&self, state: &State<A, M>) -> Vec<u8> {
        let Some(time) = self.time else {
            return self.candidates.clone();
        };
        let now = state.clock * time.tick;
        let off = time.off.iter();
        off.filter_map(|off| now.checked_add_signed(*off))
            .filter(|candidate| *candidate > 0)
            .collect()
    }

    /// Gives a candidate to a master, which does the same as the scripts. Returns the master's
    /// answer.
    fn put(&self, state: &mut State<A, M>, put: Put) -> u8 {
        let Put {
            attempt,
            candidate,
            master,
            vanished,
            heals,
        } = put;
        assert!(candidate < self.top);
        let votes = self.time.is_none_or(|time| {
            state.lost.0 != master as u8 + 1
                || self.broken == Broken::NoQuarantine
                || (state.clock - state.lost.1) * time.tick >= time.quarantine
        });
        if !votes {
            return FAILED;
        }
        let me = attempt as u8 + 1;
        let Master {
            holder,
            counter,
            fades,
        } = state.masters[master];
        let is_mine = holder == me && !vanished;
        let is_free = holder == 0 || vanished || (self.is_one_owner && holder < me);
        if !is_free && !is_mine {
            return HELD;
        }
        match self.rule(candidate, counter, is_mine, state.clock, heals) {
            BallotReply::Accepted => {
                let is_new = counter == 0 && self.broken == Broken::AcceptedFades;
                state.masters[master] = Master {
                    holder: me,
                    counter: counter.max(candidate),
                    fades: is_new || fades && candidate <= counter,
                };
                GRANTED
            }
            BallotReply::Stale => STALE + counter,
            BallotReply::Skewed => SKEWED,
        }
    }

    fn rule(
        &self,
        candidate: u8,
        counter: u8,
        is_mine: bool,
        clock: u8,
        heals: bool,
    ) -> BallotReply {
        let (clock, window) = match self.time {
            _ if heals => (0, 0),
            None => (0, u64::MAX),
            Some(time) => (u64::from(clock * time.tick), u64::from(time.window)),
        };
        let (candidate, counter) = (u64::from(candidate), u64::from(counter));
        match (
            self.broken,
            ballot_reply(candidate, counter, is_mine, clock, window),
        ) {
            (Broken::EqualWins, BallotReply::Stale) if candidate == counter => {
                BallotReply::Accepted
            }
            (Broken::NoUpperClamp, BallotReply::Skewed) if candidate > clock => {
                BallotReply::Accepted
            }
            (Broken::NoLowerClamp, BallotReply::Skewed) if candidate < clock => {
                BallotReply::Accepted
            }
            (_, reply) => reply,
        }
    }

    /// Returns what the client does after these votes.
    fn decision(&self, attempt: usize, votes: [u8; M]) -> Decision {
        let radix = usize::from(self.top + STALE);
        let at = votes
            .iter()
            .fold(0, |at, vote| at * radix + usize::from(*vote));
        let known = self.decisions[attempt].borrow()[at];
        known.unwrap_or_else(|| {
            let decision = self.voters[attempt].decided(votes);
            self.decisions[attempt].borrow_mut()[at] = Some(decision);
            decision
        })
    }

    /// Continues an attempt with the decision that follows from its votes.
    fn decide(&self, mut state: State<A, M>, attempt: usize, visit: &mut dyn FnMut(State<A, M>)) {
        let Attempt {
            candidates, votes, ..
        } = state.attempts[attempt];
        let decision = self.decision(attempt, votes);
        if decision == Decision::Wait {
            return visit(state);
        }
        let again = match decision {
            Decision::Raise(candidate) => vec![candidate],
            Decision::Resync => self.candidates(&state),
            Decision::Fail | Decision::Report | Decision::Wait => vec![],
        };
        if !again.is_empty() && candidates[1] == 0 && self.rounds > 1 {
            for candidate in again {
                let mut state = state;
                let asks = &mut state.attempts[attempt];
                asks.candidates[1] = candidate;
                asks.votes = votes.map(|vote| match (self.broken, vote) {
                    (Broken::KeepsGrants, GRANTED) => GRANTED,
                    _ => UNANSWERED,
                });
                visit(state);
            }
            return;
        }
        let ends = &mut state.attempts[attempt];
        ends.votes = [UNANSWERED; M];
        ends.phase = match decision {
            Decision::Report => Phase::Reported,
            _ => Phase::Failed,
        };
        visit(state);
    }

    fn steps_of(
        &self,
        state: &State<A, M>,
        attempt: usize,
        visit: &mut dyn FnMut(Step, State<A, M>),
    ) {
        let now = state.attempts[attempt];
        if now.phase == Phase::Idle {
            let is_next = state.attempts[..attempt]
                .iter()
                .all(|before| before.phase != Phase::Idle)
                && (attempt == 0 || self.has_paused(state));
            let reported = state.attempts.iter().filter_map(Attempt::token).max();
            for candidate in self.candidates(state).into_iter().filter(|_| is_next) {
                let mut next = *state;
                next.attempts[attempt] = Attempt {
                    phase: Phase::Asking,
                    candidates: [candidate, 0],
                    above: reported.unwrap_or(0),
                    votes: [UNANSWERED; M],
                };
                visit(Step::Begin { attempt, candidate }, next);
            }
            return;
        }
        for master in self.voters[attempt].masters.iter() {
            self.steps_on(state, attempt, master, visit);
        }
        if now.phase == Phase::Asking {
            let mut next = *state;
            for vote in &mut next.attempts[attempt].votes {
                *vote = if *vote == UNANSWERED { FAILED } else { *vote };
            }
            self.decide(next, attempt, &mut |next| {
                visit(Step::TimeOut { attempt }, next);
            });
            let mut next = *state;
            next.attempts[attempt].phase = Phase::Failed;
            next.attempts[attempt].votes = [UNANSWERED; M];
            visit(Step::Drop { attempt }, next);
        }
    }

    fn steps_on(
        &self,
        state: &State<A, M>,
        attempt: usize,
        master: usize,
        visit: &mut dyn FnMut(Step, State<A, M>),
    ) {
        let now = state.attempts[attempt];
        let before = state.masters[master];
        let me = attempt as u8 + 1;
        for candidate in now
            .candidates
            .into_iter()
            .filter(|candidate| *candidate != 0)
        {
            for vanished in [false, true] {
                // A lock vanishes only where that makes a difference.
                if vanished
                    && (before.holder == 0 || before.holder == me && candidate != before.counter)
                {
                    continue;
                }
                let put = Put {
                    attempt,
                    candidate,
                    master,
                    vanished,
                    heals: false,
                };
                let mut next = *state;
                let vote = self.put(&mut next, put);
                if next.masters[master] != before {
                    visit(Step::Unanswered(put), next);
                }
                let is_awaited = now.phase == Phase::Asking && now.votes[master] == UNANSWERED;
                if is_awaited && candidate == now.candidate() {
                    next.attempts[attempt].votes[master] = vote;
                    self.decide(next, attempt, &mut |next| visit(Step::Answered(put), next));
                }
            }
        }
        if now.phase == Phase::Reported {
            let mut next = *state;
            let put = Put {
                attempt,
                candidate: now.candidate(),
                master,
                vanished: true,
                heals: true,
            };
            self.put(&mut next, put);
            if next.masters[master] != before {
                visit(Step::Heal(put), next);
            }
        }
        // A release only raises the counter here. The key may vanish at any time anyway.
        if now.phase >= Phase::Failed && before.counter < now.candidate() {
            let mut next = *state;
            next.masters[master].counter = now.candidate();
            next.masters[master].fades |= before.counter == 0;
            visit(Step::Release { attempt, master }, next);
        }
    }
}

fn unheld(counter: u8) -> Master {
    Master {
        holder: 0,
        counter,
        fades: false,
    }
}

/// The masters that an attempt asks.
struct Voters {
    masters: MasterSet,
    /// The quorum, in which the first of the masters is 0.
    quorum: Quorum,
}

impl Voters {
    /// Returns the masters of one or more sets, without gaps between them.
    fn of(sets: &[Range<usize>]) -> Self {
        let masters: MasterSet = sets.iter().cloned().flatten().collect();
        let first = masters.iter().next().unwrap();
        let sets = sets.iter().cloned();
        let sets = sets.map(|set| set.map(|master| master - first).collect());
        Self {
            masters,
            quorum: Quorum::of_sets(&sets.collect::<Vec<_>>()),
        }
    }

    fn decided<const M: usize>(&self, votes: [u8; M]) -> Decision {
        let start = std::time::Instant::now();
        let limit = Some(start + Duration::from_secs(1));
        let mut round = Round::open(Verb::Acquire, &self.quorum, start, limit);
        for (at, master) in self.masters.iter().enumerate() {
            if let Some(vote) = vote(votes[master]) {
                round.on_vote(at, vote, start);
            }
        }
        match (round.outcome(), round.next_candidate(), round.skewed_to()) {
            (Outcome::Won, ..) => Decision::Report,
            (Outcome::Pending, ..) => Decision::Wait,
            (Outcome::Lost, Some(candidate), _) => Decision::Raise(candidate.try_into().unwrap()),
            (Outcome::Lost, None, Some(_)) => Decision::Resync,
            (Outcome::Lost, None, None) => Decision::Fail,
            (Outcome::TooLate, ..) => unreachable!("all votes come in time"),
        }
    }
}

/// Returns the vote with this number.
fn vote(number: u8) -> Option<Vote> {
    Some(match number {
        UNANSWERED => return None,
        GRANTED => Vote::Grant,
        HELD => Vote::Refuse(Refusal::held(None)),
        SKEWED => Vote::Refuse(Refusal::Skewed {
            clock: Duration::ZERO,
        }),
        FAILED => Vote::Fail(Failure::timed_out(Duration::ZERO)),
        stale => Vote::Refuse(Refusal::Stale {
            counter: (stale - STALE).into(),
        }),
    })
}

impl<const M: usize> Attempt<M> {
    const IDLE: Self = Self {
        phase: Phase::Idle,
        candidates: [0; 2],
        above: 0,
        votes: [UNANSWERED; M],
    };

    /// Returns the newest candidate.
    fn candidate(&self) -> u8 {
        match self.candidates {
            [first, 0] => first,
            [_, second] => second,
        }
    }

    fn token(&self) -> Option<u8> {
        (self.phase == Phase::Reported).then(|| self.candidate())
    }
}

impl<const A: usize, const M: usize> Model for Ballots<A, M> {
    type State = State<A, M>;
    type Step = Step;

    fn starts(&self) -> Vec<State<A, M>> {
        let masters = self.starts.iter().map(|counters| counters.map(unheld));
        masters
            .map(|masters| State {
                masters,
                attempts: [Attempt::IDLE; A],
                clock: u8::from(self.time.is_some()),
                lost: (0, 0),
                ended: 0,
            })
            .collect()
    }

    fn steps(&self, state: &State<A, M>, visit: &mut dyn FnMut(Step, State<A, M>)) {
        for attempt in 0..A {
            self.steps_of(state, attempt, &mut |step, next| {
                visit(step, self.note_end(next));
            });
        }
        for master in (0..M).filter(|master| state.masters[*master].fades) {
            let mut next = *state;
            (next.masters[master].counter, next.masters[master].fades) = (0, false);
            visit(Step::Fade { master }, next);
        }
        let Some(time) = self.time else {
            return;
        };
        if state.clock < time.end {
            let clock = state.clock + 1;
            visit(Step::Tick, State { clock, ..*state });
        }
        for master in (0..M).filter(|_| state.lost.0 == 0 && self.pause.is_none()) {
            let mut next = *state;
            next.masters[master] = unheld(0);
            next.lost = (master as u8 + 1, state.clock);
            visit(Step::Lose { master }, next);
        }
    }

    fn flaw(&self, state: &State<A, M>) -> Option<&'static str> {
        for (number, attempt) in state.attempts.iter().enumerate() {
            let Some(token) = attempt.token() else {
                continue;
            };
            if token <= attempt.above {
                return Some(SMALLER);
            }
            let others = &state.attempts[number + 1..];
            if others.iter().any(|other| other.token() == Some(token)) {
                return Some(SAME);
            }
        }
        None
    }

    fn key(&self, state: &State<A, M>) -> u128 {
        let bits = self.bits;
        let attempts = &state.attempts;
        let rank = attempts.map(|attempt| {
            let Attempt {
                phase,
                candidates,
                above,
                ..
            } = attempt;
            let numbers = [candidates[0], candidates[1], above];
            let digits = numbers.iter();
            digits.fold(phase as u64, |rank, number| {
                rank << bits | u64::from(*number)
            })
        });
        let mut order: [usize; A] = from_fn(|at| at);
        if !self.is_one_owner && !self.has_sets {
            order.sort_unstable_by_key(|attempt| rank[*attempt]);
        }
        let mut names = [0; 4];
        for (name, attempt) in (1..).zip(order) {
            names[attempt + 1] = name;
        }
        let mut columns = [(0, 0); M];
        for (at, master) in state.masters.into_iter().enumerate() {
            let holder = names[usize::from(master.holder)] << 1 | u64::from(master.fades);
            let is_lost = usize::from(state.lost.0) == at + 1;
            let mut column = (u64::from(is_lost) << 3 | holder) << bits | u64::from(master.counter);
            for attempt in order {
                column = column << bits | u64::from(attempts[attempt].votes[at]);
            }
            columns[at] = (self.classes[at], column);
        }
        columns.sort_unstable();
        let clocks =
            u64::from(state.clock) << 8 | u64::from(state.lost.1) << 4 | u64::from(state.ended);
        let mut key = u128::from(clocks);
        for (_, column) in columns {
            key = key << (4 + bits * (1 + A)) | u128::from(column);
        }
        for attempt in order {
            key = key << (2 + bits * 3) | u128::from(rank[attempt]);
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters that failed attempts may leave.
    const STARTS: [[u8; MASTERS]; 3] = [[0, 0, 0], [0, 0, 4], [0, 4, 4]];

    #[test]
    fn two_attempts_have_different_tokens() {
        assert_eq!(count(&Ballots::<2>::new(&STARTS, None)), 128_888);
    }

    #[test]
    fn two_attempts_of_one_owner_have_different_tokens() {
        let attempts = Ballots::<2> {
            is_one_owner: true,
            ..Ballots::new(&STARTS, None)
        };
        assert_eq!(count(&attempts), 178_139);
    }

    /// Takes 12 seconds with `--release`, and some minutes without.
    #[test]
    #[ignore = "takes long"]
    fn three_attempts_have_different_tokens() {
        assert_eq!(count(&Ballots::<3>::new(&STARTS[..1], None)), 8_027_956);
    }

    #[test]
    fn a_candidate_must_not_win_twice() {
        let wrong = Ballots::<2>::broken(Broken::EqualWins, &STARTS, None);
        is_caught(&wrong, SAME, 6);
    }

    #[test]
    fn a_counter_that_a_candidate_raised_must_not_fade() {
        let wrong = Ballots::<2>::broken(Broken::AcceptedFades, &STARTS, None);
        is_caught(&wrong, SAME, 7);
    }

    #[test]
    fn grants_for_an_earlier_candidate_must_not_count() {
        let wrong = Ballots::<2>::broken(Broken::KeepsGrants, &STARTS, None);
        is_caught(&wrong, SAME, 8);
    }
}
