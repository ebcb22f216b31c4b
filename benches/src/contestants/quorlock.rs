//! `quorlock`: this crate, through its public interface.

use std::time::{Duration, Instant};

use quorlock::{Coordinator, Lock, Quarantine};

use crate::load::{Contestant, Result, TTL_MS};

/// The default response timeout of `redis`. The other contestants use this timeout, too. On a busy
/// machine, a bench should measure the crate and not its timeouts.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

pub struct Quorlock {
    locks: Coordinator,
}

impl Quorlock {
    /// Connects with the crate's default response timeout, without waiting for any master. Closing
    /// waits for an unreachable master until the TTL has passed, so the TTL is short.
    pub fn with_default_timeouts(urls: &[String]) -> Result<Self> {
        let builder = Coordinator::builder()
            .quarantine(Quarantine::Off)
            .masters(urls.to_vec())
            .ttl(Duration::from_secs(2));
        Ok(Self {
            locks: builder.build()?,
        })
    }

    pub async fn guarded(urls: &[String], quarantine: Quarantine) -> Result<Self> {
        let builder = Coordinator::builder()
            .quarantine(quarantine)
            .masters(urls.to_vec())
            .ttl(Duration::from_millis(TTL_MS))
            .response_timeout(RESPONSE_TIMEOUT);
        let this = Self {
            locks: builder.build()?,
        };
        this.wait_for_grants(urls.len()).await?;
        Ok(this)
    }

    pub fn locks(&self) -> &Coordinator {
        &self.locks
    }

    /// Waits until `masters` masters grant a lock.
    pub async fn wait_for_grants(&self, masters: usize) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let lock = self.locks.mutex("warm up");
        let mut seen = String::new();
        while Instant::now() < deadline {
            match lock.try_acquire().await {
                Ok(guard) => {
                    let votes = guard.all_votes().await;
                    // On a busy machine, a release may stay unconfirmed. The next one may be
                    // confirmed.
                    match guard.release().await {
                        Ok(()) if votes.granted_count() >= masters => return Ok(()),
                        Ok(()) => seen = votes.to_string(),
                        Err(error) => seen = error.to_string(),
                    }
                }
                Err(error) => seen = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(format!("no {masters} grants in 20 s: {seen}").into())
    }
}

impl Contestant for Quorlock {
    type Task = Lock;

    async fn connect(urls: &[String]) -> Result<Self> {
        Self::guarded(urls, Quarantine::Off).await
    }

    fn task(&self, key: String) -> Lock {
        self.locks.mutex(key)
    }

    async fn cycle(lock: &mut Lock) -> Result<()> {
        lock.try_acquire().await?.release().await?;
        Ok(())
    }

    async fn close(self) -> Result<()> {
        self.locks.close().await;
        Ok(())
    }
}
