//! Waiters for a fair lock in many processes, and what can be seen of them on the masters.

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

/// The lock that all of them wait for, and the keys beside it.
pub(crate) const LOCK: &str = "r";
pub(crate) const QUEUE: &str = "quorlock:queue:{r}";
pub(crate) const DEADLINES: &str = "quorlock:deadlines:{r}";

/// What makes a second run of a test one of the processes.
const MASTERS: &str = "QUORLOCK_CROWD_MASTERS";
const JOB: &str = "QUORLOCK_CROWD_JOB";

/// What one process does: so many waiters, each of whom comes some time after the one before, and holds the
/// lock once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) waiters: u32,
    pub(crate) every: Duration,
    pub(crate) hold: Duration,
    pub(crate) patience: Duration,
    pub(crate) ttl: Duration,
}

impl Job {
    /// One who never lets go of the lock.
    pub(crate) fn forever(patience: Duration) -> Self {
        Self {
            waiters: 1,
            every: Duration::ZERO,
            hold: LONG,
            patience,
            ttl: LONG,
        }
    }

    fn to_words(self) -> String {
        let times = [self.every, self.hold, self.patience, self.ttl];
        let times = times.map(|time| time.as_millis().to_string());
        format!("{} {}", self.waiters, times.join(" "))
    }

    fn parse(words: &str) -> Self {
        let numbers = words.split(' ').map(|word| word.parse::<u32>().unwrap());
        let numbers: Vec<_> = numbers.collect();
        let [waiters, every, hold, patience, ttl] = numbers[..] else {
            panic!("{words:?}");
        };
        let millis = |count: u32| Duration::from_millis(count.into());
        Self {
            waiters,
            every: millis(every),
            hold: millis(hold),
            patience: millis(patience),
            ttl: millis(ttl),
        }
    }

    async fn work(self, masters: &str) {
        let locks = with_patience(self.patience)
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
        // Long enough for masters that are up; one that died is owed releases for a TTL.
        let _ = timeout(Duration::from_millis(500), locks.close()).await;
    }

    async fn wait(self, locks: Coordinator) {
        let owner = locks.owner();
        let came = micros();
        let guard = locks.fair(LOCK, &owner).acquire().await.unwrap();
        let acquired = micros();
        // The round that won began a TTL before its validity ends, but for the allowance for drift.
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

/// What is taken off a TTL where no drift is allowed for.
const NO_DRIFT: Duration = Duration::from_millis(2);

/// In front of what a process has to say.
const MARK: &str = "served:";

/// A coordinator whose waiters have `patience`, and masters as much time to answer as that and TTLs allow.
pub(crate) fn with_patience(patience: Duration) -> Builder {
    patient()
        .drift_ppm(0)
        .waiter_timeout(patience)
        .node_timeout(Duration::from_secs(1).min(patience / 4))
}

/// The wall clock, which all processes share.
pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_micros() as u64
}

/// One who got the lock: when it came, when the round that it won began, and from when to when it had it.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) owner: String,
    pub(crate) came: u64,
    pub(crate) asked: u64,
    pub(crate) acquired: u64,
    pub(crate) released: u64,
}

impl Served {
    fn parse(line: &str) -> Option<Self> {
        // The test harness may have begun the line.
        let (_, words) = line.split_once(MARK)?;
        let words: Vec<_> = words.split_whitespace().collect();
        let at = |place: usize| words[place].parse().unwrap();
        Some(Self {
            owner: words[0].to_owned(),
            came: at(1),
            asked: at(2),
            acquired: at(3),
            released: at(4),
        })
    }
}

/// Fails if two had it at once. In the order in which they had it afterwards.
#[track_caller]
pub(crate) fn assert_one_at_a_time(served: &mut [Served]) {
    served.sort_by_key(|one| one.acquired);
    for pair in served.windows(2) {
        assert!(pair[0].released <= pair[1].acquired, "{pair:?}");
    }
}

/// Processes that wait for the lock: a test once more, each of them.
pub(crate) struct Crowd {
    processes: Vec<Child>,
    lines: mpsc::UnboundedReceiver<(usize, Option<String>)>,
    said: Vec<String>,
    left: usize,
}

impl Crowd {
    /// In a process that a test has started: does its job.
    pub(crate) fn is_one() -> bool {
        let (Ok(masters), Ok(job)) = (env::var(MASTERS), env::var(JOB)) else {
            return false;
        };
        run(Job::parse(&job).work(&masters));
        true
    }

    /// A process for each list of URLs of the masters.
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

