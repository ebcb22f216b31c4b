//! The runtime in which commands talk to the masters.

use std::{io, os::unix::net::UnixStream};

use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// Runs `work` on a runtime of one thread. What `work` has left behind in the background ends with
/// it.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = start()?;
    let done = runtime.block_on(work);
    // A name resolution that hangs must not keep the process.
    runtime.shutdown_background();
    done
}

pub(crate) fn start() -> Result<Runtime, Failure> {
    // tokio panics if it cannot open its files.
    let files: io::Result<Vec<_>> = (0..4).map(|_| UnixStream::pair()).collect();
    let runtime = files
        .map(drop)
        .and_then(|()| Builder::new_current_thread().enable_all().build());
    runtime.map_err(|error| Failure::system("cannot start a runtime", error))
}
