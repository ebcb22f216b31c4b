//! All scenarios for this crate and one peer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use testkit::server::Server;

use crate::process::{Process, Program};
use crate::scenarios::{self, Count};
use crate::{Failure, Outcome};

/// A program of this crate and a program of a peer, on the same masters.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    pub ours: &'a Program,
    pub ours_that_polls: &'a Program,
    pub peer: &'a Program,
    pub masters: &'a [Server],
}

/// The extent of a run.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub wake_ups: u32,
    /// How long processes count without pauses, with pauses, and beside waiters that poll.
    pub counting: [Duration; 3],
    pub clash: Duration,
}

impl Extent {
    pub const FULL: Self = Self {
        wake_ups: 10,
        counting: [
            Duration::from_secs(60),
            Duration::from_secs(30),
            Duration::from_secs(30),
        ],
        clash: Duration::from_secs(10),
    };

    /// Only checks that the scenarios run. The times mean nothing.
    pub const QUICK: Self = Self {
        wake_ups: 2,
        counting: [
            Duration::from_secs(3),
            Duration::from_secs(2),
            Duration::from_secs(2),
        ],
        clash: Duration::from_secs(3),
    };
}

/// The results of all scenarios. Each scenario starts its programs anew, so a failure in one of
/// them does not disturb the others.
#[derive(Debug)]
pub struct Findings {
    pub versions: Outcome<String>,
    pub exclusion: Outcome<()>,
    pub late_release: Outcome<()>,
    /// `None` if the locks are not reentrant.
    pub hold_counts: Option<Outcome<()>>,
    pub mismatch: Outcome<()>,
    /// The times until this crate had the lock that the peer released, in order.
    pub woken_here: Outcome<Vec<Duration>>,
    /// The times until the peer had the lock that this crate released, in order.
    pub woken_there: Outcome<Vec<Duration>>,
    /// The counters without pauses, with pauses, and beside waiters that poll.
    pub counts: Outcome<[Count; 3]>,
}

type Scenario = fn(&mut Process, &mut Process, &str) -> Outcome<()>;

/// The pause of a process after it has counted, if it pauses.
pub const PAUSE: Duration = Duration::from_millis(20);

/// The beginnings of names. They contain what libraries might treat in different ways.
const NAMES: [&str; 3] = ["orders/", "{orders}:", "größe-"];

impl Pair<'_> {
    /// Runs all scenarios.
    pub fn findings(&self, other_kind: &Program, is_reentrant: bool, extent: Extent) -> Findings {
        let counts = || self.both_ways(scenarios::hold_counts);
        Findings {
            versions: self
                .peer
                .start(self.masters)
                .map(|peer| peer.versions.clone()),
            exclusion: self.both_ways(scenarios::exclusion),
            late_release: self.both_ways(scenarios::late_release),
            hold_counts: is_reentrant.then(counts),
            mismatch: self.mismatch(other_kind),
            woken_here: wake_ups(self.peer, self.ours, self.masters, extent.wake_ups),
            woken_there: wake_ups(self.ours, self.peer, self.masters, extent.wake_ups),
            counts: self.counts(extent.counting),
        }
    }

    /// Runs a scenario with this crate first, and with the peer first, for each of the names.
    pub fn both_ways(&self, scenario: Scenario) -> Outcome<()> {
        let mut ours = self.ours.start(self.masters)?;
        let mut peer = self.peer.start(self.masters)?;
        for name in NAMES {
            scenario(&mut ours, &mut peer, &fresh(name))?;
            scenario(&mut peer, &mut ours, &fresh(name))?;
        }
        Ok(())
    }

    pub fn mismatch(&self, other_kind: &Program) -> Outcome<()> {
        let mut ours = other_kind.start(self.masters)?;
        let mut peer = self.peer.start(self.masters)?;
        scenarios::kind_mismatch(&mut ours, &mut peer, &fresh(NAMES[0]))
    }

    fn counts(&self, [busy, paused, polling]: [Duration; 3]) -> Outcome<[Count; 3]> {
        Ok([
            self.count(busy, Duration::ZERO)?.check()?,
            self.count(paused, PAUSE)?.check()?,
            self.count_among_pollers(polling)?.check()?,
        ])
    }

    /// Counts with two processes of this crate and two of the peer.
    pub fn count(&self, length: Duration, pause: Duration) -> Outcome<Count> {
        let programs = [self.ours, self.ours, self.peer, self.peer];
        scenarios::counter(&programs, self.masters, &fresh(NAMES[0]), [length, pause])
    }

    /// Counts with three processes of each side. The waiters of this crate poll, too.
    fn count_among_pollers(&self, length: Duration) -> Outcome<Count> {
        let programs = [[self.ours_that_polls; 3], [self.peer; 3]].concat();
        let times = [length, Duration::ZERO];
        scenarios::counter(&programs, self.masters, &fresh(NAMES[0]), times)
    }

    /// Checks that the scenarios find that the two sides do not exclude each other. Returns how
    /// many updates were lost.
    pub fn must_clash(&self, length: Duration) -> Outcome<Count> {
        let missed = |text: &str| Failure::Breakdown(format!("{text} was not found"));
        let mut ours = self.ours.start(self.masters)?;
        let mut peer = self.peer.start(self.masters)?;
        match scenarios::exclusion(&mut peer, &mut ours, &fresh(NAMES[0])) {
            Err(Failure::Violation(_)) => {}
            Err(failure) => return Err(failure),
            Ok(()) => return Err(missed("a lock that two sides held")),
        }
        let count = self.count(length, PAUSE)?;
        match count.lost {
            0 => Err(missed("a lost update")),
            _ => Ok(count),
        }
    }
}

/// Measures how long a waiter takes to get a lock that another program releases.
pub fn wake_ups(
    holder: &Program,
    waiter: &Program,
    masters: &[Server],
    rounds: u32,
) -> Outcome<Vec<Duration>> {
    let mut holder = holder.start(masters)?;
    let mut waiter = waiter.start(masters)?;
    scenarios::wake_up(&mut holder, &mut waiter, masters, &fresh(NAMES[0]), rounds)
}

impl Findings {
    /// Returns what failed.
    pub fn failures(&self) -> Vec<String> {
        let results = [
            ("start", self.versions.as_ref().err()),
            ("exclusion", self.exclusion.as_ref().err()),
            ("late release", self.late_release.as_ref().err()),
            (
                "hold counts",
                self.hold_counts.as_ref().and_then(|r| r.as_ref().err()),
            ),
            ("kind mismatch", self.mismatch.as_ref().err()),
            ("wake-up of this crate", self.woken_here.as_ref().err()),
            ("wake-up of the peer", self.woken_there.as_ref().err()),
            ("counter", self.counts.as_ref().err()),
        ];
        let failed = |(what, failure): (_, Option<&Failure>)| Some(format!("{what}: {}", failure?));
        results.into_iter().filter_map(failed).collect()
    }
}

/// Returns a name that no scenario has used.
fn fresh(beginning: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{beginning}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
