//! An import without async, which runs on one host at a time.

use std::{error::Error, time::Duration};

use quorlock::{Builder, blocking::Coordinator};

fn main() -> Result<(), Box<dyn Error>> {
    let locks = Builder::from_env()?.build_blocking()?;
    let done = import(&locks);
    // After an error, too: the end of the program waits for no release.
    if !locks.close_within(Duration::from_secs(2))? {
        eprintln!("some masters are down: the keys there will expire");
    }
    done
}

fn import(locks: &Coordinator) -> Result<(), Box<dyn Error>> {
    locks.ready(Duration::from_secs(5))?;
    let lock = locks.mutex("import");
    let guard = lock.acquire_within(Duration::from_secs(10))?;
    for table in ["orders", "customers", "prices"] {
        guard.ensure_held()?; // nothing else stops this thread after a loss
        println!("imports {table}");
    }
    Ok(())
}
