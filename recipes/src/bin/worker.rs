//! A worker that finishes its present job when it gets SIGTERM.

use std::{error::Error, time::Duration};

use quorlock::{AcquireError, Builder, Coordinator};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
    time::sleep,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut terminated = signal(SignalKind::terminate())?; // before the work begins
    let locks = Builder::from_env()?.build()?;
    let (stop, stopped) = watch::channel(false);
    let mut workers = JoinSet::new();
    for number in 0..4 {
        workers.spawn(work(locks.clone(), number, stopped.clone()));
    }
    println!("works");
    terminated.recv().await;

    stop.send_replace(true);
    while let Some(ended) = workers.join_next().await {
        ended??; // all guards are gone after this
    }
    if !locks.close_within(Duration::from_secs(2)).await {
        println!("some masters are down: the keys there will expire");
    }
    println!("stopped");
    Ok(())
}

async fn work(
    locks: Coordinator,
    number: u32,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), AcquireError> {
    let lock = locks.mutex(format!("jobs/{}", number % 2));
    loop {
        let guard = tokio::select! {
            guard = lock.acquire() => guard?,
            _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
        };
        let job = sleep(Duration::from_millis(50)); // SIGTERM does not interrupt it
        if let Err(lost) = guard.run(job).await {
            println!("dropped a job: {lost}");
        }
    }
}
