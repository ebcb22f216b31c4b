//! Passwords, users, databases, and existing clients.

use std::time::Duration;

use quorlock::{Coordinator, Owner, Reason};
use tokio::time::sleep;

use crate::common::*;

/// Characters that must be escaped in a URL, and some that confuse parsers.
const PASSWORD: &str = "p@ss/wo:rd%?#ü";
const IN_URL: &str = "p%40ss%2Fwo%3Ard%25%3F%23%C3%BC";

#[test]
fn a_password_a_user_and_a_database_can_be_given() {
    with_masters(1, async |mut masters| {
        let rules = format!(">{PASSWORD}");
        let added = masters[0].command(&["ACL", "SETUSER", "alice", "on", &rules, "~*", "+@all"]);
        assert_eq!(added, "OK");
        masters.push(Server::start_with(&["--requirepass", PASSWORD]));
        masters.push(Server::start_with(&["--requirepass", "plain"]));
        let [user, escaped, plain] = [0, 1, 2].map(|master| masters[master].port());

        let locks = patient()
            .master(format!("redis://alice:{IN_URL}@127.0.0.1:{user}/3"))
            .master(format!("redis://:{IN_URL}@127.0.0.1:{escaped}"))
            .master(format!("redis://:plain@127.0.0.1:{plain}"))
            .build()
            .unwrap();
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        let votes = guard.all_votes().await;
        assert_eq!(votes.granted_count(), 3, "{votes}");
        assert_eq!(keys_of_database(&masters[0], 0), 0);
        assert_eq!(keys_of_database(&masters[0], 3), 1);

        guard.extend(LONG).await.unwrap();
        assert_eq!(guard.all_votes().await.granted_count(), 3);
        guard.release().await.unwrap();
        locks.close().await;
        assert_eq!(keys_of_database(&masters[0], 3), 0);
        assert_no_keys(&masters);
    });
}

/// Without announcements of releases, waiters poll.
#[test]
fn a_user_without_the_right_to_publish_can_release_every_kind() {
    with_masters(3, async |masters| {
        let urls = masters.iter().map(|master| url_as_user(master, "-publish"));
        let locks = patient().masters(urls).build().unwrap();
        let (mine, yours) = (locks.new_owner(), locks.new_owner());
        for kind in [
            |locks: &Coordinator, _: &Owner| locks.mutex("m"),
            |locks: &Coordinator, owner: &Owner| locks.reentrant("r", owner),
            |locks: &Coordinator, owner: &Owner| locks.fair("f").owner(owner),
        ] {
            let held = acquire_on_all(&kind(&locks, &mine)).await;
            let next = kind(&locks, &yours);
            let waits = tokio::spawn(async move { next.acquire().await });
            sleep(Duration::from_millis(50)).await; // the waiter is in the queue by then
            held.release().await.unwrap();
            let next = waits.await.unwrap().unwrap();
            next.release().await.unwrap();
        }
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn the_login_and_the_database_of_a_url_are_used() {
    with_masters(3, async |masters| {
        masters[0].command(&["ACL", "SETUSER", "alice", "on", ">pw", "~*", "+@all"]);
        let urls = [
            format!("redis://alice:pw@127.0.0.1:{}/2", masters[0].port()),
            masters[1].url(),
            masters[2].unix_url(),
        ];
        let locks = patient().masters(urls).build().unwrap();
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        let votes = guard.all_votes().await;
        assert_eq!(votes.granted_count(), 3, "{votes}");
        assert_eq!(keys_of_database(&masters[0], 2), 1);
        guard.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_wrong_password_shows_in_the_votes_and_costs_no_lock() {
    with_masters(2, async |mut masters| {
        masters.push(Server::start_with(&["--requirepass", "right"]));
        let urls = |password: &str| {
            let mut urls = urls(&masters);
            urls[2] = format!("redis://{password}127.0.0.1:{}", masters[2].port());
            urls
        };
        for (password, reason) in [
            (":hunter2@", "WRONGPASS"),
            ("", "NOAUTH, no password was given"),
        ] {
            let locks = patient().masters(urls(password)).build().unwrap();
            let guard = locks.mutex("r").try_acquire().await.unwrap();
            let votes = guard.all_votes().await;
            assert_eq!(votes.granted_count(), 2);
            assert!(is_unreachable(&votes, 2), "{votes}");
            assert!(votes.to_string().contains(reason), "{votes}");
            assert!(!format!("{votes} {votes:?}").contains("hunter2"));
            guard.release().await.unwrap();
        }

        // If two of three masters refuse the password, the error is a missing quorum, and not
        // contention.
        let two_wrong = [
            masters[0].url(),
            format!("redis://:hunter2@127.0.0.1:{}", masters[2].port()),
            format!("redis://bob:hunter2@127.0.0.1:{}", masters[1].port()),
        ];
        let locks = patient().masters(two_wrong).build().unwrap();
        let refused = locks.mutex("r").try_acquire().await.unwrap_err();
        assert!(*refused.reason() == Reason::NoQuorum);
        let text = format!("{refused} {refused:?}");
        assert!(
            text.contains("WRONGPASS") && !text.contains("hunter2"),
            "{text}"
        );
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_corrected_password_is_noticed() {
    with_masters(0, async |_| {
        let master = Server::start_with(&["--requirepass", "old"]);
        let url = format!("redis://:new@127.0.0.1:{}", master.port());
        let locks = Coordinator::builder().master(url).build().unwrap();
        let lock = locks.mutex("r");
        assert!(lock.try_acquire().await.is_err());
        let changed = master.command(&["CONFIG", "SET", "requirepass", "new"]);
        assert_eq!(changed, "OK");
        drop(lock.acquire_within(TEST_TIMEOUT).await.unwrap());
    });
}

fn keys_of_database(master: &Server, database: u32) -> u64 {
    let script = format!("redis.call('SELECT', {database}); return redis.call('DBSIZE')");
    let size = master.command(&["EVAL", &script, "0"]);
    size.parse().unwrap_or_else(|_| panic!("{size}"))
}
