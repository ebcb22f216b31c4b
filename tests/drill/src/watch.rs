//! A watch that reads the masters all the time: whether each of them has a vote, and which waiters
//! of fair locks are in its queue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::{Kind, Quarantine};
use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::Result;
use crate::clock::{self, Nanos};
use crate::locks::{LockNumber, QUARANTINE};
use crate::spans::Span;

/// The time between two reads.
const EVERY: Duration = Duration::from_millis(15);
/// The longest time for a read. A master that is slower counts as unwell.
const TIMEOUT: Duration = Duration::from_millis(300);

/// The shortest delay that counts as a stall. A stalled client may miss the node timeout.
const SHORTEST_STALL: Nanos = 50 * clock::MILLISECOND;

/// A time for which a ticket was in a master's queue without a break.
#[derive(Clone, Debug)]
pub struct Presence {
    pub lock: LockNumber,
    /// The time at which the waiter came, in microseconds, and its owner.
    pub ticket: String,
    pub span: Span,
}

/// The record of one master.
#[derive(Debug, Default)]
pub struct Record {
    /// The times for which the master did not answer, or had no vote.
    pub unwell: Vec<Span>,
    pub presences: Vec<Presence>,
    /// The tickets in the queues at the last read.
    queued: HashMap<(LockNumber, String), Span>,
    unwell_since: Option<Nanos>,
    last_read: Nanos,
}

/// Reads all masters until it is stopped.
#[derive(Debug)]
pub struct Watch {
    records: Vec<Arc<Mutex<Record>>>,
    stalls: Arc<Mutex<Vec<Span>>>,
    tasks: Vec<JoinHandle<()>>,
}

/// The observations of a watch.
#[derive(Debug)]
pub struct Seen {
    /// The records of all masters.
    pub records: Vec<Record>,
    /// The times for which this process did not get to run, although it wanted to.
    pub stalls: Vec<Span>,
}

impl Watch {
    /// Starts to read the servers on these ports, in the present runtime.
    pub fn start(ports: &[u16], quarantine: Quarantine) -> Self {
        let start = clock::now();
        let record = |_| Arc::new(Mutex::new(Record::starting_at(start)));
        let records: Vec<_> = ports.iter().map(record).collect();
        let tasks = ports.iter().zip(&records).map(|(&port, record)| {
            let record = record.clone();
            tokio::spawn(async move {
                loop {
                    let reader = Reader { port, quarantine };
                    let _ = reader.read(&record).await;
                    record.lock().unwrap().miss();
                    sleep(EVERY).await;
                }
            })
        });
        let mut tasks: Vec<_> = tasks.collect();
        let stalls = Arc::default();
        tasks.push(tokio::spawn(note_stalls(Arc::clone(&stalls))));
        Self {
            records,
            stalls,
            tasks,
        }
    }

    /// Returns whether all masters answer and have a vote.
    pub fn is_well(&self) -> bool {
        let is_well = |record: &Arc<Mutex<Record>>| record.lock().unwrap().unwell_since.is_none();
        self.records.iter().all(is_well)
    }

    /// Returns what was seen up to now.
    pub fn stop(self) -> Seen {
        self.tasks.iter().for_each(JoinHandle::abort);
        let records = self.records.iter().map(|record| {
            let mut record = std::mem::take(&mut *record.lock().unwrap());
            record.close(clock::now());
            record
        });
        Seen {
            records: records.collect(),
            stalls: std::mem::take(&mut *self.stalls.lock().unwrap()),
        }
    }
}

/// Sleeps again and again, and notes when it wakes up too late.
async fn note_stalls(stalls: Arc<Mutex<Vec<Span>>>) {
    loop {
        let due = clock::now() + clock::nanos(EVERY);
        sleep(EVERY).await;
        let now = clock::now();
        if now > due + SHORTEST_STALL {
            stalls.lock().unwrap().push(Span::new(due, now));
        }
    }
}

struct Reader {
    port: u16,
    quarantine: Quarantine,
}

