//! Masters behind Sentinel.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::server::Server;

/// A master with a replica, and the Sentinels that watch it as `svc`.
pub struct Group {
    pub primary: Server,
    pub replica: Server,
    pub sentinels: Vec<Server>,
}

impl Group {
    /// Starts a group, and waits until the Sentinels can promote the replica.
    pub fn start(sentinels: usize) -> Self {
        let primary = Server::start_with(&["--repl-diskless-sync-delay", "0"]);
        let replica = Server::start_with(&["--repl-diskless-sync-delay", "0"]);
        let port = primary.port().to_string();
        replica.command(&["REPLICAOF", "127.0.0.1", &port]);
        until("a copy", || {
            let info = replica.command(&["INFO", "replication"]);
            info.contains("master_link_status:up")
        });
        let quorum = sentinels / 2 + 1;
        let sentinels = (0..sentinels).map(|_| watch(&primary, quorum, "", &[]));
        let sentinels: Vec<_> = sentinels.collect();
        let others = (sentinels.len() - 1).to_string();
        for sentinel in &sentinels {
            until("Sentinels that know each other and the replica", || {
                let said = sentinel.command(&["SENTINEL", "MASTER", "svc"]);
                let lines: Vec<_> = said.lines().collect();
                let knows = |what, count| lines.windows(2).any(|pair| pair == [what, count]);
                knows("num-slaves", "1") && knows("num-other-sentinels", &others)
            });
        }
        Self {
            primary,
            replica,
            sentinels,
        }
    }

    pub fn url(&self) -> String {
        sentinel_url(&self.sentinels)
    }
}

/// Starts a Sentinel that watches `primary` as `svc`.
pub fn watch(primary: &Server, quorum: usize, more: &str, options: &[&str]) -> Server {
    let port = primary.port();
    let config = format!(
        "sentinel monitor svc 127.0.0.1 {port} {quorum}\n\
         sentinel down-after-milliseconds svc 500\n\
         sentinel failover-timeout svc 4000\n{more}"
    );
    Server::start_sentinel(&config, options)
}

/// Returns the URL of the master that these Sentinels watch.
pub fn sentinel_url<'a>(sentinels: impl IntoIterator<Item = &'a Server>) -> String {
    let hosts = sentinels
        .into_iter()
        .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()));
    let hosts: Vec<_> = hosts.collect();
    format!("redis+sentinel://{}/svc", hosts.join(","))
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
