//! This crate and other lock libraries on the same masters. `README.md` explains the protocol of
//! the programs and the scenarios.

pub mod build;
pub mod page;
pub mod pair;
pub mod peers;
pub mod process;
pub mod programs;
pub mod scenarios;

use std::fmt;
use std::path::{Path, PathBuf};

pub type Outcome<T> = Result<T, Failure>;

/// The reason why a scenario failed.
#[derive(Debug)]
pub enum Failure {
    /// A program died, hung, or could not do something that it should be able to do.
    Breakdown(String),
    /// A library did something that the locks should have prevented.
    Violation(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Breakdown(text) => write!(f, "breakdown: {text}"),
            Self::Violation(text) => write!(f, "VIOLATION: {text}"),
        }
    }
}

/// Returns a path in the repository.
pub fn in_repository(path: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().nth(2);
    root.expect("the package is in tests/").join(path)
}

/// Returns a path in the directory for everything that a run builds and writes.
pub fn in_target(path: &str) -> PathBuf {
    in_repository("target/interop").join(path)
}
