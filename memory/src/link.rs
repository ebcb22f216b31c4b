//! A connection to a server in this process. The current fault of the server applies to it.

use std::{
    collections::VecDeque,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use crate::{fault::Fault, state::State};

/// The server's end of a connection.
pub(crate) struct Link {
    number: u64,
    state: Arc<Mutex<State>>,
    stream: DuplexStream,
    /// The bytes that have not arrived, in pieces, each with the time when it was sent.
    in_transit: VecDeque<(Instant, Vec<u8>)>,
    out: Vec<u8>,
    /// Set once the client has closed its end.
    is_read: bool,
    /// Set once the client no longer reads.
    is_unheard: bool,
    arrival: Timer,
    expiry: Timer,
}

impl Link {
    pub(crate) fn new(state: Arc<Mutex<State>>, stream: DuplexStream, number: u64) -> Self {
        Self {
            number,
            state,
            stream,
            in_transit: VecDeque::new(),
            out: Vec::new(),
            is_read: false,
            is_unheard: false,
            arrival: Timer::default(),
            expiry: Timer::default(),
        }
    }

    /// Serves the connection until it ends.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let Some(fault) = state.fault_of(self.number, cx.waker()) else {
            return Poll::Ready(());
        };
        let is_open = state.server.is_open(self.number);
        drop(state);
        if fault == Fault::Hang {
            return Poll::Pending; // what was sent stays in the stream
        }
        // On every connection, what the server sends because of this poll is written in the next
        // poll. Otherwise a client would hear of its own change before all other clients.
        self.write(cx);
        self.read(cx);
        self.arrive(&fault, cx);
        self.expire(cx);
        let is_over = !is_open || self.is_read && self.in_transit.is_empty();
        let is_written = self.is_written() && !self.state.lock().has_output(self.number);
        if is_over && is_written {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn is_written(&self) -> bool {
        self.out.is_empty() || self.is_unheard
    }

    /// Reads all that the client has sent.
    fn read(&mut self, cx: &mut Context<'_>) {
        let mut bytes = [0; 4096];
        while !self.is_read {
            let mut read = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut read) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                    let sent = (Instant::now(), read.filled().to_vec());
                    self.in_transit.push_back(sent);
                }
                Poll::Ready(_) => self.is_read = true,
            }
        }
    }

    /// Executes the commands that have arrived.
    fn arrive(&mut self, fault: &Fault, cx: &mut Context<'_>) {
        while let Some((sent, _)) = self.in_transit.front() {
            if let Fault::Delay(delay) = fault {
                let Some(at) = sent.checked_add(*delay) else {
                    return; // it never arrives
                };
                if self.arrival.poll(at, cx).is_pending() {
                    return;
                }
            }
            if let Some((_, bytes)) = self.in_transit.pop_front() {
                self.state.lock().receive(self.number, &bytes);
            }
        }
    }

    /// Lets keys that this connection tracks expire.
    fn expire(&mut self, cx: &mut Context<'_>) {
        let mut state = self.state.lock();
        while let Some(at) = state.next_expiry(self.number)
            && self.expiry.poll(at, cx).is_ready()
        {
            state.expire();
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) {
        self.out.extend(self.state.lock().take_output(self.number));
        while !self.is_written() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.out) {
                Poll::Pending => return,
                Poll::Ready(Ok(count)) => drop(self.out.drain(..count)),
                Poll::Ready(Err(_)) => self.is_unheard = true,
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.lock().close(self.number);
    }
}

/// A timer that is created by its first poll.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        pin!(sleep).poll(cx)
    }
}
