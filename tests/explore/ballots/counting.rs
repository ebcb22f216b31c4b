//! Designs that are wrong. Each master numbers its grants, and the token is the largest of these
//! numbers. The search must find the flaws of these designs.

use super::model::{SAME, SMALLER};
use crate::{
    core::{
        vote::quorum::{Outcome, Quorum},
        vote::verb::Verb,
    },
    explore::{
        masters::{Cast, decided},
        search::{Model, is_caught},
    },
};

const MASTERS: usize = 3;

/// The way in which the numbers become one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Design {
    /// The largest number that a majority returns is the token.
    NoWriteBack,
    /// The largest number is the token, after it is written back to a majority.
    WriteBack,
    /// Like `WriteBack`, but the number is written only to masters that hold the lock for the
    /// writer.
    WriteBackWhereHeld,
    /// Like `WriteBackWhereHeld`, but the writer must also know that these masters granted the
    /// lock.
    WriteBackWhereKnown,
}

#[derive(Debug)]
struct Counting {
    design: Design,
    start: [u8; MASTERS],
    /// `true` if a lock vanishes only when its holder releases it.
    is_timely: bool,
    /// `true` if an acquisition may be executed more than once.
    has_copies: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    // In the order of time.
    Idle,
    Asking,
    Writing,
    Reported,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    phase: Phase,
    token: u8,
    above: u8,
    /// A bit for each master that has executed the acquisition and will not execute it again.
    asked: u8,
    /// The votes. 0 is no vote, 1 is a refusal, and any other vote is the number of the grant plus
    /// 2.
    votes: [u8; MASTERS],
    /// A bit for each master to which the token was written back.
    written: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    holders: [u8; MASTERS],
    counters: [u8; MASTERS],
    attempts: [Attempt; 2],
}

#[derive(Debug)]
#[expect(dead_code, reason = "to be printed")]
enum Step {
    Answered { attempt: usize, master: usize },
    Begin { attempt: usize },
    Unanswered { attempt: usize, master: usize },
    Vanish { master: usize },
    Written { attempt: usize, master: usize },
}

impl Counting {
    /// Takes the lock on a master if the lock is free. Returns the vote.
    fn put(&self, state: &mut State, attempt: usize, master: usize) -> u8 {
        let me = attempt as u8 + 1;
        if !self.has_copies {
            state.attempts[attempt].asked |= 1 << master;
        }
        if state.holders[master] == 0 {
            state.holders[master] = me;
            state.counters[master] += 1;
        }
        if state.holders[master] == me {
            state.counters[master] + 2
        } else {
            1
        }
    }

    fn steps_on(
        &self,
        state: &State,
        attempt: usize,
        master: usize,
        visit: &mut dyn FnMut(Step, State),
    ) {
        let now = state.attempts[attempt];
        if now.asked & 1 << master == 0 {
            let mut next = *state;
            let vote = self.put(&mut next, attempt, master);
            visit(Step::Unanswered { attempt, master }, next);
            if now.phase == Phase::Asking && now.votes[master] == 0 {
                next.attempts[attempt].votes[master] = vote;
                self.decide(&mut next.attempts[attempt]);
                visit(Step::Answered { attempt, master }, next);
            }
        }
        let is_known = now.votes[master] > 1;
        let is_held = state.holders[master] == attempt as u8 + 1;
        let may_write = match self.design {
            Design::NoWriteBack => false,
            Design::WriteBack => true,
            Design::WriteBackWhereHeld => is_held,
            Design::WriteBackWhereKnown => is_held && is_known,
        };
        if now.phase == Phase::Writing && may_write {
            let mut next = *state;
            next.counters[master] = now.token.max(next.counters[master]);
            next.attempts[attempt].written |= 1 << master;
            self.decide(&mut next.attempts[attempt]);
            visit(Step::Written { attempt, master }, next);
        }
    }

