//! The bytes of a connection to a server.
//!
//! A cycle of five masters takes ten lock commands. They are written and read here, in place,
//! without an allocation per command. Other replies are only measured here. The `redis` crate reads
//! them.

use std::{
    future::poll_fn,
    ops::{ControlFlow, Range},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, lookup_host},
};

use super::{resp::FrameScan, wire_error::WireError};
use crate::core::{
    command::{Call, Command},
    script::Script,
    words::decimal,
};
use crate::master::{dial_error::DialError, task::poll_yield};

/// The transport of a connection: TCP, TLS or a unix socket.
pub(in crate::master) trait Stream: AsyncRead + AsyncWrite + Send {
    /// Makes the stream drop bytes that were written and not yet sent when it is closed, if it can.
    fn forget_unsent(&self) {}
}

impl Stream for TcpStream {
    fn forget_unsent(&self) {
        // If this fails, there is nothing else to do: the connection is given up.
        let _ = self.set_zero_linger();
    }
}

#[cfg(unix)]
impl Stream for tokio::net::UnixStream {}

pub(in crate::master) async fn connect_tcp(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let found = lookup_host((host, port)).await;
    let addresses: Vec<_> = found.map_err(DialError::Lookup)?.collect();
    let stream = TcpStream::connect(&*addresses).await;
    let stream = stream.map_err(DialError::Connect)?;
    // A lock command is one small packet, which must not wait for more.
    stream.set_nodelay(true).map_err(DialError::Connect)?;
    Ok(stream)
}

/// A stream with the bytes to write, and the bytes that were read and not yet used.
pub(in crate::master) struct Wire {
    stream: Pin<Box<dyn Stream>>,
    out: Vec<u8>,
    written: usize,
    /// `true` if all is written, but a layer below may still hold some of it back.
    flushing: bool,
    input: Vec<u8>,
    filled: usize,
    /// The progress in the first reply in `input`.
    scan: FrameScan,
}

impl Wire {
    /// The size of one read. A reply to a lock command has a few bytes.
    const FIRST_INPUT: usize = 16 * 1024;
    /// The longest reply. A peer that sends more is not a Redis server.
    const MOST_INPUT: usize = 1024 * 1024;
    /// The most reads in one poll. More would delay timers and other tasks, because a server may
    /// send without end.
    const MOST_READS: usize = 4;

    pub(in crate::master) fn new(stream: impl Stream + 'static) -> Self {
        Self {
            stream: Box::pin(stream),
            out: Vec::new(),
            written: 0,
            flushing: false,
            input: vec![0; Self::FIRST_INPUT],
            filled: 0,
            scan: FrameScan::default(),
        }
    }

    /// Drops bytes that were not sent. Must be called before the stream of a silent peer is given
    /// up: otherwise the kernel would still deliver them, after those of the next connection.
    pub(in crate::master) fn forget_unsent(&self) {
        self.stream.forget_unsent();
    }

    /// Returns the buffer that the next poll writes.
    pub(in crate::master) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes and reads as far as the stream allows, with a bound on the reads.
    ///
    /// Calls `on_frame` with each whole reply, and with the value that `on_read` returned for its
    /// read. `on_frame` may append to the bytes to write. Resolves when `on_frame` breaks, or fails
    /// with the error of the stream.
    ///
    /// Each call tries both directions, because a server that cannot send its replies stops
    /// reading.
    pub(in crate::master) fn poll<R: Copy, B>(
        &mut self,
        cx: &mut Context<'_>,
        on_read: impl Fn() -> R,
        mut on_frame: impl FnMut(&[u8], R, &mut Vec<u8>) -> ControlFlow<B>,
    ) -> Poll<Result<B, WireError>> {
        for _ in 0..Self::MOST_READS {
            self.write(cx)?;
            ready!(self.poll_read(cx))?;
            if let ControlFlow::Break(done) = self.take_frames(on_read(), &mut on_frame)? {
                return Poll::Ready(Ok(done));
            }
        }
        poll_yield(cx)
    }

