//! Locks that are detached from one process and attached by another one.
//!
//! The owner `a` has won its attempt 1 on two or three of three masters, and has detached it. A
//! heal that it sent before may be executed at any time. Another process attaches the lock, and
//! releases it. The rival `b` wants it. Commands are executed in any order, and replies may be lost.
//!
//! Not modelled: renewals, queues, fencing tokens, and changes of the masters.

use super::{
    masters::{Call, Cast, Event, Keys, Masters},
    search::{Model, holds, is_caught},
};
use crate::core::{kind::LockKind, vote::Verb};

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Not,
    /// The owner makes another attempt at the lock that it has detached.
    OwnerGoesOn,
    /// Two processes attach the lock.
    AttachedTwice,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    Asking,
    Held,
    Over,
}

/// A process, and what it has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Actor {
    phase: Phase,
    /// The masters that have not executed its first command, or its release.
    to_ask: u8,
    to_release: u8,
    granted: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    keys: [Keys; 3],
    /// The masters that have not executed the late heal.
    to_heal: u8,
    actors: [Actor; 4],
}

/// The old owner, two processes that attach, and the rival.
const OLD: usize = 0;
const ATTACHES: [usize; 2] = [1, 2];
const RIVAL: usize = 3;
const ALL: u8 = 0b111;

struct Detached {
    masters: Masters,
    broken: Broken,
}

#[derive(Debug)]
#[expect(dead_code, reason = "a trace shows the fields")]
enum Step {
    Asks(usize),
    Executes(usize, usize, bool),
    Heals(usize),
    Holds(usize),
    KeysEnd,
    Releases(usize),
    ReleaseExecuted(usize, usize),
}

impl Detached {
    /// Returns the first command of an actor, or its release.
    fn call(actor: usize, is_release: bool) -> Call {
        let (client, attempt) = match actor {
            OLD => (0, 2),
            RIVAL => (1, 1),
            _ => (0, 1),
        };
        let verb = match (is_release, ATTACHES.contains(&actor)) {
            (true, _) => Verb::Release,
            (false, true) => Verb::Extend,
            (false, false) => Verb::Acquire,
        };
        Call::new(verb, client, attempt)
    }

    fn begins(&self, actor: usize) -> bool {
        match actor {
            OLD => self.broken == Broken::OwnerGoesOn,
            2 => self.broken == Broken::AttachedTwice,
            _ => true,
        }
    }

    /// Returns the state after a master has executed a call, and the vote.
    fn executed(&self, state: &State, master: usize, call: Call) -> (State, Cast) {
        let (keys, cast) = self.masters.call(state.keys[master], call);
        let mut next = *state;
        next.keys[master] = keys;
        (next, cast)
    }

    fn first_commands(&self, state: &State, actor: usize, visit: &mut dyn FnMut(Step, State)) {
        for master in (0..3).filter(|master| state.actors[actor].to_ask & 1 << master != 0) {
            let (mut next, cast) = self.executed(state, master, Self::call(actor, false));
            next.actors[actor].to_ask &= !(1 << master);
            visit(Step::Executes(actor, master, false), next);
            if matches!(cast, Cast::Granted(_)) && state.actors[actor].phase == Phase::Asking {
                next.actors[actor].granted |= 1 << master;
                visit(Step::Executes(actor, master, true), next);
            }
        }
    }

    fn acts(&self, state: &State, actor: usize, visit: &mut dyn FnMut(Step, State)) {
        let now = state.actors[actor];
        let mut next = *state;
        let new = &mut next.actors[actor];
        match now.phase {
            Phase::Idle if self.begins(actor) => {
                (new.phase, new.to_ask) = (Phase::Asking, ALL);
                visit(Step::Asks(actor), next);
            }
            Phase::Asking if now.granted.count_ones() >= 2 => {
                new.phase = Phase::Held;
                visit(Step::Holds(actor), next);
            }
            // A process that fails to attach the lock releases nothing.
            Phase::Asking if ATTACHES.contains(&actor) => {}
            Phase::Asking | Phase::Held => {
                (new.phase, new.to_release, new.granted) = (Phase::Over, ALL, 0);
                visit(Step::Releases(actor), next);
            }
            Phase::Idle | Phase::Over => {}
        }
        for master in (0..3).filter(|master| now.to_release & 1 << master != 0) {
            let (mut next, _) = self.executed(state, master, Self::call(actor, true));
            next.actors[actor].to_release &= !(1 << master);
            visit(Step::ReleaseExecuted(actor, master), next);
        }
    }
}

impl Model for Detached {
    type State = State;
    type Step = Step;

    fn starts(&self) -> Vec<State> {
        let won = Call::new(Verb::Acquire, 0, 1);
        let (held, _) = self.masters.call(Keys::default(), won);
        [(held, 0), (Keys::default(), 0b100)]
            .map(|(last, to_heal)| State {
                keys: [held, held, last],
                to_heal,
                actors: Default::default(),
            })
            .into()
    }

    fn steps(&self, state: &State, visit: &mut dyn FnMut(Step, State)) {
        for master in (0..3).filter(|master| state.to_heal & 1 << master != 0) {
            let (mut next, _) = self.executed(state, master, Call::new(Verb::Heal, 0, 1));
            next.to_heal = 0;
            visit(Step::Heals(master), next);
        }
        if state.actors.iter().all(|actor| actor.phase == Phase::Idle) {
            let ended = |keys| self.masters.end(keys, Event::KeyEnds);
            let keys = state.keys.map(ended);
            visit(Step::KeysEnd, State { keys, ..*state });
        }
        for actor in 0..state.actors.len() {
            self.first_commands(state, actor, visit);
            self.acts(state, actor, visit);
        }
    }

    fn flaw(&self, state: &State) -> Option<&'static str> {
        let held = state.actors.iter().filter(|one| one.phase == Phase::Held);
        (held.count() > 1).then_some("two hold the lock")
    }
}

fn model(kind: LockKind, broken: Broken) -> Detached {
    let masters = Masters::new(kind);
    Detached { masters, broken }
}

#[test]
fn an_attached_lock_has_one_holder() {
    for (kind, states) in [
        (LockKind::Mutex, 19_321),
        (LockKind::Reentrant, 19_321),
        (LockKind::Fair, 19_321),
        (LockKind::ReadWrite, 19_321),
    ] {
        holds(&model(kind, Broken::Not), states);
    }
}

#[test]
fn an_owner_that_goes_on_takes_the_lock_over() {
    for kind in [LockKind::Reentrant, LockKind::Fair, LockKind::ReadWrite] {
        is_caught(&model(kind, Broken::OwnerGoesOn), "two hold the lock", 8);
    }
}

#[test]
fn a_lock_that_is_attached_twice_has_two_holders() {
    is_caught(
        &model(LockKind::Mutex, Broken::AttachedTwice),
        "two hold the lock",
        8,
    );
}
