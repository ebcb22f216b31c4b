//! A service that runs on every host, and does its work on one of them: the leader.

use std::{env, error::Error, time::Duration};

use quorlock::{Coordinator, Guard, MasterSpec};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let masters = env::var("QUORLOCK_MASTERS")?;
    let locks = Coordinator::new(MasterSpec::list(&masters))?;
    let lock = locks.mutex("leader");
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        let guard = tokio::select! {
            guard = lock.acquire() => guard?,
            _ = terminate.recv() => break,
        };
        println!("leads");
        tokio::select! {
            never = lead(&guard) => match never {},
            lost = guard.lost() => println!("steps down: {lost}"),
            _ = terminate.recv() => {
                guard.release().await?; // another host takes over at once
                break;
            }
        }
    }
    // If masters are down, `close` waits for up to the TTL.
    let _ = tokio::time::timeout(Duration::from_secs(2), locks.close()).await;
    println!("stopped");
    Ok(())
}

/// Does the work of the leader. It is dropped when the lock is lost, so each step must be short, or
/// check the guard.
async fn lead(guard: &Guard) -> std::convert::Infallible {
    loop {
        if guard.is_valid() {
            // one step
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
