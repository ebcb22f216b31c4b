//! The plan of a drill: settings and faults, all drawn from one seed.

use std::fmt;
use std::time::Duration;

use quorlock::Quarantine;
use testkit::random::Random;

use crate::locks::{LEAST_TTL, MOST_TTL, QUARANTINE};

pub const MASTERS: usize = 5;
pub const CLIENTS: usize = 16;
/// The masters that may be at fault at once, so that a majority is healthy.
const MINORITY: usize = MASTERS / 2;

/// The promises that may break in an episode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// All faults are within the model. Holders check their guards right before they write. Nothing
    /// may break.
    InModel,
    /// The same faults, but holders do not check, and clients are stopped for longer than a TTL.
    /// Late writes may be lost, except for resources that check fencing tokens.
    LateWriters,
    /// Faults that break exclusion: masters forget, and clocks step forward.
    OutOfModel,
}

/// The way in which a master keeps its data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Storage {
    /// A log, synced once a second.
    Log,
    None,
    /// A snapshot, made by the fault [`Fault::OldSnapshot`].
    Snapshot,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Fault {
    ClientClock,
    ClockBack,
    ClockForward,
    CloseConnections,
    /// The master is killed, and the end of its log is cut off.
    CutLog,
    Delay,
    /// The master is a replica for a moment.
    Demote,
    FlushAll,
    FlushScripts,
    Hold,
    Jitter,
    KillClient,
    KillMaster,
    KillRun,
    Lose,
    LosePackets,
    /// The master is killed, and loads an old snapshot.
    OldSnapshot,
    OutOfMemory,
    PauseCommands,
    Reset,
    /// The master is killed, and loses its data.
    RestartEmpty,
    ShortConnections,
    /// The clients see different masters.
    Split,
    StopClient,
    StopMaster,
    StopRun,
    TerminateMaster,
    /// The master is killed, and its log ends in half a command.
    TornLog,
}

/// A fault and its time, counted from the start of the episode.
#[derive(Clone, Debug)]
pub struct Event {
    pub fault: Fault,
    pub from: Duration,
    pub to: Duration,
    /// The masters at fault, or the masters that a client cannot reach.
    pub masters: Vec<usize>,
    /// The clients at fault, or the clients that cannot reach the masters.
    pub clients: Vec<usize>,
    /// A number for the details of the fault.
    pub detail: u64,
}

/// A part of a drill, with masters and clients of its own.
#[derive(Clone, Debug)]
pub struct Episode {
    pub seed: u64,
    pub class: Class,
    pub quarantine: Quarantine,
    pub storage: [Storage; MASTERS],
    /// The constant offset of each master's clock in milliseconds, and its rate in parts per
    /// million.
    pub clocks: [(i64, i64); MASTERS],
    /// The shortest TTL of a lock.
    pub least_ttl: Duration,
    /// The offset of each client's wall clock in milliseconds.
    pub wall_clocks: [i64; CLIENTS],
    /// The clients that run on several threads.
    pub is_threaded: [bool; CLIENTS],
    /// The number of clients that run commands with the command line. They have the first places.
    pub runners: usize,
    /// The master that [`Fault::Demote`] demotes.
    pub demoted: usize,
    /// The length of the time with faults.
    pub length: Duration,
    pub events: Vec<Event>,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InModel => "in model",
            Self::LateWriters => "late writers",
            Self::OutOfModel => "out of model",
        })
    }
}

impl Fault {
    /// Returns whether the fault ends with a restart.
    fn is_restart(self) -> bool {
        use Fault::*;
        let is_killed = matches!(
            self,
            CutLog | KillMaster | OldSnapshot | RestartEmpty | TornLog
        );
        is_killed || self == TerminateMaster
    }

    /// Returns whether the master forgets, and has no vote for a while.
    pub fn is_forgetful(self) -> bool {
        self == Self::Demote || self.is_restart()
    }

