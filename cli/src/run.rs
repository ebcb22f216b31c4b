//! Stub.

use crate::{
    args::{Common, Run},
    exit::Exit,
    failure::Failure,
};

pub(crate) fn run(_args: &Run, _common: &Common) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Usage, "not there yet"))
}
