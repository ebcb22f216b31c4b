//! The addresses of a host.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    thread,
};

use tokio::sync::oneshot;

/// Returns the addresses of a host.
///
/// Resolves the name in a thread of its own. A thread of the runtime would do, but tokio panics if
/// the system refuses to start one.
pub(super) async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (sender, found) = oneshot::channel();
    let name = (host.to_owned(), port);
    let thread = thread::Builder::new().name("quorlock-resolve".to_owned());
    thread.spawn(move || {
        let found = name.to_socket_addrs().map(Iterator::collect);
        let _ = sender.send(found); // fails if the dial has been given up
    })?;
    found
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the name could not be resolved")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_and_names_are_resolved() {
        for host in ["127.0.0.1", "::1"] {
            let ip = host.parse().unwrap();
            assert_eq!(resolve(host, 7).await.unwrap(), [SocketAddr::new(ip, 7)]);
        }
        let found = resolve("localhost", 7).await.unwrap();
        assert!(
            found.iter().all(|address| address.ip().is_loopback()),
            "{found:?}"
        );
        assert!(!found.is_empty());
    }
}
