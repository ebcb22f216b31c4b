//! Keys of other clients under our lock's name, on some masters or on all.

use std::time::Duration;

use quorlock::{AcquireError, Contention, ExtendError, Kind, Refusal, Vote};

use crate::common::*;

#[test]
fn a_minority_of_grants_is_given_back() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        for master in &masters[..3] {
            assert_eq!(master.command(&["SET", "r", "theirs", "PX", "60000"]), "OK");
        }
        let refused = locks.mutex("r").try_acquire().await;
        let Err(AcquireError::Contended {
            reason: Contention::Held {
                remaining: Some(remaining),
            },
            votes,
            ..
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert!(remaining > Duration::from_secs(50) && remaining <= Duration::from_secs(60));
        assert_eq!(votes.refused_count(), 3, "{votes}");

        locks.close().await;
        for master in &masters[..3] {
            assert_eq!(master.command(&["GET", "r"]), "theirs");
        }
        assert_no_keys(&masters[3..]);
    });
}

#[test]
fn a_split_vote_is_contention_that_may_end_now() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        for (master, who) in masters.iter().zip(["them", "them", "others", "others"]) {
            assert_eq!(master.command(&["SET", "r", who, "PX", "60000"]), "OK");
        }
        let refused = locks.mutex("r").try_acquire().await.unwrap_err();
        assert!(matches!(&refused, AcquireError::Contended { .. }));
        for master in &masters[..2] {
            master.command(&["DEL", "r"]);
        }
        // Three masters are free now. The key on the two others must not count.
        let guard = locks.mutex("r").acquire_within(TEST_TIMEOUT).await.unwrap();
        let votes = guard.settled().await;
        assert_eq!((votes.granted_count(), votes.refused_count()), (3, 2));
        guard.release().await.unwrap();
        locks.close().await;
        assert_eq!(masters[2].command(&["GET", "r"]), "others");
        assert_eq!(masters[3].command(&["GET", "r"]), "others");
        assert_eq!(masters[4].command(&["DBSIZE"]), "0");
    });
}

#[test]
fn a_foreign_key_without_a_ttl_refuses_without_a_time() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        for master in &masters {
            assert_eq!(master.command(&["SET", "r", "theirs"]), "OK");
        }
        let refused = locks.mutex("r").try_acquire().await;
        assert!(matches!(
            refused,
            Err(AcquireError::Contended {
                reason: Contention::Held { remaining: None },
                ..
            })
        ));
        locks.close().await;
        for master in &masters {
            assert_eq!(master.command(&["GET", "r"]), "theirs");
            assert_eq!(pttl(master, "r"), -1);
        }
    });
}

/// The owner of another library may be any bytes.
#[test]
fn an_owner_that_is_not_utf_8_holds_its_lock() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        for (kind, write) in [
            (Kind::Mutex, r"return redis.call('SET', KEYS[1], 'th\255m')"),
            (
                Kind::Reentrant,
                r"return redis.call('HSET', KEYS[1], 'th\255m', 1)",
            ),
            (
                Kind::Fair,
                r"redis.call('ZADD', 'quorlock:queue:{r}', 0, '\254')
                return redis.call('HSET', KEYS[1], 'th\255m', 1, 'quorlock:fair', 1, 'mode', 'quorlock')",
            ),
        ] {
            let write = || {
                for master in &masters {
                    master.command(&["DEL", "r", "quorlock:queue:{r}"]);
                    master.command(&["EVAL", write, "1", "r"]);
                    master.command(&["PEXPIRE", "r", "60000"]);
                }
            };
            let shown = (kind != Kind::Mutex).then_some(r"th\xffm");
            let lock = lock_of_kind(kind, "r", &locks, &locks.owner());
            let guard = lock.try_acquire().await.unwrap();
            guard.settled().await;
            write();
            let lost = guard.extend(LONG).await;
            assert!(
                matches!(lost, Err(ExtendError::Lost { .. })),
                "{kind:?}: {lost:?}"
            );
            guard.release().await.unwrap();

            let Err(AcquireError::Contended { votes, .. }) = lock.try_acquire().await else {
                panic!("{kind:?} is held");
            };
            let is_shown = |vote: &Vote| matches!(vote, Vote::Refuse(Refusal::Held(report)) if report.owners().eq(shown));
            assert!(
                votes.iter().filter_map(|row| row.vote()).any(is_shown),
                "{votes}"
            );

            let seen = lock.inspect().await.unwrap();
            let holder = &seen.holders[0];
            assert_eq!((holder.kind, holder.owner.as_deref()), (Some(kind), shown));
            let votes = locks.break_held(&seen).await;
            assert_eq!(votes.granted_count(), 3, "{kind:?}: {votes}");
            assert!(!lock.is_held().await.unwrap());
        }
    });
}

