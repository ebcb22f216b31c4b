//! A connection over the simulated network.

use std::{
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;

use super::{
    network::{Delivery, Greeting, Packet},
    world::World,
};
use crate::{
    WireError,
    core::{
        protocol::command::Reply,
        restart::{Quarantine, origin_arguments},
    },
    master::{
        dial_error::DialError,
        restart::{RestartTracker, known_origins::KnownOrigins},
        session::{
            Session, Transmit,
            connection::{Connection, Dial, Dialled},
            listeners::Change,
            request::Request,
        },
    },
};

/// A master as one simulated process reaches it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(super) world: Arc<Mutex<World>>,
    pub(super) process: usize,
    pub(super) master: usize,
    /// The origins that the process knows. They outlive a coordinator, but not the process.
    pub(super) known_origins: KnownOrigins,
}

impl Endpoint {
    pub(crate) fn address(&self) -> Arc<str> {
        format!("sim:{}", self.master).into()
    }

    /// Returns the dialer for the master, which is number `master` of its coordinator.
    pub(crate) fn dialer(self, master: usize, tracker: &RestartTracker) -> Dialer {
        Dialer {
            tracker: tracker.with(&self.known_origins),
            endpoint: self,
            master,
        }
    }
}

pub(crate) struct Dialer {
    endpoint: Endpoint,
    master: usize,
    tracker: RestartTracker,
}

impl Dial for Dialer {
    type Connection = SimConnection;

    async fn dial(&mut self) -> Result<Dialled<SimConnection>, DialError> {
        let world = self.endpoint.world.clone();
        let number = world
            .lock()
            .connect(self.endpoint.process, self.endpoint.master);
        let connection = SimConnection { world, number };
        let query = self.tracker.query(self.master);
        let guard = self.tracker.quarantine;
        let hello = (guard != Quarantine::Off).then(|| origin_arguments(&query.known, guard));
        let asked = tokio::time::Instant::now();
        connection.send_packet(Packet::Hello(hello));
        let Greeting {
            met,
            reports_changes,
        } = connection.greeting().await?;
        if let Some(found) = &met {
            self.tracker.meet(&query, &found.run_id)?;
        }
        Ok(Dialled {
            connection,
            round_trip: asked.elapsed(),
            reports_changes,
            loss: met.and_then(|found| found.loss),
        })
    }
}

/// The client's end of a connection.
pub(crate) struct SimConnection {
    world: Arc<Mutex<World>>,
    number: u64,
}

impl SimConnection {
    fn send_packet(&self, packet: Packet) {
        self.world.lock().send_up(self.number, packet);
    }

    async fn greeting(&self) -> Result<Greeting, DialError> {
        let delivery = poll_fn(|cx| match self.world.lock().receive(self.number, cx) {
            Some(delivery) => Poll::Ready(delivery),
            None => Poll::Pending,
        });
        match delivery.await {
            Delivery::Hello(greeting) => Ok(greeting),
            _ => Err(WireError::Io(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "connection refused",
            ))
            .into()),
        }
    }
}

impl Transmit for SimConnection {
    fn send(&mut self, request: &Request) {
        self.send_packet(Packet::Command(request.command.clone()));
    }

    fn send_change(&mut self, change: &Change) {
        self.send_packet(Packet::Change(change.clone()));
    }

    fn send_caching(&mut self) {
        self.send_packet(Packet::Caching);
    }

    fn has_input(&self) -> bool {
        self.world.lock().has_input(self.number)
    }
}

impl Connection for SimConnection {
    fn give_up(&mut self) {
        self.world.lock().give_up(self.number);
    }

    fn poll(&mut self, cx: &mut Context<'_>, session: &mut Session) -> Poll<Arc<str>> {
        /// The most deliveries in one poll. A flood must not keep the supervisor from its timers.
        const MOST: usize = 64;
        /// The messages of one delivery of a flood.
        const FLOOD: usize = 20;
        for _ in 0..MOST {
            let received = self.world.lock().receive(self.number, cx);
            let Some(delivery) = received else {
                return Poll::Pending;
            };
            let now = (session.clock())();
            let handled = match delivery {
                Delivery::Broken(why) => Err(why.into()),
                Delivery::Bytes => {
                    session.on_bytes(now);
                    Ok(())
                }
                Delivery::Confirmed(channel) => session.on_confirmation(&channel, now),
                Delivery::Hello(_) => Err("a second greeting".into()),
                Delivery::Changed(Some(key)) => {
                    session.on_changed(Some(&key));
                    Ok(())
                }
                Delivery::Changed(None) => session.on_flushed(),
                Delivery::Flood => {
                    (0..FLOOD).for_each(|_| session.on_changed(None));
                    Ok(())
                }
                Delivery::Message(ticket) => {
                    session.on_message(&ticket);
                    Ok(())
                }
                Delivery::Reply(Ok(reply)) => session.on_reply(&reply, now),
                Delivery::Reply(Err(error)) => session.on_reply(&Reply::Error(error), now),
            };
            if let Err(why) = handled {
                self.world
                    .lock()
                    .log(|| format!("connection {} breaks: {why}", self.number));
                return Poll::Ready(why);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for SimConnection {
    fn drop(&mut self) {
        self.world.lock().close(self.number);
    }
}
