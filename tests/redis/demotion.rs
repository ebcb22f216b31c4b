//! Masters that are made replicas, and masters again, without a restart. If they may have lost
//! locks, they have no vote until those locks have expired.

use std::time::Duration;

use quorlock::{Builder, Coordinator, Quarantine, Reason, Renewal};
use tokio::time::sleep;

use crate::{
    common::*,
    quarantine::{connected, copy_once, is_copy, quarantining},
};

/// The longest TTL in these tests. A demotion takes less time.
const TTL: Duration = Duration::from_secs(5);

fn builder(quarantine: Quarantine) -> Builder {
    // Without the quarantine, the second holder may come late on a busy machine.
    let ttl = if quarantine == Quarantine::Off {
        LONG
    } else {
        TTL
    };
    quarantining(quarantine)
        .max_ttl(ttl)
        .ttl(ttl)
        .renewal(Renewal::Off)
}

/// Runs `test` on `n` servers of each version whose program is there.
fn on_versions(n: usize, test: impl AsyncFn(&str, Vec<Server>)) {
    for version in ["redis-6.2", "redis-7.0", "redis-8.6", "valkey-9.1"] {
        let Some(program) = server::version(version) else {
            continue;
        };
        let mut options = vec!["--repl-diskless-sync-delay", "0"];
        if version != "redis-6.2" {
            options.extend(["--enable-debug-command", "yes"]); // 6.2 always allows it
        }
        let start = || Server::start_program(Some(&program), &options, &[]);
        run(test(version, (0..n).map(|_| start()).collect()));
    }
}

/// Makes `replica` a replica of `master`, and waits until it has the data.
async fn attach(replica: &Server, master: &Server) {
    let port = master.port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]);
    until("a copy", async || is_copy(replica)).await;
}

/// What happens to the master `a`, without a restart. The server `b` is no master.
#[derive(Clone, Copy, Debug)]
enum Event {
    AttachedReplica,
    BackgroundSave,
    FailoverAndBack,
    FirstReplica,
    Flush,
    FullSync,
    PlainReconnect,
    PromotedMaster,
    Reload,
    ReplicaOfItself,
}

impl Event {
    /// Whether the next dial must count the master as one that may have lost locks.
    const ALL: [(Self, bool); 10] = [
        (Self::AttachedReplica, true),
        (Self::BackgroundSave, false),
        (Self::FailoverAndBack, true),
        (Self::FirstReplica, true), // costs no lock, but its sign looks like that of a promotion
        (Self::Flush, true),
        (Self::FullSync, true),
        (Self::PlainReconnect, false),
        (Self::PromotedMaster, false),
        (Self::Reload, false),
        (Self::ReplicaOfItself, true),
    ];

    async fn happen(self, a: &Server, b: &Server) {
        let is_ok = |words: &[&str]| assert_eq!(a.command(words), "OK", "{self:?}");
        let promote = |server: &Server| {
            server.command(&["REPLICAOF", "NO", "ONE"]);
        };
        match self {
            // `b` is attached already.
            Self::AttachedReplica => {
                is_ok(&["REPLICAOF", "127.0.0.1", &b.port().to_string()]);
                sleep(millis(300)).await;
                promote(a);
            }
            Self::BackgroundSave => {
                a.command(&["BGSAVE"]);
                until("a snapshot", async || {
                    let info = a.command(&["INFO", "persistence"]);
                    let is_saved = info.contains("rdb_bgsave_in_progress:0")
                        && !info.contains("rdb_last_bgsave_time_sec:-1");
                    is_saved.then_some(())
                })
                .await;
            }
            // `b` is attached already, so both can go on where the other one stopped.
            Self::FailoverAndBack => {
                until("a replica that has all writes", async || {
                    let offset = |server: &Server, field: &str| {
                        let info = server.command(&["INFO", "replication"]);
                        let mut lines = info.lines();
                        lines.find_map(|line| line.strip_prefix(field).map(str::to_owned))
                    };
                    let all = offset(a, "master_repl_offset:");
                    (all == offset(b, "slave_repl_offset:")).then_some(())
                })
                .await;
                promote(b);
                attach(a, b).await;
                let stats = b.command(&["INFO", "stats"]);
                assert!(stats.contains("sync_partial_ok:1"), "{stats}");
                promote(a);
            }
            Self::FirstReplica => attach(b, a).await,
            Self::Flush => is_ok(&["FLUSHALL"]),
            Self::FullSync => copy_once(a, b).await,
            Self::PlainReconnect => {}
            Self::PromotedMaster => promote(a),
            Self::Reload => is_ok(&["DEBUG", "RELOAD"]),
            Self::ReplicaOfItself => {
                is_ok(&["REPLICAOF", "127.0.0.1", &a.port().to_string()]);
                sleep(millis(300)).await;
                promote(a);
            }
        }
    }
}

/// Returns whether the only master of `locks` has no vote because it may have lost locks.
async fn is_quarantined(locks: &Coordinator) -> bool {
    until("an answer", async || {
        match locks.mutex("r").try_acquire().await {
            Ok(guard) => {
                guard.release().await.unwrap();
                Some(false)
            }
            Err(error) if matches!(error.reason(), Reason::Quarantined { .. }) => Some(true),
            Err(_) => None,
        }
    })
    .await
}

#[test]
fn a_new_replication_id_is_a_quarantine_and_other_events_are_none() {
    on_versions(2 * Event::ALL.len(), async |version, servers| {
        for ((event, is_loss), pair) in Event::ALL.into_iter().zip(servers.chunks(2)) {
            let (a, b) = (&pair[0], &pair[1]);
            if matches!(event, Event::AttachedReplica | Event::FailoverAndBack) {
                attach(b, a).await;
            }
            let urls = [a.url()];
            let before = connected(builder(Quarantine::Observed), &urls).await;
            event.happen(a, b).await;
            let after = builder(Quarantine::Observed).masters(&urls);
            let is_quarantined = is_quarantined(&after.build().unwrap()).await;
            assert_eq!(is_quarantined, is_loss, "{version} {event:?}");
            drop(before);
        }
    });
}
