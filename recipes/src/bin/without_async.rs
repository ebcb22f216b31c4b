//! An import without async, which runs on one host at a time.

use std::{error::Error, time::Duration};

use quorlock::Guard;
use tokio::runtime::Builder;

fn main() -> Result<(), Box<dyn Error>> {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?; // renews the lock
    let _inside = runtime.enter();
    let locks = quorlock::Builder::from_env()?.build()?;
    let lock = locks.mutex("import");
    let acquired = runtime.block_on(lock.acquire_within(Duration::from_secs(10)));
    let done = acquired.map_err(Into::into).and_then(import);
    // After an error, too: the end of the program waits for no release.
    if !runtime.block_on(locks.close_within(Duration::from_secs(2))) {
        eprintln!("some masters are down: the keys there will expire");
    }
    done
}

fn import(guard: Guard) -> Result<(), Box<dyn Error>> {
    for table in ["orders", "customers", "prices"] {
        guard.ensure_valid()?; // nothing else stops this thread after a loss
        println!("imports {table}");
    }
    Ok(()) // drops the guard
}
