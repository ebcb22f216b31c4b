//! `bare`: the limit, which is the most that the machine and the servers allow. It uses nonblocking
//! sockets and epoll on one thread, with handwritten RESP, no futures and no allocations. It
//! releases by `DELEX` or `DELIFEQ` if the servers have one of them, and otherwise by the script.
//!
//! All masters get the same stream of bytes, so one buffer and one log of commands serve all five.
//! A link only knows the position in the log that its replies have reached.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream as BlockingStream;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use testkit::random::Random;

use super::{RELEASE, hex};
use crate::load::{Length, Result, TTL_MS, key};
use crate::stats::{CpuTime, Outcome, Recorder};

/// The largest number of commands by which the slowest master may lag. It is a power of two.
const LOG: usize = 1 << 20;
const READ_BUFFER: usize = 64 * 1024;

/// Runs the closed loop on this thread.
pub fn run(urls: &[String], width: usize, length: Length) -> Result<Outcome> {
    let mut poll = Poll::new()?;
    let mut release = Release::Delex;
    let mut links = Vec::new();
    for (i, url) in urls.iter().enumerate() {
        let (mut link, found) = Link::connect(url)?;
        poll.registry().register(
            &mut link.stream,
            Token(i),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        links.push(link);
        release = found;
    }
    let window = length.window();
    let cpu = CpuTime::now();
    let mut crew = Crew::new(width, urls.len(), &release, Recorder::new(window));
    crew.start_all();
    drive(&mut poll, &mut links, &mut crew)?;
    let recorders = crew.tasks.into_iter().map(|task| task.recorder);
    Ok(Outcome::new(window, cpu, recorders.collect()))
}

/// Runs until every task has stopped and every reply has arrived.
fn drive(poll: &mut Poll, links: &mut [Link], crew: &mut Crew) -> Result<()> {
    let mut events = Events::with_capacity(16);
    loop {
        for link in &mut *links {
            link.write(&crew.out)?;
        }
        crew.out.clear();
        if links.iter().all(|link| link.answered == crew.asked) {
            return Ok(());
        }
        poll.poll(&mut events, Some(Duration::from_secs(2)))?;
        if events.is_empty() {
            return Err("bare: no answer for 2 s".into());
        }
        for event in &events {
            links[event.token().0].read(crew)?;
        }
    }
}

/// One connection.
struct Link {
    stream: TcpStream,
    input: Box<[u8]>,
    /// The number of bytes at the front of `input` that are the beginning of an incomplete reply.
    kept: usize,
    /// The bytes that the socket did not accept.
    backlog: Vec<u8>,
    /// The number of replies so far.
    answered: usize,
}

impl Link {
    /// Connects, and finds out how the server releases.
    fn connect(url: &str) -> Result<(Self, Release)> {
        let address = url.strip_prefix("redis://").ok_or("bare: not a TCP url")?;
        let mut stream = BlockingStream::connect(address)?;
        stream.set_nodelay(true)?;
        let release = Release::find(&mut stream)?;
        stream.set_nonblocking(true)?;
        let link = Self {
            stream: TcpStream::from_std(stream),
            input: vec![0; READ_BUFFER].into(),
            kept: 0,
            backlog: Vec::new(),
            answered: 0,
        };
        Ok((link, release))
    }

    /// Writes all new commands at once.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.backlog.is_empty() {
            self.backlog.extend_from_slice(bytes);
            let sent = accept_would_block(self.stream.write(&self.backlog))?;
            self.backlog.drain(..sent);
        } else if !bytes.is_empty() {
            let sent = accept_would_block(self.stream.write(bytes))?;
            self.backlog.extend_from_slice(&bytes[sent..]);
        }
        Ok(())
    }

    /// Reads until a read does not fill the buffer. epoll is edge-triggered, so it would not report
    /// the rest of the bytes again.
    fn read(&mut self, crew: &mut Crew) -> Result<()> {
        loop {
            let room = &mut self.input[self.kept..];
            let wanted = room.len();
            let got = match self.stream.read(room) {
                Ok(0) => return Err("bare: a server hung up".into()),
                other => accept_would_block(other)?,
            };
            self.count(got, crew)?;
            if got < wanted {
                return Ok(());
            }
        }
    }

    /// Takes all complete replies from the input.
    fn count(&mut self, got: usize, crew: &mut Crew) -> Result<()> {
        let end = self.kept + got;
        let mut at = 0;
        while at < end {
            let expected = crew.expected(self.answered);
            let answer = &self.input[at..end];
            if !answer.starts_with(expected) {
                if expected.starts_with(answer) {
                    break;
                }
                return Err(format!("bare: got {}", String::from_utf8_lossy(answer)).into());
            }
            at += expected.len();
            crew.grant(self.answered);
            self.answered += 1;
        }
        self.input.copy_within(at..end, 0);
        self.kept = end - at;
        Ok(())
    }
}

/// The command with which a server releases.
enum Release {
    Delex,
    Delifeq,
    /// The hash of the script.
    Script(String),
}

