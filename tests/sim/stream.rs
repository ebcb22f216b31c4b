//! A stream over the simulated network, which the crate uses like a socket.

use std::{
    future::ready,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::world::World;
use crate::{
    MasterSpec,
    master::{Stream, Wire},
};

/// Returns a master as a process reaches it.
pub(super) fn spec(world: &Arc<Mutex<World>>, process: usize, master: usize) -> MasterSpec {
    let world = world.clone();
    MasterSpec::from_wire(&format!("redis://sim-{master}"), move || {
        let number = world.lock().connect(process, master);
        let world = world.clone();
        Box::pin(ready(Ok(Wire::new(SimStream { world, number }))))
    })
}

/// The client's end of a connection.
struct SimStream {
    world: Arc<Mutex<World>>,
    number: u64,
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.world.lock().read(self.number, cx, space)
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.world.lock().write(self.number, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Stream for SimStream {
    /// The network has the bytes already, so they arrive. The call only tells the checker why the
    /// stream ends.
    fn forget_unsent(&self) {
        self.world.lock().give_up(self.number);
    }

    fn has_input(&self) -> bool {
        self.world.lock().has_input(self.number)
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.world.lock().close(self.number);
    }
}