    /// The next one who is done; `None` when all processes are.
    pub(crate) async fn next(&mut self) -> Option<Served> {
        while self.left > 0 {
            let line = timeout(PATIENCE, self.lines.recv()).await.unwrap();
            match line.unwrap() {
                (_, None) => self.left -= 1,
                (process, Some(line)) => {
                    let said = &mut self.said[process];
                    *said += &line;
                    *said += "\n";
                    if let Some(served) = Served::parse(&line) {
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

    pub(crate) async fn all(mut self) -> Vec<Served> {
        let mut served = Vec::new();
        while let Some(one) = self.next().await {
            served.push(one);
        }
        served
    }

    /// SIGKILL, and wait.
    pub(crate) fn kill(&mut self) {
        for process in &mut self.processes {
            process.kill().ok();
            process.wait().unwrap();
        }
    }
}

impl Drop for Crowd {
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

/// Waits until exactly so many wait on each of `masters`.
pub(crate) async fn until_queued(masters: &[Server], count: usize) {
    let count = count.to_string();
    until("a queue of that length", async || {
        let is_there = |master: &Server| master.command(&["ZCARD", QUEUE]) == count;
        masters.iter().all(is_there).then_some(())
    })
    .await;
}

/// Looks at the queues all the time, and notes when each ticket was first seen where.
pub(crate) struct Watch {
    log: Arc<Mutex<Log>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    is_over: bool,
    /// Of each master, when its lives have ended; there is one more than that, unless it is down.
    ends: Vec<Vec<u64>>,
    is_down: Vec<bool>,
    /// By owner, its ticket, and by master and life, when it was first seen.
    tickets: HashMap<String, Ticket>,
}

#[derive(Debug, Default)]
struct Ticket {
    ticket: String,
    seen: HashMap<(usize, usize), u64>,
}

impl Watch {
    /// How often: what is seen later than it was there counts as not there yet, which excuses others.
    const EVERY: Duration = Duration::from_millis(10);

    pub(crate) fn start(masters: &[Server]) -> Self {
        let log = Arc::new(Mutex::new(Log {
            ends: vec![Vec::new(); masters.len()],
            is_down: vec![false; masters.len()],
            ..Log::default()
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
    pub(crate) fn ends(&self, master: usize) {
        let mut log = self.log.lock().unwrap();
        log.ends[master].push(micros());
        log.is_down[master] = true;
    }

    /// Must be called after it is back.
    pub(crate) fn begins(&self, master: usize) {
        self.log.lock().unwrap().is_down[master] = false;
    }

    pub(crate) fn stop(self) -> Log {
        self.log.lock().unwrap().is_over = true;
        for thread in self.threads {
            thread.join().unwrap();
        }
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

fn look(master: usize, port: u16, log: &Mutex<Log>) {
    let life = |log: &Log| (log.ends[master].len(), log.is_down[master]);
    loop {
        let before = life(&log.lock().unwrap());
        let queue = server::try_command_on(port, &["ZRANGE", QUEUE, "0", "-1"], PATIENCE / 8);
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
        thread::sleep(Watch::EVERY);
    }
}

impl Log {
    fn note(&mut self, ticket: &str, place: (usize, usize), now: u64) {
        let (_, owner) = ticket.split_once(':').unwrap();
        let known = self.tickets.entry(owner.to_owned()).or_default();
        // Whose clock was corrected has a new one; the last one counts.
        if *known.ticket < *ticket {
            *known = Ticket {
                ticket: ticket.to_owned(),
                ..Ticket::default()
            };
        }
        if known.ticket == ticket {
            known.seen.entry(place).or_insert(now);
        }
    }

    /// The ticket of `one`; of one who never had to wait, one that is not behind its own.
    fn ticket(&self, one: &Served) -> String {
        let known = self.tickets.get(&one.owner);
        known.map_or_else(
            || format!("{:016}:{}", one.came, one.owner),
            |known| known.ticket.clone(),
        )
    }

    /// How many masters had heard of `one` when the round of `other` began, and lived on until it was won.
    fn heard(&self, one: &Served, other: &Served) -> usize {
        let lives = |master: usize, life: usize| {
            let end = self.ends[master].get(life);
            end.is_none_or(|end| *end > other.acquired)
        };
        let known = self.tickets.get(&one.owner);
        let seen = known.iter().flat_map(|known| &known.seen);
        seen.filter(|((master, life), at)| **at < other.asked && lives(*master, *life))
            .count()
    }

    /// Who came in front of whom with a lower ticket, of whom a majority of masters had heard; `served` in the
    /// order in which they were.
    pub(crate) fn overtakes(&self, served: &[Served]) -> Overtakes {
        let majority = self.ends.len() / 2 + 1;
        let mut overtakes = Overtakes::default();
        for (place, one) in served.iter().enumerate() {
            let ticket = self.ticket(one);
            overtakes.waited += usize::from(self.heard(one, one) >= majority);
            for other in &served[..place] {
                let is_heard = self.heard(one, other) >= majority;
                let is_before = ticket < self.ticket(other);
                overtakes.excused += usize::from(is_before && !is_heard);
                overtakes.kept += usize::from(!is_before && self.heard(other, one) >= majority);
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
    /// Against the rule.
    pub(crate) broken: Vec<String>,
    /// Pairs in which the one in front had not been heard of by a majority.
    pub(crate) excused: usize,
    /// Pairs that are in order.
    pub(crate) kept: usize,
    /// How many were heard of by a majority before their own last round.
    pub(crate) waited: usize,
}
