//! A master of the simulation: a memory master with clocks of its own, that can stop, restart and
//! forget.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    task::Waker,
};

use super::{
    checker::Rule,
    network::{Delivery, Greeting, Packet},
    plan::{Data, Plan},
    process::Process,
    world::{What, World},
};
use crate::{
    core::{
        protocol::{
            command::{Action, Command, Reply, Verb},
            identity::Identity,
            kind::Kind,
        },
        restart::{Quarantine, origin_arguments},
        vote::{Refusal, Vote, shown_slot},
    },
    master::memory::{
        connections::Push,
        keys::{Keys, Value},
        server::ServerState,
    },
};

pub(super) struct Server {
    pub(super) state: ServerState,
    pub(super) run: Run,
    /// The packets that came while the process was stopped.
    backlog: VecDeque<(u64, Packet)>,
    /// The number of restarts.
    restarts: u32,
    /// How much faster than true time the clock runs, in millionths.
    ppm: i64,
    /// The sum of the steps of the clock, in microseconds.
    step: i64,
    snapshot: Option<Keys>,
    /// The time of the clock, in milliseconds, when the last process that lost data ended.
    lost_at: Option<u64>,
    /// The connections that were open when data was last lost. Their replies come after the report
    /// of the loss, so they must not count.
    stale: Vec<u64>,
    /// The error that all commands are answered with.
    pub(super) error: Option<&'static str>,
    /// The time that is added to each way, in microseconds.
    pub(super) slow: u64,
    pub(super) dribbles: bool,
    pub(super) floods: bool,
    pub(super) reports_changes: bool,
    /// When each key, or slot of it, was last granted to each process, in true time.
    grants: BTreeMap<(usize, String, Option<usize>), u64>,
    /// When each process last found that another client had the key, or this slot of it, as it
    /// extended its lock or put the key back.
    rivals: BTreeMap<(usize, String, Option<usize>), u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    Down,
    /// The process is stopped, as by SIGSTOP.
    Stopped,
    Up,
}

impl Server {
    pub(super) fn new(master: usize, plan: &Plan) -> Self {
        let mut server = Self {
            state: ServerState::new(format!("sim:{master}").into()),
            run: Run::Up,
            backlog: VecDeque::new(),
            restarts: 0,
            ppm: plan.server_ppm[master],
            step: plan.server_offsets[master] * 1_000,
            snapshot: None,
            lost_at: None,
            stale: Vec::new(),
            error: None,
            slow: 0,
            dribbles: false,
            floods: false,
            reports_changes: plan.reports_changes[master],
            grants: BTreeMap::new(),
            rivals: BTreeMap::new(),
        };
        // Somebody used the master an hour ago, so it is not new.
        let hour_ago = server.micros(0) - 3_600_000_000;
        server.state.set_time(hour_ago);
        let newcomer = origin_arguments(&[], Quarantine::Observed);
        server.state.incarnation(&newcomer).unwrap();
        server
    }

    /// Returns the time of the clock in microseconds. `now` is the true time.
    fn micros(&self, now: u64) -> u64 {
        let local = now as i64 + now as i64 * self.ppm / 1_000_000 + self.step;
        (Process::EPOCH.as_micros() as u64).saturating_add_signed(local)
    }

    pub(super) fn millis(&self, now: u64) -> u64 {
        self.micros(now) / 1_000
    }

    pub(super) fn step_clock(&mut self, micros: i64) {
        self.step += micros;
    }

    /// Sets the time that the state shows.
    pub(super) fn tick(&mut self, now: u64) {
        let micros = self.micros(now);
        self.state.set_time(micros);
    }

    /// Returns the keys that have not expired.
    pub(super) fn key_names(&mut self, now: u64) -> Vec<String> {
        self.tick(now);
        self.state.keys().names()
    }

    pub(super) fn take_snapshot(&mut self) {
        self.snapshot = Some(self.state.keys.clone());
    }

