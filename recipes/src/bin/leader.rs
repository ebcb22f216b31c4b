//! A service that runs on every host, and does its work on one of them: the leader.

use std::{error::Error, io, time::Duration};

use quorlock::{Builder, Guard};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Builder::from_env()?.build()?;
    let lock = locks.mutex("leader");
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        let guard = tokio::select! {
            guard = lock.acquire() => guard?,
            _ = terminate.recv() => break,
        };
        tokio::select! {
            ended = guard.run(lead(&guard)) => match ended {
                Ok(led) => return Ok(led?),
                Err(lost) => println!("steps down: {lost}"),
            },
            _ = terminate.recv() => break, // drops `lead`, and then the guard
        }
    }
    // Another host takes over at once. If masters are down, `close` waits for up to the TTL.
    locks.close_within(Duration::from_secs(2)).await;
    println!("stopped");
    Ok(())
}

/// Does the work of the leader. It is dropped when the lock is lost, so each step must be short, or
/// check the guard.
async fn lead(guard: &Guard) -> io::Result<()> {
    println!("leads");
    loop {
        if guard.is_valid() {
            // one step
        }
        sleep(Duration::from_millis(100)).await;
    }
}
