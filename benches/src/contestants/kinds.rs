//! This crate's other kinds of lock, an owner to every task, and its mutex with a fencing token.

use quorlock::{Guard, Lock};

use super::quorlock::Quorlock;
use crate::load::{Contestant, Result};

/// A reentrant lock, never entered twice.
pub struct Reentrant(Quorlock);

/// A fair lock, through `try_acquire`.
pub struct Fair(Quorlock);

/// A fair lock, through `acquire`: the first round is the same, and here it is the last.
pub struct FairAcquire(Quorlock);

/// A mutex with a fencing token.
pub struct Fenced(Quorlock);

impl Contestant for Fenced {
    type Task = Lock;

    async fn connect(urls: &[String]) -> Result<Self> {
        Ok(Self(Quorlock::connect(urls).await?))
    }

    fn task(&self, key: String) -> Lock {
        self.0.locks().mutex(key).fenced()
    }

    async fn cycle(lock: &mut Lock) -> Result<()> {
        let guard = lock.try_acquire().await?;
        guard.fencing_token().ok_or("no fencing token")?;
        give_back(guard).await
    }

    async fn close(self) -> Result<()> {
        self.0.close().await
    }
}

impl Contestant for Reentrant {
    type Task = Lock;

    async fn connect(urls: &[String]) -> Result<Self> {
        Ok(Self(Quorlock::connect(urls).await?))
    }

    fn task(&self, key: String) -> Lock {
        let locks = self.0.locks();
        locks.reentrant(key, &locks.owner())
    }

    async fn cycle(lock: &mut Lock) -> Result<()> {
        give_back(lock.try_acquire().await?).await
    }

    async fn close(self) -> Result<()> {
        self.0.close().await
    }
}

impl Contestant for Fair {
    type Task = Lock;

    async fn connect(urls: &[String]) -> Result<Self> {
        Ok(Self(Quorlock::connect(urls).await?))
    }

    fn task(&self, key: String) -> Lock {
        let locks = self.0.locks();
        locks.fair(key, &locks.owner())
    }

    async fn cycle(lock: &mut Lock) -> Result<()> {
        give_back(lock.try_acquire().await?).await
    }

    async fn close(self) -> Result<()> {
        self.0.close().await
    }
}

impl Contestant for FairAcquire {
    type Task = Lock;

    async fn connect(urls: &[String]) -> Result<Self> {
        Ok(Self(Quorlock::connect(urls).await?))
    }

    fn task(&self, key: String) -> Lock {
        let locks = self.0.locks();
        locks.fair(key, &locks.owner())
    }

    async fn cycle(lock: &mut Lock) -> Result<()> {
        give_back(lock.acquire().await?).await
    }

    async fn close(self) -> Result<()> {
        self.0.close().await
    }
}

async fn give_back(guard: Guard) -> Result<()> {
    Ok(guard.release().await?)
}
