//! The model: the choice of what may happen, and the guarantee.

use super::{
    Broken,
    state::{Master, Phase, Process, State},
    steps::Step,
};
use crate::{
    core::vote::{MasterSet, quorum::Quorum},
    explore::{masters::Masters, search::Model},
};

/// What is closed in a change that needs no process with both sets, or in which an old process may
/// be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closes {
    Nothing,
    /// Old masters to processes with the old set.
    OldProcesses,
    /// The removed masters to all, for ever.
    Masters,
}

/// The choice of the states to search. `M` masters in all, and `P` processes.
pub(super) struct Change<const M: usize, const P: usize> {
    pub(super) masters: Masters,
    /// The old set, and the new one.
    pub(super) sets: [MasterSet; 2],
    /// What processes with the old set, both or the new set need, and a majority of all masters.
    pub(super) quorums: [Quorum; 4],
    /// The number of masters that only the old set has. They are first.
    pub(super) removed: usize,
    /// The number of masters that only the new set has. They are last.
    pub(super) added: usize,
    pub(super) broken: Broken,
    pub(super) closes: Closes,
    /// The number of times that masters may lose all data.
    pub(super) forgets: u8,
}

pub(super) const TWO: &str = "two hold the lock";

impl<const M: usize, const P: usize> Change<M, P> {
    /// Forgets the names of masters of the same sets.
    fn settle(&self, mut state: State<M, P>) -> State<M, P> {
        let (removed, rest) = state.masters.split_at_mut(self.removed);
        let (kept, added) = rest.split_at_mut(M - self.removed - self.added);
        for masters in [removed, kept, added] {
            masters.sort_unstable();
        }
        state
    }

    /// Returns whether a master is as the one before it, in the same sets.
    fn is_same(&self, state: &State<M, P>, at: usize) -> bool {
        let is_first = at == 0 || at == self.removed || at == M - self.added;
        !is_first && state.masters[at] == state.masters[at - 1]
    }
}

impl<const M: usize, const P: usize> Model for Change<M, P> {
    type State = State<M, P>;
    type Step = Step;

    fn starts(&self) -> Vec<State<M, P>> {
        vec![State {
            masters: [Master::default(); M],
            processes: [Process::default(); P],
            forgotten: 0,
        }]
    }

    fn steps(&self, state: &State<M, P>, visit: &mut dyn FnMut(Step, State<M, P>)) {
        let mut visit = |step, next| visit(step, self.settle(next));
        for process in 0..P {
            self.process_steps(state, process, &mut visit);
        }
        for at in (0..M).filter(|at| !self.is_same(state, *at)) {
            self.master_steps(state, at, &mut visit);
            for process in 0..P {
                self.command_steps(state, (process, at), &mut visit);
            }
        }
    }

    fn flaw(&self, state: &State<M, P>) -> Option<&'static str> {
        let processes = state.processes.iter();
        let holders = processes.filter(|now| now.phase == Phase::Held);
        (holders.count() > 1).then_some(TWO)
    }
}
