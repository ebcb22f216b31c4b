//! What the scripts decide on one value.

use super::*;

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
