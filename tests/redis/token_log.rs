//! Logs of fencing tokens that clients in several processes write, and the checks on them.

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

/// A task that acquires a lock again and again.
pub(crate) struct LockLoop {
    pub(crate) task: usize,
    pub(crate) lock: Lock,
    pub(crate) log: TokenLog,
    /// The number of times that the task was told to acquire. The channel is closed at the end of
    /// the test.
    pub(crate) signals: watch::Receiver<u32>,
}

impl LockLoop {
    pub(crate) async fn run(mut self, hold_for: Duration, pause: Duration) {
        while self.signals.has_changed().is_ok() {
            self.acquire_once(hold_for).await;
            self.wait(pause).await;
        }
    }

    pub(crate) async fn run_on_signals(mut self) {
        while self.signals.changed().await.is_ok() {
            self.acquire_once(Duration::ZERO).await;
        }
    }

    async fn acquire_once(&mut self, hold_for: Duration) {
        let task = self.task;
        self.log.note(format_args!("{task} asks"));
        let guard = self.lock.acquire().await.unwrap();
        let token = guard.fencing_token().unwrap();
        let was_valid = guard.is_valid();
        self.log.note(format_args!("{task} has {token}"));
        if !(was_valid && guard.is_valid()) {
            self.log.note(format_args!("{task} lost {token}"));
        }
        self.wait(hold_for).await;
        let _ = guard.release().await; // a failed release stays pending
    }

    /// Waits for `time`, or until the end of the test.
    async fn wait(&mut self, time: Duration) {
        if !time.is_zero() {
            let _ = timeout(time, self.signals.wait_for(|_| false)).await;
        }
    }
}

/// A log file that several processes append to. Each note comes after all earlier notes of all
/// processes. So the log is in order of time without a clock.
pub(crate) struct TokenLog {
    file: File,
    path: PathBuf,
}

impl TokenLog {
    pub(crate) fn of(name: &str, directory: &Path) -> Self {
        let path = directory.join(format!("tokens of {name}"));
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true);
        Self {
            file: options.open(&path).unwrap(),
            path,
        }
    }

    fn note(&mut self, what: fmt::Arguments<'_>) {
        let line = format!("{what}\n"); // the line is written in one piece
        self.file.write_all(line.as_bytes()).unwrap();
    }
}

/// The tokens that a lock's log contains.
pub(crate) struct TokenHistory {
    name: String,
    log: BufReader<File>,
    path: PathBuf,
    line: String,
    /// The largest token so far.
    highest: u64,
    /// The largest token at the time when each task began its current wait.
    before: HashMap<usize, u64>,
    /// All tokens, in the order of their notes.
    pub(crate) tokens: Vec<u64>,
    /// The tokens whose holders may have lost the lock before they noted the tokens. In the log,
    /// these tokens may be out of order.
    pub(crate) excused: HashSet<u64>,
    /// The tokens that are not larger than all tokens that were noted before their holder began to
    /// wait. Each comes with the largest of those earlier tokens.
    pub(crate) early: Vec<(u64, u64)>,
}

impl TokenHistory {
    pub(crate) fn of(name: String, directory: &Path) -> Self {
        let TokenLog { file, path } = TokenLog::of(&name, directory);
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

    /// Reads new notes.
    pub(crate) fn read(&mut self) {
        loop {
            self.log.read_line(&mut self.line).unwrap();
            if !self.line.ends_with('\n') {
                return; // the rest of the line is not written yet
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

    /// Returns the tokens that are not larger than the tokens of all earlier holders. Each comes
    /// with the largest of those earlier tokens.
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

    /// Checks the tokens. Also checks that no client's clock has moved the counters far ahead.
    pub(crate) fn check(&self, masters: &[Server], now: u64) {
        let (twice, early, late) = (self.duplicates(), &self.early, self.late());
        if !(twice.is_empty() && early.is_empty() && late.is_empty()) {
            let kept = env::temp_dir().join(format!("quorlock {}", self.name));
            fs::copy(&self.path, &kept).unwrap();
            panic!(
                "{}: duplicate {twice:?}, early {early:?}, late {late:?}; see {}",
                self.name,
                kept.display()
            );
        }
        for master in masters {
            let counter = master.command(&["GET", &format!("quorlock:fence:{{{}}}", self.name)]);
            // A master that has come back empty has no counter.
            let counter = counter.parse().unwrap_or(0);
            assert!(counter <= now + 1_000_000, "{counter} is ahead of {now}");
        }
    }
}
