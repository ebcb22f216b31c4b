//! Stub.

use crate::{
    args::{Common, Hold},
    exit::Exit,
    failure::Failure,
};

pub(crate) fn hold(_args: &Hold, _common: &Common) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Usage, "not there yet"))
}
