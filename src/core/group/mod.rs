//! Groups of masters: which group has the lock of a name.

pub(crate) mod choice;
pub(crate) mod table;
