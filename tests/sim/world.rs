//! The masters and the network between them and the processes. One seed decides everything that
//! happens here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io, mem,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures::future::select;
use parking_lot::Mutex;
use testkit::random::Random;
use tokio::{io::ReadBuf, sync::Notify, time::Instant};

use super::{
    checker::{Rule, Violations},
    commands::{self, LockCommand, Words},
    hurry::Hurry,
    network::{Delivery, Link, Packet, Path, Way},
    plan::{Latency, Plan},
    process::Process,
    server::{Run, Server},
};

pub(crate) struct World {
    start: Instant,
    random: Random,
    pub(super) latency: Latency,
    /// What will happen, by its time and its number. Of two events at the same time, the one with the
    /// lower number comes first.
    events: BTreeMap<(u64, u64), What>,
    /// The number of events so far.
    count: u64,
    /// Notified when there may be an event before the one that the network waits for.
    earlier: Arc<Notify>,
    links: BTreeMap<u64, Link>,
    connected: u64,
    /// The paths by process and master.
    paths: Vec<Vec<Path>>,
    /// Whether all masters answer in time. Cleared when the programs end.
    pub(super) is_healthy: bool,
    /// The maximum TTL in milliseconds, if all processes use quarantine.
    pub(super) guarded_ttl: Option<u64>,
    pub(super) servers: Vec<Server>,
    /// The processes that have just been continued. They handle their timers before they read what
    /// has arrived meanwhile.
    waking: BTreeSet<usize>,
    /// The processes that run now, one in each place.
    pub(super) processes: Vec<Arc<Process>>,
    /// `None` unless the run is recorded.
    log: Option<Vec<String>>,
    pub(super) violations: Violations,
    /// The commands that each process has sent to each master.
    pub(super) sent: Rates,
    hurry: Hurry,
    /// The connections that each process has opened to each master.
    pub(super) dialled: Rates,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) enum What {
    /// A packet arrives at the master of a connection.
    Up(u64, Packet),
    /// Commands arrive once more, over no connection.
    Again(usize, Vec<u8>),
    Down(u64, Delivery),
    /// A master that floods sends its next messages.
    Flood(usize),
    /// A process that was continued reads its sockets.
    Read(usize),
    /// A master with a share of a processor begins to run or to rest.
    Turn(usize),
}

/// Counts what each process does to each master, in windows of one second.
#[derive(Default)]
pub(super) struct Rates {
    seconds: BTreeMap<(usize, usize), (u64, u32)>,
    pub(super) highest: u32,
}

impl Rates {
    fn count(&mut self, of: (usize, usize), now: u64, more: u32) {
        let (began, count) = self.seconds.entry(of).or_insert((now, 0));
        if now - *began >= 1_000_000 {
            (*began, *count) = (now, 0);
        }
        *count += more;
        self.highest = self.highest.max(*count);
    }
}

impl World {
    pub(super) fn new(plan: &Plan, is_recorded: bool) -> Self {
        let servers = (0..plan.masters).map(|master| Server::new(master, plan));
        let paths = (0..=plan.places).map(|_| (0..plan.masters).map(|_| Path::default()).collect());
        Self {
            start: Instant::now(),
            random: Random::new(plan.seed ^ 0x6e65_7477_6f72_6b00),
            latency: plan.latency,
            events: BTreeMap::new(),
            count: 0,
            earlier: Arc::default(),
            links: BTreeMap::new(),
            connected: 0,
            paths: paths.collect(),
            is_healthy: plan.has_healthy_masters(),
            guarded_ttl: plan.guarded_ttl(),
            servers: servers.collect(),
            waking: BTreeSet::new(),
            processes: Vec::new(),
            log: is_recorded.then(Vec::new),
            violations: Violations::default(),
            sent: Rates::default(),
            hurry: Hurry::default(),
            dialled: Rates::default(),
        }
    }

    /// Returns the true time since the start, in microseconds.
    pub(super) fn now(&self) -> u64 {
        (Instant::now() - self.start).as_micros() as u64
    }

    pub(super) fn log(&mut self, line: impl FnOnce() -> String) {
        if self.log.is_none() {
            return;
        }
        let now = self.now();
        if let Some(log) = &mut self.log {
            log.push(format!("{:>11.6} {}", now as f64 / 1e6, line()));
        }
    }

