//! The network between clients and masters: a proxy for each client and each master.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use testkit::random::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// The way in which the proxy treats data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mode {
    pub requests: Flow,
    pub replies: Flow,
    /// Changes to close all connections.
    resets: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Flow {
    /// Passes data on after a delay. The bandwidth is not limited.
    Delay(Duration),
    /// Keeps data until the mode changes, like a network that drops packets for a while. Data that
    /// is kept arrives late.
    Hold,
    /// Passes data on after delays that differ, for at most this time each. Data stays in order.
    Jitter(Duration),
    /// Drops data. A connection that has lost data is closed when the mode changes.
    Lose,
    /// Loses this many of 100 packets, and TCP sends them again. Meanwhile, later data waits.
    LoseSome(u64),
    #[default]
    Pass,
}

impl Flow {
    fn delay(self, random: &mut Random) -> Duration {
        match self {
            Self::Delay(delay) => delay,
            Self::Jitter(most) => most.mul_f64(random.below(1_000) as f64 / 1_000.0),
            Self::LoseSome(percent) => {
                let losses = (0..4).take_while(|_| random.below(100) < percent);
                losses.map(|loss| RETRANSMISSION * (1 << loss)).sum()
            }
            Self::Hold | Self::Lose | Self::Pass => Duration::ZERO,
        }
    }
}

/// The shortest time after which Linux sends a packet again. It doubles each time.
const RETRANSMISSION: Duration = Duration::from_millis(200);

/// The link between a client and a master.
#[derive(Clone, Debug)]
pub struct Link {
    port: u16,
    mode: Arc<watch::Sender<Mode>>,
}

impl Link {
    /// Starts a proxy for the server on `port`, in the present runtime.
    pub async fn start(server: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (mode, modes) = watch::channel(Mode::default());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, server, modes.clone()));
            }
        });
        Ok(Self {
            port,
            mode: Arc::new(mode),
        })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn set(&self, requests: Flow, replies: Flow) {
        self.mode.send_modify(|mode| {
            mode.requests = requests;
            mode.replies = replies;
        });
    }

    /// Closes all connections.
    pub fn reset(&self) {
        self.mode.send_modify(|mode| mode.resets += 1);
    }
}

async fn connect(client: TcpStream, server: u16, mode: watch::Receiver<Mode>) -> io::Result<()> {
    // If the server is down, the client's connection is closed.
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let resets = mode.borrow().resets;
    let mut until_reset = mode.clone();
    tokio::select! {
        _ = until_reset.wait_for(|mode| mode.resets != resets) => {}
        _ = pass(from_client, to_server, mode.clone(), |mode| mode.requests) => {}
        _ = pass(from_server, to_client, mode, |mode| mode.replies) => {}
    }
    Ok(())
}

/// Passes on data in one direction.
async fn pass(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    mode: watch::Receiver<Mode>,
    flow: fn(&Mode) -> Flow,
) {
    let (sender, parts) = mpsc::unbounded_channel();
    tokio::select! {
        _ = read(from, sender, mode.clone(), flow) => {}
        _ = write(to, parts, mode, flow) => {}
    }
}

async fn read(
    mut from: OwnedReadHalf,
    to: mpsc::UnboundedSender<(Instant, Vec<u8>)>,
    mut mode: watch::Receiver<Mode>,
    flow: fn(&Mode) -> Flow,
) -> Option<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut has_lost = false;
    let mut random = Random::new(Random::fresh_seed());
    loop {
        let length = tokio::select! {
            length = from.read(&mut buffer) => length.ok().filter(|length| *length > 0)?,
            changed = mode.changed() => {
                changed.ok()?;
                0
            }
        };
        let flow = flow(&mode.borrow_and_update());
        if flow == Flow::Lose {
            has_lost |= length > 0;
        } else if has_lost {
            return None;
        } else if length > 0 {
            let due = Instant::now() + flow.delay(&mut random);
            to.send((due, buffer[..length].to_vec())).ok()?;
        }
    }
}

async fn write(
    mut to: OwnedWriteHalf,
    mut parts: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>,
    mut mode: watch::Receiver<Mode>,
    flow: fn(&Mode) -> Flow,
) -> Option<()> {
    while let Some((due, part)) = parts.recv().await {
        sleep_until(due).await;
        mode.wait_for(|mode| flow(mode) != Flow::Hold).await.ok()?;
        to.write_all(&part).await.ok()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const SHORT: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(10);

    /// Returns a link to a server that sends back what it gets, and a connection through the link.
    async fn echo() -> (Link, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let link = Link::start(listener.local_addr().unwrap().port())
            .await
            .unwrap();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, link.port))
            .await
            .unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let (mut from, mut to) = server.split();
            tokio::io::copy(&mut from, &mut to).await
        });
        (link, client)
    }

    async fn hears(client: &mut TcpStream, time: Duration) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 16];
        let read = timeout(time, client.read(&mut bytes)).await.ok()?;
        bytes.truncate(read.unwrap_or_default());
        Some(bytes)
    }

    #[tokio::test]
    async fn a_link_passes_delays_and_holds_data() {
        let (link, mut client) = echo().await;
        client.write_all(b"one").await.unwrap();
        assert_eq!(hears(&mut client, LONG).await.unwrap(), b"one");

        link.set(Flow::Delay(SHORT), Flow::Delay(SHORT));
        let start = Instant::now();
        client.write_all(b"two").await.unwrap();
        assert_eq!(hears(&mut client, LONG).await.unwrap(), b"two");
        assert!(start.elapsed() >= 2 * SHORT);

        // Every packet is lost four times.
        link.set(Flow::LoseSome(100), Flow::Jitter(SHORT));
        let start = Instant::now();
        client.write_all(b"two").await.unwrap();
        assert_eq!(hears(&mut client, LONG).await.unwrap(), b"two");
        assert!(start.elapsed() >= 15 * RETRANSMISSION);

        for (requests, replies) in [(Flow::Hold, Flow::Pass), (Flow::Pass, Flow::Hold)] {
            link.set(requests, replies);
            client.write_all(b"three").await.unwrap();
            assert_eq!(hears(&mut client, SHORT).await, None);
            link.set(Flow::Pass, Flow::Pass);
            assert_eq!(hears(&mut client, LONG).await.unwrap(), b"three");
        }
    }

    #[tokio::test]
    async fn a_connection_that_lost_data_is_closed_and_so_is_a_reset_one() {
        for (requests, replies) in [(Flow::Lose, Flow::Pass), (Flow::Pass, Flow::Lose)] {
            let (link, mut client) = echo().await;
            link.set(requests, replies);
            client.write_all(b"one").await.unwrap();
            assert_eq!(hears(&mut client, SHORT).await, None);
            link.set(Flow::Pass, Flow::Pass);
            assert_eq!(hears(&mut client, LONG).await.unwrap(), b"");
        }
        let (link, mut client) = echo().await;
        client.write_all(b"one").await.unwrap();
        assert_eq!(hears(&mut client, LONG).await.unwrap(), b"one");
        link.reset();
        assert_eq!(hears(&mut client, LONG).await.unwrap(), b"");
    }
}