    /// Returns the faults that an episode draws from. A fault may be listed several times.
    fn all_of(episode: &Episode) -> Vec<Self> {
        use Fault::*;
        let (class, quarantine) = (episode.class, episode.quarantine);
        let mut faults = vec![
            ClientClock,
            CloseConnections,
            Delay,
            FlushScripts,
            Hold,
            Hold,
            Hold,
            Jitter,
            Lose,
            Lose,
            Lose,
            LosePackets,
            OutOfMemory,
            PauseCommands,
            Reset,
            Split,
            StopClient,
            StopMaster,
            StopMaster,
            TerminateMaster,
            ClockBack,
        ];
        if quarantine != Quarantine::Observed {
            // A new process takes an empty master for new, unless quarantine is strict.
            faults.extend([KillClient, KillClient]);
        }
        if episode.runners > 0 {
            faults.extend([KillRun, KillRun, StopRun, StopRun]);
        }
        match class {
            Class::OutOfModel => {
                let more = [FlushAll, FlushAll, ClockForward, ClockForward];
                faults.extend(more);
                faults.extend([RestartEmpty, RestartEmpty, OldSnapshot, CutLog]);
                faults.extend([Demote, Demote]);
            }
            Class::InModel | Class::LateWriters => {
                faults.extend([
                    KillMaster,
                    RestartEmpty,
                    OldSnapshot,
                    CutLog,
                    TornLog,
                    Demote,
                ]);
            }
        }
        if class == Class::LateWriters {
            faults.extend([StopClient; 5]);
        }
        faults
    }

    /// Returns the storage that the fault needs.
    fn fits(self, storage: Storage) -> bool {
        match self {
            Self::CutLog => storage == Storage::Log,
            Self::OldSnapshot => storage == Storage::Snapshot,
            Self::TornLog => storage == Storage::Log,
            _ => true,
        }
    }

    /// Returns the bounds of the length in milliseconds. `None` for a fault without a length.
    fn lengths(self) -> Option<(u64, u64)> {
        use Fault::*;
        match self {
            ClientClock | CloseConnections | FlushAll | FlushScripts | Reset | ClockBack
            | ShortConnections => None,
            KillClient | KillMaster | KillRun | CutLog | RestartEmpty | TornLog
            | TerminateMaster => Some((50, 1_500)),
            ClockForward => Some((300, 2_500)),
            StopClient | StopRun => Some((300, 5_500)),
            StopMaster => Some((20, 4_500)),
            _ => Some((50, 3_500)),
        }
    }

    fn is_of_client(self) -> bool {
        matches!(
            self,
            Self::ClientClock | Self::KillClient | Self::StopClient
        ) || self.is_of_run()
    }

    fn is_of_run(self) -> bool {
        matches!(self, Self::KillRun | Self::StopRun)
    }

    /// Returns whether the fault keeps some clients from hearing from some masters in time.
    pub fn is_of_network(self) -> bool {
        use Fault::*;
        matches!(self, Delay | Hold | Jitter | Lose | LosePackets | Split)
    }

    /// Returns whether the fault keeps a master from voting for all clients.
    pub fn is_of_master(self) -> bool {
        use Fault::*;
        let is_silent = matches!(
            self,
            ClockForward | OutOfMemory | PauseCommands | StopMaster
        );
        is_silent || self.is_forgetful() && self != OldSnapshot
    }
}

impl Episode {
    pub fn draw(seed: u64, number: usize, class: Class, length: Duration) -> Self {
        let mut random = Random::new(seed.wrapping_add(number as u64).wrapping_mul(0x9e37_79b9));
        let seed = random.number();
        let quarantine = match class {
            Class::OutOfModel if random.is_one_in(2) => Quarantine::Off,
            _ if random.is_one_in(3) => Quarantine::Observed,
            _ => Quarantine::Strict,
        };
        let mut storage = [
            Storage::Log,
            Storage::Log,
            Storage::Snapshot,
            Storage::Snapshot,
            Storage::None,
        ];
        storage.rotate_left(random.index(MASTERS));
        let clocks = [(); MASTERS].map(|()| {
            let mut within = |most: u64| random.below(2 * most) as i64 - most as i64;
            (within(100), within(8_000))
        });
        let wall_clocks = [(); CLIENTS].map(|()| match random.below(4) {
            0 => random.below(10_000) as i64 - 5_000,
            1 => random.below(400) as i64 - 200,
            _ => 0,
        });
        // The command line could take an empty master for new, unless quarantine is strict.
        let runners = match quarantine {
            Quarantine::Strict => random.index(4),
            _ => 0,
        };
        let mut episode = Self {
            seed,
            class,
            quarantine,
            storage,
            clocks,
            least_ttl: random.pick(&[LEAST_TTL, Duration::from_secs(1), MOST_TTL]),
            wall_clocks,
            is_threaded: [(); CLIENTS].map(|()| random.is_one_in(3)),
            runners,
            demoted: random.index(MASTERS),
            length,
            events: Vec::new(),
        };
        episode.draw_events(&mut random);
        episode
    }

