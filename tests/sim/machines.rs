//! The fast mode: machines alone, without sockets, tasks and futures. A step of a run is an input
//! of one machine, or something that happens to a connection, to a master or to the clock.
//!
//! Masters are servers of `quorlock-memory`, and get each command as bytes. They may restart, with
//! their data or without. Connections carry commands and replies in order, and may be cut anywhere.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use quorlock_memory::heart::{self, Data, Version};
use testkit::random::Random;

use crate::{
    LockKind, Renewal,
    core::{
        config::Config,
        kind::Access,
        protocol::{
            command::Holding,
            identity::{Identity, OwnerAttempt, Ticket},
            name::{KeyTemplate, LockId, Token},
        },
        restart::{DataLoss, Sign},
        time::{ResponseTimeout, lease::Ttl, tick::Tick},
        vote::{
            MasterSet,
            quorum::{Outcome, Quorum, Roster},
        },
    },
    machine::{
        ClaimId, Machine, Now,
        claim::{Claim, ask::Asking, step::Step},
        out::Request,
        session::{Subscription, Transmit},
    },
    master::{ScriptAs, encode_command, reply},
};

const MILLI: u64 = 1_000_000;
/// The longest TTL of a lock.
const MOST_TTL: Duration = Duration::from_millis(2_000);

/// Runs one seed. Returns the number of acquisitions, or what was wrong. Prints what happens, if
/// `prints` is set.
pub(super) fn run(seed: u64, prints: bool) -> Result<u64, String> {
    let mut run = Run::new(seed, prints);
    for _ in 0..200 + run.random.below(600) {
        run.step();
        run.check()?;
    }
    run.end()?;
    Ok(run.acquired)
}

struct Run {
    random: Random,
    /// The true time since the start, in nanoseconds.
    now: u64,
    locks: Vec<(LockId, Ttl)>,
    servers: Vec<Server>,
    clients: Vec<Client>,
    /// The newest token of each lock.
    tokens: BTreeMap<usize, u64>,
    acquired: u64,
    wrong: Option<String>,
    prints: bool,
}

struct Server {
    heart: heart::Server,
    is_up: bool,
    /// When the server last lost its data.
    lost_at: Option<u64>,
    /// The longest time from a post to the execution.
    delay: Duration,
}

impl Server {
    fn receive(&mut self, connection: u64, (posted, bytes): (Tick, Vec<u8>), now: u64) {
        self.delay = self.delay.max(tick(now).since(posted));
        self.heart.receive(connection, &bytes, micros(now));
    }
}

struct Client {
    machine: Machine,
    links: Vec<Link>,
    calls: Vec<Call>,
}

/// A connection of a client to a master, or the lack of one.
#[derive(Default)]
struct Link {
    /// The number of the connection on the server.
    connection: Option<u64>,
    /// Set if the last connection has ended, and the dial that follows at once is not over.
    is_dialling: bool,
    /// The commands under way, each with the time of its post, and the replies.
    sent: VecDeque<(Tick, Vec<u8>)>,
    replies: VecDeque<Vec<u8>>,
}

/// A claim of a client.
struct Call {
    id: ClaimId,
    lock: usize,
    levels: Vec<Access>,
    is_won: bool,
}

impl Transmit for Link {
    fn send(&mut self, request: &Request) {
        let mut bytes = Vec::new();
        encode_command(&request.command, ScriptAs::Text, &mut bytes);
        self.sent.push_back((request.posted, bytes));
    }

    fn send_change(&mut self, _: &Subscription) {
        unreachable!("no one waits");
    }

    fn send_caching(&mut self) {
        unreachable!("no master reports changes");
    }

    fn has_input(&self) -> bool {
        !self.replies.is_empty()
    }
}

