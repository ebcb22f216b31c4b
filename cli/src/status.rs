//! Stub.

use crate::{
    args::{Common, Status},
    exit::Exit,
    failure::Failure,
};

pub(crate) fn status(_args: &Status, _common: &Common) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Usage, "not there yet"))
}
