//! The client processes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Result;
use crate::client::Orders;
use crate::clock::{self, Nanos};
use crate::note::Note;
use crate::spans::Span;

/// A client process: its place, and the number of processes that had this place before.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Client {
    pub place: usize,
    pub life: usize,
}

pub type Log = Vec<(Client, Note)>;

/// All client processes. They are killed when this value is dropped.
#[derive(Debug)]
pub struct Fleet {
    orders: Vec<Orders>,
    clients: Vec<Option<Process>>,
    lives: Vec<usize>,
    log: Arc<Mutex<Log>>,
    readers: Vec<JoinHandle<()>>,
    /// The times for which the client of each place was killed or stopped.
    pub away: Vec<Vec<Span>>,
    away_since: Vec<Option<Nanos>>,
    /// Clients that failed or did not end.
    pub failures: Vec<String>,
    /// The processes of command lines that are stopped.
    stopped: Vec<Option<Pid>>,
}

#[derive(Debug)]
struct Process(Child);

impl Fleet {
    /// Starts one client for each of the orders. The calling thread must outlive the clients.
    pub fn start(orders: Vec<Orders>) -> Result<Self> {
        let places = orders.len();
        let mut fleet = Self {
            orders,
            clients: (0..places).map(|_| None).collect(),
            lives: vec![0; places],
            log: Arc::default(),
            readers: Vec::new(),
            away: vec![Vec::new(); places],
            away_since: vec![None; places],
            failures: Vec::new(),
            stopped: vec![None; places],
        };
        for place in 0..places {
            fleet.clients[place] = Some(fleet.spawn(place)?);
        }
        Ok(fleet)
    }

    fn spawn(&mut self, place: usize) -> Result<Process> {
        let client = Client {
            place,
            life: self.lives[place],
        };
        let mut orders = self.orders[place].clone();
        orders.seed = orders.seed.wrapping_add((client.life as u64) << 40);
        let mut process = Command::new(std::env::current_exe()?)
            .arg("client")
            .arg(serde_json::to_string(&orders)?)
            .envs(orders.environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let notes = process.stdout.take().ok_or("no output")?;
        let log = self.log.clone();
        self.readers.push(thread::spawn(move || {
            for line in BufReader::new(notes).lines().map_while(|line| line.ok()) {
                let note = serde_json::from_str(&line);
                let note = note.unwrap_or_else(|_| panic!("not a note: {line}"));
                log.lock().unwrap().push((client, note));
            }
        }));
        Ok(Process(process))
    }

    /// Waits until all clients are ready to work.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        let count = |log: &Log| log.iter().filter(|(_, note)| *note == Note::Ready).count();
        while count(&self.log.lock().unwrap()) < self.orders.len() {
            if start.elapsed() > READY_TIMEOUT {
                let _ = self.finish(); // the clients say why
                return Err(format!("not all clients are ready after {READY_TIMEOUT:?}").into());
            }
            thread::sleep(POLL);
        }
        println!("all clients were ready after {:.1?}", start.elapsed());
        Ok(())
    }