    /// Hands replies to `on_frame` until it breaks.
    pub(in crate::master) async fn answers<B>(
        &mut self,
        mut on_frame: impl FnMut(&[u8]) -> ControlFlow<B>,
    ) -> Result<B, WireError> {
        poll_fn(|cx| self.poll(cx, || (), |frame, (), _| on_frame(frame))).await
    }

    /// Waits for the next reply. Returns the result of `read` for it.
    pub(in crate::master) async fn answer<T>(
        &mut self,
        read: impl Fn(&[u8]) -> T,
    ) -> Result<T, WireError> {
        self.answers(|frame| ControlFlow::Break(read(frame))).await
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), WireError> {
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            match self.stream.as_mut().poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Err(WireError::WriteZero),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Pending => {
                    self.drop_written();
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
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Pending => {}
            }
        }
        Ok(())
    }

    /// Frees the bytes that were written. A server that reads slowly may never leave the buffer
    /// empty.
    fn drop_written(&mut self) {
        const MOST: usize = 64 * 1024;
        if self.written >= MOST {
            self.out.drain(..self.written);
            self.written = 0;
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        if self.filled == self.input.len() {
            if self.filled >= Self::MOST_INPUT {
                return Poll::Ready(Err(WireError::Endless));
            }
            self.input.resize(self.filled * 2, 0);
        }
        let mut space = ReadBuf::new(&mut self.input[self.filled..]);
        Poll::Ready(
            match ready!(self.stream.as_mut().poll_read(cx, &mut space)) {
                Ok(()) if space.filled().is_empty() => Err(WireError::Closed),
                Ok(()) => {
                    self.filled += space.filled().len();
                    Ok(())
                }
                Err(error) => Err(error.into()),
            },
        )
    }

    fn take_frames<R: Copy, B>(
        &mut self,
        read: R,
        on_frame: &mut impl FnMut(&[u8], R, &mut Vec<u8>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, WireError> {
        let mut used = 0;
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue()
            && let Some(length) = self.scan.length(&self.input[used..self.filled])?
        {
            self.scan = FrameScan::default();
            flow = on_frame(&self.input[used..used + length], read, &mut self.out);
            used += length;
        }
        if used > 0 {
            self.input.copy_within(used..self.filled, 0);
            self.filled -= used;
        }
        Ok(flow)
    }
}

/// The bytes of a lock command for all masters. Masters that wake no one get an empty word in place
/// of the channel.
pub(in crate::master) struct Encoded {
    bytes: Bytes,
    /// The position of the channel, which only masters that wake waiters get.
    channel: Option<Range<usize>>,
}

/// Bytes that take no allocation unless the lock's name is long.
#[expect(
    clippy::large_enum_variant,
    reason = "the large variant is the usual one, and exists to avoid an allocation"
)]
enum Bytes {
    Few([u8; Self::FEW], usize),
    Many(Box<[u8]>),
}

impl Bytes {
    const FEW: usize = 240;

    fn of(bytes: &[u8]) -> Self {
        let mut few = [0; Self::FEW];
        match few.get_mut(..bytes.len()) {
            Some(start) => {
                start.copy_from_slice(bytes);
                Self::Few(few, bytes.len())
            }
            None => Self::Many(bytes.into()),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Few(bytes, length) => &bytes[..*length],
            Self::Many(bytes) => bytes,
        }
    }
}

impl Encoded {
    /// Encodes a command. `scratch` is left unchanged.
    pub(in crate::master) fn new(
        command: &Command,
        scripts: &ScriptHeads,
        scratch: &mut Vec<u8>,
    ) -> Self {
        let start = scratch.len();
        let channel = encode_command(command, scripts, scratch);
        let bytes = Bytes::of(&scratch[start..]);
        scratch.truncate(start);
        Self {
            bytes,
            channel: channel
                .filter(|_| command.wakes())
                .map(|channel| channel.start - start..channel.end - start),
        }
    }

    /// Appends the command to `out`. `wakes` is whether the master wakes waiters.
    pub(in crate::master) fn append_to(&self, out: &mut Vec<u8>, wakes: bool) {
        let bytes = self.bytes.as_slice();
        match &self.channel {
            Some(channel) if !wakes => {
                out.extend_from_slice(&bytes[..channel.start]);
                push_word(out, b"");
                out.extend_from_slice(&bytes[channel.end..]);
            }
            _ => out.extend_from_slice(bytes),
        }
    }
}

