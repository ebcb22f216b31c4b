//! Stub.

use crate::{
    args::{Bench, Common},
    exit::Exit,
    failure::Failure,
};

pub(crate) fn bench(_args: &Bench, _common: &Common) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Usage, "not there yet"))
}
