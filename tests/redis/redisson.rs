//! Redisson's plain lock on the same masters. Redisson's clients and our reentrant locks exclude
//! each other, read each other's hold counts, and wake each other's waiters.
//!
//! The tests imitate Redisson's commands. Redisson's lock is a hash, and its field `UUID:thread`
//! counts the levels. When the last level is gone, Redisson publishes `0` on the lock's channel. A
//! `RedissonRedLock` has one client for every master, and each client has its own UUID.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use quorlock::{AcquireError, Contention, ExtendError, Kind, Refusal, Vote};

use crate::common::*;

const LOCK: &str = "
    local mine = redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1
    if not mine and redis.call('EXISTS', KEYS[1]) == 1 then
        return redis.call('PTTL', KEYS[1])
    end
    redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    return false";

/// The write lock of Redisson's read-write lock. It treats a hash without `mode` as a free lock.
const WRITE_LOCK: &str = "
    local mode = redis.call('HGET', KEYS[1], 'mode')
    if mode == false then
        redis.call('HSET', KEYS[1], 'mode', 'write')
        redis.call('HSET', KEYS[1], ARGV[2], 1)
        redis.call('PEXPIRE', KEYS[1], ARGV[1])
        return false
    end
    if mode == 'write' and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
        redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
        return false
    end
    return redis.call('PTTL', KEYS[1])";

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
pub(crate) struct RedissonClient<'a> {
    pub(crate) master: &'a Server,
    owner: String,
    name: &'a str,
}

impl<'a> RedissonClient<'a> {
    /// Returns a client for each of `masters`.
    pub(crate) fn on(masters: &'a [Server], name: &'a str) -> Vec<Self> {
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

    pub(crate) fn write_lock(&self) -> String {
        self.eval(WRITE_LOCK)
    }

    fn unlock(&self) -> String {
        self.eval(UNLOCK)
    }

    pub(crate) fn eval(&self, script: &str) -> String {
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

/// A Redisson waiter that listens to one master.
struct RedissonWaiter(BufReader<TcpStream>);

impl RedissonWaiter {
    fn on(master: &Server, name: &str) -> Self {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, master.port())).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT / 8)).unwrap();
        let channel = channel(name);
        write!(
            stream,
            "*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{channel}\r\n",
            channel.len()
        )
        .unwrap();
        let mut waiter = Self(BufReader::new(stream));
        // The answer is an array of three elements. The length comes before each element except the
        // last one, which is a count.
        assert_eq!(
            waiter.lines(6),
            [
                "*3",
                "$9",
                "subscribe",
                &format!("${}", channel.len()),
                &channel,
                ":1"
            ]
        );
        waiter
    }

    /// Returns the next message.
    fn message(&mut self) -> String {
        self.lines(7).pop().unwrap()
    }

    fn lines(&mut self, count: usize) -> Vec<String> {
        let line = |_| {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        (0..count).map(line).collect()
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
            let lock = locks.reentrant(name, &locks.owner());
            let holder = lock.inspect().await.unwrap().holders.remove(0);
            assert_eq!((holder.kind, holder.owner), (Some(Kind::Reentrant), None));
            assert_eq!(holder.depth, 2);
            let left = holder.remaining.unwrap();
            assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60));
            assert!(lock.is_held().await.unwrap());
            for depth in [2, 1] {
                let refused = lock.try_acquire().await;
                let Err(AcquireError::Contended {
                    reason:
                        Contention::Held {
                            remaining: Some(remaining),
                        },
                    votes,
                    ..
                }) = refused
                else {
                    panic!("{refused:?}");
                };
                assert!(remaining > Duration::from_secs(50), "{remaining:?}");
                assert!(remaining <= Duration::from_secs(60), "{remaining:?}");
                for (master, client) in theirs.iter().enumerate() {
                    let Some(Vote::Refuse(Refusal::Held(report))) = row(&votes, master).vote()
                    else {
                        panic!("{votes}");
                    };
                    assert!(report.owners().eq([&*client.owner]));
                    assert_eq!(report.depth(), depth);
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
        let owner = locks.owner();
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

#[test]
fn redissons_lock_on_a_minority_is_no_obstacle_and_stays_untouched() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let owner = locks.owner();
        let theirs = RedissonClient::on(&masters[..1], "r");
        assert_eq!(theirs[0].lock(), "(nil)");
        let lock = locks.reentrant("r", &owner);
        let outer = lock.acquire_within(TEST_TIMEOUT / 4).await.unwrap();
        let inner = lock.acquire_within(TEST_TIMEOUT / 4).await.unwrap();
        inner.extend(LONG).await.unwrap();
        let votes = inner.settled().await;
        assert_eq!(
            (votes.granted_count(), votes.refused_count()),
            (2, 1),
            "{votes}"
        );
        inner.release().await.unwrap();
        outer.release().await.unwrap();
        locks.close().await;
        let theirs = format!("{}\n1", theirs[0].owner);
        assert_eq!(masters[0].command(&["HGETALL", "r"]), theirs);
        assert!(pttl(&masters[0], "r") <= 60_000); // an extension changes only its own key
        assert_no_keys(&masters[1..]);
    });
}

