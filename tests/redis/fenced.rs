//! Fencing tokens on real masters.

use crate::common::*;

/// The script writes the lock before it checks the candidate. If the check fails, the script must
/// remove the lock itself, because the client may be gone.
#[test]
fn a_user_without_the_right_to_read_the_time_leaves_no_lock() {
    const ACQUIRE: &str = concat!(
        include_str!("../../lua/shared/ballot.lua"),
        include_str!("../../lua/mutex/acquire.lua")
    );
    with_masters(1, async |masters| {
        let master = &masters[0];
        master.command(&["ACL", "SETUSER", "default", "-time"]);
        let (now, window) = ("1770000000000000", "1000000");
        let acquire = [
            "EVAL",
            ACQUIRE,
            "2",
            "r",
            "quorlock:fence:{r}",
            "token",
            "10000",
            now,
            window,
        ];
        let refused = master.command(&acquire);
        assert!(
            refused.contains("this command") || refused.contains("'time'"),
            "{refused}"
        );
        assert_no_keys(&masters);
    });
}

/// The script that checks tokens in Redis, as shown in `docs/fencing.md`.
#[test]
fn the_script_in_the_docs_compares_numbers_and_refuses_stale_tokens() {
    const SCRIPT: &str = include_str!("../../examples/stale_writer.lua");
    assert!(include_str!("../../docs/fencing.md").contains(SCRIPT));
    with_masters(3, async |masters| {
        let store = Server::start();
        let access = |token: u64, value: &[&str]| {
            let token = token.to_string();
            let mut words = vec!["EVAL", SCRIPT, "2", "account", "account:fence", &token];
            words.extend(value);
            store.command(&words)
        };
        let locks = coordinator(patient(), &masters);
        let lock = locks.mutex("r").fenced();
        let first = lock.acquire().await.unwrap();
        let late = u64::from(first.token());
        assert_eq!(access(late, &["100"]), "100");
        first.release().await.unwrap();
        let second = lock.acquire().await.unwrap();
        let token = u64::from(second.token());
        assert_eq!(access(token, &[]), "100");
        for value in [&[][..], &["110"][..]] {
            let refused = access(late, value);
            assert!(refused.starts_with("STALE token"), "{refused}");
        }
        assert_eq!(access(token, &["105"]), "105");
        assert_eq!(store.command(&["GET", "account:fence"]), token.to_string());

        // If the script compared strings, each of these results would be the opposite.
        store.command(&["SET", "account:fence", "9"]);
        assert_eq!(access(10, &["1"]), "1");
        assert!(access(9, &["2"]).starts_with("STALE"));
        assert_eq!(access((1 << 53) - 1, &["3"]), "3");
        assert!(access((1 << 53) - 2, &["4"]).starts_with("STALE"));
        second.release().await.unwrap();
        locks.close().await;
    });
}
