//! Processes full of waiters for a fair lock, and a record of their queues on the masters.

use std::{
    collections::HashMap,
    env,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use quorlock::{Builder, Coordinator};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::common::*;

/// The lock that all waiters want.
pub(crate) const LOCK: &str = "r";
pub(crate) const QUEUE: &str = "quorlock:queue:{r}";
pub(crate) const DEADLINES: &str = "quorlock:deadlines:{r}";

/// An environment variable of the processes that a test starts as second runs of itself.
const MASTERS: &str = "QUORLOCK_WAITERS_MASTERS";
const JOB: &str = "QUORLOCK_WAITERS_JOB";

/// The work of one process. Its waiters arrive one after the other, and each holds the lock once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) waiters: u32,
    /// The time between two arrivals.
    pub(crate) every: Duration,
    /// The time for which a waiter holds the lock.
    pub(crate) hold: Duration,
    pub(crate) waiter_timeout: Duration,
    pub(crate) ttl: Duration,
}

impl Job {
    /// Returns the job of a process with one waiter, which never releases the lock.
    pub(crate) fn forever(waiter_timeout: Duration) -> Self {
        Self {
            waiters: 1,
            every: Duration::ZERO,
            hold: LONG,
            waiter_timeout,
            ttl: LONG,
        }
    }

    fn to_words(self) -> String {
        let times = [self.every, self.hold, self.waiter_timeout, self.ttl];
        let times = times.map(|time| time.as_millis().to_string());
        format!("{} {}", self.waiters, times.join(" "))
    }

    fn parse(words: &str) -> Self {
        let numbers = words.split(' ').map(|word| word.parse::<u32>().unwrap());
        let numbers: Vec<_> = numbers.collect();
        let [waiters, every, hold, waiter_timeout, ttl] = numbers[..] else {
            panic!("{words:?}");
        };
        let millis = |count: u32| Duration::from_millis(count.into());
        Self {
            waiters,
            every: millis(every),
            hold: millis(hold),
            waiter_timeout: millis(waiter_timeout),
            ttl: millis(ttl),
        }
    }

    async fn work(self, masters: &str) {
        let locks = with_waiter_timeout(self.waiter_timeout)
            .ttl(self.ttl)
            .masters(masters.split(','))
            .build()
            .unwrap();
        let mut waiters = Vec::new();
        for _ in 0..self.waiters {
            waiters.push(tokio::spawn(self.wait(locks.clone())));
            sleep(self.every).await;
        }
        for waiter in waiters {
            waiter.await.unwrap();
        }
        // This time is long enough for masters that are up. For a master that died, releases stay
        // pending for a TTL.
        let _ = timeout(Duration::from_millis(500), locks.close()).await;
    }

    async fn wait(self, locks: Coordinator) {
        let owner = locks.owner();
        let came = micros();
        let guard = locks.fair(LOCK, &owner).acquire().await.unwrap();
        let acquired = micros();
        // The time from the start of the winning round to the end of the validity is the TTL less
        // the drift.
        let left = guard
            .valid_until()
            .saturating_duration_since(Instant::now());
        let took = self.ttl.saturating_sub(left + NO_DRIFT);
        sleep(self.hold).await;
        println!(
            "{MARK} {} {came} {} {acquired} {}",
            owner.id(),
            acquired - took.as_micros() as u64,
            micros()
        );
        guard.release().await.unwrap();
    }
}

/// The drift at 0 ppm.
const NO_DRIFT: Duration = Duration::from_millis(2);

/// The start of each line that a process prints.
const MARK: &str = "served:";

/// Returns a builder with this waiter timeout. The node timeout is the longest that the waiter
/// timeout and the TTLs allow.
pub(crate) fn with_waiter_timeout(waiter_timeout: Duration) -> Builder {
    patient()
        .drift_ppm(0)
        .waiter_timeout(waiter_timeout)
        .node_timeout(Duration::from_secs(1).min(waiter_timeout / 4))
}

/// Returns the wall clock time in microseconds. All processes share that clock.
pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_micros() as u64
}

/// A waiter that got the lock. The times are those of its arrival, of the start of its winning
/// round, and of the start and the end of its hold.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) owner: String,
    pub(crate) came: u64,
    pub(crate) asked: u64,
    pub(crate) acquired: u64,
    pub(crate) released: u64,
}

impl Service {
    fn parse(line: &str) -> Option<Self> {
        // The test harness may have printed the start of the line.
        let (_, words) = line.split_once(MARK)?;
        let words: Vec<_> = words.split_whitespace().collect();
        let at = |field: usize| words[field].parse().unwrap();
        Some(Self {
            owner: words[0].to_owned(),
            came: at(1),
            asked: at(2),
            acquired: at(3),
            released: at(4),
        })
    }
}

