//! `rslock`.

use std::time::{Duration, Instant};

use rslock::{Lock, LockError, LockManager};

use super::{Attempt, Library};

pub(super) struct Rslock(LockManager);

impl Rslock {
    pub(super) fn new(urls: Vec<String>) -> Self {
        Self(LockManager::new(urls))
    }
}

impl Library for Rslock {
    type Held = Lock;

    async fn lock(&mut self, name: &str, ttl: Duration, wait: Duration) -> Attempt<Lock> {
        let deadline = Instant::now() + wait;
        let mut manager = self.0.clone();
        if wait.is_zero() {
            manager.set_retry(1, Duration::ZERO);
        }
        loop {
            match manager.lock(name.as_bytes(), ttl).await {
                Ok(lock) => return Attempt::Locked(lock),
                Err(LockError::Unavailable) if Instant::now() < deadline => {}
                Err(LockError::Unavailable) => return Attempt::Refused("unavailable".to_owned()),
                Err(error) => return Attempt::Failed(error.to_string()),
            }
        }
    }

    async fn unlock(&mut self, held: Lock) -> Result<(), String> {
        held.release().await;
        Ok(())
    }
}
