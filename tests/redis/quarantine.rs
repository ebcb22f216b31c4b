//! Masters that forgot locks. They have no vote until those locks have expired. The servers of
//! these tests really lose data.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use quorlock::{
    AcquireError, Builder, Coordinator, DialRefusal, Failure, Kind, Lock, Owner, Quarantine,
    Renewal, Votes,
};
use testkit::{captured_log::CapturedLog, proxy::Proxy};
use tokio::join;
use tracing::Level;

use crate::common::*;

/// The longest TTL in these tests.
const TTL: Duration = Duration::from_millis(1_500);
/// The shortest quarantine for any TTL, less the rounding of the masters' clocks.
const QUARANTINE: Duration = Duration::from_millis(2_995);
pub(crate) const KEY: &str = "quorlock:guard";
pub(crate) fn quarantining(quarantine: Quarantine) -> Builder {
    patient()
        .quarantine(quarantine)
        .node_timeout(TTL * 2 / 3)
        .max_ttl(TTL)
        .ttl(TTL)
}

pub(crate) fn lock(locks: &Coordinator, kind: Kind, name: &str, owner: &Owner) -> Lock {
    lock_of_kind(kind, &format!("{name} {kind:?}"), locks, owner)
}

/// Makes `masters` known to a client. From then on, the masters have a vote. For strict clients,
/// they have a vote after a quarantine.
///
/// Closes that client, because `release` returns as soon as a majority of masters have the release.
/// Without the close, the next client could ask the other masters before they get the release.
async fn make_known(masters: &[String]) {
    let locks = quarantining(Quarantine::Observed).masters(masters).build();
    let locks = locks.unwrap();
    acquire_on_all(&locks.mutex("r"))
        .await
        .release()
        .await
        .unwrap();
    locks.close().await;
}

/// Returns a coordinator that is connected to all `masters`, which have votes.
pub(crate) async fn connected(builder: Builder, masters: &[String]) -> Coordinator {
    let locks = builder.masters(masters).build().unwrap();
    let lock = locks.mutex("r");
    acquire_on_all(&lock).await.release().await.unwrap();
    // The inspection arrives after the release on all masters.
    until("an inspection of all masters", async || {
        let seen = lock.inspect().await.ok()?;
        (seen.votes.granted_count() == masters.len()).then_some(())
    })
    .await;
    locks
}

pub(crate) fn is_quarantined(votes: &Votes, master: usize) -> bool {
    matches!(
        row(votes, master).failure(),
        Some(Failure::Quarantined { .. })
    )
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// The master is killed, and it has saved nothing.
    Everything,
    /// The master is killed and loads a snapshot from before the lock.
    Snapshot,
    /// The master is killed and loads a log that ends just before the lock. A power cut has this
    /// effect with `appendfsync everysec`.
    Tail,
    /// `FLUSHALL`. No connection breaks.
    Flushed,
    /// A replica that has not received the lock takes over.
    Promoted,
}

