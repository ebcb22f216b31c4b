//! A running program. It reads one command per line and answers each with one line.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use testkit::server::Server;

use crate::{Failure, Outcome, in_target};

/// A program that can be started. The addresses of the masters come after `command`.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name in messages.
    pub name: String,
    pub command: Vec<String>,
}

#[derive(Debug)]
pub struct Process {
    name: String,
    /// The versions that the program printed when it was ready.
    pub versions: String,
    child: Child,
    input: ChildStdin,
    replies: Receiver<Reply>,
}

#[derive(Debug)]
pub struct Reply {
    pub text: String,
    pub at: Instant,
}

/// The TTL of locks, unless a scenario needs another one. It is longer than any scenario holds a
/// lock, so a lock becomes free only by a release.
pub const TTL: Duration = Duration::from_secs(20);
/// The time limit for a lock that is free, or that will soon be free.
const WAIT: Duration = Duration::from_secs(10);
/// The time limit for a reply. It includes the start of a program.
const REPLY: Duration = Duration::from_secs(40);

impl Program {
    /// Starts the program. Returns when it is connected to the masters.
    pub fn start(&self, masters: &[Server]) -> Outcome<Process> {
        let broken = |error| Failure::Breakdown(format!("cannot start {}: {error}", self.name));
        let log = in_target("logs").join(format!("{}.log", self.name.replace(' ', "-")));
        fs::create_dir_all(in_target("logs")).map_err(broken)?;
        let log = File::options().create(true).append(true).open(log);
        let mut child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .args(masters.iter().map(|m| format!("127.0.0.1:{}", m.port())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.map_err(broken)?)
            .spawn()
            .map_err(broken)?;
        let output = child.stdout.take().expect("it is piped");
        let mut process = Process {
            name: self.name.clone(),
            versions: String::new(),
            input: child.stdin.take().expect("it is piped"),
            replies: listen(output),
            child,
        };
        let ready = process.reply()?.text;
        let versions = ready.strip_prefix("ready ");
        process.versions = versions
            .ok_or_else(|| process.broken("its start", &ready))?
            .to_owned();
        Ok(process)
    }
}

impl Process {
    /// Waits for a lock that is free, or that will soon be free.
    pub fn lock(&mut self, name: &str, ttl: Duration) -> Outcome<()> {
        self.send_lock(name, ttl)?;
        self.expect("locked", &format!("lock {name}"))
    }

    /// Begins to wait for a lock. The reply comes later.
    pub fn send_lock(&mut self, name: &str, ttl: Duration) -> Outcome<()> {
        let (ttl, wait) = (ttl.as_millis(), WAIT.as_millis());
        self.send(&format!("lock {name} {ttl} {wait}"))
    }

    /// Tries once to get a lock that `holder` has. Returns how the library says that it did not
    /// get the lock.
    pub fn try_held(&mut self, name: &str, holder: &Self) -> Outcome<String> {
        let mut last = String::new();
        // A busy master can make a try fail. This says nothing about the lock.
        for _ in 0..5 {
            let reply = self.ask(&format!("lock {name} {} 0", TTL.as_millis()))?;
            if reply == "locked" {
                let (who, holder) = (&self.name, &holder.name);
                return Err(Failure::Violation(format!(
                    "{who} got {name} while {holder} held it"
                )));
            }
            last = reply;
            if last.starts_with("refused") {
                break;
            }
        }
        Ok(last)
    }

    /// Releases the lock that was acquired last.
    pub fn unlock(&mut self) -> Outcome<()> {
        self.send("unlock")?;
        self.expect("unlocked", "unlock")
    }

    /// Reads how often the holder of a lock holds it, until the answer is `expected`.
    pub fn see_depth(&mut self, name: &str, expected: u32) -> Outcome<()> {
        let deadline = Instant::now() + Duration::from_secs(2);
        let expected = format!("depth {expected}");
        loop {
            let reply = self.ask(&format!("depth {name}"))?;
            if reply == expected {
                return Ok(());
            }
            // A release returns when a majority has confirmed it. Other masters may be later.
            if Instant::now() > deadline {
                let who = &self.name;
                let text = format!("{who} sees {reply:?} of {name}, not {expected:?}");
                return Err(Failure::Violation(text));
            }
        }
    }

    pub fn expect(&mut self, expected: &str, what: &str) -> Outcome<()> {
        let reply = self.reply()?.text;
        match reply == expected {
            true => Ok(()),
            false => Err(self.broken(what, &reply)),
        }
    }

    pub fn ask(&mut self, command: &str) -> Outcome<String> {
        self.send(command)?;
        Ok(self.reply()?.text)
    }

    pub fn send(&mut self, command: &str) -> Outcome<()> {
        let sent = writeln!(self.input, "{command}");
        sent.map_err(|error| self.broken(command, &error.to_string()))
    }

    pub fn reply(&mut self) -> Outcome<Reply> {
        self.reply_within(REPLY)
    }

    pub fn reply_within(&mut self, limit: Duration) -> Outcome<Reply> {
        let reply = self.replies.recv_timeout(limit);
        reply.map_err(|error| self.broken("a command", &error.to_string()))
    }

    fn broken(&self, what: &str, reply: &str) -> Failure {
        let (name, logs) = (&self.name, in_target("logs"));
        Failure::Breakdown(format!("{name}: {what}: {reply} (see {})", logs.display()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the replies on a thread of their own, so that each has the time at which it came.
fn listen(output: impl std::io::Read + Send + 'static) -> Receiver<Reply> {
    let (sender, replies) = mpsc::channel();
    thread::spawn(move || {
        for text in BufReader::new(output).lines().map_while(Result::ok) {
            let at = Instant::now();
            if sender.send(Reply { text, at }).is_err() {
                return;
            }
        }
    });
    replies
}