/// Sorts the services by time, and fails if two waiters held the lock at once.
#[track_caller]
pub(crate) fn assert_one_at_a_time(served: &mut [Service]) {
    served.sort_by_key(|one| one.acquired);
    for pair in served.windows(2) {
        assert!(pair[0].released <= pair[1].acquired, "{pair:?}");
    }
}

/// Processes that wait for the lock. Each is a second run of a test.
pub(crate) struct WaiterProcesses {
    processes: Vec<Child>,
    lines: mpsc::UnboundedReceiver<(usize, Option<String>)>,
    said: Vec<String>,
    left: usize,
}

impl WaiterProcesses {
    /// Returns whether this process was started by a test. If so, does its job first.
    pub(crate) fn is_child() -> bool {
        let (Ok(masters), Ok(job)) = (env::var(MASTERS), env::var(JOB)) else {
            return false;
        };
        run(Job::parse(&job).work(&masters));
        true
    }

    /// Starts one process for each list of master URLs.
    pub(crate) fn start(test: &str, urls: &[Vec<String>], job: Job) -> Self {
        let (sender, lines) = mpsc::unbounded_channel();
        let processes = urls.iter().enumerate().map(|(number, urls)| {
            let mut process = Command::new(env::current_exe().unwrap())
                .args(["--exact", test, "--nocapture"])
                .env(MASTERS, urls.join(","))
                .env(JOB, job.to_words())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            read_in_background(number, process.stdout.take().unwrap(), sender.clone());
            read_in_background(number, process.stderr.take().unwrap(), sender.clone());
            process
        });
        Self {
            processes: processes.collect(),
            lines,
            said: vec![String::new(); urls.len()],
            left: 2 * urls.len(),
        }
    }

    /// Returns the next service, or `None` when all processes have ended.
    pub(crate) async fn next(&mut self) -> Option<Service> {
        while self.left > 0 {
            let line = timeout(TEST_TIMEOUT, self.lines.recv()).await.unwrap();
            match line.unwrap() {
                (_, None) => self.left -= 1,
                (process, Some(line)) => {
                    let said = &mut self.said[process];
                    *said += &line;
                    *said += "\n";
                    if let Some(served) = Service::parse(&line) {
                        return Some(served);
                    }
                }
            }
        }
        for (process, said) in self.processes.iter_mut().zip(&self.said) {
            let status = process.wait().unwrap();
            assert!(status.success() && said.contains("1 passed"), "{said}");
        }
        None
    }

    pub(crate) async fn all(mut self) -> Vec<Service> {
        let mut served = Vec::new();
        while let Some(one) = self.next().await {
            served.push(one);
        }
        served
    }

    /// Kills all processes with SIGKILL, and waits for their end.
    pub(crate) fn kill(&mut self) {
        for process in &mut self.processes {
            process.kill().ok();
            process.wait().unwrap();
        }
    }
}

impl Drop for WaiterProcesses {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read_in_background(
    number: usize,
    pipe: impl Read + Send + 'static,
    to: mpsc::UnboundedSender<(usize, Option<String>)>,
) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = to.send((number, Some(line)));
        }
        let _ = to.send((number, None));
    });
}

/// Waits until each of `masters` has exactly `count` waiters.
pub(crate) async fn until_queued(masters: &[Server], count: usize) {
    let count = count.to_string();
    until("a queue of that length", async || {
        let is_there = |master: &Server| master.command(&["ZCARD", QUEUE]) == count;
        masters.iter().all(is_there).then_some(())
    })
    .await;
}

/// A watch that reads the queues all the time. It records when each ticket was first seen on each
/// master.
pub(crate) struct QueueWatch {
    log: Arc<Mutex<QueueLog>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub(crate) struct QueueLog {
    is_over: bool,
    /// The times at which the lives of each master ended. A life lasts from a start to a kill. A
    /// master that is up has one more life.
    ends: Vec<Vec<u64>>,
    is_down: Vec<bool>,
    /// The ticket of each owner. Each has the times when it was first seen in each life of each
    /// master.
    tickets: HashMap<String, Ticket>,
}

#[derive(Debug, Default)]
struct Ticket {
    ticket: String,
    seen: HashMap<(usize, usize), u64>,
}

impl QueueWatch {
    /// The interval between reads. A ticket counts as absent until it is first read. An overtake
    /// before that is excused.
    const EVERY: Duration = Duration::from_millis(10);

