//! One suite for both kinds of master: the same rows, the same votes, the same keys left behind.
//!
//! All other tests of the rules run on memory masters. What they show holds for servers because of this.

#![allow(
    clippy::disallowed_methods,
    reason = "a server keeps real time, and supervisors must be spawned"
)]

use std::{collections::BTreeSet, sync::atomic::AtomicUsize, sync::atomic::Ordering};

use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, TestCaseError, TestRunner},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
};

use super::*;
use crate::core::{
    command::Verb,
    lease::{Drift, Ttl},
    name::{KeyTemplate, Token},
    quorum::{Failure, Refusal},
};

#[path = "../../tests/support/server.rs"]
mod server;

// ---- the rows ----------------------------------------------------------------------------------

#[test]
fn acquire() {
    check([
        ("free", &[(set_nx(A, M), GRANT)], mine(A, M)),
        ("held", &[(set_nx(A, M), GRANT), (set_nx(B, L), HELD)], mine(A, M)),
        ("held by my own token", &[(set_nx(A, M), GRANT), (set_nx(A, L), HELD)], mine(A, M)),
        ("foreign", &[(write(M), NONE), (set_nx(A, L), HELD)], foreign(M)),
        ("foreign without a ttl", &[(write(FOR_EVER), NONE), (set_nx(A, M), HELD)], foreign(FOR_EVER)),
        ("another type", &[(write_hash(M), NONE), (set_nx(A, L), HELD)], hash(M)),
        ("another type without a ttl", &[(write_hash(FOR_EVER), NONE), (set_nx(A, L), HELD)], hash(FOR_EVER)),
        ("deleted by hand", &[(set_nx(A, M), GRANT), (DELETE, NONE), (set_nx(B, L), GRANT)], mine(B, L)),
    ]);
}
