//! Stub.

use crate::{
    args::{Common, Doctor},
    exit::Exit,
    failure::Failure,
};

pub(crate) fn doctor(_args: &Doctor, _common: &Common) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Usage, "not there yet"))
}
