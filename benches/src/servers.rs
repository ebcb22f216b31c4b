//! The servers under the benches: the fixture of the tests, and what only the benches ask of it.

#[path = "../../tests/support/server.rs"]
mod fixture;

pub use fixture::{Server, masters};

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
