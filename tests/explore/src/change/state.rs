//! The states of the model.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

/// The masters of which a process needs a majority. It keeps them for life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Config {
    #[default]
    Old,
    /// Both sets, and a majority of each.
    Joint,
    New,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Master {
    /// The process that has the key: its bit, or 0.
    pub(super) holder: u8,
    /// The processes for which the master voted in their open round.
    pub(super) granted: u8,
    /// The processes whose lease counts on this master.
    pub(super) counted: u8,
    pub(super) is_quarantined: bool,
    /// The master is closed to old processes, or destroyed.
    pub(super) is_closed: bool,
}

impl Master {
    /// Returns all fields as one number.
    pub(super) fn packed(&self) -> u32 {
        let sets = [self.holder, self.granted, self.counted];
        let packed = sets
            .iter()
            .fold(0, |packed, set| packed << 4 | u32::from(*set));
        packed << 2 | u32::from(self.is_quarantined) << 1 | u32::from(self.is_closed)
    }

    /// Returns the processes with a lease or an open round that counts on this master.
    pub(super) fn relied_on(&self) -> u8 {
        self.granted | self.counted
    }
}

/// Shows the number of the process that has the key, and `*` if something counts on it.
impl fmt::Debug for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.is_quarantined, self.is_closed) {
            (false, false) => "[",
            (true, _) => "[quarantine ",
            (false, true) => "[closed ",
        })?;
        match self.holder {
            0 => f.write_str("-")?,
            holder => write!(f, "{}", holder.trailing_zeros())?,
        }
        let is_used = self.holder & self.relied_on() != 0;
        f.write_str(if is_used { "*]" } else { "]" })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
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

impl<const M: usize, const P: usize> Hash for State<M, P> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for pair in self.masters.chunks(2) {
            let words = pair.iter().map(|master| u64::from(master.packed()));
            hasher.write_u64(words.fold(0, |pair, word| pair << 32 | word));
        }
        let processes = self.processes.iter();
        let word = processes.fold(u64::from(self.forgotten), |word, now| {
            word << 8 | (now.phase as u64) << 2 | now.config as u64
        });
        hasher.write_u64(word);
    }
}

impl<const M: usize, const P: usize> fmt::Debug for State<M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, now) in self.processes.iter().enumerate() {
            match now.phase {
                Phase::Unborn => {}
                phase => write!(f, "{number}:{:?} {phase:?}, ", now.config)?,
            }
        }
        self.masters
            .iter()
            .try_for_each(|master| write!(f, "{master:?} "))
    }
}
