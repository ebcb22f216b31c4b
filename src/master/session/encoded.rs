//! The bytes of a command.

use smallvec::SmallVec;

use crate::core::protocol::script::Script;

/// A command as bytes, for masters that have its script. The bytes are the same for all masters.
/// They need an allocation only if they are many, as for a lock with a long name.
pub(in crate::master) struct Encoded {
    /// The script that a master must have.
    pub(in crate::master) script: Option<&'static Script>,
    pub(in crate::master) bytes: SmallVec<[u8; 240]>,
}
