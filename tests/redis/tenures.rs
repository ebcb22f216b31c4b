//! What becomes of a lock, as those note it who take it, in several processes.

use std::{
    collections::{HashMap, HashSet},
    env, fmt,
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    mem,
    path::{Path, PathBuf},
    time::Duration,
};

use quorlock::Lock;
use tokio::{sync::watch, time::timeout};

use crate::common::Server;

/// A task that takes a lock again and again.
pub(crate) struct Turns {
    pub(crate) task: usize,
    pub(crate) lock: Lock,
    pub(crate) log: Log,
    /// How often. Closed in the end.
    pub(crate) told: watch::Receiver<u32>,
}

impl Turns {
    pub(crate) async fn take(mut self, hold: Duration, pause: Duration) {
        while self.told.has_changed().is_ok() {
            self.take_one(hold).await;
            self.wait(pause).await;
        }
    }

    pub(crate) async fn take_when_told(mut self) {
        while self.told.changed().await.is_ok() {
            self.take_one(Duration::ZERO).await;
        }
    }

    async fn take_one(&mut self, hold: Duration) {
        let task = self.task;
        self.log.note(format_args!("{task} asks"));
        let guard = self.lock.acquire().await.unwrap();
        let token = guard.fencing_token().unwrap();
        let was_valid = guard.is_valid();
        self.log.note(format_args!("{task} has {token}"));
        if !(was_valid && guard.is_valid()) {
            self.log.note(format_args!("{task} lost {token}"));
        }
        self.wait(hold).await;
        let _ = guard.release().await; // what fails is owed it
    }

    /// Not longer than to the end.
    async fn wait(&mut self, time: Duration) {
        if !time.is_zero() {
            let _ = timeout(time, self.told.wait_for(|_| false)).await;
        }
    }
}

/// What is noted goes behind all that was noted before, by whichever process. So a log is in the order of time, and
/// no clock is asked.
pub(crate) struct Log {
    file: File,
    path: PathBuf,
}

impl Log {
    pub(crate) fn of(name: &str, directory: &Path) -> Self {
        let path = directory.join(format!("tenures of {name}"));
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true);
        Self {
            file: options.open(&path).unwrap(),
            path,
        }
    }

    fn note(&mut self, what: fmt::Arguments<'_>) {
        let line = format!("{what}\n"); // in one piece
        self.file.write_all(line.as_bytes()).unwrap();
    }
}

/// What the log of a lock tells.
pub(crate) struct Tenures {
    name: String,
    log: BufReader<File>,
    path: PathBuf,
    line: String,
    /// The largest token so far.
    highest: u64,
    /// What that was when a task asked for the lock that it waits for.
    before: HashMap<usize, u64>,
    /// In the order in which they were noted.
    pub(crate) tokens: Vec<u64>,
    /// Those whose holder had lost the lock before it had noted the token: their place in the order is that of the
    /// note, not of the tenure.
    pub(crate) excused: HashSet<u64>,
    /// Tokens that are not above all that were there when their holder began to ask, with the largest of those.
    pub(crate) early: Vec<(u64, u64)>,
}

impl Tenures {
    pub(crate) fn of(name: String, directory: &Path) -> Self {
        let Log { file, path } = Log::of(&name, directory);
        Self {
            name,
            log: BufReader::new(file),
            path,
            line: String::new(),
            highest: 0,
            before: HashMap::new(),
            tokens: Vec::new(),
            excused: HashSet::new(),
            early: Vec::new(),
        }
    }

    /// What is new.
    pub(crate) fn read(&mut self) {
        loop {
            self.log.read_line(&mut self.line).unwrap();
            if !self.line.ends_with('\n') {
                return; // more of it will come
            }
            let line = mem::take(&mut self.line);
            let words: Vec<_> = line.split_whitespace().collect();
            let number = |word: usize| words[word].parse().unwrap();
            match words[1] {
                "asks" => {
                    self.before.insert(number(0) as usize, self.highest);
                }
                "has" => self.add(number(0) as usize, number(2)),
                "lost" => {
                    self.excused.insert(number(2));
                }
                _ => panic!("{line}"),
            }
        }
    }

    fn add(&mut self, task: usize, token: u64) {
        let before = self.before.remove(&task).unwrap();
        if token <= before {
            self.early.push((token, before));
        }
        self.highest = self.highest.max(token);
        self.tokens.push(token);
    }

    pub(crate) fn duplicates(&self) -> Vec<u64> {
        let mut tokens = self.tokens.clone();
        tokens.sort_unstable();
        let pairs = tokens.windows(2).filter(|pair| pair[0] == pair[1]);
        pairs.map(|pair| pair[0]).collect()
    }

    /// Tokens that are not above all those of holders before, with the largest of those.
    pub(crate) fn late(&self) -> Vec<(u64, u64)> {
        let mut late = Vec::new();
        let mut before = 0;
        for &token in &self.tokens {
            if self.excused.contains(&token) {
                continue;
            }
            if token <= before {
                late.push((token, before));
            }
            before = before.max(token);
        }
        late
    }

    /// The counters, too: no client's clock may have moved them far.
    pub(crate) fn check(&self, masters: &[Server], now: u64) {
        let (twice, early, late) = (self.duplicates(), &self.early, self.late());
        if !(twice.is_empty() && early.is_empty() && late.is_empty()) {
            let kept = env::temp_dir().join(format!("quorlock {}", self.name));
            fs::copy(&self.path, &kept).unwrap();
            panic!(
                "{}: twice {twice:?}, early {early:?}, late {late:?}; see {}",
                self.name,
                kept.display()
            );
        }
        for master in masters {
            let counter = master.command(&["GET", &format!("quorlock:fence:{{{}}}", self.name)]);
            // One that has come back since has none.
            let counter = counter.parse().unwrap_or(0);
            assert!(counter <= now + 1_000_000, "{counter} is ahead of {now}");
        }
    }
}