/// Locks of every kind are held on bare majorities of `masters`. One master that belongs to all
/// these majorities forgets. Other clients then ask for the same locks with quarantine, and
/// for other locks without it.
async fn check_for_a_second_lock(mut masters: Vec<Server>, loss: Loss, quarantine: Quarantine) {
    let victim = masters.len() / 2;
    let others = victim + 1..;
    if loss == Loss::Tail {
        masters[victim] = Server::start_with(&["--appendonly", "yes"]);
    }
    let proxy = Proxy::delay_requests(masters[victim].port(), Duration::ZERO);
    let mut urls = urls(&masters);
    urls[victim] = proxy.url();
    make_known(&urls).await;
    let first = connected(quarantining(quarantine), &urls).await;
    let second = connected(quarantining(quarantine), &urls).await;
    let trusting = [
        connected(patient(), &urls).await,
        connected(patient(), &urls).await,
    ];
    let mut replica = (loss == Loss::Promoted).then(Server::start);
    match (&mut replica, loss) {
        (Some(replica), _) => {
            copy_once(replica, &masters[victim]).await;
        }
        (None, Loss::Snapshot) => assert_eq!(masters[victim].command(&["SAVE"]), "OK"),
        _ => {}
    }
    let logs = match loss {
        Loss::Tail => logs_with(&masters[victim], KEY).await,
        _ => Vec::new(),
    };

    let block = |command: fn(&str) -> Vec<&str>| {
        for master in &masters[others.clone()] {
            for kind in KINDS {
                for name in ["careful", "trusting"] {
                    let _ = master.command(&command(&format!("{name} {kind:?}")));
                }
            }
        }
    };
    block(|key| vec!["SET", key, "somebody's"]);
    let mut held = Vec::new();
    for kind in KINDS {
        let owner = trusting[0].owner();
        let lock = lock(&trusting[0], kind, "trusting", &owner);
        held.push(lock.try_acquire().await.unwrap());
    }
    let mut valid = Vec::new();
    for kind in KINDS {
        let lock = lock(&first, kind, "careful", &first.owner())
            .ttl(TTL)
            .renewal(Renewal::Off);
        valid.push(lock.try_acquire().await.unwrap());
    }
    for quarantine in held.iter().chain(&valid) {
        assert_eq!(quarantine.settled().await.granted_count(), victim + 1);
    }
    // A server with `appendfsync everysec` writes late while an fsync runs.
    until("a tail of the log", async || {
        let is_longer = |(log, length): &(PathBuf, u64)| length_of(log) > *length;
        logs.iter().all(is_longer).then_some(())
    })
    .await;
    block(|key| vec!["DEL", key]);
    let lost = Instant::now();
    match (&replica, loss) {
        (Some(replica), _) => {
            proxy.lead_to(replica.port());
            masters[victim].kill();
        }
        (None, Loss::Flushed) => {
            masters[victim].command(&["FLUSHALL"]);
        }
        _ => {
            masters[victim].kill();
            for (log, length) in &logs {
                let log = OpenOptions::new().write(true).open(log).unwrap();
                log.set_len(*length).unwrap();
            }
            masters[victim].restart();
        }
    }
    // Without the quarantine, a second lock is granted.
    let without = async {
        for (kind, first) in KINDS.into_iter().zip(&held) {
            let lock = lock(&trusting[1], kind, "trusting", &trusting[1].owner());
            let second = lock.acquire_within(TEST_TIMEOUT / 4).await.unwrap();
            assert!(first.is_valid() && second.is_valid(), "{loss:?} {kind:?}");
        }
    };
    let with = async {
        for (kind, first) in KINDS.into_iter().zip(&valid) {
            let lock = lock(&second, kind, "careful", &second.owner())
                .ttl(TTL)
                .renewal(Renewal::Off);
            let _second = lock.acquire_within(TEST_TIMEOUT / 4).await.unwrap();
            assert!(!first.is_valid(), "{loss:?} {quarantine:?} {kind:?}");
        }
        // The master has a vote again only at the end of the quarantine.
        drop(acquire_on_all(&second.mutex("r")).await);
        let took = lost.elapsed();
        assert!(took >= QUARANTINE, "{loss:?} {quarantine:?} {took:?}");
    };
    join!(without, with);
}

/// Returns the log files of `master` that contain `text`, with their lengths.
async fn logs_with(master: &Server, text: &str) -> Vec<(PathBuf, u64)> {
    let log = until("a log", async || {
        let files = [
            master.directory(),
            &master.directory().join("appendonlydir"),
        ]
        .map(fs::read_dir);
        let files = files.into_iter().flatten().flatten().flatten();
        files.map(|file| file.path()).find(|path| {
            let log = fs::read(path).unwrap_or_default();
            let is_log = path.extension().is_some_and(|extension| extension == "aof");
            is_log && log.windows(text.len()).any(|part| part == text.as_bytes())
        })
    })
    .await;
    let length = length_of(&log);
    vec![(log, length)]
}

fn length_of(file: &Path) -> u64 {
    fs::metadata(file).unwrap().len()
}

fn check_for_a_second_lock_on(masters: usize, loss: Loss) {
    with_masters(2 * masters, async |mut observed| {
        let strict = observed.split_off(masters);
        join!(
            check_for_a_second_lock(observed, loss, Quarantine::Observed),
            check_for_a_second_lock(strict, loss, Quarantine::Strict),
        );
    });
}

#[test]
fn no_second_lock_is_granted_by_a_master_that_restarted_empty() {
    check_for_a_second_lock_on(3, Loss::Everything);
}

#[test]
fn no_second_lock_is_granted_by_a_master_that_lost_unsaved_writes() {
    check_for_a_second_lock_on(3, Loss::Snapshot);
}

#[test]
fn no_second_lock_is_granted_by_a_master_that_lost_the_tail_of_its_log() {
    check_for_a_second_lock_on(3, Loss::Tail);
}

#[test]
fn no_second_lock_is_granted_by_a_master_that_was_flushed() {
    check_for_a_second_lock_on(3, Loss::Flushed);
}

#[test]
fn no_second_lock_is_granted_by_a_promoted_replica() {
    if server::is_mixed() {
        return;
    }
    check_for_a_second_lock_on(3, Loss::Promoted);
}

