//! The clients that hand the lock around.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::quorlock::Coordinator;
use ::rslock::LockManager;
use futures::future::{join_all, try_join_all};

use super::{NAME, Role, Tenure, now, ready, when_over};
use crate::contestants::client;
use crate::load::{Flavour, Result, TTL_MS};

/// This crate with its defaults.
pub(super) fn quorlock(role: &Role) -> Result<Vec<Tenure>> {
    Flavour::CurrentThread.runtime()?.block_on(async {
        let builder = Coordinator::builder().restart_guard(quorlock::RestartGuard::Off);
        let locks = builder.masters(role.urls.clone()).build()?;
        // A name of its own: connected, and the release script loaded, when the first waits.
        let warm_up = locks.mutex(format!("warm up {}", role.index));
        warm_up.acquire().await?.release().await?;
        ready()?;
        let over = over();
        let take_turns = (0..role.tasks).map(async |_| {
            let lock = locks.mutex(NAME);
            turns(
                role,
                &over,
                async || Ok(lock.acquire().await?),
                async |guard| Ok(guard.release().await?),
            )
            .await
        });
        let tenures = try_join_all(take_turns).await?.concat();
        locks.close().await;
        Ok(tenures)
    })
}

/// `rslock` with its defaults, which polls. Its `lock` gives up after a few times, so again and again.
pub(super) fn rslock(role: &Role) -> Result<Vec<Tenure>> {
    Flavour::CurrentThread.runtime()?.block_on(async {
        let clients = role.urls.iter().map(|url| client(url));
        let manager = LockManager::from_clients(clients.collect::<Result<_>>()?);
        let ttl = Duration::from_millis(TTL_MS);
        let warm_up = format!("warm up {}", role.index);
        manager
            .unlock(&manager.lock(warm_up.as_bytes(), ttl).await?)
            .await;
        ready()?;
        let over = over();
        let take_turns = (0..role.tasks).map(async |_| {
            let acquire = async || {
                loop {
                    if let Ok(lock) = manager.lock(NAME.as_bytes(), ttl).await {
                        return Ok(lock);
                    }
                }
            };
            turns(role, &over, acquire, async |lock| {
                manager.unlock(&lock).await;
                Ok(())
            })
            .await
        });
        let tenures: Result<Vec<_>> = join_all(take_turns).await.into_iter().collect();
        Ok(tenures?.concat())
    })
}

fn over() -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    let set = over.clone();
    when_over(move || set.store(true, Ordering::Release));
    over
}

/// One task, until it is over: then it still waits for the lock once, and keeps nobody waiting.
async fn turns<L, A, R>(
    role: &Role,
    over: &AtomicBool,
    acquire: impl Fn() -> A,
    release: impl Fn(L) -> R,
) -> Result<Vec<Tenure>>
where
    A: Future<Output = Result<L>>,
    R: Future<Output = Result<()>>,
{
    let mut tenures = Vec::new();
    while !over.load(Ordering::Acquire) {
        let lock = acquire().await?;
        let acquired = now();
        if !over.load(Ordering::Acquire) {
            tokio::time::sleep(role.hold).await;
        }
        let released = now();
        release(lock).await?;
        tenures.push(Tenure { acquired, released });
        tokio::time::sleep(role.rest).await;
    }
    Ok(tenures)
}
