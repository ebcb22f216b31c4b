//! Acquiring, extending and releasing locks, and their votes, without any faults.

use std::time::{Duration, Instant};

use quorlock::{AcquireError, ConfigError, Contention, Coordinator, ExtendError, Renewal, Vote};

use crate::common::*;

#[test]
fn a_lock_is_a_string_with_a_ttl_on_every_master() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        assert_eq!((locks.master_count(), locks.quorum()), (5, 3));
        let lock = locks
            .mutex("orders/42")
            .ttl(Duration::from_secs(60))
            .renewal(Renewal::Off);

        let before = Instant::now();
        let guard = lock.try_acquire().await.unwrap();
        let after = Instant::now();

        // The validity is 60 s less 1 % less 2 ms, counted from the start of the round.
        let usable = Duration::from_millis(60_000 - 600 - 2);
        assert!((before + usable..=after + usable).contains(&guard.valid_until()));
        assert!(guard.validity() <= usable);
        assert!(guard.validity() >= usable - (after - before));
        assert!(guard.is_valid());
        assert!(guard.remaining() <= guard.validity());
        assert_eq!(guard.name(), "orders/42");

        let votes = guard.settled().await;
        assert_eq!(
            (votes.granted_count(), votes.quorum(), votes.master_count()),
            (5, 3, 5)
        );
        for (row, master) in votes.iter().zip(&masters) {
            assert_eq!(row.vote(), Some(&Vote::Grant));
            assert_eq!(row.master(), format!("127.0.0.1:{}", master.port()));
            assert!(row.latency().is_some());
        }

        let token = masters[0].command(&["GET", "orders/42"]);
        assert_eq!(token.len(), 40);
        for master in &masters {
            assert_eq!(master.command(&["GET", "orders/42"]), token);
            assert!((50_000..=60_000).contains(&pttl(master, "orders/42")));
        }

        guard.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn an_extension_reaches_every_master_and_never_shortens_a_ttl() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        let lock = locks
            .mutex("r")
            .ttl(Duration::from_secs(10))
            .renewal(Renewal::Off);
        let guard = lock.try_acquire().await.unwrap();

        guard.extend(Duration::from_secs(60)).await.unwrap();
        assert!(guard.remaining() > Duration::from_secs(50));
        assert!(guard.validity() > Duration::from_secs(50));
        assert_eq!(guard.settled().await.granted_count(), 5);
        for master in &masters {
            assert!((50_000..=60_000).contains(&pttl(master, "r")));
        }

        let until = guard.valid_until();
        guard.extend(Duration::from_secs(20)).await.unwrap();
        assert_eq!(guard.valid_until(), until);
        assert_eq!(guard.settled().await.granted_count(), 5);
        for master in &masters {
            assert!(pttl(master, "r") > 40_000);
        }

        let refused = guard.extend(Duration::ZERO).await;
        assert!(matches!(
            refused,
            Err(ExtendError::Config(ConfigError::TtlTooShort { .. }))
        ));
        guard.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_second_contender_is_told_how_long_the_lock_is_held() {
    with_masters(3, async |masters| {
        let (ours, theirs) = (
            coordinator(patient(), &masters),
            coordinator(patient(), &masters),
        );
        let guard = ours
            .mutex("r")
            .ttl(Duration::from_secs(60))
            .renewal(Renewal::Off)
            .try_acquire()
            .await
            .unwrap();
        assert_eq!(guard.settled().await.granted_count(), 3);

        let refused = theirs.mutex("r").try_acquire().await;
        let Err(AcquireError::Contended {
            name,
            reason: Contention::Held {
                remaining: Some(remaining),
            },
            votes,
            ..
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!(&*name, "r");
        assert!(remaining > Duration::from_secs(50) && remaining <= Duration::from_secs(60));
        assert!(votes.refused_count() >= 2);

        guard.release().await.unwrap();
        drop(theirs.mutex("r").try_acquire().await.unwrap());
    });
}

#[test]
fn a_lock_that_is_not_extended_expires() {
    with_masters(3, async |masters| {
        let locks = coordinator(
            Coordinator::builder().node_timeout(Duration::from_millis(100)),
            &masters,
        );
        let lock = locks
            .mutex("r")
            .ttl(Duration::from_millis(300))
            .renewal(Renewal::Off);
        let guard = lock.acquire_within(TEST_TIMEOUT).await.unwrap();
        let next = lock.acquire_within(TEST_TIMEOUT).await.unwrap();
        // If the guard were still valid, two clients would hold the lock at once.
        assert!(!guard.is_valid());
        let expired = guard.extend(Duration::from_secs(1)).await;
        assert!(matches!(expired, Err(ExtendError::Expired { .. })));

        // The masters do not hold this guard's token any more. Its release must not take the next
        // holder's lock.
        guard.release().await.unwrap();
        next.extend(Duration::from_secs(1)).await.unwrap();
    });
}

#[test]
fn a_dropped_guard_is_released() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        drop(guard);
        locks.close().await;
        assert_no_keys(&masters);
        let closed = locks.mutex("r").try_acquire().await;
        assert!(matches!(closed, Err(AcquireError::Closed)));
    });
}

