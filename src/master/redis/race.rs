//! Tries the addresses of one host.

use std::{future::Future, io, net::SocketAddr, time::Duration};

use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::timeout;

/// Connects to the address that answers first.
///
/// Tries the next address 250 ms after the one before, or when one fails (Happy Eyeballs, RFC
/// 8305). So an address that swallows all packets does not take the whole time of a dial. Returns
/// the last error if all fail.
pub(super) async fn race<T, F: Future<Output = io::Result<T>>>(
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T> {
    const PAUSE: Duration = Duration::from_millis(250);
    let mut failure = io::Error::other("the host has no address");
    let mut rest = alternating(addresses).into_iter();
    let mut attempts = FuturesUnordered::new();
    loop {
        attempts.extend(rest.next().map(&connect));
        let is_last = rest.len() == 0;
        let limit = if is_last { Duration::MAX } else { PAUSE };
        match timeout(limit, attempts.next()).await {
            Ok(None) => return Err(failure),
            Ok(Some(Ok(stream))) => return Ok(stream),
            Ok(Some(Err(error))) => failure = error,
            Err(_) => {}
        }
    }
}

/// Returns the addresses in their order, but with the two families by turns. Usually, all addresses
/// of one family fail, or none.
fn alternating(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let (mut first, second): (Vec<_>, Vec<_>) = addresses
        .iter()
        .partition(|address| address.is_ipv6() == addresses[0].is_ipv6());
    for (n, address) in second.into_iter().enumerate() {
        first.insert(first.len().min(2 * n + 1), address);
    }
    first
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, future::pending};

    use tokio::{
        net::{TcpSocket, TcpStream},
        time::sleep,
    };

    use super::*;
    use crate::driver::time::clock;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// What an address does. `Some(true)` connects and `Some(false)` fails, after a time in ms.
    type Manner = (&'static str, Option<bool>, u32);

    /// Returns the outcome, when it was there, and when each address was tried.
    async fn raced(manners: &[Manner]) -> (Option<String>, u128, String) {
        let parse = |at: &str| at.parse::<SocketAddr>().unwrap();
        let addresses: Vec<_> = manners.iter().map(|manner| parse(manner.0)).collect();
        let (start, tried) = (clock::monotonic(), RefCell::new(String::new()));
        let race = race(&addresses, async |address| {
            let at = (clock::monotonic() - start).as_millis();
            *tried.borrow_mut() += &format!("{address} {at}, ");
            let (_, manner, after) = manners.iter().find(|m| parse(m.0) == address).unwrap();
            sleep(MILLISECOND * *after).await;
            match manner {
                Some(true) => Ok(address.to_string()),
                Some(false) => Err(io::Error::other(format!("no {address}"))),
                None => pending().await,
            }
        });
        let won = timeout(MILLISECOND * 1_000, race).await;
        let won = won
            .ok()
            .map(|won| won.unwrap_or_else(|error| error.to_string()));
        let took = clock::monotonic() - start;
        (won, took.as_millis(), tried.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_address_that_connects_wins() {
        const DEAD: Option<bool> = None;
        let (up, down) = (Some(true), Some(false));
        for (manners, won, after, tried) in [
            (
                &[("1.0.0.1:7", up, 9)][..],
                Some("1.0.0.1:7"),
                9,
                "1.0.0.1:7 0, ",
            ),
            // An address that swallows all packets.
            (
                &[("[::1]:7", DEAD, 0), ("1.0.0.1:7", up, 9)],
                Some("1.0.0.1:7"),
                259,
                "[::1]:7 0, 1.0.0.1:7 250, ",
            ),
            // A slow address goes on.
            (
                &[("[::1]:7", up, 300), ("1.0.0.1:7", up, 90)],
                Some("[::1]:7"),
                300,
                "[::1]:7 0, 1.0.0.1:7 250, ",
            ),
            // The families take turns, and an error needs no pause.
            (
                &[
                    ("[::1]:7", down, 0),
                    ("[::2]:7", DEAD, 0),
                    ("[::3]:7", down, 0),
                    ("1.0.0.1:7", down, 20),
                    ("1.0.0.2:7", up, 0),
                ],
                Some("1.0.0.2:7"),
                270,
                "[::1]:7 0, 1.0.0.1:7 0, [::2]:7 20, 1.0.0.2:7 270, ",
            ),
            (
                &[("[::1]:7", down, 260), ("1.0.0.1:7", down, 5)],
                Some("no [::1]:7"),
                260,
                "[::1]:7 0, 1.0.0.1:7 250, ",
            ),
            (&[], Some("the host has no address"), 0, ""),
            (&[("1.0.0.1:7", DEAD, 0)], None, 1_000, "1.0.0.1:7 0, "),
        ] {
            let expected = (won.map(str::to_owned), after, tried.to_owned());
            assert_eq!(raced(manners).await, expected);
        }
    }

    #[tokio::test]
    async fn a_listener_that_takes_no_more_connections_loses() {
        let listen = |backlog| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
            let listener = socket.listen(backlog).unwrap();
            (listener.local_addr().unwrap(), listener)
        };
        let ((full, _listens), (good, _also)) = (listen(1), listen(9));
        let mut queue = Vec::new();
        while let Ok(stream) = timeout(MILLISECOND * 100, TcpStream::connect(full)).await {
            queue.push(stream.unwrap());
        }
        let addresses = [full, good];
        let race = race(&addresses, TcpStream::connect);
        let stream = timeout(MILLISECOND * 10_000, race).await.unwrap().unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
    }
}
