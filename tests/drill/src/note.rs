//! The log of a client: one line for each event, written before the client does anything else.

use serde::{Deserialize, Serialize};

use crate::clock::Nanos;
use crate::locks::LockNumber;

/// An event. `op` is the number of a client's operation. All events of an operation have it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Note {
    /// All masters have granted a lock to the client.
    Ready,
    /// The client asks for a lock. The call should return at `due`.
    Asked {
        op: u64,
        at: Nanos,
        lock: LockNumber,
        /// The wall clock time in microseconds.
        came: u64,
        due: Nanos,
        /// Set if others may read at the same time.
        reads: bool,
    },
    /// The client did not get the lock.
    Failed { op: u64, at: Nanos, why: String },
    /// The client has the lock.
    Got {
        op: u64,
        at: Nanos,
        lock: LockNumber,
        /// The start of the round that won the lock.
        asked: Nanos,
        /// The end of the validity. A command does not know it, so this is `at`.
        valid_until: Nanos,
        /// The end of the minimum hold. 0 if there is none.
        hold_until: Nanos,
        token: Option<u64>,
        /// The slot of a permit of a semaphore.
        slot: Option<usize>,
        owner: String,
    },
    /// The client extended the lock. The call should have returned at `due`.
    Extended {
        op: u64,
        from: Nanos,
        at: Nanos,
        due: Nanos,
    },
    /// The client is about to release the lock, or has noticed that it has lost it. Or a command
    /// still runs under the lock.
    Ended {
        op: u64,
        at: Nanos,
        valid_until: Nanos,
    },
    /// The release has returned. It should have returned at `due`.
    Freed {
        op: u64,
        at: Nanos,
        due: Nanos,
        /// Set if the release succeeded for a guard that was still valid.
        is_kept: bool,
    },
    /// The client got a lock that no one else uses.
    Probed { at: Nanos },
}
