//! Runs the fuzz targets on the inputs in `fuzz/corpus`. `./dev fuzz` looks for new inputs.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the targets run as tests"
)]

use std::{fs, path::Path};

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a library in fuzz/")]
mod targets;

#[test]
fn configuration() {
    replay("configuration", targets::configuration::run);
}

#[test]
fn replies() {
    replay("replies", targets::replies::run);
}

#[test]
fn resp() {
    replay("resp", targets::resp::run);
}

#[test]
fn urls() {
    replay("urls", targets::urls::run);
}

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    let mut inputs: Vec<_> = fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(inputs.len() > 5, "only {} inputs", inputs.len());
    for input in inputs {
        println!("{}", input.display()); // shown if the target fails
        run(&fs::read(input).unwrap());
    }
}
