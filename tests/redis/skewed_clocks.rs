//! Fencing tokens of 16 clients whose clocks are wrong and jump. Meanwhile, masters are killed and
//! come back empty.

use std::{
    env, fmt,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use futures::future::join_all;
use quorlock::{Builder, Coordinator, Guard, Kind, Quarantine, Votes};
use tokio::{
    sync::watch,
    task::{JoinSet, block_in_place, spawn_blocking},
    time::sleep,
};

use crate::{
    common::*,
    fenced::named,
    process::Process,
    suspend::shim,
    token_log::{LockLoop, TokenHistory, TokenLog},
};

/// The number of clients. Each client is a process with its own wall clock.
const CLIENTS: usize = 16;
/// The number of clients that want each lock. The clocks of these clients are far apart. More
/// clients would keep each other busy with attempts.
const CLIENTS_PER_LOCK: usize = 4;
/// The number of the held lock. All clients want it, and hold it for longer than a renewal period.
/// So masters restart while it is held.
const HELD: usize = 0;
/// The number of the rare lock. Between two acquisitions of this lock, all masters restart. The
/// next client has not seen the last token of the lock.
const RARE: usize = 1;
/// The TTL. It is short, so a restarted master stays in quarantine only for as long as tokens
/// require.
const TTL: Duration = Duration::from_millis(2_500);
/// The largest offset with which a client uses its own clock instead of the masters' clocks, in
/// nanoseconds.
const WINDOW: i64 = 1_000_000_000;
const HOUR: i64 = 3_600_000_000_000;

#[test]
fn tokens_grow_from_holder_to_holder_while_their_clocks_are_wrong_and_jump() {
    let contest = Contest {
        test: "skewed_clocks::tokens_grow_from_holder_to_holder_while_their_clocks_are_wrong_and_jump",
        masters: 5,
        ahead: |client| [9 * WINDOW / 10, -9 * WINDOW / 10, HOUR, 0][client / CLIENTS_PER_LOCK],
        names: 3,
        tasks: 2,
        pause: Duration::ZERO,
        restarts: [0, 0],
        acquisitions: 3_000,
    };
    contest.play(|contest| run(contest.judge()));
}

#[test]
fn tokens_grow_while_one_master_after_the_other_comes_back_empty() {
    let contest = Contest {
        test: "skewed_clocks::tokens_grow_while_one_master_after_the_other_comes_back_empty",
        masters: 3,
        ahead: spread,
        names: 3,
        tasks: 1,
        pause: Duration::from_millis(200), // leaves time for other tests
        restarts: [3, 2],
        acquisitions: 500,
    };
    contest.play(|contest| run(contest.judge()));
}

#[test]
#[ignore = "takes long: cargo test --release --test redis a_million -- --ignored --nocapture"]
fn a_million_tokens_grow_while_one_master_after_the_other_comes_back_empty() {
    let contest = Contest {
        test: "skewed_clocks::a_million_tokens_grow_while_one_master_after_the_other_comes_back_empty",
        masters: 5,
        ahead: spread,
        names: 10,
        tasks: 8,
        pause: Duration::ZERO,
        restarts: [10, 10],
        acquisitions: 1_000_000,
    };
    contest.play(|contest| runtime().block_on(contest.judge()));
}

/// The masters' clocks are almost as fast as the drift allows.
#[test]
fn a_lock_stays_for_its_minimum_time_on_masters_with_fast_clocks() {
    with_masters(1, async |plain| {
        let Some(shim) = shim("skewed_clock.c", &plain[0]) else {
            return;
        };
        let environment = [("LD_PRELOAD", shim), ("QUORLOCK_GAIN", "9900".into())];
        let fast = |_| Server::start_program(None, &[], &environment);
        let masters: Vec<_> = (0..3).map(fast).collect();
        let settings = || patient().node_timeout(MIN_HOLD / 4).ttl(MIN_HOLD / 2);
        let [locks, others] = [(); 2].map(|()| coordinator(settings(), &masters));
        let waits = KINDS.map(async |kind| {
            let name = format!("short {kind}");
            let [lock, other] = [&locks, &others].map(|locks| named(&name, kind, locks));
            let start = Instant::now();
            let guard = lock.min_hold(MIN_HOLD).acquire().await.unwrap();
            guard.release().await.unwrap();
            sleep(MIN_HOLD * 9 / 10).await;
            while other.try_acquire().await.is_err() {
                sleep(millis(1)).await;
            }
            let kept = start.elapsed();
            assert!(kept >= MIN_HOLD, "{kind}: {kept:?} of {MIN_HOLD:?}");
        });
        join_all(waits).await;
    });
}

/// A clock that is 0.99 % fast gains 40 ms in this time.
const MIN_HOLD: Duration = Duration::from_secs(4);

/// Returns the offset of a client's clock. The offsets of all clients are spread over the window.
fn spread(client: usize) -> i64 {
    let clients = CLIENTS as i64;
    WINDOW * (clients - 1 - 2 * client as i64) / clients
}

/// A test setup. Clients acquire locks all the time and log their tokens. A judge reads the logs.
#[derive(Clone, Copy)]
struct Contest {
    /// The name of the test. A client is a second run of this test.
    test: &'static str,
    masters: usize,
    /// The nanoseconds by which a client's clock is ahead. In the middle of the test, all clocks
    /// jump back by an hour.
    ahead: fn(usize) -> i64,
    /// The number of locks of each kind, including the held one and the rare one.
    names: usize,
    /// The number of tasks in a client for each lock that it wants.
    tasks: usize,
    /// The pause of a task between two acquisitions.
    pause: Duration,
    /// The least number of restarts of masters in each half of the test. A restarted master is
    /// empty.
    restarts: [usize; 2],
    /// The least number of acquisitions.
    acquisitions: usize,
}

const CLIENT: &str = "QUORLOCK_TOKENS_CLIENT";
const MASTERS: &str = "QUORLOCK_TOKENS_MASTERS";
const LOGS: &str = "QUORLOCK_TOKENS_LOGS";

impl Contest {
    fn play(self, judge: impl FnOnce(Self)) {
        if let Ok(client) = env::var(CLIENT) {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(self.run_client(client.parse().unwrap()));
        } else if !server::only_urls() {
            judge(self);
        }
    }

    async fn judge(self) {
        let masters = server::masters(self.masters);
        let Some(shim) = shim("skewed_clock.c", &masters[0]) else {
            return;
        };
        let start = Instant::now();
        let directory = shim.with_file_name("");
        let urls = urls(&masters).join(",");
        let mut judge = Judge {
            contest: self,
            histories: self
                .locks()
                .map(|(kind, number)| TokenHistory::of(name(kind, number), &directory))
                .collect(),
            rare: 0,
            clients: (0..CLIENTS)
                .map(|number| Client::start(self, number, &urls, &shim))
                .collect(),
            restarts: Restarts::of(masters).await,
        };
        judge.request_rare_locks().await;
        judge.watch(self.restarts[0], self.acquisitions / 2).await;
        for (number, client) in judge.clients.iter().enumerate() {
            client.set_clock((self.ahead)(number) - HOUR);
        }
        let restarts = self.restarts.iter().sum();
        judge.watch(restarts, self.acquisitions).await;
        judge.request_rare_locks().await;
        judge.close();
        eprintln!("{judge} in {:.1?}", start.elapsed());
        judge.give_verdict();
    }

    fn locks(self) -> impl Iterator<Item = (Kind, usize)> {
        let numbered = move |kind| (0..self.names).map(move |number| (kind, number));
        KINDS.into_iter().flat_map(numbered)
    }

    /// Runs a client. Each line of input tells the client to acquire the rare locks. The end of the
    /// input tells the client to stop.
    async fn run_client(self, client: usize) {
        let masters = env::var(MASTERS).unwrap();
        let directory = PathBuf::from(env::var_os(LOGS).unwrap());
        let [locks, fresh] =
            [(); 2].map(|()| strict().masters(masters.split(',')).build().unwrap());
        let log = |kind, number| TokenLog::of(&name(kind, number), &directory);
        let (signal, signals) = watch::channel(0);
        spawn_blocking(move || {
            let lines = io::stdin().lines();
            lines.for_each(|_| signal.send_modify(|lines| *lines += 1));
        });
        let mut tasks = JoinSet::new();
        for (kind, number) in self.locks() {
            let (locks, count) = match number {
                HELD => (&locks, self.tasks),
                RARE => (&fresh, 1),
                _ if number % CLIENTS_PER_LOCK == client % CLIENTS_PER_LOCK => (&locks, self.tasks),
                _ => continue,
            };
            for task in 0..count {
                let lock_loop = LockLoop {
                    task: client * self.tasks + task,
                    lock: named(&name(kind, number), kind, locks),
                    log: log(kind, number),
                    signals: signals.clone(),
                };
                match number {
                    HELD => tasks.spawn(lock_loop.run(HOLD_FOR, self.pause)),
                    RARE => tasks.spawn(lock_loop.run_on_signals()),
                    _ => tasks.spawn(lock_loop.run(Duration::ZERO, self.pause)),
                };
            }
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
    }
}

/// The time for which the held lock is held. It is more than a third of the TTL, so the lock is
/// renewed.
const HOLD_FOR: Duration = Duration::from_secs(1);

fn strict() -> Builder {
    patient()
        .quarantine(Quarantine::Strict)
        .node_timeout(TTL / 4)
        .max_ttl(TTL)
        .ttl(TTL)
        .retry_delay(Duration::from_millis(1), Duration::from_millis(20))
}

fn name(kind: Kind, number: usize) -> String {
    format!("{kind} {number}")
}

/// The state of the judge.
struct Judge {
    contest: Contest,
    clients: Vec<Client>,
    restarts: Restarts,
    histories: Vec<TokenHistory>,
    /// The number of times that the rare locks were acquired.
    rare: usize,
}

impl Judge {
    /// Restarts masters and reads the logs until there were this many restarts and acquisitions in
    /// total.
    async fn watch(&mut self, restarts: usize, acquisitions: usize) {
        while self.restarts.count < restarts || self.sum(|lock| lock.tokens.len()) < acquisitions {
            if restarts == 0 {
                sleep(Duration::from_millis(50)).await;
            } else {
                self.restarts.one_more().await;
                if self.restarts.count.is_multiple_of(self.contest.masters) {
                    self.request_rare_locks().await;
                }
            }
            self.read();
        }
    }

    /// Makes the next client acquire the rare locks. The first client has the clock that is
    /// furthest ahead, the second client has the clock that is furthest behind, and so on inwards.
    async fn request_rare_locks(&mut self) {
        let (round, is_behind) = (self.rare / 2 % CLIENTS, self.rare % 2 == 1);
        let client = if is_behind {
            CLIENTS - 1 - round
        } else {
            round
        };
        self.clients[client].process.write_line();
        self.rare += 1;
        until("tokens for the rare locks", async || {
            self.read();
            let mut locks = self.contest.locks().zip(&self.histories);
            locks
                .all(|((_, number), lock)| number != RARE || lock.tokens.len() == self.rare)
                .then_some(())
        })
        .await;
    }

    fn read(&mut self) {
        let mut clients = self.clients.iter_mut();
        if let Some(failed) = clients.position(|client| client.process.has_failed()) {
            block_in_place(|| self.clients.remove(failed).process.finish());
        }
        self.histories.iter_mut().for_each(TokenHistory::read);
    }

    /// Stops the clients, and reads the rest of the logs.
    fn close(&mut self) {
        for client in &mut self.clients {
            client.process.close_input();
        }
        for client in self.clients.drain(..) {
            block_in_place(|| client.process.finish());
        }
        self.read();
    }

    fn give_verdict(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = u64::try_from(now.unwrap().as_micros()).unwrap();
        for lock in &self.histories {
            lock.check(&self.restarts.masters, now);
        }
    }

    fn sum(&self, count: impl Fn(&TokenHistory) -> usize) -> usize {
        self.histories.iter().map(count).sum()
    }
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} acquisitions, {} restarts, {} excused, {} twice, {} early, {} late",
            self.sum(|lock| lock.tokens.len()),
            self.restarts.count,
            self.sum(|lock| lock.excused.len()),
            self.sum(|lock| lock.duplicates().len()),
            self.sum(|lock| lock.early.len()),
            self.sum(|lock| lock.late().len()),
        )
    }
}

