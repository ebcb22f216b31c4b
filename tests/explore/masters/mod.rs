//! What masters do: commands of the crate on the keys of a server in memory.
//!
//! The keys of a master are a number here, and what a command does to them is computed once.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    hash::BuildHasherDefault,
};

use quorlock_memory::heart::{Keyspace, Script};

use self::{
    call::ticket,
    keys::{View, end_lease, names, settle, view},
};
use super::search::Mix;
use crate::core::{
    kind::LockKind,
    protocol::{command::fixture, name::LockId, words::fixture::scripts},
};

mod call;
mod keys;
mod votes;

pub(super) use self::{
    call::Call,
    votes::{Cast, Decision, decided},
};

/// The time of the masters, in microseconds.
const START: u64 = 1_700_000_000_000_000;

/// The keys of a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Keys(u32);

/// Something that happens to a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// A command is executed, at this time in microseconds from the start.
    Called(Call, u32),
    /// The counter of fencing tokens ends.
    CounterEnds,
    /// The key of the lock ends.
    KeyEnds,
    /// The lease of a client ends.
    LeaseEnds(u8),
    /// The waiter with this ticket, which belongs to a client, counts as dead.
    WaiterEnds(u8, u8),
}

/// The start of the names of scripts, a line in them, and another one in its place.
pub(super) type Edit = (&'static str, &'static str, &'static str);

/// All masters of a model.
pub(super) struct Masters {
    kind: LockKind,
    edits: Vec<Edit>,
    /// Entries and tickets stay after their end, until a script removes them. Without this, they
    /// are gone at once, and there are fewer states.
    keeps_ended: bool,
    known: RefCell<Known>,
}

#[derive(Default)]
struct Known {
    keys: Vec<Keyspace>,
    views: Vec<View>,
    numbers: HashMap<Keyspace, Keys>,
    done: HashMap<(Keys, Event), (Keys, Cast), BuildHasherDefault<Mix>>,
    /// The scripts, after the edits.
    scripts: BTreeMap<&'static str, Script>,
}

impl Masters {
    pub(super) fn new(kind: LockKind) -> Self {
        let masters = Self {
            kind,
            edits: Vec::new(),
            keeps_ended: false,
            known: RefCell::default(),
        };
        masters.number(Keyspace::default());
        masters
    }

    pub(super) fn keeps_ended(self) -> Self {
        Self {
            keeps_ended: true,
            ..self
        }
    }

    /// Lets masters run other scripts. Fails if no script has a line that is to be edited.
    pub(super) fn edited(kind: LockKind, edits: &[Edit]) -> Self {
        for (name, line, _) in edits {
            let mut named = scripts().filter(|script| script.name.starts_with(name));
            let is_there = named.any(|script| script.text().contains(line));
            assert!(is_there, "no script {name} has the line {line}");
        }
        Self {
            edits: edits.to_vec(),
            ..Self::new(kind)
        }
    }

    /// Lets a master execute a command at the start.
    pub(super) fn call(&self, keys: Keys, call: Call) -> (Keys, Cast) {
        self.after(keys, Event::Called(call, 0))
    }

    pub(super) fn end(&self, keys: Keys, event: Event) -> Keys {
        self.after(keys, event).0
    }

    /// Returns the keys after an event, and the vote.
    pub(super) fn after(&self, keys: Keys, event: Event) -> (Keys, Cast) {
        let known = self.known.borrow().done.get(&(keys, event)).copied();
        known.unwrap_or_else(|| {
            let mut keyspace = self.known.borrow().keys[keys.0 as usize].clone();
            let cast = self.happen(&mut keyspace, event);
            let after = (self.number(keyspace), cast);
            self.known.borrow_mut().done.insert((keys, event), after);
            after
        })
    }

    /// Returns the number of keys that have a counter at most.
    pub(super) fn with_counter(&self, counter: u32) -> Keys {
        let mut keyspace = Keyspace::default();
        if counter > 0 {
            let counter = (START + u64::from(counter)).to_string();
            keyspace.run(&["SET", &*self.lock_id(1).counter(), &counter], START);
        }
        settle(&mut keyspace);
        self.number(keyspace)
    }

    /// Asks for what the keys of a master say.
    pub(super) fn view<T>(&self, keys: Keys, of: impl Fn(&View) -> T) -> T {
        of(&self.known.borrow().views[keys.0 as usize])
    }

    fn number(&self, keyspace: Keyspace) -> Keys {
        let known = &mut *self.known.borrow_mut();
        if let Some(keys) = known.numbers.get(&keyspace) {
            return *keys;
        }
        let keys = Keys(known.keys.len() as u32);
        known.views.push(view(&keyspace, self.lock_id(1).key()));
        known.keys.push(keyspace.clone());
        known.numbers.insert(keyspace, keys);
        keys
    }

    fn happen(&self, keyspace: &mut Keyspace, event: Event) -> Cast {
        let lock = self.lock_id(1);
        let mut cast = Cast::None;
        match event {
            Event::Called(call, later) => {
                cast = self.execute(keyspace, call, START + u64::from(later));
            }
            Event::CounterEnds => drop(keyspace.run(&["DEL", &*lock.counter()], START)),
            Event::KeyEnds => drop(keyspace.run(&["DEL", &**lock.key()], START)),
            Event::LeaseEnds(client) => end_lease(keyspace, lock.key(), client, self.keeps_ended),
            Event::WaiterEnds(number, client) => {
                let ticket = ticket(number, client);
                for name in names(keyspace, |name| name.starts_with("quorlock:")) {
                    if !self.keeps_ended {
                        keyspace.run(&["ZREM", &name, ticket.as_str()], START);
                    } else if name.contains("deadlines") {
                        keyspace.run(&["ZADD", &name, "1", ticket.as_str()], START);
                    }
                }
            }
        }
        settle(keyspace);
        cast
    }

    /// Returns a script after the edits.
    fn script(&self, name: &'static str, text: &str) -> Script {
        let scripts = &mut self.known.borrow_mut().scripts;
        let edited = || {
            let edits = self.edits.iter().filter(|(of, _, _)| name.starts_with(of));
            let edited = edits.fold(text.to_owned(), |text, (_, old, new)| {
                assert!(text.matches(old).count() < 2, "{name} has twice: {old}");
                text.replace(old, new)
            });
            Script::new(edited)
        };
        scripts.entry(name).or_insert_with(edited).clone()
    }

    fn lock_id(&self, permits: u8) -> LockId {
        fixture::lock_id(self.kind, "r").with_permits(permits.into())
    }
}