    pub(crate) fn start(masters: &[Server]) -> Self {
        let log = Arc::new(Mutex::new(QueueLog {
            ends: vec![Vec::new(); masters.len()],
            is_down: vec![false; masters.len()],
            ..QueueLog::default()
        }));
        let ports = masters.iter().map(Server::port).enumerate();
        let threads = ports.map(|(master, port)| {
            let log = log.clone();
            thread::spawn(move || look(master, port, &log))
        });
        Self {
            threads: threads.collect(),
            log,
        }
    }

    /// Must be called before a master is killed.
    pub(crate) fn record_kill(&self, master: usize) {
        let mut log = self.log.lock().unwrap();
        log.ends[master].push(micros());
        log.is_down[master] = true;
    }

    /// Must be called after the master is back.
    pub(crate) fn record_restart(&self, master: usize) {
        self.log.lock().unwrap().is_down[master] = false;
    }

    pub(crate) fn stop(self) -> QueueLog {
        self.log.lock().unwrap().is_over = true;
        for thread in self.threads {
            thread.join().unwrap();
        }
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

fn look(master: usize, port: u16, log: &Mutex<QueueLog>) {
    let life = |log: &QueueLog| (log.ends[master].len(), log.is_down[master]);
    loop {
        let before = life(&log.lock().unwrap());
        let queue = server::try_command_on(port, &["ZRANGE", QUEUE, "0", "-1"], TEST_TIMEOUT / 8);
        let now = micros();
        let mut log = log.lock().unwrap();
        if log.is_over {
            return;
        }
        if let Ok(queue) = queue
            && before == life(&log)
            && !before.1
        {
            for ticket in queue.lines() {
                log.note(ticket, (master, before.0), now);
            }
        }
        drop(log);
        thread::sleep(QueueWatch::EVERY);
    }
}

impl QueueLog {
    fn note(&mut self, ticket: &str, position: (usize, usize), now: u64) {
        let (_, owner) = ticket.split_once(':').unwrap();
        let known = self.tickets.entry(owner.to_owned()).or_default();
        // After a correction of its clock, an owner has a new ticket. The last ticket counts.
        if *known.ticket < *ticket {
            *known = Ticket {
                ticket: ticket.to_owned(),
                ..Ticket::default()
            };
        }
        if known.ticket == ticket {
            known.seen.entry(position).or_insert(now);
        }
    }

    /// Returns the ticket of `one`. For a waiter that was never seen in a queue, makes a ticket
    /// from its arrival time. That time is not later than the time in the waiter's own ticket.
    fn ticket(&self, one: &Service) -> String {
        let known = self.tickets.get(&one.owner);
        known.map_or_else(
            || format!("{:016}:{}", one.came, one.owner),
            |known| known.ticket.clone(),
        )
    }

    /// Counts the masters that knew `one` when the winning round of `other` began, and that were up
    /// until that round was won.
    fn known_to(&self, one: &Service, other: &Service) -> usize {
        let lives = |master: usize, life: usize| {
            let end = self.ends[master].get(life);
            end.is_none_or(|end| *end > other.acquired)
        };
        let known = self.tickets.get(&one.owner);
        let seen = known.iter().flat_map(|known| &known.seen);
        seen.filter(|((master, life), at)| **at < other.asked && lives(*master, *life))
            .count()
    }

    /// Compares all pairs of waiters. An overtake is a pair in which the waiter with the higher
    /// ticket was served first. `served` is in the order of service.
    pub(crate) fn overtakes(&self, served: &[Service]) -> Overtakes {
        let majority = self.ends.len() / 2 + 1;
        let mut overtakes = Overtakes::default();
        for (position, one) in served.iter().enumerate() {
            let ticket = self.ticket(one);
            overtakes.waited += usize::from(self.known_to(one, one) >= majority);
            for other in &served[..position] {
                let is_heard = self.known_to(one, other) >= majority;
                let is_before = ticket < self.ticket(other);
                overtakes.excused += usize::from(is_before && !is_heard);
                overtakes.kept += usize::from(!is_before && self.known_to(other, one) >= majority);
                if is_before && is_heard {
                    let ticket = self.ticket(other);
                    overtakes
                        .broken
                        .push(format!("{other:?} ({ticket}) before {one:?}"));
                }
            }
        }
        overtakes
    }
}

#[derive(Debug, Default)]
pub(crate) struct Overtakes {
    /// Overtakes of a waiter that a majority of masters knew. They break the rule.
    pub(crate) broken: Vec<String>,
    /// Overtakes of a waiter that no majority of masters knew.
    pub(crate) excused: usize,
    /// Pairs that are in order.
    pub(crate) kept: usize,
    /// The number of waiters that a majority knew before their own winning round.
    pub(crate) waited: usize,
}
