//! The lock that a command asks for, under one name or several.

use std::{
    cell::{Cell, RefCell},
    fmt::Display,
};

use quorlock::{
    AskError, Coordinator, Guard, Inspection, Lock, Renewal,
    health::{MasterHealth, MasterState},
};

use crate::{
    args::Asking,
    client_name::{Program, client_name},
    exit::Exit,
    failure::Failure,
    outage::{Outage, Stage},
    output::complain,
    words::in_short,
};

/// The lock that a command asks for.
pub(crate) struct Wanted<'a> {
    pub(crate) locks: &'a Coordinator,
    pub(crate) names: &'a [String],
    pub(crate) lock: Lock,
    /// The reason why the last attempt found too few masters, until another attempt finds enough.
    /// Masters can be well and yet refuse this lock, for example its key.
    pub(crate) outage: RefCell<Option<Outage>>,
    pub(crate) stage: Cell<Stage>,
    /// Whether it was said that the program waits.
    pub(crate) has_news: Cell<bool>,
}

impl<'a> Wanted<'a> {
    /// Returns the lock of `names`. Sends nothing.
    pub(crate) fn new(locks: &'a Coordinator, names: &'a [String], asking: &Asking) -> Self {
        Self {
            locks,
            names,
            lock: lock(locks, names, asking),
            outage: RefCell::default(),
            stage: Cell::default(),
            has_news: Cell::default(),
        }
    }

    /// Returns the reason why too few masters can vote on the lock now. `None` if a majority can.
    pub(crate) fn outage(&self) -> Option<Outage> {
        let known = || self.outage.borrow().clone();
        let outage = Outage::of(self.locks, self.stage.get()).or_else(known);
        self.note_stage(outage.as_ref());
        outage
    }

    /// Notes that the masters are listed rightly if all were dialled and `outage` is no mistake.
    pub(crate) fn note_stage(&self, outage: Option<&Outage>) {
        let is_dialled = |master: &MasterHealth| master.state != MasterState::Connecting;
        if !outage.is_some_and(Outage::is_refusal) && self.locks.health().iter().all(is_dialled) {
            self.stage.set(Stage::Waits);
        }
    }

    /// Says on stderr that the program waits, and why.
    pub(crate) fn say(&self, news: impl Display) {
        self.has_news.set(true);
        complain(news);
    }

    /// Returns the names in quotes.
    pub(crate) fn quoted(&self) -> String {
        quoted(self.names.iter().map(String::as_str))
    }

    /// Asks the masters about one of the names.
    pub(crate) async fn inspect(&self, name: &str) -> Result<Inspection, AskError> {
        match self.names {
            [_] => self.lock.inspect().await,
            _ => self.locks.mutex(name).inspect().await,
        }
    }

    /// Asks the masters who holds the lock: that of several names that another program holds. This
    /// one may have the names before it. `None` if there is no such name.
    pub(crate) async fn inspect_rival(&self) -> Result<Option<Inspection>, AskError> {
        let own = client_name();
        for name in self.names {
            let seen = self.inspect(name).await?;
            let mut clients = seen.holders.iter().map(|holder| holder.client.as_deref());
            let name = |client| Program::parse(client).client;
            let is_rival = clients.any(|client| client.is_none() || client.and_then(name) != own);
            if is_rival {
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }
}

fn lock(locks: &Coordinator, names: &[String], asking: &Asking) -> Lock {
    let lock = match names {
        [name] if asking.fair => locks.fair(name),
        [name] if asking.read => locks.read_write(name).read().plain(),
        [name] if asking.write => locks.read_write(name).write().plain(),
        [name] => match asking.permits {
            Some(permits) => locks.semaphore(name, permits).plain(),
            None => locks.mutex(name),
        },
        names => locks.multi_mutex(names).plain(),
    };
    let lock = asking.ttl.into_iter().fold(lock, Lock::ttl);
    let lock = asking.min_hold.into_iter().fold(lock, Lock::min_hold);
    let lock = lock.renewal(asking.max_hold.map_or(Renewal::Unlimited, Renewal::UpTo));
    match asking.fence {
        true => lock.fenced().plain(),
        false => lock,
    }
}

/// Checks that several names are only asked for as mutexes, that no name is several lines, and that
/// the longest time is not shorter than the shortest. A variable and a line can carry one fencing
/// token, and names may contain every other separator.
pub(crate) fn check(names: &[String], asking: &Asking) -> Result<(), Failure> {
    let options = [
        (asking.fair, "--fair"),
        (asking.read, "--read"),
        (asking.write, "--write"),
        (asking.permits.is_some(), "--permits"),
        (asking.fence, "--fence"),
    ];
    if let Some(name) = names.iter().find(|name| name.contains('\n')) {
        let sentence = format!("{name:?} has a line break, which QUORLOCK_LOCK has between names");
        return Err(Failure::new(Exit::Usage, sentence));
    }
    if asking.min_hold > asking.max_hold.or(asking.min_hold) {
        let sentence = "--min-hold is longer than --max-hold";
        return Err(Failure::new(Exit::Usage, sentence));
    }
    match options.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) if names.len() > 1 => {
            let sentence = format!(
                "{option} takes one name here, and several names are mutexes without a token; \
                 give one name, or leave out {option}"
            );
            Err(Failure::new(Exit::Usage, sentence))
        }
        _ => Ok(()),
    }
}

/// Returns names in quotes, such as `"a" and "b"`.
pub(crate) fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<_> = names.map(|name| format!("{name:?}")).collect();
    in_short(&quoted).unwrap_or_default()
}

/// Returns the name of a lock that is held, such as `"a"` or `the lock of "a" and "b"`.
pub(crate) fn name_of(guard: &Guard) -> String {
    let start = guard.names().nth(1).map_or("", |_| "the lock of ");
    format!("{start}{}", quoted(guard.names()))
}
