//! Stub.

use crate::{args::Completions, exit::Exit, failure::Failure};

pub(crate) fn completions(_args: &Completions) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Usage, "not there yet"))
}
