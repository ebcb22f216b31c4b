//! Masters that forgot locks, or may have. They have no vote until those locks have expired.

use std::time::Duration;

use quorlock::{
    Builder, Coordinator, Quarantine, Reason,
    tools::DialRefusal,
    votes::{Failure, Votes},
};
use testkit::{captured_log::CapturedLog, proxy::Proxy};
use tracing::Level;

use crate::{common::*, idle::local_runtime};

/// The longest TTL in these tests.
const TTL: Duration = Duration::from_millis(1_500);
/// The shortest quarantine for any TTL, less the rounding of the masters' clocks.
const QUARANTINE: Duration = Duration::from_millis(2_995);

pub(crate) const KEY: &str = "quorlock:origin";
pub(crate) fn quarantining(quarantine: Quarantine) -> Builder {
    patient()
        .quarantine(quarantine)
        .response_timeout(TTL * 2 / 3)
        .max_ttl(TTL)
        .ttl(TTL)
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
            let votes = guard.all_votes().await;
            assert_eq!(votes.granted_count(), 3, "{votes}");
        }
    });
}

#[test]
fn a_strict_client_refuses_a_user_without_the_rights_and_names_them() {
    with_masters(3, async |masters| {
        let urls = masters.iter().map(|master| url_as_user(master, "-info"));
        let urls: Vec<_> = urls.collect();
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
        assert!(*refused.reason() == Reason::NoQuorum, "{text}");
        let rights = "+eval +info +time +hmget +hset ~quorlock:origin";
        assert!(text.contains(rights), "{text}");
        assert!(!text.contains("pw"), "{text}");

        let observed = connected(quarantining(Quarantine::Observed), &urls).await;
        let guard = observed.mutex("r").try_acquire().await.unwrap();
        assert_eq!(guard.all_votes().await.granted_count(), 3);
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
        let proxy = Proxy::delay(masters[0].port(), Duration::ZERO);
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
    let url = url_as_user(&master, "-info");
    let (said, _listening) = CapturedLog::listen();
    let warnings = || said.count(Level::WARN, "no client would notice");
    // The runtime runs in this thread, because the log is captured for each thread separately.
    local_runtime().block_on(async {
        let locks = quarantining(Quarantine::Observed).master(&url);
        let locks = locks.build().unwrap();
        let lock = locks.mutex("r");
        for _ in 0..3 {
            acquire_on_all(&lock).await.release().await.unwrap();
        }
        assert_eq!(warnings(), 1);
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
            assert_eq!(warnings(), 1);
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
                matches!(refused.reason(), Reason::Quarantined { remaining: left, .. } if *left + TTL > QUARANTINE),
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
        let url = url_as_user(master, "-del");
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
