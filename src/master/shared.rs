//! The machine behind its mutex.

use std::{
    collections::BTreeSet,
    mem,
    ops::{Deref, DerefMut},
    sync::Arc,
    task::{Context, Waker},
    thread,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use super::observer::MasterObserver;
use crate::{
    clock,
    core::{
        config::Config,
        protocol::connection_name::{ConnectionName, ListsId},
        time::Tick,
        view::MasterHealth,
        vote::Roster,
    },
    home::HomeProcess,
    machine::{
        Machine, Now,
        out::{Effect, MasterEvent},
        session::health::Health,
    },
    observe::LockObserver,
    panics::shielded,
};

/// The machine behind its mutex, and what is needed to do what it says.
pub(crate) struct Shared {
    machine: Mutex<Machine>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) observer: LockObserver,
    pub(crate) observers: Box<[MasterObserver]>,
    /// The states of all masters after the last change that was told.
    pub(crate) health: watch::Sender<Box<[Health]>>,
    pub(crate) config: Arc<Config>,
    /// Wakes the renewer before the end of its sleep. The renewer is a tokio task, so its waker is
    /// no code of the program.
    pub(crate) renewer: Notify,
    pub(crate) home: HomeProcess,
    apart: Mutex<Apart>,
}

/// The warnings about programs with other lists.
#[derive(Default)]
struct Apart {
    /// The lists of the warnings of the last hour.
    told: Vec<(ListsId, Tick)>,
    /// The programs of the last warning.
    clients: Option<String>,
}

/// The machine while it is locked. Dropping this value [settles](Self::settle) the machine.
pub(crate) struct Turn<'a> {
    shared: &'a Shared,
    machine: MutexGuard<'a, Machine>,
    /// The time, if it was read in this turn.
    now: Option<Now>,
    /// Whether this thread was panicking at the start of the turn.
    was_panicking: bool,
}

impl Shared {
    pub(crate) fn new(roster: Arc<Roster>, config: Arc<Config>) -> Self {
        let machine = Machine::new(roster.clone(), config.clone(), clock::monotonic());
        let coordinator = &config.coordinator;
        let members = roster.members();
        let observers = members.map(|(master, membership)| {
            MasterObserver::new(coordinator.clone(), master.clone(), membership)
        });
        Self {
            observers: observers.collect(),
            observer: LockObserver::new(coordinator.clone()),
            health: watch::Sender::new(machine.health()),
            machine: Mutex::new(machine),
            config,
            roster,
            renewer: Notify::new(),
            home: HomeProcess::this(),
            apart: Mutex::default(),
        }
    }