    pub(super) fn take_log(&mut self) -> Vec<String> {
        self.log.take().unwrap_or_default()
    }

    /// Starts a process in a place.
    pub(super) fn start_process(&mut self, place: usize, seed: u64, ppm: i64) -> Arc<Process> {
        let process = Process::new(place, seed, ppm, self.start);
        if place < self.processes.len() {
            self.processes[place] = process.clone();
        } else {
            self.processes.push(process.clone());
        }
        process
    }

    /// Notes that a process was continued.
    pub(super) fn continue_process(&mut self, place: usize) {
        self.waking.insert(place);
        let links = self.links.values_mut();
        let links = links.filter(|link| link.process == place);
        links.for_each(|link| link.stops += 1);
        let now = self.now();
        self.schedule(now, What::Read(place));
    }

    /// Opens a connection. Returns its number.
    pub(super) fn connect(&mut self, process: usize, master: usize) -> u64 {
        self.connected += 1;
        let link = Link {
            process,
            master,
            is_open: true,
            is_served: true,
            up: Way::default(),
            down: Way::default(),
            inbox: Default::default(),
            waker: None,
            stops: 0,
        };
        self.links.insert(self.connected, link);
        let (number, now) = (self.connected, self.now());
        self.dialled.count((process, master), now, 1);
        self.log(|| format!("place {process} opens connection {number} to master {master}"));
        number
    }

    /// Closes the client's end of a connection.
    pub(super) fn close(&mut self, number: u64) {
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        link.is_open = false;
        link.inbox.clear();
        link.waker = None;
        self.send_up(number, Packet::Fin);
    }

    /// Notes that a client gives up a silent connection.
    pub(super) fn give_up(&mut self, number: u64) {
        let Some(link) = self.links.get(&number) else {
            return;
        };
        let text = format!("place {} gives up master {}", link.process, link.master);
        // Only one stall is forgiven between two replies.
        if self.is_healthy && link.stops <= 1 {
            self.violate(Rule::GivenUp, || text);
        } else {
            self.log(|| text);
        }
    }

