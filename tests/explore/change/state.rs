//! The states of the model.

use crate::explore::masters::Keys;

/// The masters of which a process needs a majority. It keeps them for life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Config {
    #[default]
    Old,
    /// Both sets, and a majority of each.
    Joint,
    New,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Phase {
    // In the order of time.
    #[default]
    Unborn,
    /// The process runs, and may still ask for the lock.
    Idle,
    Asking,
    Held,
    /// The process runs. All that it has sent may still be executed.
    Left,
    /// The process does not run. All that it has sent may still be executed.
    Ended,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) phase: Phase,
    pub(super) config: Config,
}

impl Process {
    pub(super) fn is_running(self) -> bool {
        !matches!(self.phase, Phase::Unborn | Phase::Ended)
    }

    pub(super) fn is_wanting(self) -> bool {
        matches!(self.phase, Phase::Asking | Phase::Held)
    }

    pub(super) fn has_asked(self) -> bool {
        self.phase >= Phase::Asking
    }
}

/// A master, and what the processes have of it. Each set of processes has a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Master {
    pub(super) keys: Keys,
    /// The processes for which the master voted in their open round.
    pub(super) granted: u8,
    /// The processes whose lease counts on this master.
    pub(super) counted: u8,
    pub(super) is_quarantined: bool,
    /// The master is closed to old processes, or destroyed.
    pub(super) is_closed: bool,
}

impl Master {
    /// Returns the processes with a lease or an open round that counts on this master.
    pub(super) fn relied_on(&self) -> u8 {
        self.granted | self.counted
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State<const M: usize, const P: usize> {
    pub(super) masters: [Master; M],
    pub(super) processes: [Process; P],
    /// The number of times that a master has lost its data.
    pub(super) forgotten: u8,
}

impl<const M: usize, const P: usize> State<M, P> {
    /// Forgets the votes in the round of a process.
    pub(super) fn close(&mut self, process: usize) {
        for master in &mut self.masters {
            master.granted &= !(1 << process);
        }
    }

    /// Lets a lease count on the masters that granted the round.
    pub(super) fn believe(&mut self, process: usize) {
        for master in &mut self.masters {
            master.counted &= !(1 << process);
            master.counted |= master.granted & 1 << process;
        }
        self.processes[process].phase = Phase::Held;
        self.close(process);
    }

    /// Ends the round or the lease of a process.
    pub(super) fn leave(&mut self, process: usize, phase: Phase) {
        for master in &mut self.masters {
            master.counted &= !(1 << process);
        }
        self.processes[process].phase = phase;
        self.close(process);
    }
}
