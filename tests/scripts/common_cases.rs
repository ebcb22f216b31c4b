//! The common cases with which some scripts begin. They must do what the rest of the script does.

use super::*;

/// The key of the counter of a fenced lock.
pub(super) const COUNTER: &str = "counter";

/// The time, in milliseconds.
const NOW: u64 = 1_700_000_000_000;

/// The fields of hashes, one choice of each list. `_` is a space. A later field replaces an earlier
/// one of the same name.
pub(super) type Fields = &'static [&'static [&'static str]];

pub(super) const READ_WRITE: Fields = &[
    &[
        "",
        "writer=1_1_alive_a",
        "writer=2_1_alive_a",
        "writer=1_1_ended_a",
        "writer=1_1_alive_b",
        "writer=1_1_ended_b",
        "writer=odd",
    ],
    &[
        "",
        "reader:a=1_1_alive",
        "reader:a=2_1_alive",
        "reader:a=1_1_ended",
        "reader:a=odd",
    ],
    &["", "reader:b=1_1_alive", "reader:b=1_1_ended"],
    &["", "read_write=3", "read_write=odd"],
    &["", "mode=quorlock", "mode=read"],
    &["", "c=1"],
];

pub(super) const SEMAPHORE: Fields = &[
    &[
        "",
        "permit:a=1_alive_1 slot:1=a",
        "permit:a=1_alive_2 slot:2=a",
        "permit:a=2_alive_1 slot:1=a",
        "permit:a=1_ended_1 slot:1=a",
        "permit:a=odd",
    ],
    &[
        "",
        "permit:b=1_alive_1 slot:1=b",
        "permit:b=1_alive_2 slot:2=b",
        "permit:b=1_ended_2 slot:2=b",
        "permit:b=1_alive_2",
    ],
    &["", "slot:3=b"],
    &["", "semaphore=alive", "semaphore=ended", "semaphore=odd"],
    &["", "mode=quorlock", "mode=read"],
    &["", "c=1"],
];

/// The scripts with a common case: the keys, the hashes, and the arguments after the owner `a`.
const SCRIPTS: [(&str, &[&str], Fields, &[&str]); 4] = [
    (
        "read_write/acquire",
        &["lock", "waiters", "deadlines", "readers"],
        READ_WRITE,
        &[
            "1 1 30000 read TICKET",
            "2 1 90000 read TICKET",
            "1 1 90000 write TICKET",
            "2 1 30000 write TICKET",
        ],
    ),
    (
        "read_write/release",
        &["lock", "waiters", "deadlines", "readers"],
        READ_WRITE,
        &[
            "1 read TICKET",
            "2 read TICKET",
            "1 write TICKET",
            "2 write TICKET",
        ],
    ),
    (
        "semaphore/acquire",
        &["lock", "waiters", "deadlines"],
        SEMAPHORE,
        &[
            "1 30000 1 0 TICKET",
            "1 90000 2 0 TICKET",
            "2 30000 2 0 TICKET",
            "2 90000 4 0 TICKET",
        ],
    ),
    (
        "semaphore/release",
        &["lock", "waiters", "deadlines"],
        SEMAPHORE,
        &["1 TICKET 1", "2 TICKET 2"],
    ),
];

#[test]
fn a_common_case_does_what_the_script_does() {
    let all = all();
    for (name, keys, fields, calls) in SCRIPTS {
        let (whole, rest) = (&all[name], &rest_of(name).unwrap());
        for hash in hashes(fields) {
            for queue in ["none", "waiters", "readers"] {
                for call in calls {
                    let [one, other] = [whole, rest]
                        .map(|script| outcome(script, (keys, call), keyspace(&hash, queue)));
                    assert_eq!(one, other, "{name} {call}, {hash:?}, queue: {queue}");
                }
            }
        }
    }
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
    let words: Vec<_> = ["a"].into_iter().chain(call.split(' ')).collect();
    let done = run(script, (names, &words), &mut keys, NOW);
    keys.run(&["DEL", COUNTER], NOW * 1_000);
    (done, keys)
}

pub(super) fn hashes(fields: Fields) -> impl Iterator<Item = BTreeMap<&'static str, &'static str>> {
    let count = fields.iter().map(|list| list.len()).product();
    (0..count).map(move |mut number: usize| {
        let choices = fields.iter().map(|list| {
            let choice = list[number % list.len()];
            number /= list.len();
            choice
        });
        let fields = choices.flat_map(|choice| choice.split_whitespace());
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
