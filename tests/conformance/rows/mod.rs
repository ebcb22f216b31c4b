//! The rows: those about several kinds here, and those of a kind in a file of its own. Each row is
//! a series of steps on one lock. After a command and a colon come its answer and the messages that
//! it publishes. After `left` come the keys that are left.

use std::collections::BTreeSet;

use super::{check, check_on, native_subjects, step::Step};
use crate::core::{kind::kinds, protocol::words::fixture::scripts};

macro_rules! mount {
    ($($(#[doc = $doc:literal])+ $kind:ident => $module:ident,)+) => {
        $(mod $module;)+

        /// The files with the rows.
        const FILES: &[&str] = &[
            include_str!("mod.rs"),
            $(include_str!(concat!(stringify!($module), ".rs"))),+
        ];
    };
}
kinds!(mount);

#[tokio::test]
async fn a_lock_is_put_back() {
    check(&[
        "heal A 40s: granted, left A 40s",
        "acquire B 40s: granted, heal A 80s: held -, left B 40s",
        "reentrant heal a1 x2: granted, left a=2 reentrant=1 40s",
        "reentrant acquire a1: granted, reentrant heal a1 x2 80s: granted, left a=2 reentrant=1 80s",
        "reentrant acquire a2: granted, reentrant heal a1 x2 80s: held a x1 40s, left a=1 reentrant=2 40s",
        "reentrant acquire b1: granted, reentrant heal a1: held b x1 40s, left b=1 reentrant=1 40s",
        "fair heal a1 x2: granted, left a=2 fair=1 40s",
        // A heal ignores waiters.
        "enqueue b@2 20s, fair heal a1 x2: granted, left a=2 fair=1 40s | b@2 20s | - -",
        "enqueue b@2 -5s, fair heal a1 x2: granted, left a=2 fair=1 40s | b@2 -5s | - -",
        "fair acquire b1: granted, fair heal a1: held b x1 40s, left b=1 fair=1 40s",
        "fair acquire a2: granted, fair heal a1 x2: held a x1 40s, left a=1 fair=2 40s",
        "fair acquire a1: granted, reentrant heal a1: kind, left a=1 fair=1 40s",
        "reentrant acquire a1: granted, fair heal a1: kind, left a=1 reentrant=1 40s",
        "acquire A 40s: granted, fair heal a1: kind, left A 40s",
        "acquire A 40s: granted, reentrant heal a1: kind, left A 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_lock_is_broken_if_the_holder_is_the_one_that_was_seen() {
    check(&[
        "break ?: gone, left nothing",
        "acquire A 40s: granted, break A: granted, break A: gone, left nothing",
        "write-A -, break A: granted, left nothing",
        "acquire A 40s: granted, break ?: held 40s, left A 40s",
        "write -, break ?: held -, left another's -",
        "reentrant acquire a1: granted, reentrant break b: held 40s, left a=1 reentrant=1 40s",
        "reentrant acquire a1 x2: granted, reentrant break a: granted +redisson:0, left nothing",
        "write-hash a=1 40s, reentrant break a: granted +redisson:0, left nothing",
        "reentrant acquire a1: granted, fair break a: held 40s, left a=1 reentrant=1 40s",
        "fair acquire a1: granted, fair break a: granted, left nothing",
        "fair acquire a1: granted, fair break b: held 40s, left a=1 fair=1 40s",
        "write-hash field=some 40s, break A: kind, left field=some 40s",
        "write-hash a=1 fair=1 mode=quorlock b=1 40s, fair break a: kind, left a=1 b=1 fair=1 40s",
        "fair acquire a1: granted, enqueue b@2 20s, fair break a: granted +turn-b:b@2, left nothing | b@2 20s | - -",
        "fair acquire a1: granted, spoil-queue, fair break a: granted, left nothing spoilt-queue 60s",
    ])
    .await;
}

#[tokio::test]
async fn an_owner_may_have_a_client_name() {
    check(&[
        "reentrant acquire c1 x2: granted, inspect: reentrant c x2 40s, reentrant extend c1 x3: granted, reentrant release a1: held c x3 40s, reentrant break c: granted +redisson:0, left nothing",
        "reentrant acquire c1: granted, reentrant acquire c2 x2: granted, reentrant release c2: granted +redisson:0, left nothing",
        "fair acquire c1: granted, fair acquire a1 ~20s @2: held c x1 #1 40s, fair release c1: granted +turn-a:a@2, left nothing | a@2 20s | 40s 40s",
        "fair acquire a1: granted, fair acquire c1 ~20s @2: held a x1 #1 40s, inspect: fair a x1 40s c@2, fair release a1: granted +turn-c:c@2, fair acquire c2 ~20s @2: granted, left c=1 fair=2 40s",
        "fair acquire a1: granted, enqueue c@2 20s, fair break a: granted +turn-c:c@2, left nothing | c@2 20s | - -",
    ])
    .await;
}

#[tokio::test]
async fn a_lock_is_inspected() {
    check(&[
        "inspect: free, left nothing",
        "acquire A 40s: granted, inspect: mutex digest x1 40s, left A 40s",
        "write -, inspect: mutex digest x1 -, left another's -",
        "reentrant acquire a1 x2: granted, inspect: reentrant a x2 40s, left a=2 reentrant=1 40s",
        "fair acquire a1: granted, enqueue c@3 20s, enqueue b@2 -5s, inspect: fair a x1 40s b@2 c@3, left a=1 fair=1 40s | b@2 -5s c@3 20s | - -",
        "enqueue b@2 20s, inspect: free b@2, left nothing | b@2 20s | - -",
        // Locks of Redisson, and keys that are no locks.
        "write-hash a=2 40s, inspect: reentrant a x2 40s, left a=2 40s",
        "write-hash field=some 40s, inspect: other 40s, left field=some 40s",
        "write-hash fair=1 40s, inspect: other 40s, left fair=1 modeless 40s",
        "write-hash a=1 b=1 40s, inspect: other 40s, left a=1 b=1 40s",
        "write-hash a=1 odd=1 -, inspect: other -, left a=1 odd=1 -",
        "write-hash a=1 b=1 fair=1 40s, inspect: other 40s, left a=1 b=1 fair=1 modeless 40s",
        "write-hash b=1 mode=read 40s, inspect: other 40s, left b=1 mode=read 40s",
        "write-hash a=1 fair=1 mode=quorlock 40s, inspect: fair a x1 40s, left a=1 fair=1 40s",
        "write-hash a=1 fair=1 40s, inspect: other 40s, left a=1 fair=1 modeless 40s",
        "write-hash a=1 fair=1 mode=quorlock b=1 40s, inspect: other 40s, left a=1 b=1 fair=1 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_released_attempt_cannot_win_any_more() {
    check(&[
        "acquire A ^500: granted, release A ^500: granted, left nothing ^500 2592000s",
        "acquire A ^500: granted, release A ^500: granted, acquire A ^500: stale ^500, left nothing ^500 2592000s",
        // The release arrives first. The acquisition has failed, or arrives later.
        "release A ^500: gone, left nothing ^500 3s",
        "release A ^500: gone, acquire A ^500: stale ^500, left nothing ^500 3s",
        "release A ^500: gone, acquire B ^600: granted, acquire A ^500: held 40s, left B 40s ^600 2592000s",
        "acquire B ^500: granted, release A ^600: held 40s, left B 40s ^600 2592000s",
        "acquire B ^500: granted, release A ^600: held 40s, acquire B ^500: stale ^600, left B 40s ^600 2592000s",
        // A release gives a counter that was not there a short life, and does not prolong others.
        "release A ^500: gone, release B ^600: gone, left nothing ^600 3s",
        "count-nine-40s, release A ^500: gone, left nothing ^500 40s",
        // The counter never goes down.
        "count ^600, release A ^500: gone, left nothing ^600 -",
        "count ^500, release A ^500: gone, left nothing ^500 -",
        "count-nine, release A ^500: gone, left nothing ^500 2592000s",
        "release A ^9000: gone, left nothing",
        "write -, release A ^500: held -, left another's - ^500 3s",
        "reentrant acquire a1 ^500: granted, reentrant release a1 ^500: granted +redisson:0, left nothing ^500 2592000s",
        "reentrant release a1 ^500: gone, reentrant acquire a1 ^500: stale ^500, left nothing ^500 3s",
        "reentrant acquire b1 ^500: granted, reentrant release a1 ^600: held b x1 40s, left b=1 reentrant=1 40s ^600 2592000s",
        "acquire A ^500: granted, reentrant release a1 ^600: kind, left A 40s ^500 2592000s",
        "fair acquire a1 ^500: granted, fair release a1 ^500: granted, left nothing ^500 2592000s",
        "fair release a1 ^500: gone, fair acquire a1 ^500: stale ^500, left nothing ^500 3s",
        "fair acquire a1 ^500: granted, enqueue b@2 20s, fair release a1 ^500: granted +turn-b:b@2, left nothing | b@2 20s | - - ^500 2592000s",
        "fair acquire b1 ^500: granted, fair release a1 ^600: held b x1 40s, left b=1 fair=1 40s ^600 2592000s",
    ])
    .await;
}

/// A key is put back on a free master. A rival may have raised the counter there, and the counter
/// never goes down.
#[tokio::test]
async fn a_fenced_lock_is_put_back() {
    check(&[
        "heal A ^500: granted, left A 40s ^500 2592000s",
        "count ^500, heal A ^500: granted, left A 40s ^500 -",
        "count ^500, heal A ^500+1: granted, left A 40s ^500+1 2592000s",
        "count ^600, heal A ^500: granted, left A 40s ^600 -",
        "count ^9000, heal A ^9000: granted, left A 40s ^9000 -",
        // The candidate may be far from the clock, because the lock may have been won long ago.
        "heal A ^-9000: granted, left A 40s ^-9000 2592000s",
        "heal A ^9000: granted, left A 40s ^9000 2592000s",
        "acquire A ^500: granted, heal A ^500 80s: granted, left A 80s ^500 2592000s",
        "acquire B ^500: granted, heal A ^600: held 40s, left B 40s ^500 2592000s",
        "acquire A ^500: granted, release A ^500: granted, acquire B ^600: granted, delete, heal A ^500: granted, left A 40s ^600 2592000s",
        // A release keeps out a late acquisition, but not a late heal.
        "acquire A ^500: granted, release A ^500: granted, acquire A ^500: stale ^500, heal A ^500: granted, left A 40s ^500 2592000s",
        "reentrant heal a1 x2 ^-9000: granted, left a=2 reentrant=1 40s ^-9000 2592000s",
        "count ^500, reentrant heal a1 x2 ^500: granted, left a=2 reentrant=1 40s ^500 -",
        "count ^600, reentrant heal a1 x2 ^500: granted, left a=2 reentrant=1 40s ^600 -",
        "fair heal a1 x2 ^-9000: granted, left a=2 fair=1 40s ^-9000 2592000s",
        "count ^500, fair heal a1 x2 ^500: granted, left a=2 fair=1 40s ^500 -",
        "count ^600, fair heal a1 x2 ^500: granted, left a=2 fair=1 40s ^600 -",
        "enqueue b@2 20s, fair heal a1 x2 ^500: granted, left a=2 fair=1 40s | b@2 20s | - - ^500 2592000s",
    ])
    .await;
}

/// If the counter's key holds something else, a fenced lock cannot be acquired. A holder can
/// release the lock, and the counter's key stays as it is.
#[tokio::test]
async fn a_key_that_is_no_counter_is_reported() {
    const NO_COUNTER: &str = "failed: answered ERR the key .. is not a counter: delete it";
    let rows = [
        "count-hash, acquire A ^500: NO, left nothing hash -",
        "acquire A 40s: granted, count-hash, release A ^500: granted, left nothing hash -",
        "count-hash, reentrant acquire a1 ^500: NO, left nothing hash -",
        "reentrant acquire a1: granted, count-hash, reentrant release a1 ^500: granted +redisson:0, left nothing hash -",
        "count-hash, fair acquire a1 ^500: NO, left nothing hash -",
        "fair acquire a1: granted, count-hash, fair release a1 ^500: granted, left nothing hash -",
        "count-text, acquire A ^9000: NO, left nothing text -",
        "count-text, acquire A ^500: NO, left nothing text -",
        "count-text, heal A ^500: NO, left nothing text -",
        "count-text, release A ^500: gone, left nothing text -",
        "acquire A ^500: granted, count-text, release A ^500: granted, left nothing text -",
        // The text is as long as a candidate and sorts before it.
        "count-letters, acquire A ^500: NO, left nothing 0123456789abcdef -",
        "count-hexadecimal, acquire A ^500: NO, left nothing 0x10 -",
        "count-hexadecimal, release A ^500: gone, left nothing 0x10 -",
        // The key has a TTL and keeps it.
        "count-text-60s, acquire A ^500: NO, left nothing text 60s",
        "count-text-60s, acquire A ^9000: NO, left nothing text 60s",
        "count-text-60s, release A ^500: gone, left nothing text 60s",
        // A lock of another kind is reported first.
        "reentrant acquire a1: granted, count-hash, acquire A ^500: kind, left a=1 reentrant=1 40s hash -",
    ];
    let rows = rows.map(|row| row.replace("NO", NO_COUNTER));
    check(&rows.each_ref().map(String::as_str)).await;
}

/// A script without a row could differ between servers and memory masters.
#[test]
fn each_script_has_a_row() {
    let mut run = BTreeSet::new();
    let texts = FILES.iter().flat_map(|file| file.split('"'));
    for row in texts.filter(|text| text.find(", left ") > Some(0)) {
        let steps = row.split(", ").map(|step| step.split(": ").next());
        for step in steps.flatten().filter(|step| !step.starts_with("left ")) {
            if let Step::Command(command) = Step::parse(step) {
                let candidate = command.ballot.map(|_| 1);
                let command = command.command("key", candidate);
                run.extend(command.words().script.map(|script| script.name));
            }
        }
    }
    assert_eq!(run, scripts().map(|script| script.name).collect());
}