impl Run {
    fn new(seed: u64, prints: bool) -> Self {
        let mut random = Random::new(seed);
        let masters = [1, 2, 3, 3, 5][random.index(5)];
        // While masters change, a majority of both lists is needed.
        let (masters, quorum) = match random.is_one_in(4) {
            true => (
                4,
                Quorum::of_sets(&[[0, 1, 2], [1, 2, 3]].map(MasterSet::from_iter)),
            ),
            false => (masters, Quorum::of(masters)),
        };
        let names = KeyTemplate::parse("{name}").unwrap();
        let lock = |lock: u64, random: &mut Random| {
            let kind = random.pick(&LockKind::ALL);
            let lock_id = names.lock_id(kind, format!("r{lock}").into()).unwrap();
            let ttl = Duration::from_millis(200 + random.below(1_800));
            let permits = if kind == LockKind::Semaphore { 2 } else { 1 };
            (lock_id.with_permits(permits), Ttl::whole(ttl).unwrap())
        };
        let config = Arc::new(Config {
            response_timeout: ResponseTimeout::Fixed(Duration::from_millis(50)),
            max_ttl: Ttl::whole(MOST_TTL).ok(),
            ..Config::of_defaults().unwrap()
        });
        let addresses = (0..masters).map(|master| format!("m{master}").into());
        let roster = Roster::new(addresses, quorum);
        let client = || Client {
            machine: Machine::new(roster.clone(), config.clone(), tick(0)),
            links: (0..masters).map(|_| Link::default()).collect(),
            calls: Vec::new(),
        };
        let mut server = |master| {
            let version = random.pick(&[Version::Redis7, Version::Redis8, Version::Valkey9]);
            let mut heart = heart::Server::new(&format!("m{master}"), version);
            heart.set_clock(micros(0), 0, random.below(10_000) as i64 - 5_000);
            Server {
                heart,
                is_up: true,
                lost_at: None,
                delay: Duration::ZERO,
            }
        };
        Self {
            servers: (0..masters).map(&mut server).collect(),
            clients: (0..3).map(|_| client()).collect(),
            locks: (0..2).map(|number| lock(number, &mut random)).collect(),
            random,
            now: 0,
            tokens: BTreeMap::new(),
            acquired: 0,
            wrong: None,
            prints,
        }
    }

    fn step(&mut self) {
        let step = self.random.below(100);
        let has_something = |link: &Link| match step {
            0..40 => !link.sent.is_empty(),
            40..76 => !link.replies.is_empty(),
            _ => true,
        };
        let links = |(client, it): (usize, &Client)| {
            let links = it.links.iter().enumerate();
            let these = links.filter(|(_, link)| has_something(link));
            these
                .map(|(master, _)| (client, master))
                .collect::<Vec<_>>()
        };
        let places: Vec<_> = self.clients.iter().enumerate().flat_map(links).collect();
        if places.is_empty() {
            return;
        }
        let (client, master) = self.random.pick(&places);
        match step {
            0..40 => self.deliver(client, master),
            40..76 => self.reply(client, master),
            76..92 => self.act(client),
            92..98 => {
                let most = self.random.pick(&[1, 1, 10, 10, 100, 1_000]);
                self.now += self.random.below(most * MILLI);
            }
            98 => self.cut(client, master),
            _ if self.random.is_one_in(2) => self.disturb(master),
            _ => {}
        }
        self.serve(client);
    }

    fn print(&self, text: impl FnOnce() -> String) {
        if self.prints {
            println!("{:>9} {}", self.now / 1_000, text());
        }
    }

    /// A master executes the oldest command of a connection.
    fn deliver(&mut self, client: usize, master: usize) {
        let link = &mut self.clients[client].links[master];
        let Some(connection) = link.connection else {
            return;
        };
        if let Some(command) = link.sent.pop_front() {
            let text = self.prints.then(|| shown(&command.1));
            let server = &mut self.servers[master];
            server.receive(connection, command, self.now);
            let mut outputs = server.heart.outputs();
            let reply = outputs.remove(&connection);
            link.replies.extend(reply.clone());
            self.print(|| {
                let (text, reply) = (text.unwrap_or_default(), reply.map(|it| shown(&it)));
                format!("client {client}, master {master} executes {text}: {reply:?}")
            });
        }
    }

    /// A client reads the oldest reply of a connection.
    fn reply(&mut self, client: usize, master: usize) {
        let (now, random) = (now(self.now), self.random.number());
        let Client { machine, links, .. } = &mut self.clients[client];
        let Some(bytes) = links[master].replies.pop_front() else {
            return;
        };
        let at = now.monotonic;
        machine.sessions[master].link.liveness.on_bytes(at);
        let text = format!(
            "client {client} reads from master {master} {}",
            shown(&bytes)
        );
        let read = machine.reply(master, &reply(&bytes), now, &|| random);
        machine.settle(now);
        self.print(|| text);
        if read.is_err() {
            self.cut(client, master);
        }
    }

