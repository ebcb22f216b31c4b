//! Keys of other clients under our lock's name, on some masters or on all.

use quorlock::{
    ExtendError, LockKind,
    votes::{Refusal, Vote},
};

use crate::common::*;

/// The owner of another library may be any bytes.
#[test]
fn an_owner_that_is_not_utf_8_holds_its_lock() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        for (kind, write) in [
            (
                LockKind::Mutex,
                r"return redis.call('SET', KEYS[1], 'th\255m')",
            ),
            (
                LockKind::Reentrant,
                r"return redis.call('HSET', KEYS[1], 'th\255m', 1)",
            ),
            (
                LockKind::Fair,
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
            let shown = (kind != LockKind::Mutex).then_some(r"th\xffm");
            let lock = locks.of_kind(kind, "r", &locks.new_owner());
            let guard = lock.try_acquire().await.unwrap();
            guard.all_votes().await;
            write();
            let lost = guard.extend(LONG).await;
            assert!(
                matches!(lost, Err(ExtendError::Lost(_))),
                "{kind:?}: {lost:?}"
            );
            guard.release().await.unwrap();

            let refused = lock.try_acquire().await.unwrap_err();
            assert!(refused.is_busy(), "{kind:?}: {refused}");
            let votes = refused.votes().unwrap();
            let is_shown = |vote: &Vote| matches!(vote, Vote::Refuse(Refusal::Held { owners, .. }) if owners.iter().eq(shown));
            assert!(
                votes.iter().filter_map(|row| row.vote).any(is_shown),
                "{votes}"
            );

            let seen = lock.inspect().await.unwrap();
            let holder = &seen.holders[0];
            assert_eq!((holder.kind, holder.owner.as_deref()), (Some(kind), shown));
            let votes = locks.break_held(&seen).await.unwrap();
            assert_eq!(votes.granted_count(), 3, "{kind:?}: {votes}");
            assert!(!lock.is_held().await.unwrap());
        }
    });
}
