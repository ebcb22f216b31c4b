//! At most five jobs at once, on all hosts together.

use std::{env, error::Error, fs, path::Path, time::Duration};

use quorlock::{Builder, Coordinator};
use tokio::{task::JoinSet, time::sleep};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let locks = Builder::from_env()?.build()?;
    let directory = env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let mut jobs = JoinSet::new();
    for job in 0..20 {
        let (locks, directory) = (locks.clone(), directory.clone());
        jobs.spawn(async move { report(&locks, &directory, job).await });
    }
    while let Some(ended) = jobs.join_next().await {
        ended??;
    }
    locks.close_within(Duration::from_secs(2)).await;
    Ok(())
}

async fn report(locks: &Coordinator, directory: &str, job: u32) -> Result<()> {
    let reports = locks.semaphore("reports", 5); // the same number on all hosts
    let guard = reports.acquire_within(Duration::from_secs(30)).await?;
    let slot = guard.slot(); // from 0 to 4
    let scratch = Path::new(directory).join(format!("scratch-{slot}"));
    if scratch.exists() {
        println!("job {job} clears what a dead job has left in {slot}");
        fs::remove_dir_all(&scratch)?;
    }
    fs::create_dir(&scratch)?; // fails if another job has the slot
    // The work. After a loss, the directory may be that of the next holder.
    guard.run(sleep(Duration::from_millis(20))).await?;
    println!("job {job} in {slot}");
    fs::remove_dir(&scratch)?;
    drop(guard); // not before: the next holder of the slot makes the directory
    Ok(())
}
