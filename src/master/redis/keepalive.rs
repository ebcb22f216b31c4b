//! Keeps idle connections in use for what is between this program and a server.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// The silence after which the system asks the other end whether it is still there. NATs,
/// firewalls and balancers forget connections that were silent for some minutes.
const IDLE: Duration = Duration::from_secs(60);
/// The time between two such questions.
const INTERVAL: Duration = Duration::from_secs(10);
/// The number of questions without an answer after which the connection is broken.
const PROBES: u32 = 3;

/// Makes the system keep `stream` alive, and break it if the other end is gone. Failures are
/// ignored, because the stream works without this, too.
pub(super) fn keep_alive(stream: &TcpStream) {
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
    // Without this limit, Linux sends bytes that nobody confirms again for about 15 minutes.
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let _ = socket.set_tcp_user_timeout(Some(IDLE + INTERVAL * PROBES));
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::master::redis::wire::connect_tcp;

    #[tokio::test]
    async fn a_stream_is_kept_alive() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
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