    /// A connection ends. The master may still execute the first commands under way.
    fn cut(&mut self, client: usize, master: usize) {
        let now = now(self.now);
        let (arrived, has_worked) = (self.random.below(4), self.random.is_one_in(2));
        let Client { machine, links, .. } = &mut self.clients[client];
        let link = &mut links[master];
        let Some(connection) = link.connection.take() else {
            return;
        };
        let server = &mut self.servers[master];
        for command in link.sent.drain(..).take(arrived as usize) {
            server.receive(connection, command, self.now);
        }
        link.replies.clear();
        link.is_dialling = has_worked;
        let text = format!("client {client}, master {master}: cut, {arrived} commands arrive");
        server.heart.close(connection);
        server.heart.outputs();
        let why: Arc<str> = "cut".into();
        machine.serve(master, now, |session, cx| match has_worked {
            true => session.disconnect(cx, &why, true),
            false => session.disconnect(cx, &why, false),
        });
        machine.settle(now);
        self.print(|| text);
    }

    /// A master goes down or comes back, or restarts.
    fn disturb(&mut self, master: usize) {
        for client in 0..self.clients.len() {
            for _ in 0..self.random.below(4) {
                self.reply(client, master); // it came before the end
            }
            self.cut(client, master);
        }
        let server = &mut self.servers[master];
        server.is_up = !server.is_up || self.random.is_one_in(2);
        if self.random.is_one_in(3) {
            server.heart.restart(Data::new());
            server.lost_at = Some(self.now);
        }
        self.print(|| format!("master {master} restarts or not"));
    }

    /// Does what the supervisors and the renewer of a client do.
    fn serve(&mut self, client: usize) {
        let now = now(self.now);
        let machine = &mut self.clients[client].machine;
        while machine.renew_next(self.random.number(), now) {
            machine.settle(now);
        }
        for master in 0..self.servers.len() {
            let Client { machine, links, .. } = &mut self.clients[client];
            let link = &mut links[master];
            let at = now.monotonic;
            if link.connection.is_none() {
                machine.serve(master, now, |session, cx| session.expire_unconnected(cx));
                machine.settle(now);
                self.dial(client, master);
                continue;
            }
            let is_over = machine.serve(master, now, |session, cx| {
                session.send(cx, link);
                let Some(due) = session.next_wake(cx).filter(|due| *due <= at) else {
                    return false;
                };
                let until = match session.end_quarantine(cx, due) {
                    true => None,
                    false => session.link.liveness.judge_deadline(due, at),
                };
                until.is_some_and(|until| session.expire(cx, until))
            });
            machine.settle(now);
            if is_over {
                self.cut(client, master);
            }
        }
    }

    fn dial(&mut self, client: usize, master: usize) {
        let (now, server) = (now(self.now), &mut self.servers[master]);
        let Client { machine, links, .. } = &mut self.clients[client];
        let link = &mut links[master];
        let is_refused = !server.is_up;
        if self.random.is_one_in(3) || is_refused && !link.is_dialling {
            return; // the dial takes longer
        }
        link.is_dialling = false;
        let age = server.lost_at.map(|at| Duration::from_nanos(self.now - at));
        let loss = age.map(|age| DataLoss {
            age,
            sign: Sign::Restarted,
        });
        link.connection = (!is_refused).then(|| server.heart.connect());
        machine.serve(master, now, |session, cx| match is_refused {
            true => session.disconnect(cx, &"refused".into(), false),
            false => session.connect(cx, Duration::from_micros(100), loss, false),
        });
        machine.settle(now);
    }

    /// A call of a client does something.
    fn act(&mut self, client: usize) {
        let calls = self.clients[client].calls.len();
        match self.random.index(4).checked_sub(4 - calls) {
            None => self.begin(client),
            Some(call) if self.clients[client].calls[call].is_won => self.use_lock(client, call),
            Some(call) => self.look(client, call),
        }
        self.clients[client].machine.settle(now(self.now));
    }

