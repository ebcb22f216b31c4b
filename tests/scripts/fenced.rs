//! The commands of fenced locks. If the candidate for the fencing token is accepted, they must do
//! what the commands of other locks do.

use super::{
    common_cases::{COUNTER, Fields, READ_WRITE, SEMAPHORE, hashes, keyspace, outcome},
    *,
};

const OWNED: Fields = &[
    &["", "a=1", "a=2 b=1", "b=1"],
    &["", "reentrant=1", "reentrant=2"],
    &["", "fair=1", "fair=2"],
    &["", "mode=quorlock", "mode=read"],
    &["", "c=1"],
];

const OF_THREE: &[&str] = &["lock", "waiters", "deadlines"];
const OF_READ_WRITE: &[&str] = &["lock", "waiters", "deadlines", "readers"];

/// The scripts: the name, the keys, the hashes, and the arguments after the owner `a`.
const SCRIPTS: [(&str, &[&str], Fields, &[&str]); 8] = [
    (
        "reentrant/acquire",
        &["lock"],
        OWNED,
        &["1 1 30000 quorlock:reentrant", "2 1 90000 quorlock:fair"],
    ),
    (
        "reentrant/release",
        &["lock"],
        OWNED,
        &["1 0 quorlock:reentrant channel", "2 1 quorlock:fair "],
    ),
    (
        "fair/acquire",
        OF_THREE,
        OWNED,
        &["1 1 30000 TICKET 0 0", "2 1 90000 TICKET 9000 0"],
    ),
    ("fair/release", OF_THREE, OWNED, &["1 TICKET", "2 TICKET"]),
    (
        "read_write/acquire",
        OF_READ_WRITE,
        READ_WRITE,
        &[
            "1 1 90000 write TICKET 0 0",
            "2 1 30000 write TICKET 9000 0",
            "1 1 30000 write TICKET -1 0",
        ],
    ),
    (
        "read_write/release",
        OF_READ_WRITE,
        READ_WRITE,
        &["1 write TICKET", "2 read TICKET"],
    ),
    (
        "semaphore/acquire",
        OF_THREE,
        SEMAPHORE,
        &[
            "1 30000 1 0 TICKET 0 0",
            "2 90000 2 0 TICKET 9000 0",
            "1 30000 3 2 TICKET 0 0",
            "1 30000 2 1 TICKET -1 0",
        ],
    ),
    (
        "semaphore/release",
        OF_THREE,
        SEMAPHORE,
        &["1 TICKET 1", "2 TICKET 2"],
    ),
];

#[test]
fn an_accepted_candidate_changes_nothing_else() {
    let all = all();
    for (name, keys, fields, calls) in SCRIPTS {
        let plain = &all[name];
        // An acquisition also has the window, where 0 accepts any candidate.
        let (fenced, candidate) = match all.get(&*format!("{name}_fenced")) {
            Some(release) => (release, "1700000000000001"),
            None => (plain, "1700000000000001 0"),
        };
        let keys_of_fenced = [keys, &[COUNTER]].concat();
        // Some of the hashes: all of them take a minute.
        for hash in hashes(fields).step_by(13) {
            for queue in ["none", "waiters", "readers"] {
                for call in calls {
                    let expected = outcome(plain, (keys, *call), keyspace(&hash, queue));
                    let call = format!("{call} {candidate}");
                    let found = (&keys_of_fenced[..], &*call);
                    let found = outcome(fenced, found, keyspace(&hash, queue));
                    assert_eq!(found, expected, "{name} {call}, {hash:?}, queue: {queue}");
                }
            }
        }
    }
}
