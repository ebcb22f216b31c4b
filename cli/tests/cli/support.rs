//! Starting the program and waiting for it.

use std::{
    fmt, fs,
    io::{BufRead, BufReader, Read, Write},
    mem,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant, SystemTime},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use quorlock::tools::SETTINGS;
use serde_json::Value;
use testkit::server::Server;

/// The program, for shells.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_quorlock");

/// Returns the masters as the variable `QUORLOCK_MASTERS` lists them.
pub fn urls(masters: &[Server]) -> String {
    list(masters).join(",")
}

pub fn list(masters: &[Server]) -> Vec<String> {
    masters.iter().map(Server::url).collect()
}

/// Returns the program without arguments. It knows the masters, and nothing of its user.
pub fn quorlock(masters: &[Server]) -> Command {
    of_nobody(PROGRAM, masters)
}

/// Returns a shell that runs this line, in which `$0` is the program.
pub fn shell(masters: &[Server], line: &str) -> Command {
    let mut shell = of_nobody("sh", masters);
    shell.args(["-c", line, PROGRAM]);
    shell
}

fn of_nobody(program: &str, masters: &[Server]) -> Command {
    let mut command = Command::new(program);
    for [variable, ..] in SETTINGS {
        command.env_remove(variable);
    }
    command
        .env("QUORLOCK_MASTERS", urls(masters))
        .env("HOME", "/nonexistent")
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Returns the program with these arguments, in which words are separated by spaces.
pub fn with(masters: &[Server], words: &str) -> Command {
    let mut command = quorlock(masters);
    command.args(words.split_whitespace());
    command
}

/// Returns `quorlock run WORDS -- sh -c SCRIPT`.
pub fn script(masters: &[Server], words: &str, script: &str) -> Command {
    let mut command = with(masters, &format!("run {words} -- sh -c"));
    command.arg(script);
    command
}

/// Writes a configuration file with one profile called `cron`, which has these masters and `more`
/// lines. Returns its path.
pub fn configure(folder: &Path, masters: &[impl AsRef<str>], more: &str) -> PathBuf {
    let masters: Vec<_> = masters.iter().map(AsRef::as_ref).collect();
    let path = folder.join("quorlock.toml");
    fs::write(
        &path,
        format!("[profile.cron]\nmasters = {masters:?}\n{more}\n"),
    )
    .unwrap();
    path
}

/// Returns the program with the usual configuration file in `folder`, and without a list.
pub fn at(folder: &Path, words: &str) -> Command {
    let mut command = with(&[], words);
    command.env("XDG_CONFIG_HOME", folder);
    command
}

/// What a program wrote until its end, and its exit status. Each check returns it again.
pub struct Ended {
    words: String,
    pub status: i32,
    pub out: String,
    pub err: String,
}

/// Runs the program with these arguments to its end.
#[track_caller]
pub fn run(masters: &[Server], words: &str) -> Ended {
    ended(&mut with(masters, words))
}

/// Runs a command to its end.
#[track_caller]
pub fn ended(command: &mut Command) -> Ended {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ended::of(words(command), status, out, err)
}

fn words(command: &Command) -> String {
    let words: Vec<_> = command
        .get_args()
        .map(|word| word.to_string_lossy())
        .collect();
    words.join(" ")
}

impl Ended {
    #[track_caller]
    fn of(words: String, status: ExitStatus, out: String, err: String) -> Self {
        let status = status.code();
        let status = status.unwrap_or_else(|| panic!("a signal ended {words}: {err}"));
        Self {
            words,
            status,
            out,
            err,
        }
    }

    #[track_caller]
    fn check(self, what: &str, is_it: impl FnOnce(&Self) -> bool) -> Self {
        assert!(is_it(&self), "not {what}: {self}");
        self
    }

    /// Checks the exit status.
    #[track_caller]
    pub fn is(self, status: i32) -> Self {
        self.check(&format!("{status}"), |it| it.status == status)
    }

    /// Checks the exit status, and the whole text on stdout.
    #[track_caller]
    pub fn gives(self, status: i32, out: &str) -> Self {
        self.is(status)
            .check(&format!("{out:?}"), |it| it.out == out)
    }

    /// Checks that stdout has this part.
    #[track_caller]
    pub fn shows(self, part: &str) -> Self {
        self.check(part, |it| it.out.contains(part))
    }

    /// Checks that stdout begins with this part.
    #[track_caller]
    pub fn begins(self, part: &str) -> Self {
        self.check(part, |it| it.out.starts_with(part))
    }

    /// Checks that stdout ends with this part.
    #[track_caller]
    pub fn ends(self, part: &str) -> Self {
        self.check(part, |it| it.out.ends_with(part))
    }

    /// Checks that stdout has this part so often.
    #[track_caller]
    pub fn shows_times(self, count: usize, part: &str) -> Self {
        let what = format!("{count} times {part:?}");
        self.check(&what, |it| it.out.matches(part).count() == count)
    }

    /// Checks that stdout has this part, wherever its lines are wrapped and its columns stand.
    #[track_caller]
    pub fn tells(self, part: &str) -> Self {
        self.check(part, |it| one_line(&it.out).contains(part))
    }

    /// Checks that stdout does not have this part.
    #[track_caller]
    pub fn hides(self, part: &str) -> Self {
        self.check(&format!("without {part}"), |it| !it.out.contains(part))
    }

    /// Checks that stderr has this part.
    #[track_caller]
    pub fn says(self, part: &str) -> Self {
        self.check(part, |it| it.err.contains(part))
    }

    /// Checks that stderr begins with this part.
    #[track_caller]
    pub fn first_says(self, part: &str) -> Self {
        self.check(part, |it| it.err.starts_with(part))
    }

    /// Checks that stderr ends with this part.
    #[track_caller]
    pub fn last_says(self, part: &str) -> Self {
        self.check(part, |it| it.err.ends_with(part))
    }

    /// Checks that stderr does not have this part.
    #[track_caller]
    pub fn omits(self, part: &str) -> Self {
        self.check(&format!("without {part}"), |it| !it.err.contains(part))
    }

    /// Checks that stderr has so many lines.
    #[track_caller]
    pub fn in_lines(self, count: usize) -> Self {
        let what = format!("{count} lines on stderr");
        self.check(&what, |it| it.err.lines().count() == count)
    }

    /// Reads the only line of stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        json(&self.out)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            words,
            status,
            out,
            err,
        } = self;
        write!(f, "{words}: {status}\n{out}{err}")
    }
}

