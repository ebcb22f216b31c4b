//! A job that cron starts on every host at the same time, and that runs on one of them.

use std::{env, error::Error, time::Duration};

use quorlock::{AcquireError, Coordinator, Guard};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let masters = env::var("QUORLOCK_MASTERS")?; // redis://10.0.0.1,redis://10.0.0.2,..
    let locks = Coordinator::new(masters.split(','))?;
    locks.ready(Duration::from_secs(5)).await?;
    // Longer than the clocks of the hosts differ, and shorter than the time to the next run.
    let lock = locks
        .mutex("nightly report")
        .min_hold(Duration::from_secs(600));
    match lock.acquire_within(Duration::from_secs(2)).await {
        Ok(guard) => {
            run(&guard).await?;
            guard.release().await?;
        }
        Err(error) => match error.last_attempt() {
            AcquireError::Contended { .. } => println!("another host runs the job"),
            _ => return Err(error.into()),
        },
    }
    locks.close().await;
    Ok(())
}

async fn run(guard: &Guard) -> Result<(), Box<dyn Error>> {
    tokio::select! {
        () = job() => Ok(()),
        lost = guard.lost() => Err(lost.into()), // stops the job
    }
}

async fn job() {
    println!("the job runs here");
}