    /// Draws faults until the end of the episode. A master or a client has one fault at a time.
    fn draw_events(&mut self, random: &mut Random) {
        let faults = Fault::all_of(self);
        // One episode in four has no healthy majority from time to time.
        let most = if random.is_one_in(4) {
            MASTERS
        } else {
            MINORITY
        };
        let mut masters = [Duration::ZERO; MASTERS];
        let mut clients = [Duration::ZERO; CLIENTS];
        let mut has_stepped_back = [false; MASTERS];
        // With quarantine off, there is none at the start.
        let mut at = match self.quarantine {
            Quarantine::Off => Duration::from_secs(1),
            _ => QUARANTINE + Duration::from_secs(1),
        };
        while at < self.length {
            at += Duration::from_millis(50 + random.below(1_100));
            let fault = random.pick(&faults);
            let mut event = self.draw_event(fault, at, random);
            if fault.is_of_client() {
                let busy = &mut clients[event.clients[0]];
                if *busy <= at {
                    *busy = event.to;
                    if fault.is_of_run() {
                        // A command goes on without the lock if both processes that watch it
                        // are killed. So the next run must have begun.
                        *busy += Duration::from_secs(5);
                    }
                    self.events.push(event);
                }
                continue;
            }
            let busy = masters.iter().filter(|until| **until > at).count();
            let room = match fault {
                Fault::FlushAll | Fault::ClockForward => MASTERS,
                _ => most.saturating_sub(busy),
            };
            event.masters.retain(|&master| masters[master] <= at);
            event.masters.truncate(room);
            if fault == Fault::ClockBack {
                event
                    .masters
                    .retain(|&master| !std::mem::replace(&mut has_stepped_back[master], true));
            }
            for &master in &event.masters {
                // Reconnecting takes a while, and so does the quarantine.
                let rest = if fault.is_forgetful() { 4_300 } else { 300 };
                masters[master] = event.to + Duration::from_millis(rest);
            }
            if !event.masters.is_empty() {
                self.events.push(event);
            }
        }
        if random.is_one_in(5) {
            self.draw_short_connections(random);
        }
    }

    /// Adds 30 seconds in which all connections live shortly.
    fn draw_short_connections(&mut self, random: &mut Random) {
        let every = Duration::from_millis(250 + random.below(250));
        let mut at = Duration::from_millis(random.below(self.length.as_millis() as u64 / 2));
        let end = self.length.min(at + Duration::from_secs(30));
        while at < end {
            self.events.push(Event {
                fault: Fault::ShortConnections,
                from: at,
                to: at,
                masters: (0..MASTERS).collect(),
                clients: (0..CLIENTS).collect(),
                detail: 0,
            });
            at += every;
        }
    }

    fn draw_event(&self, fault: Fault, at: Duration, random: &mut Random) -> Event {
        let length = fault
            .lengths()
            .map_or(0, |(least, most)| least + random.below(most - least));
        let count = match fault {
            // Exclusion breaks if a majority forgets.
            Fault::FlushAll | Fault::ClockForward if random.is_one_in(2) => MASTERS,
            _ if random.is_one_in(3) => 2,
            _ => 1,
        };
        let mut masters = shuffled(MASTERS, random);
        masters.retain(|&master| fault.fits(self.storage[master]));
        if fault == Fault::Demote {
            masters = vec![self.demoted];
        }
        masters.truncate(count);
        let mut clients = shuffled(CLIENTS, random);
        match fault {
            Fault::Split => clients.truncate(1 + random.index(CLIENTS - 1)),
            _ if fault.is_of_client() => {
                clients.retain(|&place| (place < self.runners) == fault.is_of_run());
                clients.truncate(1);
            }
            _ if fault != Fault::Reset && !fault.is_of_network() => clients.clear(),
            _ if random.is_one_in(4) => clients.truncate(CLIENTS / 2),
            _ => {}
        }
        Event {
            fault,
            from: at,
            to: at + Duration::from_millis(length),
            masters: if fault.is_of_client() {
                Vec::new()
            } else {
                masters
            },
            clients,
            detail: random.number(),
        }
    }
}

