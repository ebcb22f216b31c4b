//! `rslock`: the best-known Rust crate for Redlock, through its public interface.

use std::time::Duration;

use rslock::LockManager;

use super::client;
use crate::load::{Contestant, Result, TTL_MS};

pub struct Rslock {
    manager: LockManager,
}

impl Contestant for Rslock {
    type Task = (LockManager, String);

    async fn connect(urls: &[String]) -> Result<Self> {
        let clients = urls.iter().map(|url| client(url)).collect::<Result<_>>()?;
        Ok(Self {
            manager: LockManager::from_clients(clients),
        })
    }

    fn task(&self, key: String) -> Self::Task {
        (self.manager.clone(), key)
    }

    async fn cycle((manager, key): &mut Self::Task) -> Result<()> {
        let lock = manager
            .lock(key.as_bytes(), Duration::from_millis(TTL_MS))
            .await?;
        manager.unlock(&lock).await;
        Ok(())
    }

    async fn close(self) -> Result<()> {
        Ok(())
    }
}