#[test]
fn a_key_of_another_type_counts_as_another_clients_lock() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        for master in &masters {
            assert_eq!(master.command(&["HSET", "r", "owner", "1"]), "1");
        }
        let refused = locks.mutex("r").try_acquire().await.unwrap_err();
        assert!(
            matches!(&refused, AcquireError::OtherKind { .. }),
            "{refused}"
        );
        locks.close().await;
        for master in &masters {
            assert_eq!(master.command(&["HGETALL", "r"]), "owner\n1");
        }
    });
}

#[test]
fn a_lock_whose_key_became_another_type_is_lost() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        assert_eq!(guard.settled().await.granted_count(), 3);
        for master in &masters {
            master.command(&["DEL", "r"]);
            assert_eq!(master.command(&["HSET", "r", "owner", "1"]), "1");
        }
        let until = guard.valid_until();
        let lost = guard.extend(LONG).await;
        assert!(matches!(lost, Err(ExtendError::Lost { .. })), "{lost:?}");
        assert_eq!(guard.valid_until(), until);

        guard.release().await.unwrap();
        locks.close().await;
        for master in &masters {
            assert_eq!(master.command(&["HGETALL", "r"]), "owner\n1");
            assert_eq!(pttl(master, "r"), -1);
        }
    });
}

#[test]
fn a_lock_that_was_taken_over_is_lost() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        assert_eq!(guard.settled().await.granted_count(), 5);
        for master in &masters[..3] {
            master.command(&["SET", "r", "theirs", "PX", "60000"]);
        }
        let Err(ExtendError::Lost { votes, .. }) = guard.extend(LONG).await else {
            panic!("unexpected result");
        };
        assert_eq!((votes.granted_count(), votes.refused_count()), (2, 3));
        let Some(Vote::Refuse(Refusal::Held(report))) = row(&votes, 0).vote() else {
            panic!("{votes}");
        };
        assert!(report.remaining().is_some());
        guard.release().await.unwrap();
        locks.close().await;
        for master in &masters[..3] {
            assert_eq!(master.command(&["GET", "r"]), "theirs");
            assert!(pttl(master, "r") <= 60_000); // an extension changes only its own key
        }
        assert_no_keys(&masters[3..]);
    });
}

#[test]
fn a_lock_whose_key_is_gone_on_a_majority_is_lost_and_not_written_again() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        assert_eq!(guard.settled().await.granted_count(), 5);
        for master in &masters[..3] {
            assert_eq!(master.command(&["DEL", "r"]), "1");
        }
        let lost = guard.extend(LONG).await;
        assert!(matches!(lost, Err(ExtendError::Lost { .. })), "{lost:?}");
        assert_no_keys(&masters[..3]);
        guard.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn an_extension_heals_a_minority_that_lost_the_key() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        assert_eq!(guard.settled().await.granted_count(), 5);
        let token = masters[4].command(&["GET", "r"]);
        for master in &masters[..2] {
            assert_eq!(master.command(&["DEL", "r"]), "1");
        }
        guard.extend(LONG).await.unwrap();
        until("the healed masters in the votes", async || {
            (guard.votes().granted_count() == 5).then_some(())
        })
        .await;
        for master in &masters {
            assert_eq!(master.command(&["GET", "r"]), token);
            assert!(pttl(master, "r") > 0);
        }
        guard.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

/// The lock is won with three of five masters. Another client holds the other two, and they stay
/// unchanged.
#[test]
fn an_extension_does_not_take_a_minority_from_another() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        for master in &masters[..2] {
            master.command(&["SET", "r", "theirs", "PX", "60000"]);
        }
        let guard = locks.mutex("r").acquire_within(TEST_TIMEOUT).await.unwrap();
        guard.extend(LONG).await.unwrap();
        let votes = guard.settled().await;
        assert_eq!((votes.granted_count(), votes.refused_count()), (3, 2));
        guard.release().await.unwrap();
        locks.close().await;
        for master in &masters[..2] {
            assert_eq!(master.command(&["GET", "r"]), "theirs");
        }
        assert_no_keys(&masters[2..]);
    });
}