    /// Locks the machine.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn {
            shared: self,
            machine: self.machine.lock(),
            now: None,
            was_panicking: thread::panicking(),
        }
    }

    /// Gives the machine an input. The time is read after the machine is locked.
    pub(crate) fn with<T>(&self, input: impl FnOnce(&mut Machine, Now) -> T) -> T {
        let mut turn = self.turn();
        let now = turn.now();
        input(&mut turn, now)
    }

    /// Gives the machine an input without a time.
    pub(crate) fn lock<T>(&self, input: impl FnOnce(&mut Machine) -> T) -> T {
        input(&mut self.turn())
    }

    /// Returns the states of all masters, in the order in which the masters were configured.
    pub(crate) fn masters(&self) -> Vec<MasterHealth> {
        self.with(|machine, now| {
            let sessions = machine.sessions.iter();
            sessions
                .map(|session| session.health.at(now.monotonic))
                .collect()
        })
    }

    /// Notes programs with other lists. Returns those of which a warning is due, as it is once an
    /// hour for the same lists.
    pub(crate) fn note_apart<'a>(
        &self,
        programs: impl Iterator<Item = &'a ConnectionName>,
    ) -> Option<String> {
        const HOUR: Duration = Duration::from_secs(3_600);
        let (now, apart) = (clock::monotonic(), &mut *self.apart.lock());
        apart.told.retain(|(_, at)| now.since(*at) < HOUR);
        let is_due = |one: &&ConnectionName| apart.told.iter().all(|(told, _)| *told != one.lists);
        let due: Vec<_> = programs.filter(is_due).collect();
        let clients: BTreeSet<_> = due.iter().map(|one| one.who()).collect();
        let clients = Vec::from_iter(clients).join(", ");
        apart.told.extend(due.iter().map(|one| (one.lists, now)));
        let clients = (!due.is_empty()).then_some(clients)?;
        apart.clients = Some(clients.clone());
        Some(clients)
    }

    /// Returns the programs of the last warning.
    pub(crate) fn apart(&self) -> Option<String> {
        self.apart.lock().clients.clone()
    }

    /// Looks at the machine, unless it is locked now.
    pub(crate) fn try_read<T>(&self, look: impl FnOnce(&Machine) -> T) -> Option<T> {
        self.machine.try_lock().map(|machine| look(&machine))
    }

    /// Looks whether a task must wait. `look` may take the waker of the task, and may leave another
    /// one.
    pub(crate) fn poll<T>(
        &self,
        cx: &Context<'_>,
        look: impl FnOnce(&mut Turn<'_>, &mut Option<Waker>) -> T,
    ) -> T {
        // Cloning and dropping a waker is code of the program.
        let mut waker = Some(cx.waker().clone());
        look(&mut self.turn(), &mut waker)
    }

    /// Carries out an effect. Most effects run code of the program: they tell observers, or wake
    /// tasks. A panic in it harms nothing else.
    fn carry_out(&self, effect: Effect) {
        shielded(|| match effect {
            Effect::Decided(verb, outcome, time) => {
                self.observer.record_round(verb, outcome, time);
            }
            Effect::Drop(waker) => drop(waker),
            Effect::Event(lock, hold, what) => self.observer.tell(&lock, hold.as_deref(), what),
            Effect::News(master, event) => self.tell(master, &event),
            Effect::RenewalDecided(hold, round, outcome) => {
                self.observer.count_renewal(outcome);
                if let Some(hold) = hold {
                    hold.decide_renewal(round, outcome);
                }
            }
            Effect::Renews(lock, hold, round) => {
                hold.open_renewal(lock.name(), round);
                // Another thread may already have carried out what the votes have decided.
                if let Some(outcome) = self.lock(|machine| machine.rounds.renewal(round)) {
                    hold.decide_renewal(round, outcome);
                }
            }
            Effect::Voted(master, outcome) => self.observers[master].voted(outcome),
            Effect::Wake(waker) => waker.wake(),
            Effect::WakeRenewer => self.renewer.notify_one(),
        });
    }

    /// Tells the program what is new of a master.
    fn tell(&self, master: usize, event: &MasterEvent) {
        let mut can_vote = false;
        let update = |health: &mut Box<[Health]>| {
            // The newest states are read while no other thread can send older ones.
            *health = self.machine.lock().health();
            can_vote = health[master].at(clock::monotonic()).can_vote();
        };
        // The wakers of tasks that watch, and recorders, are code of the program.
        shielded(|| self.health.send_modify(update));
        shielded(|| self.observers[master].set_can_vote(can_vote));
        self.observers[master].on(event);
    }
}

impl Turn<'_> {
    /// Returns the time of this turn. Reads the clocks in the first call.
    pub(crate) fn now(&mut self) -> Now {
        *self.now.get_or_insert_with(now)
    }

    /// Settles the machine, and then does what the machine says. Meanwhile, the machine is
    /// unlocked.
    pub(crate) fn settle(&mut self) {
        let shared = self.shared;
        if !self.machine.is_settled() {
            let now = self.now();
            self.machine.settle(now);
        }
        if self.machine.out.is_empty() {
            return;
        }
        let mut out = mem::take(&mut self.machine.out);
        MutexGuard::unlocked(&mut self.machine, || {
            out.drain(..).for_each(|effect| shared.carry_out(effect));
        });
        self.now = None; // that may have taken long
        // Many tasks may be woken at once, so the memory is used again.
        if self.machine.out.is_empty() {
            self.machine.out = out;
        }
    }
}

impl Deref for Turn<'_> {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // After a panic in the machine itself, another one would abort the program.
        if self.was_panicking || !thread::panicking() {
            self.settle();
        }
    }
}

/// Reads the clocks.
pub(crate) fn now() -> Now {
    let monotonic: Tick = clock::monotonic();
    Now {
        lease: clock::now_at(monotonic),
        monotonic,
    }
}
