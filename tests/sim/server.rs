//! A master of the simulation: the server of `quorlock-memory` with a clock of its own, that can
//! stop, restart and forget.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
};

use quorlock_memory::heart::{self, Data, Reply, Value, Version};

use super::{
    checker::Rule,
    commands::{self, Answer, By, LockCommand, Shown, Words},
    network::{Delivery, Packet},
    plan::{self, Plan},
    process::Process,
    world::{What, World},
};
use crate::{
    LockKind,
    core::{
        kind::script::ORIGIN,
        restart::ORIGIN_KEY,
        vote::{Slot, Verb},
    },
};

pub(super) struct Server {
    heart: heart::Server,
    pub(super) run: Run,
    /// The connections that have sent anything since the last restart.
    peers: BTreeMap<u64, Peer>,
    /// The number of each connection, by its number on the server, which counts from 1.
    numbers: Vec<u64>,
    /// The packets that came while the process was stopped.
    backlog: VecDeque<(u64, Packet)>,
    /// How much faster than true time the clock runs, in millionths.
    ppm: i64,
    snapshot: Option<Data>,
    /// The time of the clock, in milliseconds, of the last loss of data. A restart loses data when
    /// the server is back.
    lost_at: Option<u64>,
    /// The connections that were open when data was last lost, except those whose dial sees the
    /// loss. Their replies come after the report of the loss, so the replies must not count.
    stale: Vec<u64>,
    /// The time that is added to each way, in microseconds.
    pub(super) slow: u64,
    pub(super) dribbles: bool,
    pub(super) floods: bool,
    pub(super) has_share: bool,
    /// When each key, or slot of it, was last granted to each process, in true time.
    grants: BTreeMap<(usize, String, Option<usize>), u64>,
    /// When each process last found that another client had the key, or this slot of it, as it
    /// extended its lock or put the key back.
    rivals: BTreeMap<(usize, String, Option<usize>), u64>,
    /// The holders that have extended a lock here. If such a holder takes the lock, it puts the key
    /// back.
    holders: BTreeSet<Vec<u8>>,
}

/// A connection, as the server sees it.
#[derive(Default)]
struct Peer {
    /// The number on the server. 0 if the connection was broken before the first bytes came.
    connection: u64,
    /// The start of a command.
    input: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    Down,
    /// The process is stopped, as by SIGSTOP.
    Stopped,
    Up,
}

/// Returns the time that a correct clock shows, in microseconds. `now` is the time since the start.
fn micros(now: u64) -> u64 {
    Process::EPOCH.as_micros() as u64 + now
}

impl Server {
    pub(super) fn new(master: usize, plan: &Plan) -> Self {
        const HOUR: u64 = 3_600_000_000;
        // Some masters release mutexes without a script.
        let versions = [Version::Redis7, Version::Redis8, Version::Valkey9];
        let version = versions[(plan.seed as usize / 2 + master) % versions.len()];
        let mut heart = heart::Server::new(&format!("sim:{master}"), version);
        let (start, ppm) = (micros(0), plan.server_ppm[master]);
        heart.set_clock(start, plan.server_offsets[master] * 1_000, ppm);
        // Somebody used the master an hour ago, so it is not new.
        let newcomer = ["EVAL", ORIGIN.text(), "1", ORIGIN_KEY, "observed"];
        heart.run(&newcomer, start - HOUR);
        if !plan.reports_changes[master] {
            heart.deny("client|tracking");
        }
        Self {
            heart,
            run: Run::Up,
            peers: BTreeMap::new(),
            numbers: Vec::new(),
            backlog: VecDeque::new(),
            ppm,
            snapshot: None,
            lost_at: None,
            stale: Vec::new(),
            slow: 0,
            dribbles: false,
            floods: false,
            has_share: false,
            grants: BTreeMap::new(),
            rivals: BTreeMap::new(),
            holders: BTreeSet::new(),
        }
    }

    /// Returns the time of the clock in milliseconds. `now` is the true time.
    pub(super) fn millis(&self, now: u64) -> u64 {
        self.heart.micros(micros(now)) / 1_000
    }

    pub(super) fn step_clock(&mut self, now: u64, step: i64) {
        let now = micros(now);
        let ahead = self.heart.micros(now).wrapping_sub(now) as i64;
        self.heart.set_clock(now, ahead + step, self.ppm);
    }

