//! Parts of the crate that `fuzz/` and `tests/` use. They are not part of the API.

pub use crate::master::{read_reply, reply_lengths};
use crate::{
    core::kind::LockKind,
    face::{fence::FencingToken, guard::Guard, lock::Lock},
};

/// All kinds of locks.
pub const KINDS: [LockKind; LockKind::ALL.len()] = LockKind::ALL;

/// Returns whether an owner that holds a lock of this kind can acquire it again.
pub fn is_reentrant(kind: LockKind) -> bool {
    kind.is_reentrant()
}

/// Returns whether locks of this kind have queues on the masters.
pub fn has_queue(kind: LockKind) -> bool {
    kind.has_queue()
}

/// Returns whether readers can share locks of this kind.
pub fn has_readers(kind: LockKind) -> bool {
    kind.spec().has_readers
}

/// Returns `lock` as a lock whose guards have the type [`Guard`], so that a test can use all locks
/// in the same way.
pub fn plain<G>(lock: Lock<G>) -> Lock {
    lock.plain()
}

/// Turns the guard of a writer into that of a reader.
pub fn downgrade(guard: &Guard) {
    guard.downgrade();
}

/// Returns the fencing token of the lock called `name`. `None` if the guard does not hold `name`,
/// or if the lock is not fenced.
pub fn fencing_token_of(guard: &Guard, name: &str) -> Option<FencingToken> {
    let mut tokens = guard.fencing_tokens();
    tokens.find(|(of, _)| *of == name).map(|(_, token)| token)
}
