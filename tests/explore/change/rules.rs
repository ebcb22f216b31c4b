//! Who needs which majority, and which processes may run at the same time.

use super::{
    Broken,
    model::{Change, Closes},
    state::{Config, Phase, Process, State},
};
use crate::core::vote::MasterSet;

impl<const M: usize, const P: usize> Change<M, P> {
    /// Returns the masters to which a process sends its commands.
    pub(super) fn asked(&self, config: Config) -> MasterSet {
        self.quorums[config as usize].masters()
    }

    /// Returns whether these votes are enough for a process.
    pub(super) fn is_enough(&self, now: Process, votes: MasterSet) -> bool {
        let [old, joint, _, all] = &self.quorums;
        match (now.config, self.broken) {
            (Config::Joint, Broken::Either) => joint.has_majority_of_any_set(votes),
            (Config::Joint, Broken::ExtendsOldSet) if now.phase == Phase::Held => {
                old.has_majority_of_every_set(votes)
            }
            (Config::Joint, Broken::Union) => all.has_majority_of_every_set(votes),
            (config, _) => self.quorums[config as usize].has_majority_of_every_set(votes),
        }
    }

    /// Returns whether a process may start with a configuration.
    pub(super) fn may_start(&self, state: &State<M, P>, config: Config) -> bool {
        let others = &state.processes;
        let has_begun = others.iter().any(|other| other.config == Config::Joint);
        match self.broken {
            Broken::StraightToNew => config != Config::Joint,
            Broken::OldLives if has_begun => true,
            Broken::OldReturns if config == Config::Old => true,
            _ => {
                let mut others = others.iter();
                others.all(|other| !self.is_in_the_way(*other, config)) || self.is_barred(state)
            }
        }
    }

    /// Returns whether a process must end before another one starts with a configuration.
    fn is_in_the_way(&self, other: Process, config: Config) -> bool {
        let runs = match self.broken {
            Broken::BelievedGone => other.is_wanting(),
            _ => other.is_running(),
        };
        let share =
            other.config == config || other.config == Config::Joint || config == Config::Joint;
        runs && !share
    }

    /// Returns whether enough masters are closed, and nothing that was before counts any more.
    fn is_barred(&self, state: &State<M, P>) -> bool {
        let closed = state.masters.iter().filter(|master| master.is_closed);
        let old = self.sets[0].len();
        let needed = match self.closes {
            Closes::Nothing => return false,
            Closes::OldProcesses => old - old / 2 - usize::from(self.broken == Broken::TooFewBars),
            Closes::Masters => self.removed,
        };
        closed.count() >= needed && (self.broken == Broken::NoWait || self.has_waited(state))
    }

    /// Returns whether the longest lease has passed since masters were closed: nothing that counts
    /// on them is from before.
    fn has_waited(&self, state: &State<M, P>) -> bool {
        let closed = state.masters.iter().filter(|master| master.is_closed);
        let relied_on = closed.fold(0, |all, master| all | master.relied_on());
        let mut processes = state.processes.iter().enumerate();
        processes.all(|(number, now)| {
            let is_shut_out = self.closes == Closes::Masters || now.config == Config::Old;
            !is_shut_out || relied_on & 1 << number == 0
        })
    }
}