fn shuffled(count: usize, random: &mut Random) -> Vec<usize> {
    let mut numbers: Vec<_> = (0..count).collect();
    for index in (1..count).rev() {
        numbers.swap(index, random.index(index + 1));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::CLOCK_ERROR;

    fn episodes(class: Class) -> impl Iterator<Item = Episode> {
        (0..200).map(move |number| Episode::draw(7, number, class, Duration::from_secs(60)))
    }

    #[test]
    fn a_seed_decides_everything() {
        let draw = |seed| Episode::draw(seed, 3, Class::InModel, Duration::from_secs(60));
        assert_eq!(format!("{:?}", draw(1)), format!("{:?}", draw(1)));
        assert_ne!(format!("{:?}", draw(1)), format!("{:?}", draw(2)));
    }

    #[test]
    fn faults_outside_the_model_occur_only_in_the_episodes_for_them() {
        use Fault::{ClockForward, FlushAll};
        for class in [Class::InModel, Class::LateWriters, Class::OutOfModel] {
            let events = || episodes(class).flat_map(|episode| episode.events);
            let has = |fault| events().any(|event| event.fault == fault);
            assert_eq!(has(FlushAll), class == Class::OutOfModel);
            assert_eq!(has(ClockForward), class == Class::OutOfModel);
            let is_off = episodes(class).any(|one| one.quarantine == Quarantine::Off);
            assert_eq!(is_off, class == Class::OutOfModel);
        }
    }

    #[test]
    fn no_new_process_joins_while_masters_that_forgot_could_look_new() {
        let observed = |episode: &Episode| episode.quarantine == Quarantine::Observed;
        for episode in episodes(Class::InModel).filter(observed) {
            let mut faults = episode.events.iter().map(|event| event.fault);
            assert!(faults.all(|fault| fault != Fault::KillClient));
        }
    }

    #[test]
    fn clocks_stay_within_the_drift_and_within_a_second() {
        for episode in episodes(Class::InModel) {
            for (ahead, rate) in episode.clocks {
                let drifted = rate * episode.length.as_millis() as i64 / 1_000_000;
                let error_us = (ahead + drifted).unsigned_abs() * 1_000;
                assert!(error_us < CLOCK_ERROR && rate.abs() <= 8_000);
            }
        }
    }

    #[test]
    fn one_process_that_watches_a_command_stays() {
        for episode in episodes(Class::InModel) {
            let events = episode.events.iter();
            let mut hits: Vec<_> = events.filter(|event| event.fault.is_of_run()).collect();
            hits.sort_by_key(|event| (event.clients[0], event.from));
            for pair in hits.windows(2) {
                let is_same = pair[0].clients == pair[1].clients;
                assert!(!is_same || pair[0].to + Duration::from_secs(5) <= pair[1].from);
            }
            let is_runner = |place: &usize| *place < episode.runners;
            let mut of_clients = episode.events.iter();
            let fits = |event: &Event| is_runner(&event.clients[0]) == event.fault.is_of_run();
            assert!(of_clients.all(|event| !event.fault.is_of_client() || fits(event)));
        }
    }

    #[test]
    fn every_setting_is_drawn() {
        let any =
            |is: &dyn Fn(&Episode) -> bool| episodes(Class::InModel).any(|episode| is(&episode));
        assert!(any(&|one: &Episode| one.least_ttl == LEAST_TTL));
        assert!(any(&|one: &Episode| one.least_ttl == MOST_TTL));
        let is_far = |ahead: &i64| ahead.abs() > 4_000;
        assert!(any(&|one: &Episode| one.wall_clocks.iter().any(is_far)));
        let is_fast = |(_, rate): &(i64, i64)| rate.abs() > 7_900;
        assert!(any(&|one: &Episode| one.clocks.iter().any(is_fast)));
        assert!(any(&|one: &Episode| one.is_threaded.contains(&true)));
        assert!(any(
            &|one: &Episode| one.runners == 3 && one.quarantine == Quarantine::Strict
        ));
        let mut faults: Vec<_> = episodes(Class::InModel)
            .flat_map(|one| one.events)
            .collect();
        faults.sort_by_key(|event| event.fault);
        faults.dedup_by_key(|event| event.fault);
        assert_eq!(faults.len(), 26); // all but those outside the model
    }
}