/// The judge's handle to a client.
struct Client {
    process: Process,
    clock: File,
}

impl Client {
    fn start(contest: Contest, number: usize, masters: &str, shim: &Path) -> Self {
        let clock = shim.with_file_name(format!("clock {number}"));
        fs::write(&clock, (contest.ahead)(number).to_ne_bytes()).unwrap();
        let process = Process::start(
            contest.test,
            [
                (CLIENT, number.to_string().into()),
                (MASTERS, masters.into()),
                (LOGS, shim.with_file_name("").into()),
                ("QUORLOCK_AHEAD", clock.clone().into()),
                ("LD_PRELOAD", shim.into()),
            ],
        );
        let clock = OpenOptions::new().write(true).open(clock).unwrap();
        Self { process, clock }
    }

    fn set_clock(&self, ahead: i64) {
        self.clock.write_all_at(&ahead.to_ne_bytes(), 0).unwrap();
    }
}

/// Restarts masters one by one. A restarted master is empty. In every second pass over the masters,
/// waits until the held locks are back on the master. In the other passes, only waits until the
/// master votes again.
struct Restarts {
    masters: Vec<Server>,
    locks: Coordinator,
    /// Locks that are held all the time, one of each kind.
    held: Vec<Guard>,
    count: usize,
}

impl Restarts {
    async fn of(masters: Vec<Server>) -> Self {
        let locks = coordinator(strict(), &masters);
        Self {
            held: acquire_all_kinds(&locks).await,
            locks,
            masters,
            count: 0,
        }
    }

