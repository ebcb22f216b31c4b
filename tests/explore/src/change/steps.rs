//! The steps between the states.

use super::{
    Broken,
    model::{Change, Closes},
    state::{Config, Master, Phase, State},
};

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "to be printed")]
pub(super) enum Step {
    /// A master executes a command of a process, and the answer counts.
    Answered(usize, &'static str, usize),
    /// A master executes a command of a process, and the answer does not count.
    Unanswered(usize, &'static str, usize),
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
        if master.holder != 0 && master.holder & master.relied_on() == 0 {
            step(Step::KeyVanishes(at), &|master| master.holder = 0);
        }
        let may_close = match self.closes {
            Closes::Nothing => false,
            Closes::OldProcesses => self.old_set() & 1 << at != 0,
            Closes::Masters => at < self.removed,
        };
        if may_close && !master.is_closed {
            step(Step::Closes(at), &|master| master.is_closed = true);
        }
        if state.forgotten < self.forgets && !master.is_quarantined {
            let mut next = *state;
            next.forgotten += 1;
            next.masters[at].holder = 0;
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
        // An acquisition, or a heal.
        if master.holder == 0 {
            let mut next = *state;
            next.masters[at].holder = me;
            visit(Step::Unanswered(process, "sets", at), next);
        }
        let is_over = matches!(now.phase, Phase::Left | Phase::Ended);
        if is_over && master.holder == me {
            let mut next = *state;
            next.masters[at].holder = 0;
            visit(Step::Unanswered(process, "releases", at), next);
        }
        let is_granted = match now.phase {
            Phase::Asking => master.holder == 0 || master.holder == me,
            Phase::Held => master.holder == me,
            _ => false,
        };
        if is_granted && master.granted & me == 0 {
            let mut next = *state;
            next.masters[at].holder = me;
            next.masters[at].granted |= me;
            self.count(&mut next, process);
            visit(Step::Answered(process, "is granted", at), next);
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
        self.asked(config) & 1 << at != 0 && !master.is_quarantined && !is_closed
    }

    /// Counts the votes in the round of a process.
    fn count(&self, state: &mut State<M, P>, process: usize) {
        let masters = state.masters.iter().enumerate();
        let votes = masters.fold(0, |votes, (at, master)| {
            votes | u16::from(master.granted >> process & 1) << at
        });
        if self.is_enough(state.processes[process], votes) {
            state.believe(process);
        }
    }
}