    /// Returns whether the process was granted the key, or this slot of it, at `since` or later.
    pub(super) fn has_granted(
        &self,
        process: usize,
        key: &str,
        slot: Option<usize>,
        since: u64,
    ) -> bool {
        let at = self.grants.get(&(process, key.to_owned(), slot));
        at.is_some_and(|at| *at >= since)
    }

    /// Returns whether another client had the key, or this slot of it, when the process extended
    /// the lock or put the key back, at `since` or later.
    pub(super) fn had_rival(
        &self,
        process: usize,
        key: &str,
        slot: Option<usize>,
        since: u64,
    ) -> bool {
        let at = self.rivals.get(&(process, key.to_owned(), slot));
        at.is_some_and(|at| *at >= since)
    }

    fn greet(&mut self, hello: Option<&[String]>) -> Greeting {
        Greeting {
            met: hello.map(|arguments| self.state.incarnation(arguments).unwrap()),
            reports_changes: self.reports_changes,
        }
    }

    /// Returns what the key of a lock has of other clients than the sender of `command`.
    fn foreign(&self, command: &Command, millis: u64) -> Option<Foreign> {
        let key = command.lock_id.key();
        let value = self.state.keys.value(key)?;
        let by = command.by();
        if let (Kind::ReadWrite | Kind::Semaphore, Value::Hash(fields)) =
            (command.lock_id.kind(), value)
        {
            let owner = by.and_then(Identity::owner).map(|by| &*by.owner);
            let mut entries = fields.clone();
            entries.retain(|field, value| is_entry_of_another(field, value, owner, millis));
            return Some(Foreign::Entries(entries));
        }
        let is_own = match value {
            _ if command.verb() == Verb::Inspect => false,
            Value::Text(token) => by
                .and_then(Identity::token)
                .is_some_and(|mine| mine.bytes(&mut None) == token.as_bytes()),
            Value::Hash(fields) => by
                .and_then(Identity::owner)
                .is_some_and(|owner| fields.contains_key(&*owner.owner)),
            Value::Sorted(_) => false,
        };
        (!is_own).then(|| Foreign::Key(value.clone(), self.state.keys.pttl(key)))
    }

    /// Returns whether a command has changed what the key had of other clients before.
    fn has_changed(&self, key: &str, before: &Foreign) -> bool {
        match (before, self.state.keys.value(key)) {
            (Foreign::Key(value, pttl), Some(now)) => {
                (now, self.state.keys.pttl(key)) != (value, *pttl)
            }
            (Foreign::Entries(entries), Some(Value::Hash(fields))) => {
                let is_kept = |(field, value)| fields.get(field) == Some(value);
                !entries.iter().all(is_kept)
            }
            (Foreign::Entries(entries), _) => !entries.is_empty(),
            (Foreign::Key(..), None) => true,
        }
    }
}

/// What the key of a lock has of other clients than the sender of a command.
enum Foreign {
    /// The entries of a read-write lock or a semaphore whose leases have not ended.
    Entries(BTreeMap<String, String>),
    /// The value, and the time to live.
    Key(Value, i64),
}

/// Returns whether a field is the entry of another owner of a read-write lock or a semaphore, whose
/// lease has not ended.
fn is_entry_of_another(field: &str, value: &str, owner: Option<&str>, millis: u64) -> bool {
    let mut words = value.splitn(4, ' ').skip(2);
    let ends = words.next().and_then(|ends| ends.parse::<u64>().ok());
    let mut entries = ["quorlock:reader:", "quorlock:permit:"].into_iter();
    let by = entries.find_map(|entry| field.strip_prefix(entry));
    let by = by.or_else(|| words.next());
    ends.is_some_and(|ends| ends > millis) && by != owner
}