#[test]
fn a_guard_outlives_the_closing_of_its_coordinator() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        locks.close().await;
        drop(locks);
        guard.extend(LONG).await.unwrap();
        assert_eq!(guard.settled().await.granted_count(), 3);
        guard.release().await.unwrap();
        // The last handle is gone, so no call waits for the release.
        until("no keys", async || {
            masters
                .iter()
                .all(|master| master.command(&["DBSIZE"]) == "0")
                .then_some(())
        })
        .await;
    });
}

/// Each coordinator has a connection to each master. If a connection stays open after its
/// coordinator is gone, a task never ends.
#[test]
fn connections_end_with_their_coordinator() {
    with_masters(3, async |masters| {
        for _ in 0..100 {
            let locks = coordinator(patient(), &masters);
            // The release is posted, and the coordinator is dropped at once. So the release is sent
            // when no handle is left.
            drop(locks.mutex("r").acquire().await.unwrap());
        }
        until("only the test's own connections", async || {
            masters
                .iter()
                .all(|master| master.command(&["CLIENT", "LIST"]).lines().count() == 1)
                .then_some(())
        })
        .await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_lock_needs_a_majority_of_any_number_of_masters() {
    with_masters(4, async |masters| {
        for (n, needed) in [(1, 1), (2, 2), (4, 3)] {
            let locks = coordinator(patient(), &masters[..n]);
            assert_eq!(locks.quorum(), needed);
            let guard = locks.mutex("r").try_acquire().await.unwrap();
            assert_eq!(guard.settled().await.granted_count(), n);
            guard.release().await.unwrap();
            locks.close().await;
        }
        assert_no_keys(&masters);
    });
}

#[test]
fn locks_work_over_unix_sockets() {
    with_masters(3, async |masters| {
        let sockets = masters.iter().map(Server::unix_url);
        let locks = patient().masters(sockets).build().unwrap();
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        let votes = guard.settled().await;
        assert_eq!(votes.granted_count(), 3);
        let address = format!("unix:{}", masters[0].socket().display());
        assert_eq!(row(&votes, 0).master(), address);
        assert_eq!(masters[2].command(&["EXISTS", "r"]), "1");
        guard.extend(LONG).await.unwrap();
        guard.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn one_server_cannot_be_two_masters() {
    with_masters(2, async |masters| {
        let twice = [
            masters[0].url(),
            masters[1].url(),
            format!("redis://:other@127.0.0.1:{}/7", masters[0].port()),
        ];
        let refused = Coordinator::new(twice).map(drop);
        assert_eq!(
            refused,
            Err(ConfigError::DuplicateMaster {
                first: 1,
                second: 3,
                address: format!("127.0.0.1:{}", masters[0].port()),
            })
        );
    });
}