/// Returns a text without line breaks, and with one space between its words.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A program in the background. It is killed when it is dropped.
pub struct Running {
    words: String,
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self {
            words: words(command),
            child,
            lines,
        }
    }

    /// Starts a program whose first line is `ready`.
    #[track_caller]
    pub fn ready(command: &mut Command) -> Self {
        let mut running = Self::start(command);
        assert_eq!(running.line(), "ready");
        running
    }

    /// Starts `quorlock hold NAME`, and waits until it holds the lock.
    #[track_caller]
    pub fn hold(masters: &[Server], words: &str) -> Self {
        Self::held(&mut with(masters, &format!("hold {words}")))
    }

    /// Starts a holder, and waits until it holds the lock.
    #[track_caller]
    pub fn held(command: &mut Command) -> Self {
        let mut running = Self::start(command);
        let line = running.line();
        assert!(line.starts_with("held "), "{line:?}");
        running
    }

    /// Waits for the next line.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.lines.read_line(&mut line).unwrap();
        assert!(length > 0, "the program has ended");
        line.trim_end().to_owned()
    }

    /// Waits until the lines on stderr contain all `parts`. Returns these lines.
    #[track_caller]
    pub fn errors_until(&mut self, parts: &[&str]) -> String {
        let stderr = self.child.stderr.as_mut().unwrap();
        let mut lines = String::new();
        while !lines.ends_with('\n') || !parts.iter().all(|part| lines.contains(part)) {
            let mut byte = [0];
            let count = stderr.read(&mut byte).unwrap();
            assert!(count > 0, "no {parts:?} in {lines}");
            lines.push(char::from(byte[0]));
        }
        lines
    }

    /// Waits for a line that contains `part`.
    #[track_caller]
    pub fn line_with(&mut self, part: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Writes to the stdin of the program.
    pub fn say(&mut self, text: &str) {
        let mut stdin = self.child.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Sends TERM, and waits for the end.
    #[track_caller]
    pub fn terminated(self) -> Ended {
        self.signal(Signal::SIGTERM);
        self.ended()
    }

    /// Waits for the end. Returns the rest of stdout and stderr. There is no text of a stderr that
    /// is not a pipe of this test.
    #[track_caller]
    pub fn ended(mut self) -> Ended {
        let (mut out, mut err) = (String::new(), String::new());
        self.lines.read_to_string(&mut out).unwrap();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut err).unwrap();
        }
        let status = self.child.wait().unwrap();
        Ended::of(mem::take(&mut self.words), status, out, err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `is_true`.
#[track_caller]
pub fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_true() {
        assert!(Instant::now() < deadline, "not true after 20 s: {what}");
    }
}

/// Returns whether a process exists and is no zombie.
pub fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Returns whether a process was stopped.
pub fn is_stopped(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains(") T ")
}

/// Waits until processes are dead, which must be before `deadline` in milliseconds of Unix time.
#[track_caller]
pub fn dead_by(pids: &[String], deadline: u128) {
    until("all are dead", || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let is_dead = !pids.iter().any(|pid| is_alive(pid));
        let is_late = now.unwrap().as_millis() >= deadline;
        assert!(
            is_dead || !is_late,
            "the lock has ended, and the command runs"
        );
        is_dead
    });
}

