//! Stub.

use crate::{exit::Exit, failure::Failure};

pub(crate) fn man() -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Usage, "not there yet"))
}
