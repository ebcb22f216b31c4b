//! A program that has its masters and settings in a section of its TOML file.

use std::{env, error::Error, fs, time::Duration};

use quorlock::SharedSettings;
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    locks: SharedSettings,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("name a TOML file")?;
    let settings: Settings = toml::from_str(&fs::read_to_string(path)?)?;
    let locks = settings.locks.builder()?.build()?;
    println!("{}", locks.all_ready(Duration::from_secs(5)).await?);
    Ok(())
}