    /// Returns the number of events so far.
    pub fn log_length(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    /// Calls `find` on the log from `start` on.
    pub fn look<T>(&self, start: usize, find: impl FnOnce(&[(Client, Note)]) -> T) -> T {
        find(&self.log.lock().unwrap()[start..])
    }

    /// Kills a client with SIGKILL. A client that has ended before that has failed.
    pub fn kill(&mut self, place: usize) {
        if let Some(mut client) = self.clients[place].take()
            && let Ok(Some(status)) = client.0.try_wait()
        {
            self.failures
                .push(format!("client {place} ended with {status}"));
        }
        self.away_since[place] = Some(clock::now());
    }

    /// Starts a new client in the place of one that was killed, or has ended.
    pub fn respawn(&mut self, place: usize) -> Result<()> {
        self.lives[place] += 1;
        self.clients[place] = Some(self.spawn(place)?);
        self.is_back(place);
        Ok(())
    }

    /// Ends a client, by SIGKILL or when its work is done. Then starts a client with these orders
    /// in its place, and waits until it is ready.
    pub fn replace(&mut self, place: usize, orders: Orders, is_killed: bool) -> Result<()> {
        if is_killed {
            self.kill(place);
        } else if let Some(mut client) = self.clients[place].take() {
            drop(client.0.stdin.take());
            self.wait_for_end(place, client, Instant::now() + END_TIMEOUT)?;
        }
        self.orders[place] = orders;
        self.respawn(place)?;
        let life = self.lives[place];
        let start = Instant::now();
        let ready = (Client { place, life }, Note::Ready);
        while !self.log.lock().unwrap().contains(&ready) {
            if start.elapsed() > READY_TIMEOUT {
                return Err(format!("client {place} is not ready after {READY_TIMEOUT:?}").into());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    pub fn stop(&mut self, place: usize) -> Result<()> {
        self.away_since[place] = Some(clock::now());
        self.signal(place, Signal::STOP)
    }

    pub fn resume(&mut self, place: usize) -> Result<()> {
        self.signal(place, Signal::CONT)?;
        self.is_back(place);
        Ok(())
    }

    pub fn step_clock(&self, place: usize, step: i64) -> Result<()> {
        let clock = self.orders[place].clock.as_ref();
        let (_, clock) = clock.ok_or("the clocks of clients cannot be changed here")?;
        Ok(clock.step(step)?)
    }

    /// Sends a signal to `quorlock run`, to its keeper or to its command, as `detail` says.
    pub fn hit_run(&mut self, place: usize, detail: u64, signal: Signal) -> Result<()> {
        let client = self.clients[place].as_ref().ok_or("the client is dead")?;
        let wrapper = *children(client.0.id()).first().ok_or("nothing runs")?;
        let parts = children(wrapper);
        // The keeper starts first.
        let pid = match detail % 3 {
            0 => Some(wrapper),
            1 => parts.first().copied(),
            _ => parts.get(1).copied(),
        };
        let pid = pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.ok_or("there is no command yet")?;
        kill_process(pid, signal)?;
        self.stopped[place] = Some(pid).filter(|_| signal == Signal::STOP);
        self.away_since[place] = Some(clock::now());
        Ok(())
    }

    pub fn resume_run(&mut self, place: usize) -> Result<()> {
        self.is_back(place);
        if let Some(pid) = self.stopped[place].take() {
            // The keeper may have killed the command meanwhile.
            let _ = kill_process(pid, Signal::CONT);
        }
        Ok(())
    }

    fn is_back(&mut self, place: usize) {
        if let Some(since) = self.away_since[place].take() {
            self.away[place].push(Span::new(since, clock::now()));
        }
    }

    fn signal(&self, place: usize, signal: Signal) -> Result<()> {
        let process = self.clients[place].as_ref().ok_or("the client is dead")?;
        Ok(kill_process(Pid::from_child(&process.0), signal)?)
    }

    /// Tells all clients to end, waits for them, and returns what they have logged.
    pub fn finish(&mut self) -> Result<Log> {
        for client in self.clients.iter_mut().flatten() {
            drop(client.0.stdin.take());
        }
        let deadline = Instant::now() + END_TIMEOUT;
        for place in 0..self.clients.len() {
            if let Some(client) = self.clients[place].take() {
                self.wait_for_end(place, client, deadline)?;
            }
        }
        for reader in self.readers.drain(..) {
            reader.join().map_err(|_| "a client wrote nonsense")?;
        }
        Ok(std::mem::take(&mut *self.log.lock().unwrap()))
    }

    /// Waits for the end of a client that was told to end, and kills it at the deadline.
    fn wait_for_end(&mut self, place: usize, mut client: Process, deadline: Instant) -> Result<()> {
        let status = loop {
            match client.0.try_wait()? {
                None if Instant::now() < deadline => thread::sleep(POLL),
                status => break status,
            }
        };
        match status {
            Some(status) if status.success() => {}
            Some(status) => self
                .failures
                .push(format!("client {place} ended with {status}")),
            None => self.failures.push(format!("client {place} does not end")),
        }
        Ok(())
    }
}

/// Returns the child processes of a process, in the order of their numbers.
fn children(parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")));
    let lists: Vec<_> = lists.flatten().collect();
    let numbers = lists.iter().flat_map(|list| list.split_whitespace());
    let mut children: Vec<_> = numbers.flat_map(str::parse).collect();
    children.sort_unstable();
    children
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const POLL: Duration = Duration::from_millis(10);
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest time that clients take to end. The longest wait for a lock, the longest time for
/// which a lock is held, and the longest `close` take about 20 s. The machine may be busy.
const END_TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_failed_before_it_was_killed_is_found() {
        let mut fleet = Fleet::start(Vec::new()).unwrap();
        for (program, has_ended) in [("false", true), ("cat", false)] {
            let mut child = Command::new(program).stdin(Stdio::piped()).spawn().unwrap();
            if has_ended {
                child.wait().unwrap();
            }
            fleet.clients.push(Some(Process(child)));
            fleet.away_since.push(None);
        }
        fleet.kill(0);
        fleet.kill(1);
        assert_eq!(fleet.failures, ["client 0 ended with exit status: 1"]);
    }
}
