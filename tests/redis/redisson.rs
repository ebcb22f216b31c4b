//! Redisson's plain lock on the same masters. Redisson's clients and our reentrant locks exclude
//! each other, and read each other's hold counts. The rows of `tests/conformance` have the messages
//! to its waiters, and its other locks under the names of ours.
//!
//! The tests imitate Redisson's commands. Redisson's lock is a hash, and its field `UUID:thread`
//! counts the levels. When the last level is gone, Redisson publishes `0` on the lock's channel. A
//! `RedissonRedLock` has one client for every master, and each client has its own UUID.

use std::time::Duration;

use quorlock::{
    LockKind, Reason,
    votes::{Refusal, Vote},
};

use crate::common::*;

const LOCK: &str = "
    local mine = redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1
    if not mine and redis.call('EXISTS', KEYS[1]) == 1 then
        return redis.call('PTTL', KEYS[1])
    end
    redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    return false";

const UNLOCK: &str = "
    if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
        return false
    end
    if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then
        redis.call('PEXPIRE', KEYS[1], ARGV[1])
        return 0
    end
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', KEYS[2], '0')
    return 1";

/// A thread of a Redisson client. The client is connected to one master.
struct RedissonClient<'a> {
    master: &'a Server,
    owner: String,
    name: &'a str,
}

impl<'a> RedissonClient<'a> {
    /// Returns a client for each of `masters`.
    fn on(masters: &'a [Server], name: &'a str) -> Vec<Self> {
        let client = |(number, master)| Self {
            master,
            owner: format!("6e3814a1-e847-452b-a982-45baf93a1df{number}:17"),
            name,
        };
        masters.iter().enumerate().map(client).collect()
    }

    fn lock(&self) -> String {
        self.eval(LOCK)
    }

    fn unlock(&self) -> String {
        self.eval(UNLOCK)
    }

    fn eval(&self, script: &str) -> String {
        let channel = channel(self.name);
        let keys = ["EVAL", script, "2", self.name, &channel];
        self.master
            .command(&[&keys[..], &["60000", &self.owner]].concat())
    }

    /// Returns how many levels `owner` holds. Reads the number in the same way as Redisson.
    fn hold_count(&self, owner: &str) -> String {
        self.master.command(&["HGET", self.name, owner])
    }
}

fn channel(name: &str) -> String {
    if name.contains('{') {
        format!("redisson_lock__channel:{name}")
    } else {
        format!("redisson_lock__channel:{{{name}}}")
    }
}

const NAMES: [&str; 3] = ["r", "{orders}:42", "a name: 7"];

#[test]
fn redissons_lock_on_a_majority_excludes_ours_until_its_last_unlock() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        for name in NAMES {
            let theirs = RedissonClient::on(&masters[..2], name);
            for client in &theirs {
                assert_eq!(client.lock(), "(nil)");
                assert_eq!(client.lock(), "(nil)");
            }
            let lock = locks.reentrant(name, &locks.new_owner());
            let holder = lock.inspect().await.unwrap().holders.remove(0);
            assert_eq!(
                (holder.kind, holder.owner),
                (Some(LockKind::Reentrant), None)
            );
            assert_eq!(holder.depth, 2);
            let left = holder.remaining.unwrap();
            assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60));
            assert!(lock.is_held().await.unwrap());
            for depth in [2, 1] {
                let refused = lock.try_acquire().await;
                let refused = refused.unwrap_err();
                let Reason::Held {
                    remaining: Some(remaining),
                    ..
                } = refused.reason()
                else {
                    panic!("{refused:?}");
                };
                assert!(*remaining > Duration::from_secs(50), "{remaining:?}");
                assert!(*remaining <= Duration::from_secs(60), "{remaining:?}");
                let votes = refused.votes().unwrap();
                for (master, client) in theirs.iter().enumerate() {
                    let Some(Vote::Refuse(Refusal::Held {
                        owners,
                        depth: held,
                        ..
                    })) = row(votes, master).vote
                    else {
                        panic!("{votes}");
                    };
                    assert_eq!(*owners, [&*client.owner]);
                    assert_eq!(*held, depth);
                    client.unlock();
                }
            }
            assert!(!lock.is_held().await.unwrap());
            let guard = lock.try_acquire().await.unwrap();
            guard.release().await.unwrap();
        }
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn our_lock_excludes_redissons_until_the_last_guard_and_shows_its_depth() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let owner = locks.new_owner();
        for name in NAMES {
            let lock = locks.reentrant(name, &owner);
            let theirs = RedissonClient::on(&masters, name);
            let outer = acquire_on_all(&lock).await;
            let inner = acquire_on_all(&lock).await;
            for client in &theirs {
                assert_eq!(client.hold_count(owner.id()), "2");
                let left: u64 = client.lock().parse().unwrap();
                assert!(left > 500_000 && left <= 600_000, "{left}");
                assert_eq!(client.unlock(), "(nil)"); // the Redisson client does not own this lock
            }
            outer.release().await.unwrap();
            for (client, master) in theirs.iter().zip(&masters) {
                until("one level less", async || {
                    (client.hold_count(owner.id()) == "1").then_some(())
                })
                .await;
                assert_ne!(client.lock(), "(nil)");
                assert!(pttl(master, name) > 500_000);
            }
            inner.release().await.unwrap();
            until_released(&masters, name).await;
            for client in &theirs {
                assert_eq!(client.lock(), "(nil)");
                assert_eq!(client.unlock(), "1");
            }
        }
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}