    fn begin(&mut self, client: usize) {
        let lock = self.random.index(self.locks.len());
        let (lock_id, ttl) = self.locks[lock].clone();
        let (kind, number) = (lock_id.kind(), self.random.number());
        let owner: Arc<str> = format!("u:{number}").into();
        let time = micros(self.now) + number % 1_000;
        let by = match kind.has_owner() {
            true => Identity::Owner(OwnerAttempt {
                ticket: kind.has_queue().then(|| Ticket::new(time, &owner)),
                owner,
                attempt: 1,
            }),
            false => {
                let mut token = [0; 20];
                token[..8].copy_from_slice(&number.to_le_bytes());
                Identity::Token(Token::new(token, None))
            }
        };
        let access = match kind.spec().has_readers && self.random.is_one_in(2) {
            true => Access::Shared,
            false => Access::Exclusive,
        };
        let candidate = self.random.is_one_in(2).then_some(time);
        let holding = Holding {
            by,
            depth: 1,
            access,
            slot: None,
            candidate,
        };
        let asked = match self.random.is_one_in(4) {
            true => MasterSet::only(self.random.index(self.servers.len())),
            false => MasterSet::ALL,
        };
        let Client { machine, calls, .. } = &mut self.clients[client];
        let how = Asking::plain(asked);
        let id = machine.begin(lock_id, ttl, holding, how, now(self.now));
        calls.push(Call {
            id,
            lock,
            levels: vec![access],
            is_won: false,
        });
    }

    /// Looks whether a lock was won, and takes a lost attempt back. Some calls end early.
    fn look(&mut self, client: usize, call: usize) {
        let (now, random) = (now(self.now), self.random.number());
        let Client { machine, calls, .. } = &mut self.clients[client];
        let Call { id, lock, .. } = calls[call];
        if random % 4 > 0 {
            machine.step(id, now, |claim, step| claim.ask_others(step));
        }
        let outcome = machine.step(id, now, |claim, step| {
            let outcome = claim.take_outcome(step);
            if outcome == Outcome::Won {
                let renewal = random_renewal(random);
                claim.hold(step, renewal, &mut None);
            }
            outcome
        });
        match outcome {
            Outcome::Won => {
                calls[call].is_won = true;
                self.acquired += 1;
                if let Some(token) = machine.claim(id).holding.candidate
                    && let Some(before) = self.tokens.insert(lock, token)
                    && before >= token
                    && self.locks[lock].0.kind() != LockKind::ReadWrite
                    && self.locks[lock].0.kind() != LockKind::Semaphore
                {
                    self.wrong = Some(format!("token {token} after {before}"));
                }
            }
            Outcome::Pending if random % 8 > 0 => {}
            Outcome::NoMajority | Outcome::Pending | Outcome::TooLate => self.leave(client, call),
        }
    }

    fn use_lock(&mut self, client: usize, call: usize) {
        let now = now(self.now);
        let Client { machine, calls, .. } = &mut self.clients[client];
        let Call {
            id,
            lock,
            ref mut levels,
            ..
        } = calls[call];
        let kind = self.locks[lock].0.kind();
        let ttl = Ttl::whole(Duration::from_millis(100 + self.random.below(1_900))).unwrap();
        match self.random.below(8) {
            0..3 => {
                if let Some(round) = machine.step(id, now, |claim, step| claim.extend(step, ttl)) {
                    machine.drop_round(round);
                }
            }
            3 if kind.is_reentrant() && levels.len() < 3 => {
                let access = levels[0];
                let entered = machine.step(id, now, |claim, step| {
                    claim.reenter(step, ttl, access, false)
                });
                if let Ok(Some(round)) = entered {
                    levels.push(access);
                    machine.drop_round(round);
                }
            }
            4 if kind.spec().has_readers => {
                if let Some(level) = levels.iter_mut().find(|one| **one == Access::Exclusive) {
                    *level = Access::Shared;
                    machine.step(id, now, Claim::downgrade);
                }
            }
            5..8 => self.leave(client, call),
            _ => {}
        }
    }

