//! The machine behind its mutex.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    task::{Context, Waker},
    thread,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::health::HealthBoard;
use crate::{
    clock,
    core::{time::tick::Tick, vote::lists::Roster},
    home::HomeProcess,
    machine::{Machine, Now, out::Out, session::SessionConfig},
    observe::observer::LockObserver,
    panics::shielded,
};

/// The machine behind its mutex, and what is needed to do what it says.
#[derive(Debug)]
pub(crate) struct Shared {
    machine: Mutex<Machine>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) observer: LockObserver,
    pub(crate) health: HealthBoard,
    /// Wakes the renewer before the end of its sleep. The renewer is a tokio task, so its waker is no
    /// code of the program.
    pub(crate) renewer: Notify,
    pub(crate) home: HomeProcess,
}

/// The machine while it is locked. Dropping this value [settles](Self::settle) the machine.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    shared: &'a Shared,
    machine: MutexGuard<'a, Machine>,
    /// Whether this thread was panicking at the start of the turn.
    was_panicking: bool,
}

impl Shared {
    pub(crate) fn new(
        roster: Arc<Roster>,
        config: &SessionConfig,
        observer: LockObserver,
        health: HealthBoard,
    ) -> Self {
        let machine = Machine::new(roster.clone(), config, clock::monotonic());
        Self {
            machine: Mutex::new(machine),
            roster,
            observer,
            health,
            renewer: Notify::new(),
            home: HomeProcess::this(),
        }
    }

    /// Locks the machine.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn {
            shared: self,
            machine: self.machine.lock(),
            was_panicking: thread::panicking(),
        }
    }

    /// Gives the machine an input. The time is read after the machine is locked.
    pub(crate) fn with<T>(&self, input: impl FnOnce(&mut Machine, Now) -> T) -> T {
        let mut machine = self.turn();
        input(&mut machine, now())
    }

    /// Gives the machine an input without a time.
    pub(crate) fn lock<T>(&self, input: impl FnOnce(&mut Machine) -> T) -> T {
        input(&mut self.turn())
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
        look: impl FnOnce(&mut Machine, &mut Option<Waker>) -> T,
    ) -> T {
        // Cloning and dropping a waker is code of the program.
        let mut waker = Some(cx.waker().clone());
        look(&mut self.machine.lock(), &mut waker)
    }

    /// Runs code of the program: tells observers, and wakes tasks. A panic in it harms nothing
    /// else. Returns the memory for wakers.
    fn run(&self, out: Out) -> Vec<Waker> {
        // A caller whose round ends sees the new health.
        for (master, event) in out.news {
            shielded(|| self.health.tell(master, &event));
        }
        if out.wakes_renewer {
            self.renewer.notify_one();
        }
        let mut wake = out.wake;
        for waker in wake.drain(..) {
            shielded(|| waker.wake());
        }
        for event in out.events {
            shielded(|| self.observer.tell(event));
        }
        for (outcome, span) in out.renewals {
            shielded(|| self.observer.renewal_decided(outcome, span));
        }
        for (master, outcome) in out.voted {
            shielded(|| self.health.observer(master).voted(outcome));
        }
        for decided in out.decided {
            shielded(|| self.observer.record_round(|| decided));
        }
        for garbage in out.garbage {
            shielded(|| drop(garbage));
        }
        wake
    }
}

impl Turn<'_> {
    /// Settles the machine, and then does what the machine says. Meanwhile, the machine is unlocked.
    pub(crate) fn settle(&mut self) {
        let shared = self.shared;
        self.machine.settle(&now);
        if let Some(out) = self.machine.out.take() {
            let wake = MutexGuard::unlocked(&mut self.machine, || shared.run(out));
            // Many tasks may be woken at once, so the memory is used again.
            if self.machine.out.wake.is_empty() {
                self.machine.out.wake = wake;
            }
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
