//! The address of a server, and the streams to it.

#[cfg(not(feature = "tls"))]
use std::convert::Infallible as ClientConfig;
use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures::stream::{FuturesUnordered, StreamExt as _};
use socket2::{SockRef, TcpKeepalive};
use tokio::{net::TcpStream, time::timeout};
#[cfg(feature = "tls")]
use tokio_rustls::rustls::ClientConfig;

#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use super::{resolve::LOOKUPS, wire::Wire};
use crate::master::connect_error::{ConnectError, ConnectStep, Progress};

#[derive(Clone)]
pub(in crate::master) enum Address {
    /// The text of the address, and a function that opens a stream to the server.
    Given(Arc<str>, Connect),
    #[cfg(feature = "sentinel")]
    Sentinels(Sentinels),
    Tcp(String, u16, Option<Tls>),
    Unix(PathBuf),
}

/// How TLS connections are made: with a configuration, or with the system's trusted roots if there
/// is none.
pub(in crate::master) type Tls = Option<Arc<ClientConfig>>;

pub(in crate::master) type Connect = Arc<dyn Fn() -> Connecting + Send + Sync>;
pub(crate) type Connecting = Pin<Box<dyn Future<Output = io::Result<Wire>> + Send>>;

impl Address {
    /// Returns the address as text: the host and port, the path, or the service and a Sentinel. The
    /// text has neither the user nor the database, because two URLs that differ only in the user or
    /// the database are URLs of one server.
    pub(super) fn text(&self) -> Arc<str> {
        match self {
            Self::Given(address, _) => address.clone(),
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => sentinels.text(),
            Self::Tcp(host, port, _) => tcp_address(host, *port),
            Self::Unix(path) => format!("unix:{}", path.display()).into(),
        }
    }

    /// Returns how TLS connections to the server are made. `None` if it expects no TLS.
    #[cfg(feature = "tls")]
    pub(in crate::master) fn tls(&mut self) -> Option<&mut Tls> {
        match self {
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => sentinels.tls.as_mut(),
            Self::Tcp(_, _, tls) => tls.as_mut(),
            Self::Given(..) | Self::Unix(_) => None,
        }
    }

    /// Opens a stream. `progress` shows the current step. On return, that step is the login.
    pub(super) async fn connect(&self, progress: &Progress) -> Result<Wire, ConnectError> {
        let (wire, address) = match self {
            Self::Given(address, connect) => {
                let step = ConnectStep::Connect(address.to_string());
                *progress.lock() = Some(step.clone());
                let wire = connect().await;
                let wire = wire.map_err(|error| ConnectError::Failed(step, error))?;
                (wire, address.to_string())
            }
            // The greeter asks the Sentinels for an address, and connects to that address.
            #[cfg(feature = "sentinel")]
            Self::Sentinels(_) => {
                return Err(ConnectError::Sentinel("they were not asked".to_owned()));
            }
            Self::Tcp(host, port, tls) => {
                let (stream, address) = connect_to_host(host, *port, progress).await?;
                let wire = match tls {
                    #[cfg(feature = "tls")]
                    Some(tls) => {
                        *progress.lock() = Some(ConnectStep::Tls(address.to_string()));
                        super::tls::connect(tls.clone(), host, stream).await?
                    }
                    _ => Wire::new(stream),
                };
                (wire, address.to_string())
            }
            Self::Unix(path) => {
                let address = self.text().to_string();
                #[cfg(unix)]
                let stream = tokio::net::UnixStream::connect(path).await;
                #[cfg(not(unix))]
                let (_, stream) = (
                    path,
                    Err::<TcpStream, _>(io::Error::other("this system has no unix sockets")),
                );
                let step = || ConnectStep::Connect(address.clone());
                let stream = stream.map_err(|error| ConnectError::Failed(step(), error))?;
                (Wire::new(stream), address)
            }
        };
        *progress.lock() = Some(ConnectStep::Login(address));
        Ok(wire)
    }
}