/// The words of a script call before the number of keys.
pub(in crate::master) struct ScriptHead(Vec<u8>);

/// The heads of all scripts.
pub(in crate::master) type ScriptHeads = [ScriptHead; Script::ALL.len()];

impl ScriptHead {
    pub(in crate::master) fn new(verb: &[u8], script: &str) -> Self {
        let mut bytes = Vec::new();
        push_word(&mut bytes, verb);
        push_word(&mut bytes, script.as_bytes());
        Self(bytes)
    }
}

/// Appends a command as an array of bulk strings.
pub(in crate::master) fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    push_length(out, b'*', words.len());
    words.iter().for_each(|word| push_word(out, word));
}

/// Appends a lock command. Takes the heads of scripts from `scripts`. Returns the position of the
/// channel, if there is one.
pub(in crate::master) fn encode_command(
    command: &Command,
    scripts: &ScriptHeads,
    out: &mut Vec<u8>,
) -> Option<Range<usize>> {
    command.call(|call| match call {
        Call::Plain(words) => {
            encode(out, words);
            None
        }
        Call::Script {
            script,
            keys,
            arguments,
        } => {
            push_length(out, b'*', 3 + keys.len() + arguments.len());
            out.extend_from_slice(&scripts[script as usize].0);
            push_word(out, decimal(keys.len() as u64, &mut [0; 20]));
            keys.iter().for_each(|key| push_word(out, key));
            let mut channel = None;
            for (at, word) in arguments.iter().enumerate() {
                let start = out.len();
                push_word(out, word);
                if script.channel() == Some(at) {
                    channel = Some(start..out.len());
                }
            }
            channel
        }
    })
}

fn push_word(out: &mut Vec<u8>, word: &[u8]) {
    push_length(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

fn push_length(out: &mut Vec<u8>, kind: u8, length: usize) {
    // The length of nearly all words.
    if length < 100 {
        let (tens, ones) = (b'0' + (length / 10) as u8, b'0' + (length % 10) as u8);
        return match tens {
            b'0' => out.extend_from_slice(&[kind, ones, b'\r', b'\n']),
            _ => out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']),
        };
    }
    out.push(kind);
    out.extend_from_slice(decimal(length as u64, &mut [0; 20]));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        command::{
            Verb,
            fixture::{of as command_for, resource},
        },
        name::Kind,
    };

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        encode(&mut out, &[b"SET", b"a key of 14 b.", b"", &[b'x'; 100]]);
        let expected = format!(
            "*4\r\n$3\r\nSET\r\n$14\r\na key of 14 b.\r\n$0\r\n\r\n$100\r\n{}\r\n",
            "x".repeat(100)
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// Holds with and without a wake-up, and for names of all lengths.
    #[test]
    fn a_command_encoded_once_has_the_bytes_of_one_encoded_for_each_master() {
        let scripts = Script::ALL.map(|script| ScriptHead::new(b"EVALSHA", script.text()));
        for verb in [Verb::Acquire, Verb::Extend, Verb::Release] {
            for (length, wakes, on_this) in [
                (1, true, true),
                (1, true, false),
                (1, false, false),
                (99, true, false),
                (100, true, true),
                (1_000, true, true),
                (1_000, true, false),
            ] {
                let resource = resource(Kind::Mutex, &"n".repeat(length));
                let command = command_for(&resource, verb, 1, None);
                let command = if wakes {
                    command
                } else {
                    command.without_wakeup()
                };
                let mut out = b"before ".to_vec();
                let encoded = Encoded::new(&command, &scripts, &mut out);
                encoded.append_to(&mut out, on_this);
                let mut expected = b"before ".to_vec();
                let command = if on_this {
                    command
                } else {
                    command.without_wakeup()
                };
                encode_command(&command, &scripts, &mut expected);
                assert_eq!(out, expected, "{verb:?} {length} {wakes} {on_this}");
            }
        }
    }
}