    /// Returns the keys that have not expired, without the origin record.
    pub(super) fn key_names(&mut self, now: u64) -> Vec<String> {
        let micros = self.heart.micros(micros(now));
        let names = self.heart.keys().names(micros);
        let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
        names.filter(|name| name != ORIGIN_KEY).collect()
    }

    pub(super) fn take_snapshot(&mut self) {
        self.snapshot = Some(self.heart.snapshot());
    }

    /// Answers all commands about keys with this error from now on.
    pub(super) fn refuse_with(&mut self, error: Option<&str>) {
        self.heart.refuse_with(error);
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

    /// Returns what the key of a lock has of other clients than the sender of `command`.
    fn foreign(&mut self, command: &LockCommand<'_>, now: u64) -> Option<Foreign> {
        let micros = self.heart.micros(micros(now));
        let keys = self.heart.keys();
        let value = keys.value(command.key, micros)?;
        if let (LockKind::ReadWrite | LockKind::Semaphore, Value::Hash(fields)) =
            (command.kind, value)
        {
            let owner = match command.by {
                Some(By::Owner(owner, _)) => Some(owner),
                Some(By::Token(_)) | None => None,
            };
            let mut entries = fields.clone();
            entries.retain(|field, value| {
                is_entry_of_another(field, value, owner, micros / 1_000).unwrap_or(false)
            });
            return Some(Foreign::Entries(entries));
        }
        let is_own = match (value, command.by) {
            (Value::Text(token), Some(By::Token(mine))) => mine == token,
            (Value::Hash(fields), Some(By::Owner(owner, _))) => fields.contains_key(owner),
            _ => false,
        };
        (!is_own).then(|| Foreign::Key(value.clone(), keys.pttl(command.key, micros)))
    }

    /// Returns whether a command has changed what the key had of other clients before.
    fn has_changed(&mut self, key: &str, before: &Foreign, now: u64) -> bool {
        let micros = self.heart.micros(micros(now));
        let keys = self.heart.keys();
        match (before, keys.value(key, micros)) {
            (Foreign::Key(value, pttl), Some(now)) => {
                (now, keys.pttl(key, micros)) != (value, *pttl)
            }
            (Foreign::Entries(entries), Some(Value::Hash(fields))) => {
                let is_kept = |(field, value)| fields.get(field) == Some(value);
                !entries.iter().all(is_kept)
            }
            (Foreign::Entries(entries), _) => !entries.is_empty(),
            (Foreign::Key(..), None) => true,
        }
    }

    fn exists(&mut self, key: &str, now: u64) -> bool {
        let micros = self.heart.micros(micros(now));
        self.heart.keys().value(key, micros).is_some()
    }

    /// Returns the number of a connection on the server, which may learn of it only now.
    fn connection(&mut self, number: u64, is_served: bool) -> u64 {
        let peer = self.peers.entry(number).or_default();
        if peer.connection == 0 && is_served {
            peer.connection = self.heart.connect();
            self.numbers.push(number);
        }
        peer.connection
    }

    pub(super) fn close(&mut self, number: u64) {
        if let Some(peer) = self.peers.get(&number) {
            self.heart.close(peer.connection);
        }
    }

    fn execute(&mut self, connection: u64, words: &Words<'_>, now: u64) -> Reply {
        self.heart.execute(connection, words, micros(now))
    }

    /// Notes what the reply to a command of a process says about its lock.
    fn note(
        &mut self,
        process: usize,
        number: u64,
        sent: &LockCommand<'_>,
        reply: &Reply,
        now: u64,
    ) {
        let holder = match sent.by {
            Some(By::Owner(owner, attempt)) => [owner, b" ", attempt].concat(),
            Some(By::Token(token)) => token.to_vec(),
            None => return,
        };
        let is_of_holder = match sent.verb {
            Verb::Acquire => self.holders.contains(&holder),
            Verb::Extend => {
                self.holders.insert(holder);
                true
            }
            _ => return,
        };
        let key = |slot: Option<Slot>| (process, sent.key.to_owned(), slot.map(Slot::shown));
        match sent.answer(reply) {
            Answer::Granted(slot) if !self.stale.contains(&number) => {
                self.grants.insert(key(slot), now);
            }
            Answer::Held if is_of_holder => {
                self.rivals.insert(key(sent.slot), now);
            }
            Answer::Granted(_) | Answer::Held | Answer::Other => {}
        }
    }
}

/// What the key of a lock has of other clients than the sender of a command.
enum Foreign {
    /// The entries of a read-write lock or a semaphore whose leases have not ended.
    Entries(BTreeMap<Vec<u8>, Vec<u8>>),
    /// The value, and the time to live.
    Key(Value, i64),
}

/// Returns whether a field is the entry of another owner of a read-write lock or a semaphore, whose
/// lease has not ended. `None` if it is no entry.
fn is_entry_of_another(
    field: &[u8],
    value: &[u8],
    owner: Option<&[u8]>,
    millis: u64,
) -> Option<bool> {
    let permit = field.strip_prefix(b"quorlock:permit:");
    let mut words = value.splitn(4, |byte| *byte == b' ');
    let ends = words.nth(if permit.is_some() { 1 } else { 2 })?;
    let ends: u64 = str::from_utf8(ends).ok()?.parse().ok()?;
    let by = permit.or_else(|| field.strip_prefix(b"quorlock:reader:"));
    let by = by.or_else(|| words.next());
    Some(ends > millis && by != owner)
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
        match packet {
            Packet::Bytes(bytes) if number == 0 => self.arrive_again(master, &bytes),
            Packet::Bytes(bytes) => self.arrive_bytes(master, number, bytes),
            Packet::Fin => {
                server.close(number);
                server.peers.remove(&number);
                if let Some(link) = self.link(number) {
                    link.is_served = false;
                }
            }
        }
    }