    /// Reads what has arrived on a connection. If nothing has, `cx` is woken when something does.
    pub(super) fn read(
        &mut self,
        number: u64,
        cx: &Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(link) = self.links.get_mut(&number) else {
            return Poll::Ready(Ok(()));
        };
        if link.inbox.is_empty() || self.waking.contains(&link.process) {
            link.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let before = space.filled().len();
        while space.remaining() > 0
            && let Some(next) = link.inbox.front_mut()
        {
            let (bytes, has_reply) = match next {
                Delivery::Broken(_) if space.filled().len() > before => break,
                Delivery::Broken(why) => {
                    let error = io::Error::new(io::ErrorKind::ConnectionReset, *why);
                    return Poll::Ready(Err(error));
                }
                Delivery::Bytes { bytes, has_reply } => (bytes, *has_reply),
            };
            let count = bytes.len().min(space.remaining());
            space.put_slice(&bytes[..count]);
            bytes.drain(..count);
            if bytes.is_empty() {
                link.inbox.pop_front();
                if has_reply {
                    link.stops = 0;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn has_input(&self, number: u64) -> bool {
        let link = self.links.get(&number);
        link.is_some_and(|link| !link.inbox.is_empty())
    }

    /// Writes whole commands to a connection.
    pub(super) fn write(&mut self, number: u64, bytes: &[u8]) {
        let Some(link) = self.links.get(&number) else {
            return;
        };
        let (of, now) = ((link.process, link.master), self.now());
        let (mut rest, mut count) = (bytes, 0);
        while let Some(words) = commands::take(&mut rest) {
            count += u32::from(commands::is_of_lock(&words));
            self.check_pause(of, &words);
        }
        debug_assert!(rest.is_empty(), "a command is written in one piece");
        self.sent.count(of, now, count);
        self.send_up(number, Packet::Bytes(bytes.to_vec()));
    }

    /// Checks that the claim of a command does not make rounds without a pause.
    fn check_pause(&mut self, (process, master): (usize, usize), words: &Words<'_>) {
        let now = self.now();
        let Some(sent) = LockCommand::read(words) else {
            return;
        };
        if let Some(rounds) = self.hurry.note(master, &sent, now) {
            self.violate(Rule::Pause, || {
                format!("an owner of place {process} makes {rounds} rounds without a pause")
            });
        }
    }

    fn send_up(&mut self, number: u64, packet: Packet) {
        let now = self.now();
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        let (process, master) = (link.process, link.master);
        if self
            .processes
            .get(process)
            .is_some_and(|process| process.has_crashed())
        {
            return; // the machine is gone, and the master never hears of it
        }
        let path = &mut self.paths[process][master];
        if path.is_cut_up {
            path.held_up.push((number, packet));
            return;
        }
        self.travel_up(number, packet, now);
    }

    fn travel_up(&mut self, number: u64, packet: Packet, now: u64) {
        let Packet::Bytes(bytes) = packet else {
            return self.send_packet(number, packet, now);
        };
        let is_doubled = self.random.is_one_in(self.latency.doubled_one_in);
        let copy = is_doubled.then(|| bytes.clone());
        let most = self.most_in_packet(bytes.len());
        for part in parts(bytes, most) {
            self.send_packet(number, Packet::Bytes(part), now);
        }
        let again = self.random.below(self.latency.again_within.max(1));
        if let (Some(copy), Some(link)) = (copy, self.links.get(&number))
            && !link.up.is_lost
        {
            let (at, master) = (link.up.last, link.master);
            self.schedule(at + again, What::Again(master, copy));
        }
    }

    /// Returns how many of `length` bytes one packet has at most: all, or fewer if they travel in
    /// two packets.
    fn most_in_packet(&mut self, length: usize) -> usize {
        let first = match self.random.is_one_in(8) {
            true => self.random.index(length),
            false => length,
        };
        first.max(length - first)
    }

    fn send_packet(&mut self, number: u64, packet: Packet, now: u64) {
        if let Some(at) = self.arrival(number, |link| &mut link.up, now) {
            self.schedule(at, What::Up(number, packet));
        }
    }

    /// Returns when a packet arrives that is sent now, or `None` if it is lost.
    fn arrival(&mut self, number: u64, way: fn(&mut Link) -> &mut Way, now: u64) -> Option<u64> {
        let is_lost = self.random.is_one_in(self.latency.lost_one_in);
        let delay = self.latency.draw(&mut self.random);
        let link = self.links.get_mut(&number)?;
        let (slow, way) = (self.servers[link.master].slow, way(link));
        way.is_lost |= is_lost;
        if way.is_lost {
            return None;
        }
        way.last = (now + delay + slow).max(way.last + 1);
        Some(way.last)
    }

    pub(super) fn send_down(&mut self, number: u64, delivery: Delivery) {
        /// The microseconds between the parts of a reply of a master that dribbles.
        const PAUSE: u64 = 20_000;
        let now = self.now();
        let Some(link) = self.links.get(&number) else {
            return;
        };
        let path = &mut self.paths[link.process][link.master];
        if path.is_cut_down {
            path.held_down.push((number, delivery));
            return;
        }
        let dribbles = self.servers[link.master].dribbles;
        let Delivery::Bytes { bytes, has_reply } = delivery else {
            return self.deliver(number, delivery, now);
        };
        let (most, pause) = match has_reply && dribbles {
            true => (bytes.len().div_ceil(4), PAUSE),
            false => (self.most_in_packet(bytes.len()), 0),
        };
        let parts = parts(bytes, most);
        let count = parts.len() as u64;
        for (at, bytes) in (1..).zip(parts) {
            let has_reply = has_reply && at == count;
            self.deliver(
                number,
                Delivery::Bytes { bytes, has_reply },
                now + at * pause,
            );
        }
    }

    fn deliver(&mut self, number: u64, delivery: Delivery, now: u64) {
        if let Some(at) = self.arrival(number, |link| &mut link.down, now) {
            self.schedule(at, What::Down(number, delivery));
        }
    }

    /// Cuts or restores a path in one or both directions.
    pub(super) fn cut(&mut self, process: usize, master: usize, up: bool, down: bool) {
        let now = self.now();
        let path = &mut self.paths[process][master];
        (path.is_cut_up, path.is_cut_down) = (up, down);
        let (mut held_up, mut held_down) = (Vec::new(), Vec::new());
        if !up {
            held_up = mem::take(&mut path.held_up);
        }
        if !down {
            held_down = mem::take(&mut path.held_down);
        }
        for (number, packet) in held_up {
            self.travel_up(number, packet, now);
        }
        for (number, delivery) in held_down {
            self.send_down(number, delivery);
        }
    }

    /// Resets the connections of a process with a master.
    pub(super) fn reset(&mut self, process: usize, master: usize, why: &'static str) {
        for number in self.links_of(master) {
            if self.links[&number].process == process {
                self.break_link(number, why);
            }
        }
    }

    /// Breaks a connection. The client notices it soon, unless a partition is in the way.
    pub(super) fn break_link(&mut self, number: u64, why: &'static str) {
        if let Some(link) = self.links.get_mut(&number) {
            link.is_served = false;
            let master = link.master;
            self.servers[master].close(number);
            self.send_down(number, Delivery::Broken(why));
        }
    }

    pub(super) fn links_of(&self, master: usize) -> Vec<u64> {
        let links = self.links.iter();
        links
            .filter(|(_, link)| link.master == master && link.is_served)
            .map(|(number, _)| *number)
            .collect()
    }

    pub(super) fn link(&mut self, number: u64) -> Option<&mut Link> {
        self.links.get_mut(&number)
    }

    pub(super) fn schedule(&mut self, at: u64, what: What) {
        self.count += 1;
        let first = self.events.first_key_value();
        let is_first = first.is_none_or(|((first, _), _)| at < *first);
        self.events.insert((at, self.count), what);
        if is_first {
            self.earlier.notify_one();
        }
    }

    /// Lets all due events happen. Returns the time of the next one.
    fn run_due(&mut self) -> Option<u64> {
        let now = self.now();
        while let Some(next) = self.events.first_entry() {
            let (at, _) = *next.key();
            if at > now {
                return Some(at);
            }
            let what = next.remove();
            self.happen(what);
        }
        None
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Up(number, packet) => {
                let Some(link) = self.links.get_mut(&number) else {
                    return;
                };
                let master = link.master;
                if link.is_served && self.servers[master].run != Run::Down {
                    self.arrive(master, number, packet);
                } else if mem::take(&mut link.is_served) {
                    self.send_down(number, Delivery::Broken("connection refused"));
                }
                if self
                    .links
                    .get(&number)
                    .is_some_and(|link| !link.is_open && !link.is_served)
                {
                    self.links.remove(&number);
                }
            }
            What::Again(master, bytes) => {
                if self.servers[master].run != Run::Down {
                    self.arrive(master, 0, Packet::Bytes(bytes));
                }
            }
            What::Flood(master) => self.flood(master),
            What::Read(process) => {
                self.waking.remove(&process);
                let links = self.links.values_mut();
                for link in links.filter(|link| link.process == process) {
                    link.waker.take().into_iter().for_each(Waker::wake);
                }
            }
            What::Turn(master) => self.turn(master),
            What::Down(number, delivery) => {
                let Some(link) = self.links.get_mut(&number) else {
                    return;
                };
                if link.is_open {
                    link.inbox.push_back(delivery);
                    if let Some(waker) = link.waker.take() {
                        Waker::wake(waker);
                    }
                } else if !link.is_served {
                    self.links.remove(&number);
                }
            }
        }
    }

    pub(super) fn violate(&mut self, rule: Rule, what: impl FnOnce() -> String) {
        let text = what();
        self.log(|| format!("VIOLATION {rule:?}: {text}"));
        let now = self.now();
        self.violations.push(rule, now, text);
    }

    pub(super) fn open_links(&self) -> usize {
        self.links.values().filter(|link| link.is_open).count()
    }
}

/// Cuts bytes into parts of at most `most` bytes.
fn parts(bytes: Vec<u8>, most: usize) -> Vec<Vec<u8>> {
    match bytes.len() > most {
        true => bytes.chunks(most).map(<[u8]>::to_vec).collect(),
        false => vec![bytes],
    }
}

/// Runs the network until it is dropped.
pub(super) async fn run(world: Arc<Mutex<World>>) {
    let (earlier, start) = {
        let world = world.lock();
        (world.earlier.clone(), world.start)
    };
    loop {
        let next = world.lock().run_due();
        match next {
            // Tokio's timers fire at whole milliseconds.
            Some(at) => {
                let sleep = tokio::time::sleep_until(start + Duration::from_micros(at));
                select(pin!(sleep), pin!(earlier.notified())).await;
            }
            None => earlier.notified().await,
        }
    }
}