/// Makes `replica` copy `master` once. Then makes it independent again.
pub(crate) async fn copy_once(replica: &Server, master: &Server) {
    let port = master.port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]);
    until("a copy", async || is_copy(replica)).await;
    replica.command(&["REPLICAOF", "NO", "ONE"]);
}

pub(crate) fn is_copy(replica: &Server) -> Option<()> {
    let info = replica.command(&["INFO", "replication"]);
    info.contains("master_link_status:up").then_some(())
}

/// Each database of a server has its own origin key.
#[test]
fn another_database_does_not_count_as_a_master_that_forgot() {
    with_masters(3, async |masters| {
        for database in 0..2 {
            let urls = urls(&masters).into_iter();
            let urls: Vec<_> = urls.map(|url| format!("{url}/{database}")).collect();
            let locks = quarantining(Quarantine::Observed).masters(&urls).build();
            let guard = locks.unwrap().mutex("r").try_acquire().await.unwrap();
            let votes = guard.settled().await;
            assert_eq!(votes.granted_count(), 3, "{votes}");
        }
    });
}

#[test]
fn a_strict_client_refuses_a_user_without_the_rights_and_names_them() {
    with_masters(3, async |masters| {
        let mut urls = Vec::new();
        for master in &masters {
            let rules = ["on", ">pw", "~*", "&*", "+@all", "-info"];
            let words = [&["ACL", "SETUSER", "lock"], &rules[..]].concat();
            assert_eq!(master.command(&words), "OK");
            urls.push(format!("redis://lock:pw@127.0.0.1:{}", master.port()));
        }
        let strict = quarantining(Quarantine::Strict).masters(&urls).build();
        let strict = strict.unwrap();
        let refused = strict.mutex("r").try_acquire().await.unwrap_err();
        // Two refusals decide, and the third may come later.
        until("three refusals", async || {
            let asked = Some(DialRefusal::RestartQuestion);
            let mut health = strict.health().into_iter();
            health.all(|master| master.refusal == asked).then_some(())
        })
        .await;
        let text = refused.to_string();
        assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{text}");
        let rights = "+eval +info +time +hmget +hset ~quorlock:guard";
        assert!(text.contains(rights), "{text}");
        assert!(!text.contains("pw"), "{text}");

        let observed = connected(quarantining(Quarantine::Observed), &urls).await;
        let guard = observed.mutex("r").try_acquire().await.unwrap();
        assert_eq!(guard.settled().await.granted_count(), 3);
        assert_eq!(masters[0].command(&["EXISTS", KEY]), "0");
    });
}

