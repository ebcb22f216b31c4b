//! What the scripts decide on one value.

use super::*;
use crate::core::{
    kind::Kind,
    protocol::command::{Action, Command, fixture::lock_id},
};

#[test]
fn the_script_decides_on_candidates() {
    const CLOCK: u64 = 100;
    let script = &all()["mutex/acquire"];
    for (candidate, counter, is_mine, window, expected) in [
        (100, 99, false, 10, ""),
        (100, 100, false, 10, "stale 100"), // another attempt may have won with this candidate
        (100, 100, true, 10, ""),           // the same attempt
        (100, 101, true, 10, "stale 101"),
        (90, 0, false, 10, ""),
        (89, 0, false, 10, "skew 100"),
        (89, 0, true, 10, "skew 100"),
        (110, 0, false, 10, ""),
        (111, 0, false, 10, "skew 100"),
        (121, 120, false, 10, ""), // one above a counter that is above the clock
        (122, 120, false, 10, "skew 100"),
        (50, 0, false, 0, ""), // the key is put back
        (50, 50, false, 0, ""),
        (50, 51, false, 0, ""), // a rival has raised the counter
        (50, 51, true, 0, ""),
    ] {
        let mut keys = Keyspace::default();
        if counter > 0 {
            keys.run(&["SET", "fence", &counter.to_string()], CLOCK);
        }
        if is_mine {
            keys.run(&["SET", "lock", "me"], CLOCK);
        }
        let words = ["me", "1000", &candidate.to_string(), &window.to_string()];
        let reply = keys.eval(script, &["lock", "fence"], &words, CLOCK).reply;
        let (expected, left) = match expected {
            "" => (Reply::Int(1), candidate.max(counter)),
            refused => (Reply::Bulk(refused.into()), counter),
        };
        let left = match left {
            0 => Reply::Nil,
            left => Reply::Bulk(left.to_string().into()),
        };
        let case = format!("{candidate} {counter} {is_mine} {window}");
        let counter = keys.run(&["GET", "fence"], CLOCK).reply;
        assert_eq!((reply, counter), (expected, left), "{case}");
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
