//! The fuzz targets. Each `run` takes the bytes of one input, and panics if it finds a defect.
//!
//! `fuzz_targets/` gives them to libFuzzer. `tests/fuzz_corpus.rs` of the crate includes this file
//! and runs the targets on the corpus, without libFuzzer.

pub mod configuration;
mod hostile_master;
pub mod replies;
pub mod resp;
mod session;
pub mod urls;

/// Returns a runtime whose time passes at once when all tasks wait.
fn paused_runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O needs nothing of the system")
}