/// Connects to one of the addresses of a host. Returns the stream and that address.
async fn connect_to_host(
    host: &str,
    port: u16,
    progress: &Progress,
) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let step = ConnectStep::Lookup(host.to_owned());
    *progress.lock() = Some(step.clone());
    let addresses = LOOKUPS.resolve(host, port).await;
    let addresses = addresses.map_err(|error| ConnectError::Failed(step, error))?;
    let step = ConnectStep::Connect(named(&addresses));
    *progress.lock() = Some(step.clone());
    let stream = race(&addresses, connect_tcp).await;
    stream.map_err(|error| ConnectError::Failed(step, error))
}

/// Returns the addresses of a host as text for an error. There may be hundreds of them.
fn named(addresses: &[SocketAddr]) -> String {
    const MOST: usize = 3;
    let texts = addresses.iter().take(MOST).map(ToString::to_string);
    let text = texts.collect::<Vec<_>>().join(", ");
    match addresses.len().saturating_sub(MOST) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// Connects to the address that answers first.
///
/// Tries the next address 250 ms after the address before it, or as soon as an attempt fails (Happy
/// Eyeballs, RFC 8305). So an address that swallows all packets does not take the whole time of a
/// dial. Returns the last error if all fail.
async fn race<T, F: Future<Output = io::Result<T>>>(
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T> {
    const PAUSE: Duration = Duration::from_millis(250);
    let mut failure = io::Error::other("the host has no address");
    let mut rest = addresses.iter().copied();
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

async fn connect_tcp(address: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    let stream = TcpStream::connect(address).await?;
    // A lock command is one small packet. The packet must not wait until there are more bytes to
    // send.
    stream.set_nodelay(true)?;
    keep_alive(&stream);
    Ok((stream, address))
}

/// Makes the system keep `stream` alive, and break it if the other end is gone. Errors are ignored,
/// because the stream also works without these settings.
fn keep_alive(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(IDLE);
    #[cfg(any(
        target_os = "android",
        target_os = "freebsd",
        target_os = "linux",
        target_os = "macos",
        target_os = "netbsd",
        target_os = "windows"
    ))]
    let keepalive = keepalive.with_interval(INTERVAL).with_retries(PROBES);
    let _ = socket.set_tcp_keepalive(&keepalive);
    // Without this limit, Linux repeats unconfirmed bytes for about 15 minutes.
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let _ = socket.set_tcp_user_timeout(Some(IDLE + INTERVAL * PROBES));
}

/// The silence after which the system asks the other end whether it is still there. NATs,
/// firewalls and balancers forget connections that were silent for some minutes.
const IDLE: Duration = Duration::from_secs(60);
/// The time after which the system asks again if there was no answer.
const INTERVAL: Duration = Duration::from_secs(10);
/// The number of questions without an answer after which the system breaks the connection.
const PROBES: u32 = 3;

pub(super) const HAS_COMMA: &str =
    "its host has a comma: each URL of a list begins with its scheme";

/// Checks the host and the port of a server. The error contains neither of them: a password that is
/// not followed by `@` is read as the host or the port.
pub(super) fn check_tcp(host: &str, port: u16) -> Result<(), &'static str> {
    /// The longest host name in DNS.
    const MOST: usize = 253;
    // Only an IPv6 address has a colon. In such an address, `%` comes before the zone.
    let marks = if host.contains(':') { ":.%-_" } else { ".-_" };
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
    if host.contains(',') {
        return Err(HAS_COMMA);
    }
    if !(1..=MOST).contains(&host.len()) || !host.chars().all(is_allowed) {
        return Err("its host is not a host name or an IP address");
    }
    let without_dot = host.strip_suffix('.');
    if without_dot.is_some_and(|host| host.parse::<IpAddr>().is_ok()) {
        return Err("its IP address ends with a dot");
    }
    if port == 0 {
        return Err("its port is 0");
    }
    Ok(())
}

pub(super) const NO_DATABASE: &str = "its database is not a number from 0 to 2147483647";