    /// Counts the votes as in production.
    fn decide(&self, attempt: &mut Attempt) {
        let grants = |grants: [bool; MASTERS]| {
            let granted = grants.iter().enumerate().filter(|(_, grants)| **grants);
            let votes = granted.map(|(master, _)| (master, Cast::Granted(0)));
            decided(Verb::Acquire, &Quorum::of(MASTERS), votes).outcome == Outcome::Won
        };
        if attempt.phase == Phase::Asking && grants(attempt.votes.map(|vote| vote > 1)) {
            attempt.token = attempt.votes.iter().max().unwrap() - 2;
            attempt.phase = Phase::Writing;
        }
        let written = std::array::from_fn(|master| attempt.written & 1 << master != 0);
        let is_decided = self.design == Design::NoWriteBack || grants(written);
        if attempt.phase == Phase::Writing && is_decided {
            attempt.phase = Phase::Reported;
        }
    }
}

impl Model for Counting {
    type State = State;
    type Step = Step;

    fn starts(&self) -> Vec<State> {
        let idle = Attempt {
            phase: Phase::Idle,
            token: 0,
            above: 0,
            asked: 0,
            votes: [0; MASTERS],
            written: 0,
        };
        vec![State {
            holders: [0; MASTERS],
            counters: self.start,
            attempts: [idle; 2],
        }]
    }

    fn steps(&self, state: &State, visit: &mut dyn FnMut(Step, State)) {
        for (attempt, now) in state.attempts.iter().enumerate() {
            if now.phase == Phase::Idle {
                let mut next = *state;
                let reported = state
                    .attempts
                    .iter()
                    .filter(|one| one.phase == Phase::Reported);
                next.attempts[attempt].above = reported.map(|one| one.token).max().unwrap_or(0);
                next.attempts[attempt].phase = Phase::Asking;
                visit(Step::Begin { attempt }, next);
                continue;
            }
            for master in 0..MASTERS {
                self.steps_on(state, attempt, master, visit);
            }
        }
        for (master, holder) in state.holders.into_iter().enumerate() {
            let Some(holder) = usize::from(holder).checked_sub(1) else {
                continue;
            };
            if !self.is_timely || state.attempts[holder].phase == Phase::Reported {
                let mut next = *state;
                next.holders[master] = 0;
                visit(Step::Vanish { master }, next);
            }
        }
    }

    fn flaw(&self, state: &State) -> Option<&'static str> {
        let [one, other] = &state.attempts;
        let reported = [one, other].map(|attempt| attempt.phase == Phase::Reported);
        if reported == [true; 2] && one.token == other.token {
            return Some(SAME);
        }
        let mut attempts = [one, other].into_iter().zip(reported);
        attempts
            .any(|(attempt, reported)| reported && attempt.token <= attempt.above)
            .then_some(SMALLER)
    }
}

#[test]
fn the_largest_number_of_a_majority_is_no_token() {
    let wrong = Counting {
        design: Design::NoWriteBack,
        start: [4, 0, 0],
        is_timely: true,
        has_copies: false,
    };
    is_caught(&wrong, SMALLER, 7);
}

/// The number is written back to masters whose votes another attempt has counted before.
#[test]
fn a_number_written_back_to_any_master_is_no_token() {
    let wrong = Counting {
        design: Design::WriteBack,
        start: [4, 0, 4],
        is_timely: true,
        has_copies: false,
    };
    is_caught(&wrong, SAME, 11);
}

/// The smaller number is written back to a master whose larger number was not counted.
#[test]
fn a_number_written_back_to_uncounted_masters_is_no_token() {
    let wrong = Counting {
        design: Design::WriteBackWhereHeld,
        start: [0, 3, 3],
        is_timely: false,
        has_copies: false,
    };
    is_caught(&wrong, SAME, 13);
}

/// The second grant has a larger number, and that number is never counted.
#[test]
fn a_number_written_back_after_a_second_grant_is_no_token() {
    let wrong = Counting {
        design: Design::WriteBackWhereKnown,
        start: [0, 3, 3],
        is_timely: false,
        has_copies: true,
    };
    is_caught(&wrong, SAME, 13);
}