/// Sends a command to all masters.
#[track_caller]
pub fn each(masters: &[Server], words: &str) {
    let words: Vec<_> = words.split(' ').collect();
    for master in masters {
        master.command(&words);
    }
}

/// Returns whether all masters have the key.
#[track_caller]
pub fn all_have(masters: &[Server], key: &str) -> bool {
    let has = |master: &Server| master.command(&["EXISTS", key]) == "1";
    masters.iter().all(has)
}

/// Waits until no master has the key.
#[track_caller]
pub fn assert_free(masters: &[Server], key: &str) {
    let is_free = |master: &Server| master.command(&["EXISTS", key]) == "0";
    until("the key is gone", || masters.iter().all(is_free));
}

/// The signals that the wrapper passes on, except for those that the shell of this test ignores.
pub fn signals() -> Vec<Signal> {
    let all = [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    all.into_iter().filter(|&signal| !ignores(signal)).collect()
}

/// Returns whether this process ignores Ctrl-C, as shells arrange for programs in the background.
/// Programs that it starts then ignore Ctrl-C, too.
pub fn ignores_interrupts() -> bool {
    ignores(Signal::SIGINT)
}

/// Returns whether this process ignores a signal, and with it the programs that it starts.
pub fn ignores(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 << (signal as i32 - 1) != 0)
}

/// Reads one line of JSON.
#[track_caller]
pub fn json(text: &str) -> Value {
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(text).unwrap()
}

/// Writes a mutex as another library would.
pub fn write_mutex(masters: &[Server], name: &str, token: &str) {
    each(masters, &format!("SET {name} {token} PX 60000"));
}

/// Writes a fair lock that its owner has acquired twice.
pub fn write_fair(masters: &[Server], name: &str, owner: &str) {
    let fields = format!("{owner} 2 quorlock:fair 7 mode quorlock");
    each(masters, &format!("HSET {name} {fields}"));
    each(masters, &format!("PEXPIRE {name} 60000"));
}
