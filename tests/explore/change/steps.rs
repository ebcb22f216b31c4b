//! The steps between the states.

use super::{
    Broken,
    model::{Change, Closes},
    state::{Config, Master, Phase, State},
};
use crate::{
    core::vote::Verb,
    explore::masters::{Call, Cast, Event, Keys},
};

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "to be printed")]
pub(super) enum Step {
    /// A master executes a command of a process, and the answer counts.
    Answered(usize, Verb, usize),
    /// A master executes a command of a process, and the answer does not count.
    Unanswered(usize, Verb, usize),
    Process(usize, &'static str),
    Starts(usize, Config),
    Closes(usize),
    KeyVanishes(usize),
    Forget(usize),
    EndQuarantine(usize),
}

impl<const M: usize, const P: usize> Change<M, P> {
    pub(super) fn process_steps(
        &self,
        state: &State<M, P>,
        process: usize,
        visit: &mut dyn FnMut(Step, State<M, P>),
    ) {
        let now = state.processes[process];
        let mut step = |what, change: &dyn Fn(&mut State<M, P>)| {
            let mut next = *state;
            change(&mut next);
            visit(Step::Process(process, what), next);
        };
        if now.is_running() {
            step("ends", &|next| next.leave(process, Phase::Ended));
        }
        match now.phase {
            Phase::Unborn => self.start_steps(state, process, visit),
            Phase::Idle => step("asks", &|next| {
                next.processes[process].phase = Phase::Asking;
            }),
            Phase::Asking => step("leaves", &|next| next.leave(process, Phase::Left)),
            Phase::Held => {
                step("leaves", &|next| next.leave(process, Phase::Left));
                step("gives up an extension", &|next| next.close(process));
                if self.broken == Broken::SwitchesHeld {
                    self.switch_steps(state, process, visit);
                }
            }
            Phase::Left | Phase::Ended => {}
        }
    }

    /// Processes start in the order of their numbers.
    fn start_steps(
        &self,
        state: &State<M, P>,
        process: usize,
        visit: &mut dyn FnMut(Step, State<M, P>),
    ) {
        let is_next = process == 0 || state.processes[process - 1].phase != Phase::Unborn;
        for config in [Config::Old, Config::Joint, Config::New] {
            if is_next && self.may_start(state, config) {
                let mut next = *state;
                next.processes[process].phase = Phase::Idle;
                next.processes[process].config = config;
                visit(Step::Starts(process, config), next);
            }
        }
    }

    fn switch_steps(
        &self,
        state: &State<M, P>,
        process: usize,
        visit: &mut dyn FnMut(Step, State<M, P>),
    ) {
        let mut without = *state;
        without.processes[process].phase = Phase::Ended;
        for config in [Config::Old, Config::Joint, Config::New] {
            if self.may_start(&without, config) {
                let mut next = *state;
                next.processes[process].config = config;
                visit(Step::Process(process, "switches"), next);
            }
        }
    }

    pub(super) fn master_steps(
        &self,
        state: &State<M, P>,
        at: usize,
        visit: &mut dyn FnMut(Step, State<M, P>),
    ) {
        let master = state.masters[at];
        let mut step = |step, change: &dyn Fn(&mut Master)| {
            let mut next = *state;
            change(&mut next.masters[at]);
            visit(step, next);
        };
        if master.is_quarantined && master.relied_on() == 0 {
            step(Step::EndQuarantine(at), &|master| {
                master.is_quarantined = false;
            });
        }
        let holder = self
            .masters
            .view(master.keys, |view| view.entries.first().copied());
        if holder.is_some_and(|(holder, _)| master.relied_on() & 1 << holder == 0) {
            step(Step::KeyVanishes(at), &|master| {
                master.keys = self.masters.end(master.keys, Event::KeyEnds);
            });
        }
        let may_close = match self.closes {
            Closes::Nothing => false,
            Closes::OldProcesses => self.sets[0].contains(at),
            Closes::Masters => at < self.removed,
        };
        if may_close && !master.is_closed {
            step(Step::Closes(at), &|master| master.is_closed = true);
        }
        if state.forgotten < self.forgets && !master.is_quarantined {
            let mut next = *state;
            next.forgotten += 1;
            next.masters[at].keys = Keys::default();
            next.masters[at].is_quarantined = self.broken != Broken::NoQuarantine;
            next.masters[at].is_closed &= self.broken != Broken::BarsVanish;
            visit(Step::Forget(at), next);
        }
    }

    /// Lets a master execute what a process has sent.
    pub(super) fn command_steps(
        &self,
        state: &State<M, P>,
        (process, at): (usize, usize),
        visit: &mut dyn FnMut(Step, State<M, P>),
    ) {
        let (now, master, me) = (state.processes[process], state.masters[at], 1 << process);
        if !now.has_asked() || !self.is_open(state, process, at) {
            return;
        }
        let is_over = matches!(now.phase, Phase::Left | Phase::Ended);
        // A heal is an acquisition.
        for verb in [Verb::Acquire, Verb::Release] {
            let after = self
                .masters
                .call(master.keys, Call::new(verb, process, 1))
                .0;
            if after != master.keys && (is_over || verb == Verb::Acquire) {
                let mut next = *state;
                next.masters[at].keys = after;
                visit(Step::Unanswered(process, verb, at), next);
            }
        }
        let verb = match now.phase {
            Phase::Asking => Verb::Acquire,
            Phase::Held => Verb::Extend,
            _ => return,
        };
        let (after, cast) = self.masters.call(master.keys, Call::new(verb, process, 1));
        if matches!(cast, Cast::Granted(_)) && master.granted & me == 0 {
            let mut next = *state;
            next.masters[at].keys = after;
            next.masters[at].granted |= me;
            self.count(&mut next, process);
            visit(Step::Answered(process, verb, at), next);
        }
    }

    /// Returns whether a master executes commands of a process.
    fn is_open(&self, state: &State<M, P>, process: usize, at: usize) -> bool {
        let (config, master) = (state.processes[process].config, state.masters[at]);
        let is_closed = master.is_closed
            && match self.closes {
                Closes::OldProcesses => config == Config::Old,
                Closes::Masters | Closes::Nothing => true,
            };
        self.asked(config).contains(at) && !master.is_quarantined && !is_closed
    }

    /// Counts the votes in the round of a process.
    fn count(&self, state: &mut State<M, P>, process: usize) {
        let masters = state.masters.iter().enumerate();
        let votes = masters.filter(|(_, master)| master.granted & 1 << process != 0);
        if self.is_enough(state.processes[process], votes.map(|(at, _)| at).collect()) {
            state.believe(process);
        }
    }
}
