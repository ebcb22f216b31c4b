//! Many readers of a configuration file, and one writer, on any host.

use std::{env, error::Error, fs, path::Path, time::Duration};

use quorlock::{Builder, Coordinator};
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let locks = Builder::from_env()?.build()?;
    let directory = env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    write(&locks, &directory, 0).await?;
    let mut tasks = JoinSet::new();
    for task in 0..20 {
        let (locks, directory) = (locks.clone(), directory.clone());
        tasks.spawn(async move {
            match task % 5 {
                0 => write(&locks, &directory, task).await,
                _ => read(&locks, &directory).await,
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    locks.close_within(Duration::from_secs(2)).await;
    Ok(())
}

/// Writes two files that belong together.
async fn write(locks: &Coordinator, directory: &str, version: u32) -> Result<()> {
    let lock = locks.read_write("configuration").write();
    let guard = lock.acquire_within(Duration::from_secs(30)).await?;
    for file in ["hosts", "ports"] {
        guard.ensure_valid()?;
        fs::write(Path::new(directory).join(file), version.to_string())?;
    }
    let guard = guard.downgrade(); // others may read; no one writes before this guard is released
    let written = fs::read_to_string(Path::new(directory).join("ports"))?;
    println!("wrote {written}");
    drop(guard);
    Ok(())
}

async fn read(locks: &Coordinator, directory: &str) -> Result<()> {
    let lock = locks.read_write("configuration").read();
    let guard = lock.acquire_within(Duration::from_secs(30)).await?;
    let both = ["hosts", "ports"].map(|file| fs::read_to_string(Path::new(directory).join(file)));
    guard.ensure_valid()?; // otherwise the two files may not belong together
    let [hosts, ports] = both;
    println!("read {} {}", hosts?, ports?);
    drop(guard);
    Ok(())
}
