//! The clients that hand the lock around.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::quorlock::Coordinator;
use ::rslock::LockManager;
use futures::future::{join_all, try_join_all};

use super::{HoldPeriod, NAME, Role, now, ready};
use crate::child::over;
use crate::contestants::client;
use crate::load::{Flavour, Result, TTL_MS};

/// This crate with its defaults.
pub(super) fn quorlock(role: &Role) -> Result<Vec<HoldPeriod>> {
    Flavour::CurrentThread.runtime()?.block_on(async {
        let builder = Coordinator::builder().quarantine(quorlock::Quarantine::Off);
        let locks = builder.masters(role.urls.clone()).build()?;
        // This makes the connections and loads the release script before the first task waits. The
        // lock has another name than the lock that is measured.
        let warm_up = locks.mutex(format!("warm up {}", role.index));
        // On a busy machine, a release may stay unconfirmed. It is repeated, so nothing is lost.
        let _ = warm_up.acquire().await?.release().await;
        ready()?;
        let over = over();
        let take_turns = (0..role.tasks).map(async |_| {
            let lock = locks.mutex(NAME);
            hand_around(
                role,
                &over,
                async || Ok(lock.acquire().await?),
                async |guard| {
                    let _ = guard.release().await;
                    Ok(())
                },
            )
            .await
        });
        let periods = try_join_all(take_turns).await?.concat();
        locks.close().await;
        Ok(periods)
    })
}

/// `rslock` with its defaults. It polls. Its `lock` gives up after a few attempts, so it is called
/// again and again.
pub(super) fn rslock(role: &Role) -> Result<Vec<HoldPeriod>> {
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
            hand_around(role, &over, acquire, async |lock| {
                manager.unlock(&lock).await;
                Ok(())
            })
            .await
        });
        let periods: Result<Vec<_>> = join_all(take_turns).await.into_iter().collect();
        Ok(periods?.concat())
    })
}

/// Runs one task until the run is over. A task that is then in `acquire` still gets the lock, and
/// releases it at once.
async fn hand_around<L, A, R>(
    role: &Role,
    over: &AtomicBool,
    acquire: impl Fn() -> A,
    release: impl Fn(L) -> R,
) -> Result<Vec<HoldPeriod>>
where
    A: Future<Output = Result<L>>,
    R: Future<Output = Result<()>>,
{
    let mut periods = Vec::new();
    while !over.load(Ordering::Acquire) {
        let lock = acquire().await?;
        let acquired = now();
        if !over.load(Ordering::Acquire) {
            tokio::time::sleep(role.hold).await;
        }
        let released = now();
        release(lock).await?;
        periods.push(HoldPeriod { acquired, released });
        tokio::time::sleep(role.rest).await;
    }
    Ok(periods)
}