impl Reader {
    /// Reads until the connection breaks.
    async fn read(&self, record: &Mutex<Record>) -> Result<()> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port))?;
        let connecting = client.get_multiplexed_async_connection();
        let mut connection = timeout(TIMEOUT, connecting).await??;
        let info: String = ask(&mut connection, redis::cmd("INFO").arg("server")).await?;
        let run_id = info
            .lines()
            .find_map(|line| line.strip_prefix("run_id:"))
            .unwrap_or_default();
        let fair: Vec<_> = LockNumber::all()
            .filter(|lock| lock.kind() == Kind::Fair)
            .collect();
        let mut pipe = redis::pipe();
        pipe.cmd("HMGET")
            .arg("quorlock:guard")
            .arg(&["run_id", "since", "seen"]);
        pipe.cmd("TIME");
        for lock in &fair {
            pipe.cmd("ZRANGE")
                .arg(format!("quorlock:queue:{{{}}}", lock.name()))
                .arg(0)
                .arg(-1);
        }
        loop {
            let sent = clock::now();
            let asked = pipe.query_async::<Vec<Vec<Option<String>>>>(&mut connection);
            let mut replies = timeout(TIMEOUT, asked).await??.into_iter();
            let got = clock::now();
            let (Some(guard), Some(time)) = (replies.next(), replies.next()) else {
                return Err("too few replies".into());
            };
            let has_vote = self.has_vote(run_id, &guard, &time);
            let queued = fair.iter().zip(replies).flat_map(|(&lock, tickets)| {
                tickets
                    .into_iter()
                    .flatten()
                    .map(move |ticket| (lock, ticket))
            });
            record
                .lock()
                .unwrap()
                .add(has_vote, queued, Span::new(sent, got));
            sleep(EVERY).await;
        }
    }

    /// Returns whether clients use the master: they have seen this process, and its quarantine is
    /// over.
    fn has_vote(&self, run_id: &str, guard: &[Option<String>], time: &[Option<String>]) -> bool {
        let text = |words: &[Option<String>], index: usize| words.get(index).cloned().flatten();
        let number = |words, index| text(words, index).and_then(|text| text.parse::<u64>().ok());
        let part = |index| number(time, index).unwrap_or_default();
        let now = part(0) * 1_000 + part(1) / 1_000;
        let since = match self.quarantine {
            Quarantine::Off => return true,
            Quarantine::Strict => number(guard, 1).max(number(guard, 2)),
            _ => number(guard, 1),
        };
        let since = since.filter(|since| *since > 0);
        text(guard, 0).is_some_and(|known| known == run_id)
            && since.is_none_or(|since| now > since + QUARANTINE.as_millis() as u64)
    }
}

async fn ask<T: redis::FromRedisValue>(
    connection: &mut MultiplexedConnection,
    command: &redis::Cmd,
) -> Result<T> {
    Ok(timeout(TIMEOUT, command.query_async(connection)).await??)
}

impl Record {
    fn starting_at(start: Nanos) -> Self {
        Self {
            unwell_since: Some(start),
            last_read: start,
            ..Self::default()
        }
    }

    /// Adds a read, which was sent and answered at the ends of `read`.
    fn add(
        &mut self,
        has_vote: bool,
        queued: impl Iterator<Item = (LockNumber, String)>,
        read: Span,
    ) {
        let mut before = std::mem::take(&mut self.queued);
        for key in queued {
            // The ticket was there when the first reply was made, and when the last read was sent.
            let span = before
                .remove(&key)
                .map_or(Span::new(read.to, read.from), |seen| {
                    Span::new(seen.from, read.from)
                });
            self.queued.insert(key, span);
        }
        let gone = before.into_iter();
        self.presences
            .extend(gone.map(|(key, span)| Presence::new(key, span)));
        if !has_vote {
            self.unwell_since = self.unwell_since.or(Some(self.last_read));
        } else if let Some(since) = self.unwell_since.take() {
            self.unwell.push(Span::new(since, read.from));
        }
        self.last_read = read.to;
    }

    /// Records that the master did not answer. What is in its queues is no longer known.
    fn miss(&mut self) {
        self.unwell_since = self.unwell_since.or(Some(self.last_read));
        self.forget();
    }

    fn close(&mut self, now: Nanos) {
        self.forget();
        if let Some(since) = self.unwell_since.take() {
            self.unwell.push(Span::new(since, now));
        }
    }

    fn forget(&mut self) {
        let gone = self.queued.drain();
        self.presences
            .extend(gone.map(|(key, span)| Presence::new(key, span)));
    }
}

impl Presence {
    fn new((lock, ticket): (LockNumber, String), span: Span) -> Self {
        Self { lock, ticket, span }
    }
}