impl Release {
    fn find(stream: &mut BlockingStream) -> Result<Self> {
        let load = format!("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${}\r\n", RELEASE.len());
        let questions = "*1\r\n$5\r\nDELEX\r\n*1\r\n$7\r\nDELIFEQ\r\n";
        stream.write_all(format!("{questions}{load}{RELEASE}\r\n").as_bytes())?;
        let mut lines = BufReader::new(stream).lines();
        let mut line = || {
            lines
                .next()
                .ok_or("bare: a server hung up")?
                .map_err(Into::into)
        };
        let answers: [Result<String>; 4] = std::array::from_fn(|_| line());
        let [delex, delifeq, _, sha] = answers;
        let is_known = |answer: String| answer.contains("wrong number of arguments");
        Ok(if is_known(delex?) {
            Self::Delex
        } else if is_known(delifeq?) {
            Self::Delifeq
        } else {
            Self::Script(sha?)
        })
    }

    /// Returns the command for a key without a token, and the position of the token.
    fn command(&self, key: &str) -> (String, usize) {
        let (before, after) = match self {
            Self::Delex => (
                format!("*4\r\n$5\r\nDELEX\r\n{key}$4\r\nIFEQ\r\n$40\r\n"),
                "",
            ),
            Self::Delifeq => (format!("*3\r\n$7\r\nDELIFEQ\r\n{key}$40\r\n"), ""),
            Self::Script(sha) => (
                format!("*6\r\n$7\r\nEVALSHA\r\n$40\r\n{sha}\r\n$1\r\n1\r\n{key}$40\r\n"),
                "$0\r\n\r\n",
            ),
        };
        let token = "0".repeat(40);
        (format!("{before}{token}\r\n{after}"), before.len())
    }
}

fn accept_would_block(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

/// All tasks, and the commands sent for them.
struct Crew {
    tasks: Vec<Task>,
    majority: u8,
    /// For the n-th command, the task that sent it and the `turn` of that task.
    log: Box<[(u32, u32)]>,
    asked: usize,
    /// The new commands, which go to every master.
    out: Vec<u8>,
    random: Random,
}

struct Task {
    /// The number of the task's present command. It is even while the task acquires, and odd while
    /// the task releases.
    turn: u32,
    granted: u8,
    acquire: Vec<u8>,
    release: Vec<u8>,
    /// The positions of the token in the two commands.
    token_at: (usize, usize),
    recorder: Recorder,
}

impl Crew {
    fn new(width: usize, masters: usize, release: &Release, recorder: Recorder) -> Self {
        let tasks = (0..width).map(|i| Task::new(&key(i), release, recorder.clone()));
        Self {
            tasks: tasks.collect(),
            majority: (masters / 2 + 1) as u8,
            log: vec![(0, 0); LOG].into(),
            asked: 0,
            out: Vec::with_capacity(1 << 20),
            random: Random::new(Random::fresh_seed()),
        }
    }

    fn start_all(&mut self) {
        for task in 0..self.tasks.len() {
            self.acquire(task);
        }
    }

    /// Returns the only correct reply to the n-th command.
    fn expected(&self, n: usize) -> &'static [u8] {
        let (_, turn) = self.log[n % LOG];
        if turn % 2 == 0 { b"+OK\r\n" } else { b":1\r\n" }
    }

    /// Counts the grant of one master for the n-th command. Ignores the grant if the task already
    /// has a majority for this command.
    fn grant(&mut self, n: usize) {
        let (index, turn) = self.log[n % LOG];
        let task = &mut self.tasks[index as usize];
        if task.turn != turn {
            return;
        }
        task.granted += 1;
        if task.granted < self.majority {
            return;
        }
        task.granted = 0;
        task.turn = task.turn.wrapping_add(1);
        if turn % 2 == 0 {
            self.release(index as usize);
        } else if task.recorder.cycle_ended() {
            self.acquire(index as usize);
        }
    }

    fn acquire(&mut self, index: usize) {
        let task = &mut self.tasks[index];
        let (acquire, release) = task.token_at;
        hex(&mut self.random, &mut task.acquire[acquire..acquire + 40]);
        task.release[release..release + 40].copy_from_slice(&task.acquire[acquire..acquire + 40]);
        self.out.extend_from_slice(&task.acquire);
        self.note(index);
    }

    fn release(&mut self, index: usize) {
        self.out.extend_from_slice(&self.tasks[index].release);
        self.note(index);
    }

    fn note(&mut self, index: usize) {
        self.log[self.asked % LOG] = (index as u32, self.tasks[index].turn);
        self.asked += 1;
    }
}

impl Task {
    fn new(key: &str, release: &Release, recorder: Recorder) -> Self {
        let key = format!("${}\r\n{key}\r\n", key.len());
        let token = "0".repeat(40);
        let ttl = TTL_MS.to_string();
        let set = format!("*6\r\n$3\r\nSET\r\n{key}$40\r\n");
        let (release, token_of_release) = release.command(&key);
        let options = format!("$2\r\nNX\r\n$2\r\nPX\r\n${}\r\n{ttl}\r\n", ttl.len());
        Self {
            turn: 0,
            granted: 0,
            token_at: (set.len(), token_of_release),
            acquire: format!("{set}{token}\r\n{options}").into(),
            release: release.into(),
            recorder,
        }
    }
}
