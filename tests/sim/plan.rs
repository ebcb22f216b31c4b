//! What one seed decides: the masters, the processes, their settings, and the faults.

use std::time::Duration;

use testkit::random::Random;

use super::{change::Lists, setup::Setup};
use crate::{LockKind, core::restart::Quarantine};

/// Whether the faults of a run are within the model, in which the crate promises exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Model {
    Within,
    Outside(Breach),
}

/// An assumption of the promise that a run breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breach {
    /// A master deletes keys of locks to free memory.
    Eviction,
    /// Somebody flushes a master, and no connection breaks.
    Flush,
    /// A machine is suspended, and its wall clock stands still as well.
    HiddenSuspension,
    /// The programs list different masters.
    MasterLists,
    /// While the masters are changed, new programs start although an old one lives.
    OldProgram,
    /// The masters are changed without programs that have both lists.
    OneStep,
    /// The clock of a master runs faster than the drift allows.
    Rate,
    /// A master restarts without its data, and the quarantine is off.
    Restart,
    /// A program asks for a longer TTL than the others allow for.
    Settings,
    /// A master restarts with an old snapshot, and the quarantine is off.
    Snapshot,
    /// The clock of a master is set forward.
    Step,
}

impl Breach {
    pub(super) const ALL: [Self; 11] = [
        Self::Eviction,
        Self::Flush,
        Self::HiddenSuspension,
        Self::MasterLists,
        Self::OldProgram,
        Self::OneStep,
        Self::Rate,
        Self::Restart,
        Self::Settings,
        Self::Snapshot,
        Self::Step,
    ];

    /// Returns whether there may be holders that share no counters of fencing tokens.
    pub(super) fn splits_counters(self) -> bool {
        matches!(self, Self::MasterLists | Self::OldProgram | Self::OneStep)
    }

    /// Returns whether counters of fencing tokens may be lost without a quarantine. Then the order
    /// of tokens is promised only for acquisitions that are seconds apart.
    pub(super) fn loses_counters(self) -> bool {
        matches!(
            self,
            Self::Flush | Self::Restart | Self::Settings | Self::Snapshot
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    AllLost,
    Kept,
    TailLost,
}

/// The time that packets take, and how many get lost. Times are in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    least: u64,
    most: u64,
    late_one_in: u64,
    late_most: u64,
    /// After a lost packet, the connection carries nothing more in that direction.
    pub(super) lost_one_in: u64,
    pub(super) doubled_one_in: u64,
    pub(super) again_within: u64,
}

impl Latency {
    const CALM: Self = Self {
        least: 100,
        most: 400,
        late_one_in: u64::MAX,
        late_most: 400,
        lost_one_in: u64::MAX,
        doubled_one_in: u64::MAX,
        again_within: 0,
    };

    /// Lets every packet arrive in time from now on.
    pub(super) fn calm_down(&mut self) {
        (self.late_one_in, self.lost_one_in, self.doubled_one_in) = (u64::MAX, u64::MAX, u64::MAX);
    }

    /// Returns the time after which the last packet has arrived.
    pub(super) fn longest(self) -> Duration {
        let late = if self.late_one_in == u64::MAX {
            self.most
        } else {
            self.late_most
        };
        let again = if self.doubled_one_in == u64::MAX {
            0
        } else {
            self.again_within
        };
        Duration::from_micros(late + again)
    }

    fn is_calm(self) -> bool {
        [self.late_one_in, self.lost_one_in, self.doubled_one_in]
            .iter()
            .all(|one_in| *one_in == u64::MAX)
    }

    pub(super) fn draw(self, random: &mut Random) -> u64 {
        let most = if random.is_one_in(self.late_one_in) {
            self.late_most
        } else {
            self.most
        };
        self.least + random.below(most - self.least + 1)
    }
}

/// A fault with its time, and the time at which it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) at: Duration,
    pub(super) lasts: Duration,
    pub(super) fault: Fault,
}

