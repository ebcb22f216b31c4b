//! A connection to a server, as a stream of bytes.
//!
//! Votes do not go through the `MultiplexedConnection` of the `redis` crate. So a command is
//! encoded once for nearly all masters, and nothing is allocated for each command and master. The
//! task that reads a reply counts the vote. Requests leave in the order in which they were posted,
//! and releases rely on that order.
//!
//! The ends of replies are found in the input buffer. [`resp`](super::resp) reads the kinds of
//! reply that lock commands get. The `redis` crate reads URLs and all other replies.

use std::{
    future::poll_fn,
    io::{self, ErrorKind},
    mem::MaybeUninit,
    ops::ControlFlow,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use socket2::{SockRef, Socket};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    task::yield_now,
};

use super::resp::{FrameScan, is_push, no_resp};

/// The transport of a connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send {
    /// Makes the stream drop unsent bytes when it is closed. Bytes are unsent if they were written
    /// to the stream and have not left this machine. Must be called before the stream to a silent
    /// server is closed. Otherwise, the kernel could deliver those bytes after the bytes of the next
    /// connection. Does nothing for a stream that cannot drop them.
    fn forget_unsent(&self) {}

    /// Returns whether something has arrived that was not read, such as the end of the stream. Asks
    /// the system, because a runtime that did not run for a while does not know of new input.
    fn has_input(&self) -> bool;
}

impl Stream for TcpStream {
    fn forget_unsent(&self) {
        // A failure is ignored, because the connection is given up in any case.
        let _ = self.set_zero_linger();
    }

    fn has_input(&self) -> bool {
        has_input(&SockRef::from(self))
    }
}

#[cfg(unix)]
impl Stream for tokio::net::UnixStream {
    fn has_input(&self) -> bool {
        has_input(&SockRef::from(self))
    }
}

/// Any stream that a user may have opened.
trait Given: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Given for S {}

impl Stream for Pin<Box<dyn Given>> {
    /// The system cannot be asked about a stream of a user.
    fn has_input(&self) -> bool {
        false
    }
}

