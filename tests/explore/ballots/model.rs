//! The model: its states, and the guarantees.

use std::{cell::RefCell, collections::HashMap, ops::Range};

use super::{Broken, steps::Step};
use crate::{
    core::{
        kind::LockKind,
        vote::{MasterSet, quorum::Quorum},
    },
    explore::{
        masters::{Cast, Decision, Keys, Masters},
        search::Model,
    },
};

/// The choice of the states to search: `A` attempts at a lock on `M` masters.
pub(super) struct Ballots<const A: usize, const M: usize = 3> {
    pub(super) masters: Masters,
    pub(super) broken: Broken,
    /// `true` if all attempts belong to one owner of a reentrant lock. A later attempt then takes
    /// over the lock of an earlier one.
    pub(super) is_one_owner: bool,
    /// The number of candidates that an attempt may try.
    pub(super) rounds: u8,
    /// The masters that each attempt asks.
    pub(super) voters: [Voters; A],
    /// The sets that have each master: a bit for each set of each attempt.
    pub(super) classes: [u8; M],
    /// The counters on the masters.
    pub(super) starts: Vec<[u32; M]>,
    pub(super) time: Option<Time>,
    /// The least time from the end of the first attempt to the second one. No master loses its
    /// data then.
    pub(super) pause: Option<u32>,
    /// The candidates of a search without clocks, below, equal to and above the highest counter.
    /// Several attempts may have the same candidate.
    pub(super) candidates: Vec<u32>,
    pub(super) decisions: RefCell<HashMap<(usize, [Cast; M]), Decision>>,
}

/// The settings of a search with clocks, in microseconds. In such a search, one master may lose its
/// data once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    pub(super) tick: u32,
    /// The number of ticks.
    pub(super) end: u8,
    /// The time for which a master that lost its data does not vote.
    pub(super) quarantine: u32,
    /// The differences between the candidates and the clock.
    pub(super) off: &'static [i32],
}

/// The masters that an attempt asks.
pub(super) struct Voters {
    pub(super) masters: MasterSet,
    /// The quorum, in which the first of the masters is 0.
    pub(super) quorum: Quorum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State<const A: usize, const M: usize> {
    pub(super) masters: [Master<A>; M],
    pub(super) attempts: [Attempt; A],
    /// The number of ticks. 0 if there are no clocks.
    pub(super) clock: u8,
    /// The clock at the end of the first attempt, if the second one has to wait for it.
    pub(super) ended: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Master<const A: usize> {
    pub(super) keys: Keys,
    /// The clock when the master lost its data. 0 if it has not.
    pub(super) lost: u8,
    /// The answers to the newest round of each attempt.
    pub(super) votes: [Cast; A],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) phase: Phase,
    /// The candidates that the attempt has tried. 0 means none.
    pub(super) candidates: [u32; 2],
    /// The largest token that was reported before the attempt began.
    pub(super) above: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Phase {
    // In the order of time.
    #[default]
    Idle,
    Asking,
    Failed,
    Reported,
}

pub(super) const SAME: &str = "two have the same token";
pub(super) const SMALLER: &str = "a token is not larger than one that was reported before";

impl<const A: usize, const M: usize> Ballots<A, M> {
    pub(super) fn new(starts: &[[u32; M]], time: Option<Time>) -> Self {
        let highest = starts.iter().flatten().max().unwrap();
        Self {
            masters: Masters::new(LockKind::Mutex),
            broken: Broken::Not,
            is_one_owner: false,
            rounds: 2,
            voters: std::array::from_fn(|_| Voters::of(&[0..M])),
            classes: [0; M],
            starts: starts.to_vec(),
            time,
            pause: None,
            candidates: match highest {
                0 | 1 => vec![1, 2],
                _ => vec![1, *highest, highest + 1],
            },
            decisions: RefCell::default(),
        }
    }

    /// Lets each attempt ask its own sets of masters.
    pub(super) fn ask(self, sets: [&[Range<usize>]; A]) -> Self {
        let all = || sets.iter().copied().flatten();
        let class = |at| all().fold(0, |of, set| of << 1 | u8::from(set.contains(&at)));
        Self {
            classes: std::array::from_fn(class),
            voters: sets.map(Voters::of),
            ..self
        }
    }

    pub(super) fn candidates(&self, state: &State<A, M>) -> Vec<u32> {
        let Some(time) = self.time else {
            return self.candidates.clone();
        };
        let now = self.micros(state);
        let off = time.off.iter();
        off.filter_map(|off| now.checked_add_signed(*off))
            .filter(|candidate| *candidate > 0)
            .collect()
    }

    /// Returns the time of all masters, in microseconds from the start.
    pub(super) fn micros(&self, state: &State<A, M>) -> u32 {
        self.time
            .map_or(0, |time| u32::from(state.clock) * time.tick)
    }

    /// Notes the clock at the end of the first attempt, and forgets the names of the masters.
    fn settle(&self, mut state: State<A, M>) -> State<A, M> {
        let is_over = state.attempts[0].phase >= Phase::Failed;
        if self.pause.is_some() && is_over && state.ended == 0 {
            state.ended = state.clock;
        }
        let mut at = 0;
        for same in self.classes.chunk_by(|one, other| one == other) {
            state.masters[at..at + same.len()].sort_unstable();
            at += same.len();
        }
        state
    }
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
}

impl<const A: usize, const M: usize> State<A, M> {
    pub(super) fn end(&mut self, attempt: usize, phase: Phase) {
        self.attempts[attempt].phase = phase;
        for master in &mut self.masters {
            master.votes[attempt] = Cast::None;
        }
    }
}

impl Attempt {
    /// Returns the newest candidate.
    pub(super) fn candidate(&self) -> u32 {
        match self.candidates {
            [first, 0] => first,
            [_, second] => second,
        }
    }

    pub(super) fn token(&self) -> Option<u32> {
        (self.phase == Phase::Reported).then(|| self.candidate())
    }
}

impl<const A: usize, const M: usize> Model for Ballots<A, M> {
    type State = State<A, M>;
    type Step = Step;

    fn starts(&self) -> Vec<State<A, M>> {
        let starts = self.starts.iter().map(|counters| {
            let masters = counters.map(|counter| Master {
                keys: self.masters.with_counter(counter),
                lost: 0,
                votes: [Cast::None; A],
            });
            State {
                masters,
                attempts: [Attempt::default(); A],
                clock: u8::from(self.time.is_some()),
                ended: 0,
            }
        });
        starts.map(|start| self.settle(start)).collect()
    }

    fn steps(&self, state: &State<A, M>, visit: &mut dyn FnMut(Step, State<A, M>)) {
        let mut visit = |step, next| visit(step, self.settle(next));
        for attempt in 0..A {
            self.steps_of(state, attempt, &mut visit);
        }
        for master in 0..M {
            self.master_steps(state, master, &mut visit);
        }
        if self.time.is_some_and(|time| state.clock < time.end) {
            let clock = state.clock + 1;
            visit(Step::Tick, State { clock, ..*state });
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
}
