//! Starting the program and waiting for it.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant, SystemTime},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use testkit::server::Server;

/// Returns the masters as the variable `QUORLOCK_MASTERS` lists them.
pub fn urls(masters: &[Server]) -> String {
    let urls: Vec<_> = masters.iter().map(Server::url).collect();
    urls.join(",")
}

/// Returns the program without arguments. It knows the masters, and nothing of its user.
pub fn quorlock(masters: &[Server]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorlock"));
    command
        .env("QUORLOCK_MASTERS", urls(masters))
        .env("HOME", "/nonexistent")
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("QUORLOCK_LEAVING")
        .env_remove("QUORLOCK_PASSWORD")
        .env_remove("QUORLOCK_KEY_TEMPLATE")
        .env_remove("QUORLOCK_MAX_TTL")
        .env_remove("QUORLOCK_STRICT")
        .env_remove("QUORLOCK_CONNECT_TIMEOUT")
        .env_remove("QUORLOCK_NODE_TIMEOUT")
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

/// Runs a command to its end. Returns its exit status, its stdout and its stderr.
#[track_caller]
pub fn ended(command: &mut Command) -> (i32, String, String) {
    said(command.output().unwrap())
}

#[track_caller]
pub fn said(output: Output) -> (i32, String, String) {
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| text(&bytes));
    let code = output.status.code();
    (
        code.unwrap_or_else(|| panic!("{}: {stderr}", output.status)),
        stdout,
        stderr,
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program in the background. It is killed when it is dropped.
pub struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
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
        let mut running = Self::start(&mut with(masters, &format!("hold {words}")));
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

    /// Waits for the first line on stderr. The others are lost.
    pub fn error_line(&mut self) -> String {
        let mut line = String::new();
        let stderr = self.child.stderr.as_mut().unwrap();
        BufReader::new(stderr).read_line(&mut line).unwrap();
        line
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

    /// Waits for the end. Returns the exit status, and the rest of stdout and stderr.
    pub fn ended(mut self) -> (ExitStatus, String, String) {
        let mut err = String::new();
        let stderr = self.child.stderr.take();
        let (status, out) = self.ended_without_stderr();
        stderr.unwrap().read_to_string(&mut err).unwrap();
        (status, out, err)
    }

    /// Waits for the end of a program whose stderr is not a pipe of this test.
    pub fn ended_without_stderr(mut self) -> (ExitStatus, String) {
        let mut out = String::new();
        self.lines.read_to_string(&mut out).unwrap();
        (self.child.wait().unwrap(), out)
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

/// Asserts that no master has the key.
#[track_caller]
pub fn assert_free(masters: &[Server], key: &str) {
    until("the key is gone", || {
        masters
            .iter()
            .all(|master| master.command(&["EXISTS", key]) == "0")
    });
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

/// Returns a text without the spaces that align its columns.
pub fn squeezed(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_whitespace());
    let lines = lines.map(|words| words.collect::<Vec<_>>().join(" ") + "\n");
    lines.collect()
}

/// Reads one line of JSON.
#[track_caller]
pub fn json(text: &str) -> Value {
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(text).unwrap()
}

/// Writes a mutex as another library would.
pub fn write_mutex(masters: &[Server], name: &str, token: &str) {
    for master in masters {
        master.command(&["SET", name, token, "PX", "60000"]);
    }
}

/// Writes a fair lock that its owner has acquired twice.
pub fn write_fair(masters: &[Server], name: &str, owner: &str) {
    for master in masters {
        let fields = [owner, "2", "quorlock:fair", "7", "mode", "quorlock"];
        master.command(&[&["HSET", name], &fields[..]].concat());
        master.command(&["PEXPIRE", name, "60000"]);
    }
}
