//! Acquiring, extending and releasing locks, and their votes, without any faults.

use std::time::{Duration, Instant};

use quorlock::{Renewal, Vote};

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