/// A fault. The numbers are those of processes and of masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The program closes its coordinator before it ends.
    Close(Place),
    Crash(Place),
    Cut(Place, Master),
    /// The master becomes a replica that copies other data, and a master again.
    Demote(Master),
    Dribble(Master),
    ErrorReply(Master),
    Evict(Master),
    /// From now on, each way to or from the master takes this many milliseconds more.
    Far(Master, u64),
    Flood(Master),
    Forget(Master),
    /// The first of the two directions is up, from the process to the master.
    Partition(Place, Master, [bool; 2]),
    Pause(Place),
    /// The process ends, and a program with these lists of masters starts in its place.
    Replace(Place, Lists),
    Restart(Master, Data),
    /// The master runs for 10 ms of each 100 ms.
    Share(Master),
    Silence(Master),
    /// Every command takes this many milliseconds more.
    Slow(Master, u64),
    Snapshot(Master),
    /// The last number is in milliseconds, as in `StepWall`.
    StepClock(Master, i64),
    StepWall(Place, i64),
    Suspend(Place),
}

type Place = usize;
type Master = usize;

/// The settings of one lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockPlan {
    pub(super) name: &'static str,
    pub(super) kind: LockKind,
    pub(super) is_fenced: bool,
    /// The number of holders that may be valid at the same time.
    pub(super) most_holders: usize,
    /// The numbers of the old and the new group that have the name.
    pub(super) groups: [usize; 2],
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) model: Model,
    /// The number of masters, also of those that only a change needs.
    pub(super) masters: usize,
    /// The masters that all programs begin with.
    pub(super) old: Setup,
    /// The masters after a change, if there is one.
    pub(super) new: Option<Setup>,
    /// The number of processes that run at the same time.
    pub(super) places: usize,
    pub(super) tasks: usize,
    pub(super) locks: Vec<LockPlan>,
    /// Whether tasks acquire several of the locks at once, too. Then all of them are mutexes.
    pub(super) has_sets: bool,
    pub(super) quarantine: Quarantine,
    /// The longest one, if it is measured.
    pub(super) response_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) drift_ppm: u32,
    pub(super) max_ttl: Duration,
    pub(super) ttls: [Duration; 2],
    pub(super) server_ppm: Vec<i64>,
    pub(super) process_ppm: Vec<i64>,
    /// The milliseconds by which the wall clock of each process is ahead at its start.
    pub(super) wall_offsets: Vec<i64>,
    /// The same for the clock of each master.
    pub(super) server_offsets: Vec<i64>,
    /// Whether a program that never locks looks at the masters, without a strict quarantine.
    pub(super) has_visitor: bool,
    pub(super) reports_changes: Vec<bool>,
    pub(super) latency: Latency,
    pub(super) faults: Vec<Planned>,
    pub(super) faults_end: Duration,
    /// Whether tasks go on after the faults, and keep locks.
    pub(super) has_keepers: bool,
    /// Whether masters are slow and answer in time, and nothing else fails.
    pub(super) is_slow: bool,
    /// Faults that do not end. A majority of masters stays healthy for all processes but one.
    pub(super) lasting: Vec<Fault>,
}

impl Fault {
    /// Returns whether a master may lose locks.
    pub(super) fn loses(self) -> bool {
        matches!(
            self,
            Self::Demote(_) | Self::Restart(_, Data::AllLost | Data::TailLost)
        )
    }
}

impl LockPlan {
    /// Draws a lock of any kind.
    pub(super) fn draw(name: &'static str, random: &mut Random) -> Self {
        let kind = random.pick(&LockKind::ALL);
        Self {
            name,
            kind,
            is_fenced: random.is_one_in(2),
            most_holders: match kind {
                LockKind::Semaphore => 1 + random.index(3),
                _ => 1,
            },
            groups: [0; 2],
        }
    }

    /// Draws a mutex of a run with sets.
    pub(super) fn draw_mutex(name: &'static str, random: &mut Random) -> Self {
        Self {
            name,
            kind: LockKind::Mutex,
            is_fenced: random.is_one_in(3),
            most_holders: 1,
            groups: [0; 2],
        }
    }

    /// Returns whether the lock is a semaphore with a single permit, which excludes like a mutex.
    pub(super) fn has_one_holder(&self) -> bool {
        self.kind == LockKind::Semaphore && self.most_holders == 1
    }

    /// Returns whether a program chooses the owner. Each permit of a semaphore has its own.
    pub(super) fn has_owner(&self) -> bool {
        self.kind.has_owner() && self.kind != LockKind::Semaphore
    }
}

