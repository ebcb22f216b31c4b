//! A connection to a memory master, with the faults of the moment.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::{Fault, MemoryMaster, Server, now};
use crate::{
    core::{
        command::{Command, Reply},
        restart::{GuardRecord, Observation, RestartGuard},
    },
    master::{
        Request, RestartTracker,
        dial_error::DialError,
        in_flight::InFlight,
        supervisor::{Connection, Dial, Dialled},
    },
};

/// Dials a memory master as number `number` of a coordinator's.
pub(in crate::master) struct Dialer {
    pub(super) master: MemoryMaster,
    pub(super) number: usize,
    pub(super) guarding: RestartTracker,
}

impl Dial for Dialer {
    type Connection = MemoryConnection;

    /// A greeting is delayed, lost or left unanswered like any other command.
    async fn dial(&mut self) -> Result<Dialled<MemoryConnection>, DialError> {
        let (connection, round_trip) = self.connect().await?;
        Ok(Dialled {
            connection,
            round_trip,
            age: self.age(&self.guarding)?,
        })
    }
}

impl Dialer {
    /// Connects. Also returns how long the greeting took.
    pub(super) async fn connect(&self) -> Result<(MemoryConnection, Duration), DialError> {
        let dialled = now();
        let connection = MemoryConnection::new(&self.master.server);
        match connection.arrival().await {
            Fault::Down => Err(refused()),
            _ => Ok((connection, dialled.elapsed())),
        }
    }

    /// What `lua/shared/guard.lua` says of a server.
    pub(super) fn age(&self, tracker: &RestartTracker) -> Result<Option<Duration>, DialError> {
        if tracker.guard == RestartGuard::Off {
            return Ok(None);
        }
        let is_strict = tracker.guard == RestartGuard::Strict;
        let question = tracker.question(self.number);
        let server = &self.master.server;
        let mut state = server.state.lock();
        let now = state.keys().now();
        let look = Observation {
            known: &question.known,
            is_strict,
            is_durable: None,
        };
        let mark = GuardRecord::looked_at(state.guard.take(), look, &server.address, now.max(1));
        let since = mark.counted_from(is_strict);
        let met = tracker.meet(&question, &mark.run_id, &mark.origin);
        state.guard = Some(mark);
        met?;
        Ok((since > 0).then(|| Duration::from_millis(now.saturating_sub(since))))
    }
}

fn refused() -> DialError {
    DialError::Connect(io::Error::new(
        io::ErrorKind::ConnectionRefused,
        "connection refused",
    ))
}

pub(in crate::master) struct MemoryConnection {
    number: u64,
    server: Arc<Server>,
    /// What is on its way, with when it was sent.
    arriving: VecDeque<(Sent, Instant)>,
    timer: Option<Pin<Box<Sleep>>>,
    lost_replies: bool,
}

enum Sent {
    Command(Command),
    Listen(String, bool),
}

impl Connection for MemoryConnection {
    fn send(&mut self, ask: &Request, master: usize) {
        let sent = Sent::Command(ask.command_for(master));
        self.arriving.push_back((sent, now()));
    }

    fn listen(&mut self, channel: &str, listen: bool) {
        let sent = Sent::Listen(channel.to_owned(), listen);
        self.arriving.push_back((sent, now()));
    }

    fn poll(&mut self, cx: &mut Context<'_>, in_flight: &mut InFlight<'_>) -> Poll<Arc<str>> {
        loop {
            let fault = self.fault(cx);
            if fault == Fault::Down {
                return Poll::Ready("connection reset".into());
            }
            if self.lost_replies && fault != Fault::Mute {
                return Poll::Ready("replies were lost".into());
            }
            if fault == Fault::Hang {
                return Poll::Pending;
            }
            self.take_messages(&fault, in_flight);
            let Some((_, at)) = self.arriving.front() else {
                return Poll::Pending;
            };
            if let Fault::Delay(delay) = fault {
                let Some(at) = at.checked_add(delay) else {
                    return Poll::Pending; // it never arrives
                };
                let timer = self.timer.insert(Box::pin(sleep_until(at)));
                ready!(timer.as_mut().poll(cx));
            }
            let Some((sent, _)) = self.arriving.pop_front() else {
                return Poll::Pending;
            };
            if let Err(why) = self.arrive(&sent, &fault, in_flight) {
                return Poll::Ready(why);
            }
        }
    }
}

impl MemoryConnection {
    fn new(server: &Arc<Server>) -> Self {
        let mut state = server.state.lock();
        state.connections += 1;
        Self {
            number: state.connections,
            server: server.clone(),
            arriving: VecDeque::new(),
            timer: None,
            lost_replies: false,
        }
    }

    /// Waits until what is sent now arrives and can be answered. Returns the fault of that moment.
    pub(super) async fn arrival(&self) -> Fault {
        let fault = poll_fn(|cx| match self.fault(cx) {
            Fault::Hang | Fault::Mute => Poll::Pending,
            fault => Poll::Ready(fault),
        })
        .await;
        if let Fault::Delay(delay) = fault {
            sleep(delay).await;
        }
        fault
    }

    /// The fault of the moment; `cx` is woken when it changes.
    fn fault(&self, cx: &Context<'_>) -> Fault {
        let mut state = self.server.state.lock();
        state.wakers.insert(self.number, cx.waker().clone());
        state.fault.clone()
    }

    fn arrive(
        &mut self,
        sent: &Sent,
        fault: &Fault,
        in_flight: &mut InFlight<'_>,
    ) -> Result<(), Arc<str>> {
        let mut state = self.server.state.lock();
        state.commands += 1;
        let reply = match (fault, sent) {
            (Fault::ErrorReply(error), _) => Some(Err(error.clone().into())),
            (_, Sent::Command(command)) => Some(state.execute(command)),
            (_, Sent::Listen(channel, listen)) => {
                state.listen(self.number, channel, *listen);
                None
            }
        };
        drop(state);
        if *fault == Fault::Mute {
            self.lost_replies = true;
            return Ok(());
        }
        match (reply, sent) {
            (Some(replied), _) => {
                let reply = match &replied {
                    Ok(reply) => reply,
                    Err(error) => &Reply::Error(error),
                };
                in_flight.answer(reply, (in_flight.clock())())
            }
            (None, Sent::Listen(channel, _)) => in_flight.confirmed(channel, (in_flight.clock())()),
            (None, Sent::Command(_)) => Ok(()),
        }
    }

    fn take_messages(&mut self, fault: &Fault, in_flight: &InFlight<'_>) {
        let messages = self.server.state.lock().messages.remove(&self.number);
        for (channel, message) in messages.into_iter().flatten() {
            if *fault == Fault::Mute {
                self.lost_replies = true;
            } else {
                in_flight.message(&channel, &message);
            }
        }
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        let mut state = self.server.state.lock();
        state.wakers.remove(&self.number);
        state.messages.remove(&self.number);
        state.listeners.retain(|_, listeners| {
            listeners.remove(&self.number);
            !listeners.is_empty()
        });
        if state.fault == Fault::Hang {
            // A server that stands still finds these in its socket when it goes on.
            let arriving = self.arriving.drain(..).filter_map(|(sent, _)| match sent {
                Sent::Command(command) => Some(command),
                Sent::Listen(..) => None,
            });
            state.stale.extend(arriving);
        }
    }
}
