//! What the scripts decide on one value.

use super::*;
use crate::core::{
    ballot::{BallotReply, ballot_reply},
    protocol::{
        command::{Action, Command, fixture::lock_id},
        kind::Kind,
    },
};

fn bulk(text: String) -> Reply {
    Reply::Bulk(text.into_bytes())
}

/// The search in `core::ballot` relies on this.
#[test]
fn the_script_decides_on_candidates_by_the_rule() {
    const CLOCK: u64 = 100;
    let script = &all()["mutex/acquire"];
    let decide = |candidate: u64, counter: u64, is_mine: bool, window: u64| {
        let mut keys = Keyspace::default();
        if counter > 0 {
            keys.run(&["SET", "fence", &counter.to_string()], CLOCK);
        }
        if is_mine {
            keys.run(&["SET", "lock", "me"], CLOCK);
        }
        let words = ["me", "1000", &candidate.to_string(), &window.to_string()];
        let ran = keys.eval(script, &["lock", "fence"], &words, CLOCK);
        (ran.reply, keys.run(&["GET", "fence"], CLOCK).reply)
    };
    for (candidate, counter) in
        (85..=115).flat_map(|one| [0, 84, 90, 100, 110, 113, 114].map(|other| (one, other)))
    {
        for (is_mine, window) in [(false, 0), (false, 10), (true, 0), (true, 10)] {
            let rule = ballot_reply(candidate, counter, is_mine, CLOCK, window);
            let expected = match rule {
                BallotReply::Accepted => Reply::Int(1),
                BallotReply::Skewed => bulk(format!("skew {CLOCK}")),
                BallotReply::Stale => bulk(format!("stale {counter}")),
            };
            let left = if rule == BallotReply::Accepted {
                candidate.max(counter)
            } else {
                counter
            };
            let left = if left > 0 {
                bulk(left.to_string())
            } else {
                Reply::Nil
            };
            let case = format!("{candidate} {counter} {is_mine} {window}");
            assert_eq!(
                decide(candidate, counter, is_mine, window),
                (expected, left),
                "{case}"
            );
        }
    }
}

#[test]
fn a_mutex_has_a_client_only_if_its_value_is_of_our_form() {
    let hex = "0a".repeat(20);
    for (value, client) in [
        (format!("{hex}@web-3/812"), "web-3/812"),
        (format!("{hex}@a@b"), "a@b"),
        (hex.clone(), ""),
        (format!("{hex}@"), ""),
        (format!("{hex}@a b"), ""),
        (format!("{hex}@{}", "n".repeat(64)), &"n".repeat(64)),
        (format!("{hex}@{}", "n".repeat(65)), ""),
        (format!("{}@a", "0A".repeat(20)), ""),
        (format!("{}@a", "0a".repeat(19)), ""),
        (format!("{hex}0@a"), ""),
        ("secret@example.com".to_owned(), ""),
        (format!("@{hex}"), ""),
    ] {
        let mut keys = Keyspace::default();
        keys.run(&["SET", "r", &value], 0);
        let inspect = Command::new(&lock_id(Kind::Mutex, "r"), Action::Inspect);
        let words = inspect.words();
        let (_, names) = words.script_keys();
        let ran = keys.eval(&all()["shared/inspect"], &names.collect::<Vec<_>>(), &[], 0);
        let Reply::Bulk(shown) = ran.reply else {
            panic!("{value} is not shown: {:?}", ran.reply);
        };
        let shown = String::from_utf8(shown).unwrap();
        let shown: Vec<_> = shown.splitn(5, ' ').collect();
        assert_eq!(shown[4], client, "{value}");
    }
}