    async fn one_more(&mut self) {
        let (round, master) = (
            self.count / self.masters.len(),
            self.count % self.masters.len(),
        );
        block_in_place(|| self.masters[master].restart());
        self.count += 1;
        if round % 2 == 0 {
            drop(acquire_on_all(&self.locks.mutex("voted for")).await);
        } else {
            join_all(self.held.iter().map(wait_until_restored)).await;
        }
        if !self.held.iter().all(Guard::is_valid) {
            self.held = acquire_all_kinds(&self.locks).await;
        }
    }
}

/// Acquires locks of all kinds on all masters.
async fn acquire_all_kinds(locks: &Coordinator) -> Vec<Guard> {
    let of_each = KINDS.map(|kind| named(&format!("kept {kind}"), kind, locks));
    join_all(of_each.iter().map(acquire_on_all)).await
}

/// Waits until a master that was just restarted has the lock of `guard` again, or until the lock is
/// lost.
async fn wait_until_restored(guard: &Guard) {
    let renewed = async |what: &str, is_it: fn(&Votes) -> bool| {
        let last = guard.valid_until();
        until(what, async || {
            let is_renewed = guard.valid_until() > last && is_it(&guard.votes());
            (is_renewed || !guard.is_valid()).then_some(())
        })
        .await;
    };
    renewed("a renewal, which may have begun before the kill", |_| true).await;
    renewed("a renewal by all masters", |votes| {
        votes.granted_count() == votes.master_count()
    })
    .await;
    // Other processes renew their locks at other times. By the next renewal of this lock, all of
    // them have renewed their locks.
    renewed("one more renewal", |_| true).await;
}
