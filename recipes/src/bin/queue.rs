//! A queue: the process that enqueues a job locks its subject, and the worker that finishes the job
//! releases the lock.

use std::{env, error::Error, io, time::Duration};

use quorlock::{Builder, Coordinator, Detached, Reason};

/// Longer than a job waits in the queue. `QUORLOCK_MAX_TTL` must be at least this in all programs:
/// `detach` refuses a longer TTL.
const IN_QUEUE: Duration = Duration::from_secs(600);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Builder::from_env()?.build()?;
    let done = match env::args().nth(1).as_deref() {
        Some("enqueue") => enqueue(&locks).await,
        _ => work(&locks).await,
    };
    locks.close_within(Duration::from_secs(2)).await;
    done
}

/// Writes the message for the queue.
async fn enqueue(locks: &Coordinator) -> Result<(), Box<dyn Error>> {
    let lock = locks.mutex("video/42");
    let guard = lock.acquire_within(Duration::from_secs(1)).await?;
    let detached = guard.detach(IN_QUEUE).await;
    let detached = detached.map_err(|refused| refused.error)?; // drops the guard
    println!("{detached}");
    Ok(())
}

/// Reads a message from the queue, which may deliver it to several workers.
async fn work(locks: &Coordinator) -> Result<(), Box<dyn Error>> {
    let detached: Detached = io::read_to_string(io::stdin())?.parse()?;
    let once = locks.mutex("worker of video/42"); // guards of one text do not exclude each other
    let once = once.acquire_within(Duration::from_secs(20)).await?;
    let guard = match locks.attach(&detached).await {
        Ok(guard) => guard.abandon_on_drop(), // the job may fail
        Err(error) if *error.reason() == Reason::Gone => {
            println!("the lock has ended: see in your data whether the job is done");
            return Ok(());
        }
        Err(error) => return Err(error.into()), // the queue delivers the message again
    };
    once.run(guard.run(job())).await???; // after an error, the queue delivers the message again
    if let Err(error) = guard.release().await {
        println!("the job is done, and {error}");
    }
    Ok(())
}

async fn job() -> Result<(), Box<dyn Error>> {
    println!("works");
    Ok(())
}
