//! Real waiters in the queue of a fair lock, and a holder that releases on request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quorlock::Coordinator;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::load::Result;
use crate::servers::Server;

/// The number of waiters that arrive at the same time.
const BATCH: usize = 100;

/// The limit after which a wait is an error.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A fair lock that is held, and tasks that wait for it in `acquire`.
pub struct FairQueue<'a> {
    servers: &'a [Server],
    coordinators: &'a [Coordinator],
    name: String,
    tasks: JoinSet<Result<()>>,
    /// The number of waiters that have arrived.
    arrived: usize,
    /// Has one permit for every holder that may release.
    go: Arc<Semaphore>,
    report: mpsc::UnboundedSender<Event>,
    events: mpsc::UnboundedReceiver<Event>,
}

/// The start or the end of the time for which a task has the lock.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The time at which the task got the lock.
    Acquired(Instant),
    /// The time at which the task began to release it.
    Released(Instant),
}

impl<'a> FairQueue<'a> {
    /// Creates a lock called `name` that is held, and `waiters` waiters.
    pub async fn new(
        servers: &'a [Server],
        coordinators: &'a [Coordinator],
        name: String,
        waiters: usize,
    ) -> Result<Self> {
        let (report, events) = mpsc::unbounded_channel();
        let mut this = Self {
            servers,
            coordinators,
            name,
            tasks: JoinSet::new(),
            arrived: 0,
            go: Arc::new(Semaphore::new(0)),
            report,
            events,
        };
        this.add_waiter();
        this.next().await?;
        this.fill(waiters).await?;
        Ok(this)
    }

    /// Adds `more` waiters. Returns when they are in the queues of all masters.
    pub async fn fill(&mut self, more: usize) -> Result<()> {
        let waiting = self.waiting()?;
        for first in (0..more).step_by(BATCH) {
            let last = more.min(first + BATCH);
            for _ in first..last {
                self.add_waiter();
            }
            self.until(waiting + last).await?;
        }
        Ok(())
    }

    /// Hands the lock over `times` times. Returns the time of each hand-over in microseconds, from
    /// the call of `release` to the return of the next waiter's `acquire`.
    pub async fn hand_over(&mut self, times: usize) -> Result<Vec<f64>> {
        self.go.add_permits(times);
        let mut micros = Vec::with_capacity(times);
        let mut released = Vec::with_capacity(times);
        let mut acquired = Vec::with_capacity(times);
        while acquired.len() < times || released.len() < times {
            match self.next().await? {
                Event::Acquired(at) => acquired.push(at),
                Event::Released(at) => released.push(at),
            }
        }
        for (from, to) in released.into_iter().zip(acquired) {
            let took = to
                .checked_duration_since(from)
                .ok_or("two tasks held the lock at once")?;
            micros.push(took.as_secs_f64() * 1e6);
        }
        Ok(micros)
    }

    /// Ends all waiters and the holder.
    pub async fn leave(mut self) {
        self.tasks.shutdown().await;
    }

    fn add_waiter(&mut self) {
        let locks = &self.coordinators[self.arrived % self.coordinators.len()];
        self.arrived += 1;
        let lock = locks.fair(self.name.as_str());
        let (go, report) = (self.go.clone(), self.report.clone());
        self.tasks.spawn(async move {
            let guard = lock.acquire().await?;
            let _ = report.send(Event::Acquired(Instant::now()));
            go.acquire().await?.forget();
            let _ = report.send(Event::Released(Instant::now()));
            guard.release().await?;
            Ok(())
        });
    }

    /// Returns the next event.
    async fn next(&mut self) -> Result<Event> {
        let said = tokio::time::timeout(TIME_LIMIT, self.events.recv()).await;
        self.check()?;
        let said = said.map_err(|_| format!("{}: no hand-over in {TIME_LIMIT:?}", self.name))?;
        Ok(said.ok_or("all tasks have ended")?)
    }

    /// Fails if a task has failed.
    fn check(&mut self) -> Result<()> {
        while let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        Ok(())
    }

    /// Returns the number of waiters in the queue of the master that has the fewest.
    fn waiting(&self) -> Result<usize> {
        let queue = format!("quorlock:queue:{{{}}}", self.name);
        let sizes = self.servers.iter().map(|server| {
            let size = server.command(&["ZCARD", &queue]);
            size.parse().map_err(|_| format!("ZCARD: {size}").into())
        });
        let sizes: Result<Vec<usize>> = sizes.collect();
        Ok(sizes?.into_iter().min().unwrap_or_default())
    }

    async fn until(&mut self, waiters: usize) -> Result<()> {
        let deadline = Instant::now() + TIME_LIMIT;
        while self.waiting()? < waiters {
            self.check()?;
            if Instant::now() > deadline {
                return Err(
                    format!("{}: {waiters} waiters were not queued in time", self.name).into(),
                );
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}