impl World {
    /// Handles a packet that arrives at a master. Connection 0 is that of commands that arrive once
    /// more.
    pub(super) fn arrive(&mut self, master: usize, number: u64, packet: Packet) {
        let server = &mut self.servers[master];
        if server.run == Run::Stopped {
            server.backlog.push_back((number, packet));
            return;
        }
        let now = self.now();
        let is_open = self.link(number).is_some_and(|link| link.is_open);
        let server = &mut self.servers[master];
        server.tick(now);
        match packet {
            // This is the gap in `Observed`: after a loss, a late greeting of a process that knew
            // no master would take this one for new.
            Packet::Hello(Some(hello))
                if !is_open && server.lost_at.is_some() && hello == ["observed"] => {}
            Packet::Fin => {
                server.state.connections.close(number);
                if let Some(link) = self.link(number) {
                    link.is_served = false;
                }
            }
            Packet::Hello(hello) => {
                let greeting = server.greet(hello.as_deref());
                server
                    .state
                    .connections
                    .wakers
                    .insert(number, Waker::noop().clone());
                self.log(|| format!("master {master} greets connection {number}: {greeting:?}"));
                self.send_down(number, Delivery::Hello(greeting));
            }
            Packet::Caching => {
                self.send_down(number, Delivery::Reply(Ok(Reply::Ok)));
            }
            Packet::Change(change) => {
                let subscription = (change.channel.to_string(), number);
                if change.begins {
                    server.state.connections.subscriptions.insert(subscription);
                } else {
                    server.state.connections.subscriptions.remove(&subscription);
                }
                self.send_down(number, Delivery::Confirmed(change.channel));
            }
            Packet::Command(command) => self.execute(master, number, &command),
        }
    }

    fn execute(&mut self, master: usize, number: u64, command: &Command) {
        let now = self.now();
        let link = self.link(number);
        let is_broken = link.as_ref().is_none_or(|link| !link.is_served);
        let process = link.map(|link| link.process);
        let server = &mut self.servers[master];
        if let Some(error) = server.error {
            self.log(|| format!("master {master} answers {error}"));
            self.send_down(number, Delivery::Reply(Err(error.into())));
            return;
        }
        let before = server.foreign(command, server.millis(now));
        let was_free = !server.state.keys.exists(command.lock_id.key());
        let replied = if number == 0 {
            let replied = server.state.execute(command);
            server.state.report_changes();
            replied
        } else {
            server.state.serve(number, command)
        };
        let key = command.lock_id.key();
        let is_changed = before.is_some_and(|before| server.has_changed(key, &before));
        let may_create = matches!(command.verb(), Verb::Acquire | Verb::Heal);
        let is_created = was_free && !may_create && server.state.keys.exists(key);
        let cast = replied.as_ref().ok().map(|reply| command.vote(reply));
        let has_rival = cast
            .as_ref()
            .is_some_and(|cast| matches!(cast.vote, Vote::Refuse(Refusal::Held(_))));
        if let Some(cast) = cast.filter(|cast| cast.vote == Vote::Grant)
            && matches!(command.verb(), Verb::Acquire | Verb::Heal | Verb::Extend)
            && !server.stale.contains(&number)
            && let Some(process) = process
        {
            let slot = match &command.action {
                Action::Extend(holding, _) => holding.slot,
                _ => cast.slot,
            };
            let granted = (process, key.to_string(), shown_slot(slot));
            server.grants.insert(granted, now);
        }
        if has_rival
            && let Action::Extend(holding, _) | Action::Heal(holding, _) = &command.action
            && let Some(process) = process
        {
            let found = (process, key.to_string(), shown_slot(holding.slot));
            server.rivals.insert(found, now);
        }
        let in_quarantine = server
            .lost_at
            .zip(self.guarded_ttl)
            .is_some_and(|(lost, ttl)| server.millis(now) < lost + ttl);
        self.log(|| {
            format!(
                "master {master} executes for connection {number}: {command:?} {key}: {replied:?}"
            )
        });
        if is_created {
            self.violate(Rule::ForeignKey, || {
                format!("master {master}: {command:?} created {key}")
            });
        }
        if is_changed {
            self.violate(Rule::ForeignKey, || {
                format!("master {master}: {command:?} changed another holder's {key}")
            });
        }
        // The process never gets the reply, or learns of the loss before.
        let is_stale = is_broken || self.servers[master].stale.contains(&number);
        if in_quarantine && !is_stale && command.verb().quarantine_applies() {
            self.violate(Rule::Quarantine, || {
                format!(
                    "master {master} was asked to {:?} {key} in its quarantine",
                    command.verb()
                )
            });
        }
        if number != 0 {
            self.send_down(number, Delivery::Reply(replied));
        }
        self.send_pushes(master);
    }