/// Before the master votes, it must be checked, even if it has no room for the origin key at first.
#[test]
fn a_master_without_room_for_the_origin_key_is_asked_again() {
    with_masters(3, async |masters| {
        let full = &masters[0];
        assert_eq!(full.command(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
        let locks = quarantining(Quarantine::Observed).masters(urls(&masters));
        let locks = locks.build().unwrap();
        let lock = locks.mutex("r");
        until_votes(&lock, "no room", |votes| {
            row(votes, 0).failure().is_some() && votes.to_string().contains("OOM")
        })
        .await;
        assert_eq!(full.command(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
        until_votes(&lock, "three votes", |votes| votes.granted_count() == 3).await;
        assert_eq!(full.command(&["HGET", KEY, "since"]), "0");
    });
}

/// The client keeps the earlier origin of the master while the address leads to another master.
#[test]
fn a_duplicate_master_that_comes_back_empty_has_no_vote() {
    with_masters(3, async |mut masters| {
        let proxy = Proxy::delay_requests(masters[0].port(), Duration::ZERO);
        let mut urls = urls(&masters);
        urls[0] = proxy.url();
        let locks = connected(quarantining(Quarantine::Observed), &urls).await;
        proxy.lead_to(masters[1].port());
        masters[0].kill();
        let lock = locks.mutex("r");
        let same = format!("the same server as 127.0.0.1:{}", masters[1].port());
        until_votes(&lock, "a twin", |votes| votes.to_string().contains(&same)).await;
        masters[0].restart();
        proxy.lead_to(masters[0].port());
        let back = until_votes(&lock, "the master is back", |votes| {
            !is_unreachable(votes, 0)
        })
        .await;
        assert!(is_quarantined(&back, 0), "{back}");
    });
}

#[test]
fn a_warning_about_an_unguarded_master_is_logged_once_per_connection() {
    if server::only_urls() {
        return;
    }
    let master = Server::start();
    let rules = ["on", ">pw", "~*", "&*", "+@all", "-info"];
    let words = [&["ACL", "SETUSER", "lock"], &rules[..]].concat();
    assert_eq!(master.command(&words), "OK");
    let url = format!("redis://lock:pw@127.0.0.1:{}", master.port());
    let (said, _listening) = CapturedLog::listen();
    let warnings = |text: &str| {
        let lines = said.take();
        let is_it = |line: &&(Level, String)| line.0 == Level::WARN && line.1.contains(text);
        lines.iter().filter(is_it).count()
    };
    // The runtime runs in this thread, because the log is captured for each thread separately.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let locks = quarantining(Quarantine::Observed).master(&url);
        let locks = locks.build().unwrap();
        let lock = locks.mutex("r");
        for _ in 0..3 {
            acquire_on_all(&lock).await.release().await.unwrap();
        }
        assert_eq!(warnings("no client would notice"), 1);
        for _ in 0..2 {
            master.command(&["CLIENT", "KILL", "TYPE", "normal"]);
            until("the master is down", async || {
                let lines = said.take();
                // A second break soon after the first belongs to the same outage.
                let down = |line: &(Level, String)| line.1.contains(" down master=");
                lines.iter().any(down).then_some(())
            })
            .await;
            for _ in 0..3 {
                acquire_on_all(&lock).await.release().await.unwrap();
            }
            assert_eq!(warnings("no client would notice"), 1);
        }
    });
}

/// A malformed origin key counts as a missing key. A client that reads a malformed key counts as a
/// client that knew the master.
#[test]
fn a_malformed_origin_key_starts_a_quarantine_and_is_replaced() {
    with_masters(1, async |masters| {
        let master = &masters[0];
        let own = run_id(master);
        let info = master.command(&["INFO", "replication"]);
        let replid = info
            .lines()
            .find_map(|line| line.strip_prefix("master_replid:"));
        let replid = replid.unwrap().trim();
        let sound = [
            "HSET", KEY, "run_id", &own, "since", "0", "seen", "1", "replid", replid,
        ];
        let long = "9".repeat(400);
        let list = "redis.call('DEL', KEYS[1]) return redis.call('LPUSH', KEYS[1], 'run_id')";
        let mut garbled = vec![
            vec!["SET", KEY, "somebody's"],
            vec!["EVAL", list, "1", KEY],
            vec!["HSET", KEY, "run_id", ""],
            vec!["HSET", KEY, "run_id", "a b"],
            vec!["HSET", KEY, "since", &long],
            vec!["HSET", KEY, "seen", "0"],
        ];
        for field in ["since", "seen"] {
            let numbers = ["", "soon", "nan", "-5", "-0", "0.4", "0x10", "inf"];
            garbled.extend(numbers.map(|number| vec!["HSET", KEY, field, number]));
        }
        for field in ["run_id", "since", "seen", "replid"] {
            garbled.push(vec!["HDEL", KEY, field]);
        }
        for words in garbled {
            master.command(&["DEL", KEY]);
            master.command(&sound);
            assert!(!master.command(&words).contains("ERR"), "{words:?}");
            let locks = quarantining(Quarantine::Observed).masters(urls(&masters));
            let locks = locks.build().unwrap();
            let refused = locks.mutex("r").try_acquire().await.unwrap_err();
            assert!(
                matches!(&refused, AcquireError::Quarantined { remaining: left, .. } if *left + TTL > QUARANTINE),
                "{words:?}: {refused}"
            );
            let replaced = master.command(&["HGET", KEY, "run_id"]);
            assert_eq!(replaced, own, "{words:?}");
        }
    });
}

/// With `Observed`, a client uses a master even if the rights for the origin key are missing. This
/// error must not count as missing rights.
#[test]
fn a_master_whose_origin_key_cannot_be_replaced_is_not_used() {
    with_masters(1, async |masters| {
        let master = &masters[0];
        assert_eq!(master.command(&["SET", KEY, "somebody's"]), "OK");
        let rules = ["on", ">pw", "~*", "&*", "+@all", "-del"];
        let words = [&["ACL", "SETUSER", "lock"], &rules[..]].concat();
        assert_eq!(master.command(&words), "OK");
        let url = format!("redis://lock:pw@127.0.0.1:{}", master.port());
        let locks = quarantining(Quarantine::Observed).master(&url).build();
        let refused = locks.unwrap().mutex("r").try_acquire().await.unwrap_err();
        assert!(refused.to_string().contains("of another type"), "{refused}");
    });
}

fn run_id(master: &Server) -> String {
    let info = master.command(&["INFO", "server"]);
    let own = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    own.unwrap().trim().to_owned()
}
