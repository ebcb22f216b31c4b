//! One slow or silent master among several.

use std::time::Duration;

use super::fake_server::Fake;
use crate::proxy::Proxy;
use crate::server::Server;

/// Returns the URLs of `servers`. The last server is behind a proxy that adds `each_way` in each
/// direction.
pub fn one_far_away(servers: &[Server], each_way: Duration) -> (Vec<String>, Proxy) {
    let (last, others) = servers.split_last().unwrap();
    let proxy = Proxy::delay(last.port(), each_way);
    let urls = others.iter().map(Server::url).chain([proxy.url()]);
    (urls.collect(), proxy)
}

/// A master that answers the greeting, then reads all commands and answers none.
pub fn tarpit() -> Fake {
    Fake::tcp(|peer| {
        if peer.greet().is_some() {
            peer.swallow();
        }
    })
}

/// The number of lock commands that a server has received so far.
pub fn lock_commands(server: &Server) -> u64 {
    server.calls(|command| matches!(command, "set" | "eval" | "evalsha"))
}
