//! The common cases with which some scripts begin. They must do what the rest of the script does.

use super::*;

/// The key of the counter of a fenced lock.
pub(super) const COUNTER: &str = "counter";

/// The time, in milliseconds.
const NOW: u64 = 1_700_000_000_000;

#[test]
fn a_common_case_does_what_the_script_does() {
    let all = all();
    for Calls {
        name,
        keys,
        hash,
        calls,
    } in calls(include_str!("common_cases.txt"))
    {
        let (whole, rest) = (&all[name], &rest_of(name).unwrap());
        for hash in hashes(hash) {
            for queue in ["none", "waiters", "readers"] {
                for call in &calls {
                    let [one, other] = [whole, rest]
                        .map(|script| outcome(script, (&keys, call), keyspace(&hash, queue)));
                    assert_eq!(one, other, "{name} {call}, {hash:?}, queue: {queue}");
                }
            }
        }
    }
}

/// Calls of a script: its keys, the name of its hashes, and the arguments after the owner `a`.
pub(super) struct Calls {
    pub(super) name: &'static str,
    pub(super) keys: Vec<&'static str>,
    pub(super) hash: &'static str,
    pub(super) calls: Vec<&'static str>,
}

/// Reads a table of calls.
pub(super) fn calls(table: &'static str) -> impl Iterator<Item = Calls> {
    table.trim_end().split("\n\n").skip(1).map(|paragraph| {
        let (head, calls) = paragraph.split_once('\n').unwrap();
        let (script, keys) = head.split_once(": ").unwrap();
        let (name, hash) = script.split_once(", ").unwrap();
        Calls {
            name,
            keys: keys.split(' ').collect(),
            hash,
            calls: calls.lines().collect(),
        }
    })
}

/// Returns a script without the common case with which it begins. `None` if there is none.
pub(super) fn rest_of(name: &str) -> Option<Script> {
    let script = scripts().find(|script| script.name == name)?;
    let (first, rest) = script.text().split_once("-- shared/queue")?;
    let rest = || Script::new(format!("--{rest}"));
    first.contains("/uncontended_").then(rest)
}

/// Runs a script with these keys, and these arguments after the owner `a`. Returns what it has
/// done, and what is left apart from a counter for fencing tokens.
pub(super) fn outcome(
    script: &Script,
    (names, call): (&[&str], &str),
    mut keys: Keyspace,
) -> (Done, Keyspace) {
    let call = call.replace("TICKET", "1700000000000000:a");
    let call = call.replace("NONE", "");
    let words: Vec<_> = ["a"].into_iter().chain(call.split(' ')).collect();
    let done = run(script, (names, &words), &mut keys, NOW);
    keys.run(&["DEL", COUNTER], NOW * 1_000);
    (done, keys)
}

/// Returns the hashes of this name in the table.
pub(super) fn hashes(name: &str) -> impl Iterator<Item = BTreeMap<&'static str, &'static str>> {
    let mut tables = include_str!("hashes.txt").trim_end().split("\n\n");
    let fields = tables.find_map(|table| table.strip_prefix(name)).unwrap();
    let choices = |line: &'static str| line.split(", ").collect::<Vec<_>>();
    let fields: Vec<_> = fields.trim_start().lines().map(choices).collect();
    let count = fields.iter().map(Vec::len).product();
    (0..count).map(move |mut number: usize| {
        let choices = fields.iter().map(|list| {
            let choice = list[number % list.len()];
            number /= list.len();
            choice
        });
        let fields = choices.flat_map(str::split_whitespace);
        fields.filter_map(|field| field.split_once('=')).collect()
    })
}

/// Returns keys with this hash, and with a waiter in this queue.
pub(super) fn keyspace(hash: &BTreeMap<&str, &str>, queue: &str) -> Keyspace {
    let mut keys = Keyspace::default();
    let mut run = |words: &[&str]| {
        let reply = keys.run(words, NOW * 1_000).reply;
        assert!(matches!(reply, Reply::Int(_)), "{words:?}: {reply:?}");
    };
    for (field, value) in hash {
        let field = match *field {
            "a" | "b" | "c" | "mode" => (*field).to_owned(),
            _ => format!("quorlock:{field}"),
        };
        let value = value.replace('_', " ");
        let value = value.replace("alive", &(NOW + 60_000).to_string());
        let value = value.replace("ended", &(NOW - 1).to_string());
        run(&["HSET", "lock", &field, &value]);
    }
    run(&["PEXPIRE", "lock", "60000"]);
    if queue != "none" {
        for (key, score) in [(queue, 0), ("deadlines", NOW + 60_000)] {
            run(&["ZADD", key, &score.to_string(), "1600000000000000:b"]);
        }
    }
    keys
}
