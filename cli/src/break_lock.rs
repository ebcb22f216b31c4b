//! Stub.

use crate::{
    args::{Break, Common},
    exit::Exit,
    failure::Failure,
};

pub(crate) fn break_lock(_args: &Break, _common: &Common) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Usage, "not there yet"))
}
