//! A program that reads its masters from a TOML file.

use std::{env, error::Error, fs, time::Duration};

use quorlock::{Coordinator, MasterSpec};
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    locks: Locks,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Locks {
    masters: Vec<MasterSpec>,
    ttl_seconds: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("name a TOML file")?;
    let settings: Settings = toml::from_str(&fs::read_to_string(path)?)?;
    let locks = Coordinator::builder()
        .masters(settings.locks.masters)
        .ttl(Duration::from_secs(settings.locks.ttl_seconds))
        .build()?;
    println!("{}", locks.all_ready(Duration::from_secs(5)).await?);
    Ok(())
}