    fn arrive_bytes(&mut self, master: usize, number: u64, bytes: Vec<u8>) {
        let is_served = self.link(number).is_some_and(|link| link.is_served);
        let server = &mut self.servers[master];
        let connection = server.connection(number, is_served);
        let peer = server.peers.entry(number).or_default();
        let mut input = mem::take(&mut peer.input);
        if input.is_empty() {
            input = bytes;
        } else {
            input.extend_from_slice(&bytes);
        }
        let mut rest = &*input;
        while let Some(words) = commands::take(&mut rest) {
            self.serve(master, (number, connection), &words);
        }
        let rest = rest.to_vec();
        if let Some(peer) = self.servers[master].peers.get_mut(&number) {
            peer.input = rest;
        }
        self.send_outputs(master, number);
    }

    fn arrive_again(&mut self, master: usize, mut bytes: &[u8]) {
        while let Some(words) = commands::take(&mut bytes) {
            if commands::is_of_lock(&words) {
                self.serve(master, (0, 0), &words);
            }
        }
        self.send_outputs(master, 0);
    }

    /// Executes a command of a connection, which is given by its number and that on the server.
    fn serve(&mut self, master: usize, (number, connection): (u64, u64), words: &Words<'_>) {
        let now = self.now();
        if let Some(sent) = LockCommand::read(words) {
            return self.serve_lock(master, (number, connection), words, &sent);
        }
        let is_open = self.link(number).is_some_and(|link| link.is_open);
        let server = &mut self.servers[master];
        // This is the gap in `Observed`: after a loss, a late greeting of a process that knew no
        // master would take this one for new.
        if !is_open && server.lost_at.is_some() && commands::takes_for_new(words) {
            return;
        }
        let reply = server.execute(connection, words, now);
        if commands::asks_for_origin(words) {
            server.stale.retain(|one| *one != number); // the dial sees the loss
        }
        self.log(|| {
            let words = Shown(words);
            format!("master {master} answers connection {number}: {words}: {reply:?}")
        });
    }

    fn serve_lock(
        &mut self,
        master: usize,
        (number, connection): (u64, u64),
        words: &Words<'_>,
        sent: &LockCommand<'_>,
    ) {
        let now = self.now();
        let link = self.link(number);
        let is_broken = link.as_ref().is_none_or(|link| !link.is_served);
        let process = link.map(|link| link.process);
        let server = &mut self.servers[master];
        let key = sent.key;
        let before = server.foreign(sent, now);
        let was_free = !server.exists(key, now);
        let reply = server.execute(connection, words, now);
        let is_changed = before.is_some_and(|before| server.has_changed(key, &before, now));
        let is_created = was_free && sent.verb != Verb::Acquire && server.exists(key, now);
        if let Some(process) = process {
            server.note(process, number, sent, &reply, now);
        }
        // The process never gets the reply, or learns of the loss before that.
        let is_stale = is_broken || server.stale.contains(&number);
        let in_quarantine = server
            .lost_at
            .zip(self.guarded_ttl)
            .is_some_and(|(lost, ttl)| server.millis(now) < lost + ttl);
        let shown = Shown(words);
        self.log(|| {
            format!("master {master} executes for connection {number}: {shown}: {reply:?}")
        });
        if is_created {
            self.violate(Rule::ForeignKey, || {
                format!("master {master}: {shown} created {key}")
            });
        }
        if is_changed {
            self.violate(Rule::ForeignKey, || {
                format!("master {master}: {shown} changed another holder's {key}")
            });
        }
        if in_quarantine && !is_stale && sent.verb.quarantine_applies() {
            self.violate(Rule::Quarantine, || {
                format!("master {master} was asked in its quarantine: {shown}")
            });
        }
    }

