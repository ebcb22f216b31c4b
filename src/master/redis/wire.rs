//! The bytes between us and a server.
//!
//! Lock commands get four kinds of reply, and there are ten of them in a cycle of five masters: these
//! are written and read here, in place, without an allocation per command. Everything else a server may
//! say is only measured here, and read by the `redis` crate.

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
    command::{Call, Command, WakeScope, decimal},
    script::Script,
};
use crate::master::{dial_error::DialError, supervisor::give_way};

/// What a connection runs over: TCP, TLS or a unix socket.
pub(in crate::master) trait Stream: AsyncRead + AsyncWrite + Send {
    /// Has what was written and not yet sent dropped with the stream, as far as there is such a thing.
    fn forget_unsent(&self) {}
}

impl Stream for TcpStream {
    fn forget_unsent(&self) {
        // That it cannot be set is no reason to do anything else: the connection is given up.
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
    // A lock command is one small packet that nobody wants to wait for.
    stream.set_nodelay(true).map_err(DialError::Connect)?;
    Ok(stream)
}

/// A stream with what is to be written to it, and what was read and not yet used.
pub(in crate::master) struct Wire {
    stream: Pin<Box<dyn Stream>>,
    out: Vec<u8>,
    written: usize,
    /// All is written, and a layer below may still keep some of it back.
    flushing: bool,
    input: Vec<u8>,
    filled: usize,
    /// How far the first reply in `input` has been read.
    scan: FrameScan,
}

impl Wire {
    /// What fits in one read; a reply to a lock command has a few bytes.
    const FIRST_INPUT: usize = 16 * 1024;
    /// No answer to us is that long. Whoever sends more is not a Redis server.
    const MOST_INPUT: usize = 1024 * 1024;
    /// More reads in one poll would keep timers and other tasks waiting: a server may send without
    /// end.
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

    /// To be called before a stream is given up whose peer is silent: the kernel would go on to deliver
    /// what was written, behind what is sent over the next connection.
    pub(in crate::master) fn forget_unsent(&self) {
        self.stream.forget_unsent();
    }

    /// What is written with the next poll.
    pub(in crate::master) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes and reads as far as the stream goes, but not without end. `on_frame` sees each whole
    /// reply, with what `on_read` returned when it was read. It may append to what is to be
    /// written, or break off. Ready when it did, or with the reason why the stream is of no more
    /// use.
    ///
    /// Always tries both ways: a server that cannot get rid of its replies stops reading.
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
        give_way(cx)
    }

    /// Hands replies to `on_frame` until it breaks off.
    pub(in crate::master) async fn answers<B>(
        &mut self,
        mut on_frame: impl FnMut(&[u8]) -> ControlFlow<B>,
    ) -> Result<B, WireError> {
        poll_fn(|cx| self.poll(cx, || (), |frame, (), _| on_frame(frame))).await
    }

    /// Returns what `read` makes of the next reply.
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

    /// Frees what was written, where the rest may stay for long: a slow reader may leave one for
    /// ever.
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

/// A lock command as it goes to all masters. Those that wake nobody get an empty word for the channel.
pub(in crate::master) struct Encoded {
    bytes: Bytes,
    /// Where the word is that only those get that wake.
    channel: Option<Range<usize>>,
}

/// Without memory of their own if the lock's name is not long.
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the usual one, and is there to not be boxed"
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
    /// `scratch` is left as it was.
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
                .filter(|_| command.wakes != WakeScope::Nobody)
                .map(|channel| channel.start - start..channel.end - start),
        }
    }

    /// Appends it to `out`, for a master that wakes or not.
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

/// The words in front of the count of a script's keys.
pub(in crate::master) struct ScriptHead(Vec<u8>);

/// Those of all scripts.
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

/// Appends a lock command; scripts are named by `scripts`. Where the channel is, if there is one.
pub(in crate::master) fn encode_command(
    command: &Command,
    scripts: &ScriptHeads,
    out: &mut Vec<u8>,
) -> Option<Range<usize>> {
    command.request(|request| match request {
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
    // What nearly all words have, in one piece.
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
    use std::time::Duration;

    use super::*;
    use crate::core::{
        command::Verb,
        identity::Identity,
        lease::{Drift, Ttl},
        name::{KeyTemplate, Kind, Token},
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

    /// Encoded once or for one master: the same bytes, whether the master wakes, and however long the name is.
    #[test]
    fn what_is_encoded_for_all_is_what_each_is_to_have() {
        let scripts = Script::ALL.map(|script| ScriptHead::new(b"EVALSHA", script.text()));
        for verb in [Verb::Acquire, Verb::Extend, Verb::Release] {
            for (length, wakes, on_this) in [
                (1, WakeScope::Everybody, true),
                (1, WakeScope::Everybody, false),
                (1, WakeScope::Nobody, false),
                (99, WakeScope::Everybody, false),
                (100, WakeScope::Everybody, true),
                (1_000, WakeScope::Everybody, true),
                (1_000, WakeScope::Everybody, false),
            ] {
                let names = KeyTemplate::parse("{name}").unwrap();
                let command = Command {
                    verb,
                    resource: names
                        .resource(Kind::Mutex, "n".repeat(length).into())
                        .unwrap(),
                    identity: Identity::Token(Token::new([0; 20])),
                    ttl: Ttl::parse(
                        Duration::from_secs(1),
                        Duration::ZERO,
                        Drift::from_ppm(0).unwrap(),
                    )
                    .unwrap(),
                    depth: 1,
                    wakes,
                    patience: None,
                    ballot: None,
                };
                let mut out = b"before ".to_vec();
                let encoded = Encoded::new(&command, &scripts, &mut out);
                encoded.append_to(&mut out, on_this);
                let mut expected = b"before ".to_vec();
                let command = Command {
                    wakes: if on_this { wakes } else { WakeScope::Nobody },
                    ..command
                };
                encode_command(&command, &scripts, &mut expected);
                assert_eq!(out, expected, "{verb:?} {length} {wakes:?} {on_this}");
            }
        }
    }
}
