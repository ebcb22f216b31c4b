//! The auto traits of the public types: users can send them to other threads, share them and store
//! them.
//!
//! The compiler checks the traits. A public type that loses one of them breaks users' builds.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::{
    collections::BTreeSet,
    error::Error,
    fmt::Debug,
    hash::Hash,
    panic::{RefUnwindSafe, UnwindSafe},
    time::Duration,
};

use quorlock::{
    AcquireError, AskError, Builder, ConfigError, Coordinator, DetachError, Detached, ExtendError,
    FencedGuard, FencingToken, Group, Groups, Guard, Holder, Inspection, Lock, LockKind, LockState,
    LostError, LostReason, MasterSpec, MultiGuard, Owner, PermitGuard, Quarantine, QuorumError,
    ReadGuard, ReadWriteLock, Reason, Renewal, SharedSettings, WriteGuard,
    health::{MasterHealth, MasterState},
    tools::{
        ConnectError, ConnectStep, ConnectionName, DialRefusal, ExampleKey, ListsId, MasterList,
        MasterStream, MasterView, Membership, ServerError, Tally,
    },
    votes::{Failure, Refusal, Vote, VoteRow, Votes},
};

#[test]
fn public_types_have_their_auto_traits() {
    let mut seen = BTreeSet::new();
    macro_rules! check {
        ($($name:ident $(<$argument:tt>)? : $($bound:ident)*;)*) => {$(
            has_bounds::<$name $(<$argument>)?>();
            {
                fn has_more<T: $($bound +)*>() {}
                has_more::<$name $(<$argument>)?>();
            }
            seen.insert(stringify!($name));
        )*};
    }
    check! {
        AcquireError: Error Clone;
        MultiGuard:;
        Builder:;
        ConfigError: Error Clone Eq;
        ConnectError: Error;
        ConnectStep: Error Clone;
        ConnectionName: Clone Eq;
        Reason: Clone Eq;
        Coordinator: Clone;
        DetachError: Error;
        Detached: Clone;
        DialRefusal: Clone Copy Eq;
        ExampleKey: Clone Eq;
        ExtendError: Error Clone;
        Failure: Clone Eq;
        FencedGuard:;
        FencingToken: Clone Copy Eq Ord Hash;
        Group: Clone;
        Groups: Clone;
        Guard:;
        Holder: Clone Eq;
        AskError: Error Clone;
        Inspection: Clone;
        LockKind: Clone Copy Eq;
        ListsId: Clone Copy Eq Hash;
        Lock: Clone;
        ReadGuard:;
        PermitGuard:;
        WriteGuard:;
        LostError: Error Clone;
        LostReason: Clone Copy Eq;
        MasterHealth: Clone Eq;
        MasterList: Clone Copy Eq Hash;
        MasterSpec: Clone;
        MasterState: Clone Eq;
        MasterView: Clone Eq;
        Membership: Clone Copy Eq Hash;
        Owner: Clone;
        Refusal: Clone Eq;
        QuorumError: Error Clone;
        Renewal: Clone Copy Eq;
        Quarantine: Clone Copy Default Eq;
        ReadWriteLock: Clone;
        ServerError: Clone Copy Eq;
        SharedSettings: Clone Default;
        Tally: Clone Eq;
        LockState: Clone Copy Eq;
        Vote: Clone Eq;
        VoteRow<'static>: Clone Copy;
        Votes: Clone;
    }
    // One task reads and writes a stream. It is not `Sync`, like the streams that it may be.
    is_send(&None::<MasterStream>);
    seen.insert("MasterStream");
    seen.extend(["AnyGuard", "Fenceable", "OneName"]); // traits of the guards above
    assert_eq!(seen, exported(), "a public type is not checked here");
}

/// Errors and reports can leave a `catch_unwind`. Handles need `AssertUnwindSafe`.
#[test]
fn errors_and_reports_are_unwind_safe() {
    fn check<T: UnwindSafe + RefUnwindSafe>() {}
    check::<AcquireError>();
    check::<ExtendError>();
    check::<AskError>();
    check::<Inspection>();
    check::<LostError>();
    check::<QuorumError>();
    check::<Votes>();
}

/// Programs spawn these futures on runtimes with several threads.
#[test]
fn futures_are_send() {
    fn check(locks: &Coordinator, lock: &Lock, guard: &Guard) {
        let second = Duration::from_secs(1);
        let events = locks.health_events();
        is_send(&events);
        is_static(&events);
        is_send(&locks.close());
        is_send(&lock.acquire());
        is_static(&lock.acquire());
        is_send(&lock.acquire_within(second));
        is_send(&lock.try_acquire());
        is_send(&lock.inspect());
        is_send(&lock.is_held());
        is_send(&guard.extend(second));
        is_send(&locks.attach(&"".parse().unwrap()));
        is_send(&guard.all_votes());
        is_send(&guard.lost());
        is_send(&guard.run(tokio::task::yield_now()));
    }
    fn check_owned(guard: Guard) {
        let release = guard.release();
        is_send(&release);
        is_static(&release);
    }
    let _ = (check, check_owned);
}

fn has_bounds<T: Debug + Send + Sync + Unpin + 'static>() {}

fn is_send<T: Send>(_: &T) {}

fn is_static<T: 'static>(_: &T) {}

/// Returns the names of the public types that `lib.rs` exports.
fn exported() -> BTreeSet<&'static str> {
    let lib = include_str!("../src/lib.rs");
    lib.split("pub use crate::")
        .skip(1)
        .flat_map(|after| {
            after
                .split_once(';')
                .unwrap()
                .0
                .split(|c: char| !c.is_alphanumeric())
        })
        .filter(|word| word.starts_with(|c: char| c.is_uppercase()))
        .filter(|word| word.contains(|c: char| c.is_lowercase())) // no constant
        .collect()
}