fn has_input(socket: &Socket) -> bool {
    let peeked = socket.peek(&mut [MaybeUninit::uninit()]);
    !peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// A stream, with the bytes to write, and with the bytes that were read and not yet used.
pub(crate) struct Wire {
    pub(super) stream: Pin<Box<dyn Stream>>,
    /// The bytes that the next poll writes to the stream.
    pub(super) out: Vec<u8>,
    written: usize,
    /// Set when all bytes have been written to the stream. Cleared when the stream has been
    /// flushed.
    flushing: bool,
    /// The buffer for bytes that were read. The first `filled` bytes are not used yet.
    pub(super) input: Vec<u8>,
    pub(super) filled: usize,
    /// The search for the end of the first reply in `input`.
    scan: FrameScan,
    /// Set if `input` may still have whole replies, because `on_frame` has returned `Break`.
    has_replies: bool,
    /// Set if the last poll ended before it had read everything.
    pub(super) has_unread: bool,
}

impl Wire {
    /// The first size of the input buffer. A reply to a lock command has only a few bytes.
    const FIRST_INPUT: usize = 16 * 1024;
    /// The longest reply. A peer that sends a longer one is not a Redis server.
    const MOST_INPUT: usize = 1024 * 1024;
    /// The largest number of reads in one poll. A poll also ends after a read that fills the input
    /// buffer. A server that sends without end must not delay timers and other tasks.
    const MOST_READS: usize = 4;

    pub(crate) fn new(stream: impl Stream + 'static) -> Self {
        Self {
            stream: Box::pin(stream),
            out: Vec::new(),
            written: 0,
            flushing: false,
            input: vec![0; Self::FIRST_INPUT],
            filled: 0,
            scan: FrameScan::default(),
            has_replies: false,
            has_unread: false,
        }
    }

    /// Returns the wire of a stream that a user has opened.
    pub(crate) fn of_given(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let stream: Pin<Box<dyn Given>> = Box::pin(stream);
        Self::new(stream)
    }

    /// Writes and reads as far as the stream allows, with a limit on the reads.
    ///
    /// Calls `on_read` after each read. Then calls `on_frame` with each whole reply and the value
    /// that `on_read` returned, and drops that value. `on_frame` may append more bytes to write.
    /// Resolves when `on_frame` returns `Break`, or with the error of the stream. After a `Break`,
    /// the next call begins with the replies that were read and not handed out, because the server
    /// may send nothing more.
    ///
    /// Each call writes and also reads, because a server that cannot send its replies stops reading
    /// commands.
    pub(crate) fn poll<R, B>(
        &mut self,
        cx: &mut Context<'_>,
        on_read: impl Fn() -> R,
        mut on_frame: impl FnMut(&[u8], &mut R, &mut Vec<u8>) -> ControlFlow<B>,
    ) -> Poll<io::Result<B>> {
        if self.has_replies
            && let ControlFlow::Break(done) = self.take_frames(on_read(), &mut on_frame)?
        {
            return Poll::Ready(Ok(done));
        }
        for _ in 0..Self::MOST_READS {
            let written = self.write(cx);
            let read = self.poll_read(cx);
            self.has_unread = read.is_ready();
            let is_full = self.filled == self.input.len();
            if matches!(read, Poll::Ready(Ok(())))
                && let ControlFlow::Break(done) = self.take_frames(on_read(), &mut on_frame)?
            {
                return Poll::Ready(Ok(done));
            }
            // A server that refuses a connection says why, and closes the connection without
            // reading. Its answer, such as a TLS alert, is read before the failed write is
            // reported, even if the runtime does not know of the answer yet.
            if let Err(error) = written
                && (read.is_ready() || !self.stream.has_input())
            {
                let said = match read {
                    Poll::Ready(Err(said)) if said.kind() == ErrorKind::InvalidData => said,
                    _ => error,
                };
                return Poll::Ready(Err(said));
            }
            ready!(read)?;
            // The server sends faster than this process reads.
            if is_full {
                break;
            }
        }
        poll_yield(cx)
    }

    /// Hands replies to `on_frame` until `on_frame` returns `Break`. Skips pushes, because they are
    /// no replies. For example, a server that is flushed sends a push to each connection that
    /// tracks keys.
    pub(crate) async fn answers<B>(
        &mut self,
        mut on_frame: impl FnMut(&[u8]) -> ControlFlow<B>,
    ) -> io::Result<B> {
        let mut on_reply = |frame: &[u8]| match is_push(frame) {
            true => ControlFlow::Continue(()),
            false => on_frame(frame),
        };
        poll_fn(|cx| self.poll(cx, || (), |frame, (), _| on_reply(frame))).await
    }

    /// Waits for the next reply. Calls `read` with the reply, and returns the result of `read`.
    pub(crate) async fn answer<T>(&mut self, read: impl Fn(&[u8]) -> T) -> io::Result<T> {
        self.answers(|frame| ControlFlow::Break(read(frame))).await
    }

    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        /// While at most this many written bytes are in the buffer, they stay there.
        const MANY: usize = 64 * 1024;
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            match self.stream.as_mut().poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => {
                    let why = "the connection takes no more bytes";
                    return Err(io::Error::new(ErrorKind::WriteZero, why));
                }
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    // Otherwise, the buffer would grow without end for a server that reads slowly,
                    // because the buffer might never become empty.
                    if self.written >= MANY {
                        self.out.drain(..self.written);
                        self.written = 0;
                    }
                    return Ok(());
                }
            }
        }
        if self.written > 0 {
            self.out.clear();
            self.written = 0;
            self.flushing = true;
        }
        if self.flushing {
            match self.stream.as_mut().poll_flush(cx) {
                Poll::Ready(Ok(())) => self.flushing = false,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {}
            }
        }
        Ok(())
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.filled == self.input.len() {
            if self.filled >= Self::MOST_INPUT {
                return Poll::Ready(Err(no_resp("a reply without end")));
            }
            self.input.resize(self.filled * 2, 0);
        }
        let mut space = ReadBuf::new(&mut self.input[self.filled..]);
        Poll::Ready(
            match ready!(self.stream.as_mut().poll_read(cx, &mut space)) {
                Ok(()) if space.filled().is_empty() => Err(closed()),
                Ok(()) => {
                    self.filled += space.filled().len();
                    Ok(())
                }
                // A server that is killed does not announce the end of TLS. A forged end does no
                // harm, because the length of every reply is known.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(closed()),
                Err(error) => Err(error),
            },
        )
    }

    fn take_frames<R, B>(
        &mut self,
        mut read: R,
        on_frame: &mut impl FnMut(&[u8], &mut R, &mut Vec<u8>) -> ControlFlow<B>,
    ) -> io::Result<ControlFlow<B>> {
        let mut used = 0;
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue()
            && let Some(length) = self.scan.length(&self.input[used..self.filled])?
        {
            self.scan = FrameScan::default();
            flow = on_frame(&self.input[used..used + length], &mut read, &mut self.out);
            used += length;
        }
        if used > 0 {
            self.input.copy_within(used..self.filled, 0);
            self.filled -= used;
        }
        self.has_replies = flow.is_break() && self.filled > 0;
        Ok(flow)
    }
}

fn closed() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "closed by the server")
}

/// Lets other tasks run, and lets the runtime handle its timers and sockets, before this task goes
/// on. A task that merely wakes itself may be polled many times before the runtime handles timers
/// and sockets. If another thread of the runtime is already handling them, this task does not wait
/// for that thread.
pub(crate) fn poll_yield<T>(cx: &mut Context<'_>) -> Poll<T> {
    let _ = pin!(yield_now()).poll(cx);
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::io::{join, sink};

    use super::*;

    /// A server that has already sent many messages.
    struct Flood {
        reads: Arc<AtomicUsize>,
        /// Set if each read fills the buffer.
        is_fast: bool,
    }

    const MESSAGES: usize = 1_000;

    impl AsyncRead for Flood {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            space: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.reads.fetch_add(1, Ordering::Relaxed) >= MESSAGES {
                return Poll::Pending;
            }
            let message = b"+message\r\n";
            let count = if self.is_fast {
                space.remaining() / message.len()
            } else {
                1
            };
            space.put_slice(&message.repeat(count));
            let rest = space.remaining().min(message.len()) * usize::from(self.is_fast);
            space.put_slice(&message[..rest]);
            Poll::Ready(Ok(()))
        }
    }

    /// If a poll read more often, timers and other tasks would wait for as long as the server
    /// sends.
    #[test]
    fn one_poll_reads_only_a_few_times() {
        let reads_in_one_poll = |is_fast| {
            let reads = Arc::<AtomicUsize>::default();
            let flood = Flood {
                reads: reads.clone(),
                is_fast,
            };
            let mut wire = Wire::of_given(join(flood, sink()));
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let polled = wire.poll(&mut cx, || (), |_, (), _| ControlFlow::<()>::Continue(()));
            assert!(polled.is_pending());
            reads.load(Ordering::Relaxed)
        };
        assert!(reads_in_one_poll(false) <= Wire::MOST_READS);
        assert_eq!(reads_in_one_poll(true), 1);
    }
}
