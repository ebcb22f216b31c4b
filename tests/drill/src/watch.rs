//! A watch that reads the masters all the time: whether each of them has a vote, and which waiters
//! of fair locks are in its queue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::{LockKind, Quarantine};
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

/// The shortest delay that counts as a stall. A stalled client may miss the response timeout.
const SHORTEST_STALL: Nanos = 50 * clock::MILLISECOND;

/// A time for which a ticket was in a master's queue without a break. A waiter that steps aside
/// stays out of the queues for longer than the time between two reads.
#[derive(Clone, Debug)]
pub struct Presence {
    pub lock: LockNumber,
    /// The time at which the waiter came, in microseconds, and its owner.
    pub ticket: String,
    pub span: Span,
}

/// A sight of an owner that a master had granted a fair lock.
#[derive(Clone, Debug)]
pub struct Holding {
    pub lock: LockNumber,
    pub owner: String,
    /// The time of the read.
    pub seen: Span,
}

/// The record of one master.
#[derive(Debug, Default)]
pub struct Record {
    /// The times for which the master did not answer, or had no vote.
    pub unwell: Vec<Span>,
    pub presences: Vec<Presence>,
    pub holdings: Vec<Holding>,
    /// The tickets in the queues at the last read, each with its deadline.
    queued: HashMap<(LockNumber, String), (Span, u64)>,
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
            .filter(|lock| lock.kind() == LockKind::Fair)
            .collect();
        let mut pipe = redis::pipe();
        pipe.cmd("HMGET")
            .arg("quorlock:origin")
            .arg(&["run_id", "since", "seen"]);
        pipe.cmd("TIME");
        for lock in &fair {
            pipe.cmd("ZRANGE")
                .arg(format!("quorlock:deadlines:{{{}}}", lock.name()))
                .arg(&["0", "-1", "WITHSCORES"]);
            // After the queue: a waiter in the queue was there before these owners were read.
            pipe.cmd("HKEYS").arg(lock.name());
        }
        loop {
            let sent = clock::now();
            let asked = pipe.query_async::<Vec<Vec<Option<String>>>>(&mut connection);
            let mut replies = timeout(TIMEOUT, asked).await??.into_iter();
            let got = clock::now();
            let (Some(guard), Some(time)) = (replies.next(), replies.next()) else {
                return Err("too few replies".into());
            };
            let now = millis(&time);
            let has_vote = self.has_vote(run_id, &guard, now);
            let read = Span::new(sent, got);
            let (mut queued, mut holdings) = (Vec::new(), Vec::new());
            for &lock in &fair {
                let mut words = || replies.next().into_iter().flatten().flatten();
                let waiters: Vec<_> = words().collect();
                for waiter in waiters.chunks_exact(2) {
                    queued.push(((lock, waiter[0].clone()), waiter[1].parse()?));
                }
                holdings.extend(words().map(|owner| Holding {
                    lock,
                    owner,
                    seen: read,
                }));
            }
            {
                let mut record = record.lock().unwrap();
                record.add(has_vote, queued, now, read);
                record.holdings.extend(holdings);
            }
            sleep(EVERY).await;
        }
    }

    /// Returns whether clients use the master: they have seen this process, and its quarantine is
    /// over.
    fn has_vote(&self, run_id: &str, guard: &[Option<String>], now: u64) -> bool {
        let since = match self.quarantine {
            Quarantine::Off => return true,
            Quarantine::Strict => number(guard, 1).max(number(guard, 2)),
            _ => number(guard, 1),
        };
        let since = since.filter(|since| *since > 0);
        guard.first() == Some(&Some(run_id.to_owned()))
            && since.is_none_or(|since| now > since + QUARANTINE.as_millis() as u64)
    }
}

/// Returns the time of a reply to `TIME`, in milliseconds.
fn millis(time: &[Option<String>]) -> u64 {
    let part = |index| number(time, index).unwrap_or_default();
    part(0) * 1_000 + part(1) / 1_000
}

fn number(words: &[Option<String>], index: usize) -> Option<u64> {
    words.get(index)?.as_ref()?.parse().ok()
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

    /// Adds a read, which was sent and answered at the ends of `read`. `queued` has the tickets and
    /// their deadlines, and `now` is the time of the master's clock.
    fn add(
        &mut self,
        has_vote: bool,
        queued: Vec<((LockNumber, String), u64)>,
        now: u64,
        read: Span,
    ) {
        let mut before = std::mem::take(&mut self.queued);
        // A waiter whose deadline has passed may have been removed, and may have come back.
        before.retain(|key, (span, deadline)| {
            let stayed = *deadline > now;
            if !stayed {
                self.presences.push(Presence::new(key.clone(), *span));
            }
            stayed
        });
        for (key, deadline) in queued {
            // The ticket was there when the first reply was made, and when the last read was sent.
            let seen = before.remove(&key);
            let from = seen.map_or(read.to, |(seen, _)| seen.from);
            let span = Span::new(from, read.from);
            self.queued.insert(key, (span, deadline));
        }
        let gone = before.into_iter();
        self.presences
            .extend(gone.map(|(key, (span, _))| Presence::new(key, span)));
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
            .extend(gone.map(|(key, (span, _))| Presence::new(key, span)));
    }
}

impl Presence {
    fn new((lock, ticket): (LockNumber, String), span: Span) -> Self {
        Self { lock, ticket, span }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_presence_ends_when_its_deadline_passes() {
        let key = || (LockNumber(8), "ticket".to_owned());
        let spans = |deadline| {
            let mut record = Record::starting_at(0);
            for (now, read) in [(1_000, 10), (1_015, 25), (1_030, 40)] {
                let queued = vec![(key(), deadline)];
                record.add(true, queued, now, Span::new(read, read + 2));
            }
            record.close(50);
            let spans = record
                .presences
                .iter()
                .map(|one| (one.span.from, one.span.to));
            spans.collect::<Vec<_>>()
        };
        assert_eq!(spans(1_031), [(12, 40)]);
        // It may have been swept and queued again between the last two reads.
        assert_eq!(spans(1_030), [(12, 25), (42, 40)]);
    }
}
