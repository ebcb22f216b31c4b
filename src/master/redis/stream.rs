//! A stream to a master, as [`MasterSpec::connect`](crate::MasterSpec::connect) returns it.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{connection::RedisConnection, wire::Stream};

/// A stream to a master that has accepted the login: see
/// [`MasterSpec::connect`](crate::MasterSpec::connect).
pub struct MasterStream {
    /// The bytes that came with the answers to the greeting.
    early: Vec<u8>,
    stream: Pin<Box<dyn Stream>>,
}

impl From<RedisConnection> for MasterStream {
    fn from(connection: RedisConnection) -> Self {
        let mut wire = connection.wire;
        wire.input.truncate(wire.filled);
        Self {
            early: wire.input,
            stream: wire.stream,
        }
    }
}

impl AsyncRead for MasterStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return self.stream.as_mut().poll_read(cx, space);
        }
        let count = self.early.len().min(space.remaining());
        space.put_slice(&self.early[..count]);
        self.early.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MasterStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(cx)
    }
}

impl fmt::Debug for MasterStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterStream").finish_non_exhaustive()
    }
}
