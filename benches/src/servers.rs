//! The servers under the benches: the fixture of the tests, and what only the benches ask of it.

#[path = "../../tests/support/server.rs"]
mod fixture;

pub use fixture::{Server, masters};

use std::thread;
use std::time::{Duration, Instant};

use crate::load::Result;

pub fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// Fails when a lock was left behind on any server.
pub fn check_empty(servers: &[Server], whom: &str) -> Result<()> {
    for server in servers {
        let size = server.command(&["DBSIZE"]);
        if size != "0" {
            return Err(format!("{whom}: DBSIZE is {size} on {} after close", server.url()).into());
        }
    }
    Ok(())
}

/// The most locks seen on all servers together while looking for a while: what was sent to a master
/// that could not be reached may still arrive after everything was given back.
pub fn most_keys(servers: &[Server], span: Duration) -> Result<u64> {
    let until = Instant::now() + span;
    let mut most = 0;
    while Instant::now() < until {
        let mut keys = 0;
        for server in servers {
            keys += server.command(&["DBSIZE"]).parse::<u64>()?;
        }
        most = most.max(keys);
        thread::sleep(Duration::from_millis(5));
    }
    Ok(most)
}