impl Plan {
    /// The longest pause before a dial, and the time of a few packets.
    pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(1_300);
    const CALM_ONE_IN: u64 = 16;
    const NAMES: [&'static str; 4] = ["a", "b", "c", "d"];

    /// Returns a plan without faults: one fenced lock, and one process for each offset of a wall
    /// clock, in milliseconds. There is a master for each offset in `servers`.
    pub(super) fn of_clocks(kind: LockKind, servers: &[i64], wall_offsets: &[i64]) -> Self {
        let (masters, places) = (servers.len(), wall_offsets.len());
        Self {
            masters,
            old: Setup::list((0..masters).collect()),
            places,
            locks: vec![LockPlan {
                name: Self::NAMES[0],
                kind,
                is_fenced: true,
                most_holders: 1,
                groups: [0; 2],
            }],
            quarantine: Quarantine::Off,
            server_ppm: vec![0; masters],
            process_ppm: vec![0; places],
            wall_offsets: wall_offsets.to_vec(),
            server_offsets: servers.to_vec(),
            has_sets: false,
            has_visitor: false,
            reports_changes: vec![true; masters],
            latency: Latency::CALM,
            faults: Vec::new(),
            lasting: Vec::new(),
            ..Self::draw_unchanged(0, Model::Within)
        }
    }

    pub(super) fn draw(seed: u64, model: Model) -> Self {
        let mut plan = Self::draw_unchanged(seed, model);
        if plan.draw_slow() {
            return plan;
        }
        if !plan.draw_groups() {
            plan.draw_change();
        }
        plan.draw_keepers();
        plan
    }

    /// Draws a plan in which the masters are not changed.
    fn draw_unchanged(seed: u64, model: Model) -> Self {
        let random = &mut Random::new(seed);
        let masters = random.pick(&[3, 3, 3, 5, 5, 4, 1]);
        let masters = if model == Model::Within { masters } else { 3 };
        let places = 2 + random.index(3);
        let names = 1 + random.index(2);
        let names = Self::NAMES[..names].iter();
        let locks = names.map(|name| LockPlan::draw(name, random));
        let locks = locks.collect();
        let short = Duration::from_millis(300 + random.below(700));
        let long = Duration::from_millis(1_000 + random.below(1_000));
        let mut plan = Self {
            seed,
            model,
            masters,
            old: Setup::list((0..masters).collect()),
            new: None,
            places,
            tasks: 1 + random.index(3),
            locks,
            has_sets: false,
            quarantine: Quarantine::Off,
            response_timeout: Duration::from_millis(20 + random.below(30)),
            connect_timeout: Duration::from_millis(300),
            drift_ppm: 10_000,
            max_ttl: Duration::from_millis(2_000),
            ttls: [short, long],
            server_ppm: (0..masters)
                .map(|_| random.below(9_000) as i64 - 4_500)
                .collect(),
            process_ppm: (0..places)
                .map(|_| random.below(9_000) as i64 - 4_500)
                .collect(),
            wall_offsets: vec![0; places],
            server_offsets: vec![0; masters],
            has_visitor: false,
            reports_changes: (0..masters).map(|_| !random.is_one_in(8)).collect(),
            latency: Latency::draw_from(random),
            faults: Vec::new(),
            faults_end: Duration::from_millis(2_000 + random.below(4_000)),
            has_keepers: false,
            is_slow: false,
            lasting: Vec::new(),
        };
        match model {
            Model::Within => {
                plan.draw_faults(random);
                plan.draw_demotions();
                plan.draw_sets();
            }
            Model::Outside(breach) => plan.draw_breach(breach, random),
        }
        plan.faults.sort_by_key(|planned| planned.at);
        if model == Model::Within && seed.is_multiple_of(Self::CALM_ONE_IN) {
            plan.remove_faults();
        }
        plan
    }

    /// Removes the faults, because some rules hold only in runs without faults.
    pub(super) fn remove_faults(&mut self) {
        self.faults.clear();
        self.lasting.clear();
        self.latency.calm_down();
        self.wall_offsets.fill(0);
    }

    /// Returns the time in milliseconds for which a master that lost locks must not vote, if all
    /// processes know of it.
    pub(super) fn guarded_ttl(&self) -> Option<u64> {
        let is_guarded = self.quarantine != Quarantine::Off && self.model == Model::Within;
        is_guarded.then_some(self.max_ttl.as_millis() as u64)
    }

    pub(super) fn is_within(&self) -> bool {
        self.model == Model::Within
    }

    /// Returns whether tasks detach locks, and attach those of others. A run with rules about the
    /// time until a free lock is acquired has no such locks, which end without a release.
    pub(super) fn passes_locks(&self) -> bool {
        !self.is_calm() && self.model == Model::Within
    }

    /// Returns whether nothing fails, and nothing takes unusually long.
    pub(super) fn is_calm(&self) -> bool {
        self.faults.is_empty() && self.keeps_order()
    }

    /// Returns whether nothing fails apart from programs that end because of a change.
    pub(super) fn keeps_order(&self) -> bool {
        let is_of_change = |fault: &Fault| matches!(fault, Fault::Close(_) | Fault::Replace(..));
        let mut faults = self.faults.iter();
        self.model == Model::Within
            && faults.all(|planned| is_of_change(&planned.fault))
            && self.lasting.is_empty()
            && self.latency.is_calm()
            && self.wall_offsets.iter().all(|offset| *offset == 0)
    }

    /// Returns whether all masters answer in time, so no connection may be given up.
    pub(super) fn has_healthy_masters(&self) -> bool {
        let is_of_client = |fault: &Fault| {
            matches!(
                fault,
                Fault::Close(_)
                    | Fault::Crash(_)
                    | Fault::Pause(_)
                    | Fault::Replace(..)
                    | Fault::StepWall(..)
                    | Fault::Suspend(_)
            )
        };
        let mut faults = self
            .faults
            .iter()
            .map(|planned| &planned.fault)
            .chain(&self.lasting);
        self.model == Model::Within
            && !self.has_visitor
            && self.latency.is_calm()
            && faults.all(is_of_client)
    }

    /// Returns whether every release reaches every master at once.
    pub(super) fn delivers_all(&self) -> bool {
        let crashes =
            |planned: &Planned| matches!(planned.fault, Fault::Crash(_) | Fault::Replace(..));
        self.has_healthy_masters() && !self.faults.iter().any(crashes)
    }

    /// Returns how long a release or an extension may take at most.
    pub(super) fn round_bound(&self) -> Duration {
        self.response_timeout * 4 + self.connect_timeout
    }

    /// Returns the time within which somebody gets each lock after all faults have ended. First, a
    /// quarantine, a TTL and the time of a dead waiter may have to pass, and late packets arrive.
    pub(super) fn progress_bound(&self) -> Duration {
        let silent_waiter_timeout = Duration::from_secs(3);
        let poll = Duration::from_millis(1_500);
        self.quarantine() + self.max_ttl + silent_waiter_timeout + self.latency.longest() + poll * 2
    }

    /// Returns how long an attempt may take at most, and how long `acquire_within` may go on after
    /// its limit.
    pub(super) fn attempt_bound(&self) -> Duration {
        self.response_timeout * 16 + self.connect_timeout
    }

    /// Returns the time for which a master that lost locks has no vote.
    pub(super) fn quarantine(&self) -> Duration {
        if self.quarantine == Quarantine::Off {
            Duration::ZERO
        } else {
            Duration::from_millis(3_100)
        }
    }

    /// Draws the locks to acquire at once: one of them, or several in some order.
    pub(super) fn draw_wanted(&self, random: &mut Random) -> Vec<usize> {
        let first = random.index(self.locks.len());
        if !self.has_sets || random.is_one_in(2) {
            return vec![first];
        }
        let mut numbers: Vec<_> = (0..self.locks.len()).collect();
        let count = 2 + random.index(numbers.len() - 1);
        let wanted = (0..count).map(|_| numbers.swap_remove(random.index(numbers.len())));
        wanted.collect()
    }

    /// Draws the faults of a run within the model. Each kind of fault is on in half of the runs.
    fn draw_faults(&mut self, random: &mut Random) {
        let mut kinds: Vec<fn(&Self, &mut Random) -> Fault> = vec![
            |plan, random| Fault::Cut(random.index(plan.places), random.index(plan.masters)),
            |plan, random| Fault::Dribble(random.index(plan.masters)),
            |plan, random| Fault::ErrorReply(random.index(plan.masters)),
            |plan, random| Fault::Flood(random.index(plan.masters)),
            |plan, random| {
                let way = random.below(3);
                let place = random.index(plan.places);
                Fault::Partition(place, random.index(plan.masters), [way != 0, way != 1])
            },
            |plan, random| Fault::Pause(random.index(plan.places)),
            |plan, random| Fault::Silence(random.index(plan.masters)),
            |plan, random| Fault::Slow(random.index(plan.masters), 5 + random.below(60)),
            |plan, random| {
                Fault::StepClock(random.index(plan.masters), -(random.below(100) as i64))
            },
            |plan, random| Fault::Suspend(random.index(plan.places)),
            |plan, random| Fault::StepWall(random.index(plan.places), random.below(300) as i64),
            |plan, random| Fault::Restart(random.index(plan.masters), Data::Kept),
        ];
        if random.is_one_in(4) {
            let offsets = self.wall_offsets.iter_mut();
            offsets.for_each(|offset| *offset = random.below(40_000) as i64 - 20_000);
        }
        // If a master has lost its data, only `Strict` protects against processes that never saw
        // that master. A process that crashed comes back as one that never saw any.
        let loses = random.is_one_in(3);
        let crashes = random.is_one_in(2);
        if loses {
            let is_strict = crashes || random.is_one_in(2);
            self.quarantine = if is_strict {
                Quarantine::Strict
            } else {
                Quarantine::Observed
            };
            self.has_visitor = is_strict && random.is_one_in(2);
            kinds.push(|plan, random| Fault::Restart(random.index(plan.masters), Data::AllLost));
            kinds.push(|plan, random| Fault::Restart(random.index(plan.masters), Data::TailLost));
            kinds.push(|plan, random| Fault::Snapshot(random.index(plan.masters)));
        } else {
            self.quarantine = random.pick(&[
                Quarantine::Off,
                Quarantine::Off,
                Quarantine::Observed,
                Quarantine::Strict,
            ]);
        }
        kinds.retain(|_| random.is_one_in(2));
        if loses && random.is_one_in(4) {
            // All masters lose everything, one after the other.
            for master in 0..self.masters {
                let restart = Fault::Restart(master, Data::AllLost);
                self.faults.push(Planned {
                    at: self.faults_end - Duration::from_millis(random.below(500)),
                    lasts: Duration::from_millis(1 + random.below(300)),
                    fault: restart,
                });
            }
        }
        if random.is_one_in(8) {
            kinds = vec![
                |plan, random| Fault::Pause(random.index(plan.places)),
                |plan, random| Fault::Suspend(random.index(plan.places)),
            ];
        }
        if crashes {
            kinds.push(|plan, random| Fault::Crash(random.index(plan.places)));
        }
        let count = if kinds.is_empty() {
            0
        } else {
            random.below(24)
        };
        for _ in 0..count {
            let fault = random.pick(&kinds)(self, random);
            // All processes have met all masters by then.
            let begin = 1_200;
            let end = self.faults_end.as_millis() as u64;
            self.faults.push(Planned {
                at: Duration::from_millis(begin + random.below(end - begin)),
                lasts: {
                    let most = random.pick(&[50, 400, 2_500]);
                    Duration::from_millis(1 + random.below(most))
                },
                fault,
            });
        }
        if random.is_one_in(3) {
            let masters: Vec<_> = (0..self.masters).collect();
            self.draw_lasting(random, &masters, (self.masters - 1) / 2);
        }
    }

    /// Adds demotions to some of the runs in which masters may lose data. They have random numbers
    /// of their own, so that the other faults of a seed stay the same. A master that reports no
    /// changes does not report the loss either, so such masters are left out.
    fn draw_demotions(&mut self) {
        let random = &mut Random::new(!self.seed);
        let crashes = |planned: &Planned| matches!(planned.fault, Fault::Crash(_));
        let is_guarded = match self.quarantine {
            Quarantine::Off => false,
            Quarantine::Observed => !self.faults.iter().any(crashes),
            Quarantine::Strict => true,
        };
        if !is_guarded || !random.is_one_in(2) {
            return;
        }
        let begin = 1_200;
        let end = self.faults_end.as_millis() as u64;
        for _ in 0..1 + random.below(3) {
            let master = random.index(self.masters);
            if !self.reports_changes[master] {
                continue;
            }
            let at = begin + random.below(end - begin);
            let most = random.pick(&[2, 50, 1_000]);
            let mut add = |at, lasts, fault| {
                let (at, lasts) = (Duration::from_millis(at), Duration::from_millis(lasts));
                self.faults.push(Planned { at, lasts, fault });
            };
            if random.is_one_in(2) {
                add(at - random.below(1_000), 1, Fault::Snapshot(master));
            }
            add(at, 1 + random.below(most), Fault::Demote(master));
        }
    }

    /// Makes all locks of some runs mutexes, so that tasks can acquire several at once. Uses random
    /// numbers of its own, so that the faults of a seed stay the same.
    fn draw_sets(&mut self) {
        let random = &mut Random::new(self.seed ^ 0x7365_7473_0000);
        self.has_sets = random.is_one_in(4);
        if !self.has_sets {
            return;
        }
        let names = Self::NAMES[..2 + random.index(3)].iter();
        let locks = names.map(|name| LockPlan::draw_mutex(name, random));
        self.locks = locks.collect();
    }

    /// Draws faults that do not end. At most `sick` of `masters` are sick for all processes.
    pub(super) fn draw_lasting(&mut self, random: &mut Random, masters: &[usize], mut sick: usize) {
        if self.places > 2 && random.is_one_in(2) {
            // One process cannot reach a majority.
            for master in &masters[..=masters.len() / 2] {
                self.lasting.push(Fault::Partition(0, *master, [true; 2]));
            }
            // The others need the masters that this process reaches.
            sick = sick.min(1);
        }
        for master in masters[..sick].iter().copied() {
            self.lasting.push(match random.below(6) {
                0 => Fault::Silence(master),
                1 => Fault::ErrorReply(master),
                2 => Fault::Slow(master, 200),
                3 => Fault::Flood(master),
                4 => Fault::Dribble(master),
                _ => Fault::Restart(master, Data::Kept),
            });
        }
    }

    /// Draws a run that breaks one assumption. Holders keep their locks, so that the break shows.
    fn draw_breach(&mut self, breach: Breach, random: &mut Random) {
        self.locks.truncate(1);
        if breach == Breach::Rate {
            self.server_ppm.fill(400_000);
        }
        let mut end = self.faults_end.as_millis() as u64;
        if breach == Breach::Settings {
            self.quarantine = Quarantine::Strict;
            self.faults_end += Duration::from_secs(6);
            end = 3_000;
        }
        if matches!(breach, Breach::OldProgram | Breach::OneStep) {
            return self.draw_wrong_change(breach, random);
        }
        for _ in 0..16 {
            let (process, master) = (random.index(self.places), random.index(self.masters));
            let fault = match breach {
                Breach::Eviction => Fault::Evict(master),
                Breach::Flush => Fault::Forget(master),
                Breach::HiddenSuspension => Fault::Suspend(process),
                Breach::MasterLists | Breach::OldProgram | Breach::OneStep | Breach::Rate => {
                    continue;
                }
                Breach::Restart | Breach::Settings => Fault::Restart(master, Data::AllLost),
                Breach::Snapshot => Fault::Restart(master, Data::TailLost),
                Breach::Step => Fault::StepClock(master, 500 + random.below(500) as i64),
            };
            let at = Duration::from_millis(1_000 + random.below(end - 1_000));
            let lasts = match fault {
                Fault::Suspend(_) => Duration::from_millis(300 + random.below(2_000)),
                _ => Duration::from_millis(1 + random.below(100)),
            };
            if breach == Breach::Snapshot {
                let snapshot = Fault::Snapshot(master);
                self.faults.push(Planned {
                    at: at.saturating_sub(Duration::from_millis(random.below(1_000))),
                    lasts,
                    fault: snapshot,
                });
            }
            self.faults.push(Planned { at, lasts, fault });
        }
    }
}

impl Latency {
    fn draw_from(random: &mut Random) -> Self {
        let never = u64::MAX;
        let rate =
            |random: &mut Random, one_in: u64| if random.is_one_in(3) { one_in } else { never };
        let most = random.pick(&[400, 1_500, 6_000]);
        Self {
            least: 100,
            most,
            late_one_in: rate(random, 50),
            late_most: random.pick(&[30_000, 300_000, 3_000_000]),
            lost_one_in: rate(random, 200),
            doubled_one_in: rate(random, 30),
            again_within: random.pick(&[5_000, 500_000, 4_000_000]),
        }
    }
}