    /// Sends what the server has for its connections. Connection `answered` gets replies, and the
    /// others get pushes only.
    fn send_outputs(&mut self, master: usize, answered: u64) {
        let server = &mut self.servers[master];
        for (connection, bytes) in server.heart.outputs() {
            let number = self.servers[master].numbers[connection as usize - 1];
            let has_reply = number == answered;
            self.send_down(number, Delivery::Bytes { bytes, has_reply });
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
        const MESSAGE: &[u8] = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\nother\r\n";
        if !self.servers[master].floods {
            return;
        }
        for number in self.links_of(master) {
            let bytes = MESSAGE.to_vec();
            let has_reply = false;
            self.send_down(number, Delivery::Bytes { bytes, has_reply });
        }
        let next = self.now() + PERIOD;
        self.schedule(next, What::Flood(master));
    }

    pub(super) fn begin_share(&mut self, master: usize) {
        self.servers[master].has_share = true;
        self.turn(master);
    }

    /// Lets a master rest if it runs, and run if it rests. One that has its processor back runs on.
    pub(super) fn turn(&mut self, master: usize) {
        /// The times in microseconds.
        const RUNS: u64 = 10_000;
        const RESTS: u64 = 90_000;
        let server = &self.servers[master];
        let (has_share, rests) = (server.has_share, server.run == Run::Stopped);
        let time = if rests || !has_share {
            self.continue_server(master);
            RUNS
        } else {
            self.stop_server(master);
            RESTS
        };
        if has_share {
            let next = self.now() + time;
            self.schedule(next, What::Turn(master));
        }
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
        self.servers[master].peers.clear();
    }

    pub(super) fn start_server(&mut self, master: usize, data: plan::Data) {
        let now = self.now();
        let server = &mut self.servers[master];
        if server.run != Run::Down {
            return;
        }
        server.run = Run::Up;
        let (keys, loses) = match data {
            plan::Data::Kept => (server.heart.snapshot(), false),
            plan::Data::TailLost => (server.snapshot.take().unwrap_or_default(), true),
            plan::Data::AllLost => (Data::new(), true),
        };
        server.heart.restart(keys);
        if loses {
            server.lost_at = Some(server.millis(now));
        }
    }

    pub(super) fn flush_server(&mut self, master: usize) {
        self.servers[master].heart.flush();
        self.lose(master);
    }

    /// Makes a master a replica that refuses writes. No connection breaks.
    pub(super) fn demote_server(&mut self, master: usize) {
        let error = "READONLY You can't write against a read only replica.";
        self.servers[master].refuse_with(Some(error));
    }

    /// Makes the replica a master again. It has the data of the snapshot, or none.
    pub(super) fn promote_server(&mut self, master: usize) {
        let server = &mut self.servers[master];
        server.refuse_with(None);
        if server.run != Run::Down {
            let keys = server.snapshot.take().unwrap_or_default();
            server.heart.resync(keys);
            self.lose(master);
        }
    }

    /// Reports that all keys were deleted or replaced.
    fn lose(&mut self, master: usize) {
        let now = self.now();
        let server = &mut self.servers[master];
        server.lost_at = Some(server.millis(now));
        let heart = &server.heart;
        let open = server
            .peers
            .iter()
            .filter(|(_, peer)| heart.is_open(peer.connection));
        server.stale = open.map(|(number, _)| *number).collect();
        self.send_outputs(master, 0);
    }

    /// Deletes the keys of locks, as eviction does. Their counters stay.
    pub(super) fn evict(&mut self, master: usize, names: &[&str]) {
        let now = micros(self.now());
        for name in names {
            self.servers[master].heart.run(&["DEL", name], now);
        }
        self.send_outputs(master, 0);
    }
}
