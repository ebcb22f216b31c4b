//! The rows: those about several kinds, and those of each kind, have a file each. Each row is a
//! series of steps on one lock. After a command and a colon come its answer and the messages that
//! it publishes. After `left` come the keys that are left. `␤` stands for a line feed.

use std::collections::BTreeSet;

use super::{Subject, check, native_subjects, step::Step, subjects};
use crate::core::{kind::kinds, protocol::words::fixture::scripts};

macro_rules! mount {
    ($($(#[doc = $doc:literal])+ $kind:ident => $module:ident,)+) => {
        $(
            #[tokio::test]
            async fn $module() {
                check_file(
                    &mut subjects().await,
                    include_str!(concat!("rows/", stringify!($module), ".txt")),
                )
                .await;
            }
        )+

        /// The files with the rows.
        const FILES: &[&str] = &[
            SEVERAL,
            WON,
            $(include_str!(concat!("rows/", stringify!($module), ".txt"))),+
        ];
    };
}
kinds!(mount);

const SEVERAL: &str = include_str!("rows/several.txt");
const WON: &str = include_str!("rows/won.txt");

#[tokio::test]
async fn several_kinds() {
    check_file(&mut subjects().await, SEVERAL).await;
}

#[tokio::test]
async fn a_mutex_that_was_won_is_released() {
    check_file(&mut subjects().await, WON).await;
    check_file(&mut native_subjects().await, WON).await;
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
    check(&mut native, &rows).await;
    for subject in &native {
        // The last row was run once, and once with two copies. The first call has the text.
        let calls = ["eval", "evalsha"].map(|command| subject.store.server_calls(command));
        assert_eq!(calls, [1, 2]);
    }
}

/// A script without a row could differ between servers and memory masters.
#[test]
fn each_script_has_a_row() {
    let mut run = BTreeSet::new();
    for row in FILES.iter().flat_map(|file| rows(file)) {
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

async fn check_file(subjects: &mut [Subject], file: &str) {
    let rows: Vec<_> = rows(file).map(|row| row.replace('␤', "\n")).collect();
    check(subjects, &Vec::from_iter(rows.iter().map(String::as_str))).await;
}

fn rows(file: &str) -> impl Iterator<Item = &str> {
    file.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}
