//! The commands of fenced locks. If the candidate for the fencing token is accepted, they must do
//! what the commands of other locks do.

use super::{
    common_cases::{COUNTER, Calls, calls, hashes, keyspace, outcome},
    *,
};

#[test]
fn an_accepted_candidate_changes_nothing_else() {
    let all = all();
    for Calls {
        name,
        keys,
        hash,
        calls,
    } in calls(include_str!("fenced.txt"))
    {
        let plain = &all[name];
        // An acquisition also has the window, where 0 accepts any candidate.
        let (fenced, candidate) = match all.get(&*format!("{name}_fenced")) {
            Some(release) => (release, "1700000000000001"),
            None => (plain, "1700000000000001 0"),
        };
        let keys_of_fenced = [&keys[..], &[COUNTER]].concat();
        // Some of the hashes: all of them take a minute.
        for hash in hashes(hash).step_by(13) {
            for queue in ["none", "waiters", "readers"] {
                for call in &calls {
                    let expected = outcome(plain, (&keys, call), keyspace(&hash, queue));
                    let call = format!("{call} {candidate}");
                    let found = (&keys_of_fenced[..], &*call);
                    let found = outcome(fenced, found, keyspace(&hash, queue));
                    assert_eq!(found, expected, "{name} {call}, {hash:?}, queue: {queue}");
                }
            }
        }
    }
}
