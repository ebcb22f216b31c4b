//! Visitors that pass one at a time, in the order in which they came, from any host.

use std::{error::Error, time::Duration};

use quorlock::{Builder, Coordinator};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let locks = Builder::from_env()?.build()?;
    let mut visitors = Vec::new();
    for visitor in 0..10 {
        visitors.push(tokio::spawn(pass(locks.clone(), visitor)));
        sleep(Duration::from_millis(20)).await;
    }
    for visitor in visitors {
        visitor.await??;
    }
    locks.close_within(Duration::from_secs(2)).await;
    Ok(())
}

async fn pass(locks: Coordinator, visitor: u32) -> Result<(), Box<dyn Error + Send + Sync>> {
    let turnstile = locks.fair("turnstile");
    let guard = turnstile.acquire_within(Duration::from_secs(30)).await?;
    println!("visitor {visitor} passes");
    sleep(Duration::from_millis(30)).await;
    drop(guard);
    Ok(())
}