/// Checks the number of the database. Servers use numbers of 31 bits.
pub(super) fn check_database(number: i64) -> Result<(), &'static str> {
    let database = i32::try_from(number);
    let is_number = database.is_ok_and(|database| database >= 0);
    is_number.then_some(()).ok_or(NO_DATABASE)
}

pub(super) fn tcp_address(host: &str, port: u16) -> Arc<str> {
    if host.contains(':') {
        format!("[{host}]:{port}").into()
    } else {
        format!("{}:{port}", host.to_ascii_lowercase()).into()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, future::pending, net::Ipv4Addr};

    use tokio::{net::TcpSocket, time::sleep};

    use super::*;
    use crate::{clock, master::connect_error::in_time};

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// An address, the outcome of a connection to it, and the milliseconds until that outcome.
    /// `Some(true)` is a success, `Some(false)` is a failure, and `None` is no outcome at all.
    type Manner = (&'static str, Option<bool>, u32);

    /// Returns the outcome, the time that it took, and when each address was tried.
    async fn raced(manners: &[Manner]) -> (Option<String>, u128, String) {
        let parse = |at: &str| at.parse::<SocketAddr>().unwrap();
        let addresses: Vec<_> = manners.iter().map(|manner| parse(manner.0)).collect();
        let (start, tried) = (clock::monotonic(), RefCell::new(String::new()));
        let race = race(&addresses, async |address| {
            let at = clock::monotonic().since(start).as_millis();
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
        let took = clock::monotonic().since(start);
        (won, took.as_millis(), tried.into_inner())
    }

    #[test]
    fn at_most_three_addresses_are_named() {
        let all: Vec<_> = (1..6)
            .map(|n| SocketAddr::from(([1, 0, 0, n], 7)))
            .collect();
        for (count, text) in [
            (0, ""),
            (1, "1.0.0.1:7"),
            (3, "1.0.0.1:7, 1.0.0.2:7, 1.0.0.3:7"),
            (5, "1.0.0.1:7, 1.0.0.2:7, 1.0.0.3:7 and 2 more"),
        ] {
            assert_eq!(named(&all[..count]), text);
        }
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
            // The attempt at a slow address goes on.
            (
                &[("[::1]:7", up, 300), ("1.0.0.1:7", up, 90)],
                Some("[::1]:7"),
                300,
                "[::1]:7 0, 1.0.0.1:7 250, ",
            ),
            // After an error, there is no pause.
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
                "[::1]:7 0, [::2]:7 0, [::3]:7 250, 1.0.0.1:7 250, 1.0.0.2:7 270, ",
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

    #[tokio::test]
    async fn an_error_names_the_step_and_the_address() {
        let socket = || {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
            let port = socket.local_addr().unwrap().port();
            (socket, port)
        };
        let ((full, silent), (_bound, closed)) = (socket(), socket());
        let _full = full.listen(1).unwrap();
        let progress = Progress::default();
        let error = async |host: &str, port| {
            let address = Address::Tcp(host.to_owned(), port, None);
            let connect = address.connect(&progress);
            let connected = in_time(Duration::from_millis(200), &progress, connect).await;
            connected.map(drop).map_err(|error| error.to_string())
        };
        while error("127.0.0.1", silent).await.is_ok() {} // until the queue is full
        for (host, port, expected) in [
            (
                "127.0.0.1",
                silent,
                format!("no connection in 200ms: connecting to 127.0.0.1:{silent}"),
            ),
            (
                "127.0.0.1",
                closed,
                format!("connecting to 127.0.0.1:{closed}: Connection refused"),
            ),
            ("a..b", 7, "looking up \"a..b\": ".to_owned()),
        ] {
            let error = error(host, port).await.unwrap_err();
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_stream_is_kept_alive() {
        let server = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = server.local_addr().unwrap();
        let (stream, _) = connect_tcp(address).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), IDLE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
        let limit = Some(Duration::from_secs(90));
        assert_eq!(socket.tcp_user_timeout().unwrap(), limit);
    }
}