    /// Ends a level. The call ends with its last level.
    fn leave(&mut self, client: usize, call: usize) {
        let now = now(self.now);
        let Client { machine, calls, .. } = &mut self.clients[client];
        let Call { id, levels, .. } = &mut calls[call];
        let (id, access) = (*id, levels.pop().unwrap_or(Access::Exclusive));
        let is_last = levels.is_empty();
        let text = format!("client {client} leaves {id:?}");
        let leave = |claim: &mut Claim, step: &mut Step<'_>| claim.leave(step, access, false);
        let (round, _) = machine.step(id, now, leave);
        machine.settle(now);
        machine.drop_round(round);
        machine.drop_claim(id);
        if is_last {
            calls.remove(call);
        }
        self.print(|| text);
    }

    /// Checks that each lock has no more holders than it may have.
    fn check(&mut self) -> Result<(), String> {
        let now = now(self.now);
        let mut holders = BTreeMap::<usize, Vec<Access>>::new();
        for Client { machine, calls, .. } in &mut self.clients {
            for call in calls.iter().filter(|call| call.is_won) {
                if machine.step(call.id, now, Claim::is_held_at) {
                    let access = match call.levels.contains(&Access::Exclusive) {
                        true => Access::Exclusive,
                        false => Access::Shared,
                    };
                    holders.entry(call.lock).or_default().push(access);
                }
            }
        }
        for (lock, holders) in holders {
            let most = match holders.contains(&Access::Exclusive) {
                true => usize::from(self.locks[lock].0.permits()),
                false => usize::MAX,
            };
            if holders.len() > most {
                return Err(format!("{} holders of lock {lock}", holders.len()));
            }
        }
        match self.wrong.take() {
            Some(wrong) => Err(wrong),
            None => Ok(()),
        }
    }

    /// Ends all calls. Every request must then end, and no key of a lock may be left.
    fn end(&mut self) -> Result<(), String> {
        for client in 0..self.clients.len() {
            while !self.clients[client].calls.is_empty() {
                self.leave(client, 0);
            }
        }
        self.servers
            .iter_mut()
            .for_each(|server| server.is_up = true);
        let places = || {
            let masters = 0..self.servers.len();
            (0..self.clients.len())
                .flat_map(move |client| masters.clone().map(move |m| (client, m)))
        };
        let places: Vec<_> = places().collect();
        for _ in 0..1_000 {
            for &(client, master) in &places {
                self.serve(client);
                for _ in 0..8 {
                    self.deliver(client, master);
                    self.reply(client, master);
                }
            }
            self.now += MILLI;
            let clients = &self.clients;
            if clients
                .iter()
                .all(|client| client.machine.rounds.len() == 0)
            {
                return self.check_keys();
            }
        }
        Err("a request did not end".to_owned())
    }

    /// Checks that no lock is left. A release is owed until the key has expired that a command
    /// writes when it is posted. A command that arrives later leaves its key for that much longer.
    fn check_keys(&mut self) -> Result<(), String> {
        for (master, server) in self.servers.iter_mut().enumerate() {
            let later = server.delay + MOST_TTL / 100; // its clock may run slow
            let now = self.now + later.as_nanos() as u64;
            let micros = server.heart.micros(micros(now));
            // The key of a lock with several holders may have entries that have ended.
            let kinds = [LockKind::Mutex, LockKind::Reentrant, LockKind::Fair];
            let locks = self.locks.iter().map(|(lock_id, _)| lock_id);
            for lock in locks.filter(|lock| kinds.contains(&lock.kind())) {
                let key = lock.key();
                if server.heart.keys().value(key.as_bytes(), micros).is_some() {
                    return Err(format!("{key} is left on master {master}"));
                }
            }
        }
        Ok(())
    }
}

fn random_renewal(random: u64) -> Renewal {
    match random >> 8 & 1 {
        0 => Renewal::Unlimited,
        _ => Renewal::Off,
    }
}

fn tick(now: u64) -> Tick {
    Tick::from_nanos(Tick::ORIGIN + now)
}

fn now(now: u64) -> Now {
    Now {
        lease: tick(now).with(Duration::ZERO),
        monotonic: tick(now),
    }
}

/// Returns the time that a correct wall clock shows.
fn micros(now: u64) -> u64 {
    1_700_000_000_000_000 + now / 1_000
}

/// Returns the words of a command or a reply, without the text of a script.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let words = text
        .split("\r\n")
        .filter(|word| !word.starts_with(['$', '*']));
    let words: Vec<_> = words.filter(|word| word.len() < 80).collect();
    words.join(" ")
}