#[test]
fn only_our_last_release_wakes_redissons_waiters_on_every_master() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let owner = locks.owner();
        for name in NAMES {
            let lock = locks.reentrant(name, &owner);
            let outer = acquire_on_all(&lock).await;
            let inner = acquire_on_all(&lock).await;
            let waiters = masters
                .iter()
                .map(|master| RedissonWaiter::on(master, name));
            let mut waiters: Vec<_> = waiters.collect();
            inner.release().await.unwrap();
            for (master, waiter) in masters.iter().zip(&mut waiters) {
                until("one level less", async || {
                    (master.command(&["HGET", name, owner.id()]) == "1").then_some(())
                })
                .await;
                master.command(&["PUBLISH", &channel(name), "7"]);
                assert_eq!(waiter.message(), "7", "the first message");
            }
            outer.release().await.unwrap();
            for waiter in &mut waiters {
                assert_eq!(waiter.message(), "0");
            }
        }
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// A Redisson waiter may have tried a master while that master had the key of a lost round. The
/// waiter then waits for a message from that master, and keeps its keys on the other masters.
#[test]
fn a_lost_round_wakes_redissons_waiters_only_where_it_gave_a_key_back() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        for name in NAMES {
            let theirs = RedissonClient::on(&masters[..3], name);
            for client in &theirs {
                assert_eq!(client.lock(), "(nil)");
            }
            let waiters = masters
                .iter()
                .map(|master| RedissonWaiter::on(master, name));
            let mut waiters: Vec<_> = waiters.collect();
            let refused = locks.reentrant(name, &locks.owner()).try_acquire().await;
            assert!(refused.is_err());
            for waiter in &mut waiters[3..] {
                let message = waiter.message();
                // Redisson compares the message as a number.
                assert_eq!(message.parse::<i64>(), Ok(0), "{message}");
            }
            for (master, waiter) in masters.iter().zip(&mut waiters) {
                master.command(&["PUBLISH", &channel(name), "7"]);
                assert_eq!(waiter.message(), "7");
            }
            for client in &theirs {
                assert_eq!(client.unlock(), "1");
            }
        }
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// `forceUnlock` deletes the key and announces the deletion. Any other client may do the same.
#[test]
fn a_forced_unlock_by_redisson_is_a_lost_lock() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let owner = locks.owner();
        let lock = locks.reentrant("r", &owner);
        let (outer, inner) = (acquire_on_all(&lock).await, acquire_on_all(&lock).await);
        for master in &masters {
            assert_eq!(master.command(&["DEL", "r"]), "1");
            master.command(&["PUBLISH", &channel("r"), "0"]);
        }
        let theirs = RedissonClient::on(&masters, "r");
        for client in &theirs {
            assert_eq!(client.lock(), "(nil)");
        }
        let lost = inner.extend(LONG).await.unwrap_err();
        assert!(matches!(lost, ExtendError::Lost { .. }), "{lost}");
        assert!(!outer.is_valid());
        drop((outer, inner));
        close_at_once(&locks).await;
        for (master, client) in masters.iter().zip(&theirs) {
            let held = format!("{}\n1", client.owner);
            assert_eq!(master.command(&["HGETALL", "r"]), held);
        }
    });
}

#[test]
fn redissons_read_write_lock_does_not_take_our_lock() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let owner = locks.owner();
        for (lock, name) in [
            (locks.reentrant("r", &owner), "r"),
            (locks.fair("f", &owner), "f"),
        ] {
            let guard = acquire_on_all(&lock).await;
            for client in RedissonClient::on(&masters, name) {
                let left: u64 = client.write_lock().parse().unwrap();
                assert!(left > 500_000 && left <= 600_000, "{left}");
            }
            guard.extend(LONG).await.unwrap();
            guard.release().await.unwrap();
            until_released(&masters, name).await;
            for client in RedissonClient::on(&masters, name) {
                assert_eq!(client.write_lock(), "(nil)");
            }
            let refused = lock.try_acquire().await.unwrap_err();
            assert!(
                matches!(refused, AcquireError::OtherKind { .. }),
                "{refused}"
            );
        }
    });
}

/// Redisson's `getMultiLock(name, values)` writes into any hash with that name.
#[test]
fn a_lock_that_redisson_has_written_into_is_lost_and_its_fields_stay() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let owner = locks.owner();
        for (lock, name) in [
            (locks.reentrant("r", &owner), "r"),
            (locks.fair("f", &owner), "f"),
        ] {
            let guard = acquire_on_all(&lock).await;
            for master in &masters {
                master.command(&["HSET", name, "value", "theirs"]);
            }
            let lost = guard.extend(LONG).await.unwrap_err();
            assert!(matches!(lost, ExtendError::Lost { .. }), "{lost}");
            assert!(!guard.is_valid());
            guard.release().await.unwrap();
            for master in &masters {
                until("only Redisson's field", async || {
                    (master.command(&["HGETALL", name]) == "value\ntheirs").then_some(())
                })
                .await;
            }
        }
        close_at_once(&locks).await;
    });
}

/// Redisson's plain lock has no queue, so a fair lock would not see the waiters of the plain lock.
/// The fair lock reports another kind instead.
#[test]
fn redissons_plain_lock_and_our_fair_lock_do_not_mix() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let owner = locks.owner();
        for client in RedissonClient::on(&masters, "theirs") {
            assert_eq!(client.lock(), "(nil)");
        }
        let refused = locks.fair("theirs", &owner).acquire().await.unwrap_err();
        assert!(
            matches!(refused, AcquireError::OtherKind { .. }),
            "{refused}"
        );

        let _guard = acquire_on_all(&locks.fair("ours", &owner)).await;
        for client in RedissonClient::on(&masters, "ours") {
            let left: u64 = client.lock().parse().unwrap();
            assert!(left > 500_000);
        }
    });
}
