//! Draws the pictures of the README and of the pages in `docs/`.
//!
//! Each picture but `peers` shows a run on real servers, which this program starts. The figures of
//! `peers` are those of `docs/comparison.md`, from a run of that bench.

mod hand_over;
mod peers;
mod restart;
mod round;
mod runs;
mod scale;
mod svg;
mod tap;
mod times;
mod uri;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const USAGE: &str = "usage: pictures [round] [hand-over] [restart] [peers] [--to FOLDER]";
const NAMES: [&str; 4] = ["round", "hand-over", "restart", "peers"];
/// The picture that no page of rustdoc shows.
const ONLY_IN_README: &str = "peers";
/// The folder of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pictures: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &[String]) -> Result<()> {
    let (names, folder) = parse(arguments)?;
    fs::create_dir_all(&folder)?;
    for name in names {
        let picture = draw(name).await.map_err(|why| format!("{name}: {why}"))?;
        let path = folder.join(name);
        fs::write(path.with_extension("svg"), &picture)?;
        if name != ONLY_IN_README {
            fs::write(path.with_extension("uri"), uri::data(&picture))?;
        }
        println!("drew {name}.svg");
    }
    Ok(())
}

/// Returns the names of the pictures to draw, and the folder for them.
fn parse(arguments: &[String]) -> Result<(Vec<&str>, PathBuf)> {
    let mut names = Vec::new();
    let mut folder = Path::new(ROOT).join("docs/pictures");
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument {
            "--to" => folder = arguments.next().ok_or(USAGE)?.into(),
            name if NAMES.contains(&name) => names.push(name),
            _ => return Err(USAGE.into()),
        }
    }
    if names.is_empty() {
        names = NAMES.to_vec();
    }
    Ok((names, folder))
}

async fn draw(name: &str) -> Result<String> {
    match name {
        "hand-over" => hand_over::picture().await,
        "restart" => restart::picture().await,
        "round" => round::picture().await,
        _ => peers::picture(&fs::read_to_string(
            Path::new(ROOT).join("docs/comparison.md"),
        )?),
    }
}
