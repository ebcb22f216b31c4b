//! A job that cron starts on every host at the same time, and that runs on one of them.

use std::{env, error::Error, time::Duration};

use quorlock::{Builder, Coordinator, Reason};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Builder::from_env()?.build()?;
    let done = on_one_host(&locks).await;
    // After an error, too: the masters must hear that the lock stays.
    locks.close_within(Duration::from_secs(2)).await;
    done
}

async fn on_one_host(locks: &Coordinator) -> Result<(), Box<dyn Error>> {
    // Longer than `max_ttl`: after a power cut, masters have no vote for that time.
    locks.ready_within(Duration::from_secs(90)).await?;
    // Longer than the wait above plus the difference of the hosts' clocks, and shorter than the
    // time to the next run. Needs masters that persist: see `Lock::min_hold`.
    let lock = locks
        .mutex("nightly report")
        .min_hold(Duration::from_secs(600));
    match lock.acquire_within(Duration::from_secs(2)).await {
        Ok(guard) => {
            guard.run(job()).await??; // a loss stops the job
            if let Err(error) = guard.release().await {
                eprintln!("the job is done, but {error}");
            }
        }
        Err(error) if matches!(error.reason(), Reason::Held { .. }) => {
            println!("the job runs on another host, or has run");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

async fn job() -> Result<(), Box<dyn Error>> {
    println!("the job runs here");
    match env::var("FAILURE") {
        Ok(failure) => Err(failure.into()),
        Err(_) => Ok(()),
    }
}
