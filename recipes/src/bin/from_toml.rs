//! A program that has its masters and settings in a section of its TOML file.

use std::{env, error::Error, fs, path::Path, time::Duration};

use quorlock::SharedSettings;
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    locks: SharedSettings,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("name a TOML file")?;
    let text = fs::read_to_string(&path)?;
    // The whole error shows the file, and so a password in it.
    let settings: Settings = toml::from_str(&text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = text[..start].matches('\n').count() + 1;
        format!("{path}, line {line}: {}", error.message())
    })?;
    let directory = Path::new(&path).parent().ok_or("name a TOML file")?;
    let settings = settings.locks.relative_to(directory); // its password_file, for example
    let locks = settings.builder()?.build()?;
    println!("{}", locks.all_ready_within(Duration::from_secs(5)).await?);
    Ok(())
}
