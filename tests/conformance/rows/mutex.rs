//! The rows of mutexes.

use super::*;

#[tokio::test]
async fn a_mutex_is_acquired() {
    check(&[
        "acquire A 40s: granted, left A 40s",
        "acquire A 40s: granted, acquire B 80s: held -, left A 40s",
        // A token belongs to one attempt, so an acquisition fails even if the key holds its own
        // token.
        "acquire A 40s: granted, acquire A 80s: held -, left A 40s",
        "write 40s, acquire A 80s: held -, left another's 40s",
        "write -, acquire A 40s: held -, left another's -",
        "write-hash field=1 40s, acquire A 80s: held -, left field=1 40s",
        "write-hash field=1 -, acquire A 80s: held -, left field=1 -",
        "acquire A 40s: granted, delete, acquire B 80s: granted, left B 80s",
    ])
    .await;
}

#[tokio::test]
async fn a_mutex_is_extended() {
    check(&[
        "acquire A 40s: granted, extend A 80s: granted, left A 80s",
        "acquire A 80s: granted, extend A 40s: granted, left A 80s",
        "acquire A 40s: granted, extend A 40s: granted, left A 40s",
        "write-A -, extend A 40s: granted, left A 40s",
        "extend A 40s: gone, left nothing",
        "acquire A 40s: granted, delete, extend A 80s: gone, left nothing",
        "acquire A 40s: granted, extend B 80s: held 40s, left A 40s",
        "write 40s, extend A 80s: held 40s, left another's 40s",
        "write -, extend A 40s: held -, left another's -",
        "write-hash field=1 40s, extend A 80s: kind, left field=1 40s",
        "write-hash field=1 -, extend A 40s: kind, left field=1 -",
    ])
    .await;
}

#[tokio::test]
async fn a_mutex_is_released() {
    check(&[
        "acquire A 40s: granted, release A: granted, left nothing",
        "acquire A 40s watch: granted, acquire B 40s watch: held 40s, left A 40s",
        "write -, acquire A watch: held -, left another's -",
        "write-A 60s, acquire A 40s watch: granted, left A 60s",
        "write-hash one=1 40s, acquire A watch: kind, left one=1 40s",
        "write 40s, release A watch: held 40s, left another's 40s",
        "acquire A 40s watch: granted, release A watch: granted, release A watch: gone, left nothing",
        "write-A -, release A: granted, left nothing",
        "release A: gone, left nothing",
        "acquire A 40s: granted, release A: granted, release A: gone, left nothing",
        "acquire A 40s: granted, release B: held 40s, left A 40s",
        "write 40s, release A: held 40s, left another's 40s",
        "write -, release A: held -, left another's -",
        "write-hash field=1 40s, release A: kind, left field=1 40s",
        "acquire A 40s: granted, release A: granted, acquire B 80s: granted, release A: held 80s, left B 80s",
    ])
    .await;
}

#[tokio::test]
async fn a_mutex_that_was_won_is_released() {
    let rows = [
        "acquire A 40s: granted, release A won: granted, left nothing",
        "acquire C 40s: granted, release C won: granted, left nothing",
        "write-A -, release A won: granted, left nothing",
        "release A won: gone, left nothing",
        "acquire A 40s: granted, release A won: granted, release A won: gone, left nothing",
        "write-hash field=1 40s, release A won: kind, left field=1 40s",
        "write-hash field=1 -, release A won: kind, left field=1 -",
    ];
    check(&rows).await;
    check_on(&mut native_subjects().await, &rows).await;
    // `DELEX` and `DELIFEQ` do not say that another holds the lock. A release of an attempt that
    // was not won needs to know this.
    let rows = [
        "acquire A 40s: granted, release B won: gone, left A 40s",
        "write 40s, release A won: gone, left another's 40s",
        "write -, release A won: gone, left another's -",
        "acquire A 40s: granted, release A won: granted, acquire B 80s: granted, release A won: gone, left B 80s",
        "acquire A 40s: granted, release B: held 40s, left A 40s",
    ];
    let mut native = native_subjects().await;
    check_on(&mut native, &rows).await;
    for subject in &native {
        // The last row was run once, and once with two copies. The first call has the text.
        let calls = ["eval", "evalsha"].map(|command| subject.store.server_calls(command));
        assert_eq!(calls, [1, 2]);
    }
}

