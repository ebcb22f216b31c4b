//! A connection to a memory master. The current fault of the master applies to it.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::{clock::now, connections::Push, fault::Fault, server::ServerState};
use crate::{
    core::{
        protocol::command::{Command, Reply},
        restart::{Loss, Quarantine, origin_arguments},
    },
    master::{
        dial_error::DialError,
        redis::wire_error::WireError,
        restart::RestartTracker,
        session::{
            Session, Transmit,
            connection::{Connection, Dial, Dialled},
            listeners::Change,
            request::Request,
        },
    },
};

/// Dials a memory master, which is number `master` of its coordinator.
pub(in crate::master) struct Dialer {
    pub(super) state: Arc<Mutex<ServerState>>,
    pub(super) master: usize,
    pub(super) restart_tracker: RestartTracker,
}

impl Dial for Dialer {
    type Connection = MemoryConnection;

    /// Opens a connection. A dial is delayed or left unanswered like a command, and fails while the
    /// master is down.
    async fn dial(&mut self) -> Result<Dialled<MemoryConnection>, DialError> {
        let (connection, round_trip) = self.connect().await?;
        Ok(Dialled {
            connection,
            round_trip,
            reports_changes: true,
            loss: self.loss(&self.restart_tracker)?,
        })
    }
}

impl Dialer {
    /// Connects. Also returns how long this took.
    pub(super) async fn connect(&self) -> Result<(MemoryConnection, Duration), DialError> {
        let dialled = now();
        let connection = MemoryConnection::new(&self.state);
        if connection.arrival().await == Fault::Down {
            let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
            return Err(WireError::Io(refused).into());
        }
        Ok((connection, dialled.elapsed()))
    }

    /// Returns the loss of locks, if there is a sign of any, and updates the origin record.
    pub(super) fn loss(&self, tracker: &RestartTracker) -> Result<Option<Loss>, DialError> {
        if tracker.quarantine == Quarantine::Off {
            return Ok(None);
        }
        let query = tracker.query(self.master);
        let arguments = origin_arguments(&query.known, tracker.quarantine);
        let asked = self.state.lock().incarnation(&arguments);
        let found = asked.map_err(|why| DialError::RestartUnknown { why: why.into() })?;
        tracker.meet(&query, &found.run_id)?;
        Ok(found.loss)
    }
}

pub(in crate::master) struct MemoryConnection {
    number: u64,
    state: Arc<Mutex<ServerState>>,
    /// The commands that have not arrived, each with the time when it was sent.
    in_transit: VecDeque<(Sent, Instant)>,
    timer: Option<Pin<Box<Sleep>>>,
    has_lost_replies: bool,
}

enum Sent {
    Caching,
    Change(Change),
    Command(Command),
}

impl Transmit for MemoryConnection {
    fn send(&mut self, request: &Request) {
        let sent = Sent::Command(request.command.clone());
        self.in_transit.push_back((sent, now()));
    }

    fn send_change(&mut self, change: &Change) {
        let sent = Sent::Change(change.clone());
        self.in_transit.push_back((sent, now()));
    }

    fn send_caching(&mut self) {
        self.in_transit.push_back((Sent::Caching, now()));
    }

    fn has_input(&self) -> bool {
        let state = self.state.lock();
        self.number <= state.connections.broken || state.fault == Fault::Down
    }
}

impl Connection for MemoryConnection {
    fn poll(&mut self, cx: &mut Context<'_>, session: &mut Session) -> Poll<Arc<str>> {
        loop {
            let fault = self.fault(cx);
            if self.has_input() {
                return Poll::Ready("connection reset".into());
            }
            if self.has_lost_replies && fault != Fault::Mute {
                return Poll::Ready("replies were lost".into());
            }
            if fault == Fault::Hang {
                return Poll::Pending;
            }
            if let Err(why) = self.take_pushes(&fault, session) {
                return Poll::Ready(why);
            }
            let Some((_, at)) = self.in_transit.front() else {
                return Poll::Pending;
            };
            if let Fault::Delay(delay) = fault {
                let Some(at) = at.checked_add(delay) else {
                    return Poll::Pending; // it never arrives
                };
                let timer = self.timer.insert(Box::pin(sleep_until(at)));
                ready!(timer.as_mut().poll(cx));
            }
            if let Some((sent, _)) = self.in_transit.pop_front()
                && let Err(why) = self.arrive(&sent, &fault, session)
            {
                return Poll::Ready(why);
            }
        }
    }
}

impl MemoryConnection {
    fn new(shared: &Arc<Mutex<ServerState>>) -> Self {
        let mut state = shared.lock();
        state.connections.opened += 1;
        Self {
            number: state.connections.opened,
            state: shared.clone(),
            in_transit: VecDeque::new(),
            timer: None,
            has_lost_replies: false,
        }
    }

    /// Waits for as long as a command that is sent now would take to arrive and to be answered.
    /// Returns the fault that applies to the command.
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

    /// Returns the current fault. `cx` is woken when the fault changes.
    fn fault(&self, cx: &Context<'_>) -> Fault {
        let mut state = self.state.lock();
        state
            .connections
            .wakers
            .insert(self.number, cx.waker().clone());
        state.fault.clone()
    }

    fn arrive(
        &mut self,
        sent: &Sent,
        fault: &Fault,
        session: &mut Session,
    ) -> Result<(), Arc<str>> {
        let mut state = self.state.lock();
        state.commands += 1;
        let reply = match (fault, sent) {
            (Fault::ErrorReply(error), _) => Some(Err(error.clone().into())),
            (_, Sent::Command(command)) => Some(state.serve(self.number, command)),
            (_, Sent::Caching) => Some(Ok(Reply::Ok)),
            (_, Sent::Change(Change { channel, begins })) => {
                let subscription = (channel.to_string(), self.number);
                match begins {
                    true => state.connections.subscriptions.insert(subscription),
                    false => state.connections.subscriptions.remove(&subscription),
                };
                None
            }
        };
        drop(state);
        if *fault == Fault::Mute {
            self.has_lost_replies = true;
            return Ok(());
        }
        let now = (session.clock())();
        match (reply, sent) {
            (Some(Ok(reply)), _) => session.on_reply(&reply, now),
            (Some(Err(error)), _) => session.on_reply(&Reply::Error(error), now),
            (None, Sent::Change(change)) => session.on_confirmation(&change.channel, now),
            (None, Sent::Command(_) | Sent::Caching) => Ok(()),
        }
    }

    fn take_pushes(&mut self, fault: &Fault, session: &mut Session) -> Result<(), Arc<str>> {
        let pushes = self.state.lock().connections.pushes.remove(&self.number);
        for push in pushes.into_iter().flatten() {
            match push {
                _ if *fault == Fault::Mute => self.has_lost_replies = true,
                Push::Message(_, ticket) => session.on_message(&ticket),
                Push::Changed(key @ Some(_)) => session.on_changed(key.as_deref()),
                Push::Changed(None) => session.on_flushed()?,
            }
        }
        Ok(())
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.connections.close(self.number);
        if state.fault == Fault::Hang {
            // A server that hangs finds these commands in its socket when it runs again.
            let in_transit = self.in_transit.drain(..);
            let commands = in_transit.filter_map(|(sent, _)| match sent {
                Sent::Command(command) => Some(command),
                Sent::Change(_) | Sent::Caching => None,
            });
            state.undelivered.extend(commands);
        }
    }
}
