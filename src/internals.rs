//! Parts of the crate that `fuzz/` and `tests/` use. They are not part of the API.

use crate::core::kind::Kind;
pub use crate::master::{read_reply, reply_lengths};

/// All kinds of locks.
pub const KINDS: [Kind; Kind::ALL.len()] = Kind::ALL;

/// Returns whether an owner that holds a lock of this kind can acquire it again.
pub fn is_reentrant(kind: Kind) -> bool {
    kind.is_reentrant()
}

/// Returns whether locks of this kind have queues on the masters.
pub fn has_queue(kind: Kind) -> bool {
    kind.has_queue()
}

/// Returns whether readers can share locks of this kind.
pub fn has_readers(kind: Kind) -> bool {
    kind.spec().has_readers
}