#[tokio::test]
async fn a_mutex_may_have_a_client_name() {
    check(&[
        "acquire C 40s: granted, inspect: mutex digest@web-3/812 x1 40s, left C 40s",
        "acquire C 40s: granted, extend C 80s: granted, extend A 80s: held 80s, release A: held 80s, release C: granted, left nothing",
        "acquire C 40s: granted, acquire C 80s: held -, break ?: held 40s, break C: granted, break C: gone, left nothing",
        "acquire C watch 40s: granted, acquire C watch 40s: granted, acquire A watch 40s: held 40s, left C 40s",
        "acquire C 40s ^500: granted, extend C 80s: granted, release C ^500: granted, left nothing ^500 2592000s",
        "write-text 0123456789012345678901234567890123456789@nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn -, inspect: mutex digest@nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn x1 -, left another's -",
        "write-text 0123456789012345678901234567890123456789@a@b -, inspect: mutex digest@a@b x1 -, left another's -",
        // Values of other libraries.
        "write-text 0123456789012345678901234567890123456789 -, inspect: mutex digest x1 -, left another's -",
        "write-text 0123456789012345678901234567890123456789@ -, inspect: mutex digest x1 -, left another's -",
        "write-text 0123456789012345678901234567890123456789@nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn -, inspect: mutex digest x1 -, left another's -",
        "write-text 0123456789012345678901234567890123456789@café -, inspect: mutex digest x1 -, left another's -",
        "write-text 0123456789012345678901234567890123456789@a\nb -, inspect: mutex digest x1 -, left another's -",
        "write-text 012345678901234567890123456789012345678@a -, inspect: mutex digest x1 -, left another's -",
        "write-text 01234567890123456789012345678901234567890@a -, inspect: mutex digest x1 -, left another's -",
        "write-text 012345678901234567890123456789012345678A@a -, inspect: mutex digest x1 -, left another's -",
        "write-text secret@example.com -, inspect: mutex digest x1 -, left another's -",
    ])
    .await;
}

/// A counter holds the candidate that won, and lives for 30 days.
#[tokio::test]
async fn a_fenced_mutex_is_acquired() {
    check(&[
        "acquire A ^500: granted, left A 40s ^500 2592000s",
        "count ^400, acquire A ^500: granted, left A 40s ^500 2592000s",
        "count ^400, acquire A ^400+1: granted, left A 40s ^400+1 2592000s",
        // Another attempt has won with this candidate or a larger one.
        "count ^500, acquire A ^500: stale ^500, left nothing ^500 -",
        "count ^600, acquire A ^500: stale ^600, left nothing ^600 -",
        "count ^5000, acquire A ^500: stale ^5000, left nothing ^5000 -",
        // Candidates are compared as numbers, not as texts.
        "count-nine, acquire A ^500: granted, left A 40s ^500 2592000s",
        // Candidates that are too far from the master's clock are refused. If the counter itself is
        // too far ahead, the next number after the counter is accepted.
        "acquire A ^-9000: skewed, left nothing",
        "acquire A ^9000: skewed, left nothing",
        "count ^400, acquire A ^9000: skewed, left nothing ^400 -",
        "count ^8000, acquire A ^8000+1: granted, left A 40s ^8000+1 2592000s",
        "count ^8000, acquire A ^8000+2: skewed, left nothing ^8000 -",
        "count ^-9000, acquire A ^-9000: stale ^-9000, left nothing ^-9000 -",
        "count ^-9000, acquire A ^-9000+1: skewed, left nothing ^-9000 -",
        // The same attempt acquires the lock again, with the same, a larger or a smaller candidate.
        "acquire A ^500: granted, acquire A ^500 80s: granted, left A 80s ^500 2592000s",
        "acquire A 80s ^500: granted, acquire A ^500: granted, left A 80s ^500 2592000s",
        "acquire A ^500: granted, acquire A ^600 80s: granted, left A 80s ^600 2592000s",
        "acquire A ^600: granted, acquire A ^500 80s: stale ^600, left A 40s ^600 2592000s",
        "acquire A ^500: granted, acquire A ^9000 80s: skewed, left A 40s ^500 2592000s",
        "acquire A ^500: granted, delete, acquire A ^500: stale ^500, left nothing ^500 2592000s",
        // If another attempt holds the lock, every candidate is refused.
        "acquire A ^500: granted, acquire B ^600: held 40s, left A 40s ^500 2592000s",
        "acquire A ^500: granted, acquire B ^9000: held 40s, left A 40s ^500 2592000s",
        "write -, acquire A ^500: held -, left another's -",
        "acquire A 40s: granted, acquire B ^500: held 40s, left A 40s",
        "acquire A ^500: granted, acquire B 40s: held -, left A 40s ^500 2592000s",
        "write-hash field=1 40s, acquire A ^500: kind, left field=1 40s",
        // A lock that is not fenced ignores the counter.
        "count ^500, acquire A 40s: granted, left A 40s ^500 -",
        "count ^500, acquire A 40s: granted, extend A 80s ^600: granted, release A: granted, left nothing ^500 -",
    ])
    .await;
}
