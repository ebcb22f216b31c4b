//! Real waiters in the queue of a fair lock, and a holder who lets go when told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quorlock::Coordinator;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::load::Result;
use crate::servers::Server;

/// How many come at once.
const ABREAST: usize = 100;

/// What takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(30);

/// A fair lock that somebody holds, and tasks that wait for it in `acquire`.
pub struct Line<'a> {
    servers: &'a [Server],
    coordinators: &'a [Coordinator],
    name: String,
    tasks: JoinSet<Result<()>>,
    /// How many have come.
    came: usize,
    /// A permit for every holder who may let go.
    go: Arc<Semaphore>,
    tell: mpsc::UnboundedSender<Tenure>,
    tenures: mpsc::UnboundedReceiver<Tenure>,
}

/// What a task says of its time with the lock.
#[derive(Clone, Copy, Debug)]
enum Tenure {
    /// Since when it has the lock.
    Acquired(Instant),
    /// When it began to give it back.
    Released(Instant),
}

impl<'a> Line<'a> {
    /// One holds the lock called `name`, and so many wait.
    pub async fn new(
        servers: &'a [Server],
        coordinators: &'a [Coordinator],
        name: String,
        waiters: usize,
    ) -> Result<Self> {
        let (tell, tenures) = mpsc::unbounded_channel();
        let mut this = Self {
            servers,
            coordinators,
            name,
            tasks: JoinSet::new(),
            came: 0,
            go: Arc::new(Semaphore::new(0)),
            tell,
            tenures,
        };
        this.come();
        this.next().await?;
        this.fill(waiters).await?;
        Ok(this)
    }

    /// So many more come, and are in the queues of all masters when this returns.
    pub async fn fill(&mut self, more: usize) -> Result<()> {
        let waiting = self.waiting()?;
        for first in (0..more).step_by(ABREAST) {
            let last = more.min(first + ABREAST);
            for _ in first..last {
                self.come();
            }
            self.until(waiting + last).await?;
        }
        Ok(())
    }

    /// Hands the lock over so many times. How long each took, in microseconds, from the call of `release` to
    /// the return of the next one's `acquire`.
    pub async fn hand_over(&mut self, times: usize) -> Result<Vec<f64>> {
        self.go.add_permits(times);
        let mut micros = Vec::with_capacity(times);
        let mut released = Vec::with_capacity(times);
        let mut acquired = Vec::with_capacity(times);
        while acquired.len() < times || released.len() < times {
            match self.next().await? {
                Tenure::Acquired(at) => acquired.push(at),
                Tenure::Released(at) => released.push(at),
            }
        }
        for (from, to) in released.into_iter().zip(acquired) {
            let took = to
                .checked_duration_since(from)
                .ok_or("held by two at once")?;
            micros.push(took.as_secs_f64() * 1e6);
        }
        Ok(micros)
    }

    /// Whoever waits goes away, and the holder too.
    pub async fn leave(mut self) {
        self.tasks.shutdown().await;
    }

    fn come(&mut self) {
        let locks = &self.coordinators[self.came % self.coordinators.len()];
        self.came += 1;
        let lock = locks.fair(self.name.as_str(), &locks.owner());
        let (go, tell) = (self.go.clone(), self.tell.clone());
        self.tasks.spawn(async move {
            let guard = lock.acquire().await?;
            let _ = tell.send(Tenure::Acquired(Instant::now()));
            go.acquire().await?.forget();
            let _ = tell.send(Tenure::Released(Instant::now()));
            guard.release().await?;
            Ok(())
        });
    }

    /// What is said next.
    async fn next(&mut self) -> Result<Tenure> {
        let said = tokio::time::timeout(PATIENCE, self.tenures.recv()).await;
        self.check()?;
        let said = said.map_err(|_| format!("{}: no hand-over in {PATIENCE:?}", self.name))?;
        Ok(said.ok_or("nobody is there")?)
    }

    /// Fails when a task has failed.
    fn check(&mut self) -> Result<()> {
        while let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        Ok(())
    }

    /// How many are in the queue of the master that has the fewest.
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
        let deadline = Instant::now() + PATIENCE;
        while self.waiting()? < waiters {
            self.check()?;
            if Instant::now() > deadline {
                return Err(format!("{}: {waiters} did not get in line", self.name).into());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}