    pub(super) fn send_pushes(&mut self, master: usize) {
        for (number, pushes) in mem::take(&mut self.servers[master].state.connections.pushes) {
            for push in pushes {
                self.send_down(
                    number,
                    match push {
                        Push::Message(_, ticket) => Delivery::Message(ticket),
                        Push::Changed(key) => Delivery::Changed(key),
                    },
                );
            }
        }
    }

    pub(super) fn begin_flood(&mut self, master: usize) {
        self.servers[master].floods = true;
        self.flood(master);
    }

    /// Sends messages that mean nothing over each connection of a master that floods.
    pub(super) fn flood(&mut self, master: usize) {
        /// The period in microseconds.
        const PERIOD: u64 = 10_000;
        if !self.servers[master].floods {
            return;
        }
        for number in self.links_of(master) {
            self.send_down(number, Delivery::Flood);
        }
        let next = self.now() + PERIOD;
        self.schedule(next, What::Flood(master));
    }

    pub(super) fn stop_server(&mut self, master: usize) {
        let server = &mut self.servers[master];
        if server.run == Run::Up {
            server.run = Run::Stopped;
        }
    }

    pub(super) fn continue_server(&mut self, master: usize) {
        let server = &mut self.servers[master];
        if server.run != Run::Stopped {
            return;
        }
        server.run = Run::Up;
        for (number, packet) in mem::take(&mut server.backlog) {
            self.arrive(master, number, packet);
        }
    }

    pub(super) fn kill_server(&mut self, master: usize) {
        let server = &mut self.servers[master];
        server.run = Run::Down;
        server.backlog.clear();
        for number in self.links_of(master) {
            self.break_link(number, "connection reset");
        }
        self.servers[master].state.connections.pushes.clear();
    }

    pub(super) fn start_server(&mut self, master: usize, data: Data) {
        let now = self.now();
        let server = &mut self.servers[master];
        if server.run != Run::Down {
            return;
        }
        server.run = Run::Up;
        server.restarts += 1;
        server.state.run_id = format!("{master:08x}{:08x}", server.restarts);
        let lost = match data {
            Data::Kept => None,
            Data::TailLost => Some(server.snapshot.take()),
            Data::AllLost => Some(None),
        };
        if let Some(snapshot) = lost {
            server.lost_at = Some(server.millis(now));
            server.state.keys = snapshot.unwrap_or_default();
        }
    }

    pub(super) fn flush_server(&mut self, master: usize) {
        self.servers[master].state.flush();
        self.lose(master);
    }

    /// Makes a master a replica that refuses writes. No connection breaks.
    pub(super) fn demote_server(&mut self, master: usize) {
        self.servers[master].error = Some("READONLY You can't write against a read only replica.");
    }

    /// Makes the replica a master again. It has the data of the snapshot, or none.
    pub(super) fn promote_server(&mut self, master: usize) {
        let server = &mut self.servers[master];
        server.error = None;
        if server.run != Run::Down {
            server
                .state
                .resync(server.snapshot.take().unwrap_or_default());
            self.lose(master);
        }
    }

    /// Reports that all keys were deleted or replaced.
    fn lose(&mut self, master: usize) {
        let now = self.now();
        let server = &mut self.servers[master];
        server.tick(now);
        server.lost_at = Some(server.millis(now));
        server.stale = server.state.connections.wakers.keys().copied().collect();
        self.send_pushes(master);
    }

    /// Deletes the keys of locks, as eviction does. Their counters stay.
    pub(super) fn evict(&mut self, master: usize, names: &[&str]) {
        let now = self.now();
        let server = &mut self.servers[master];
        server.tick(now);
        for name in names {
            server.state.keys().del(name);
        }
        server.state.report_changes();
        self.send_pushes(master);
    }
}
