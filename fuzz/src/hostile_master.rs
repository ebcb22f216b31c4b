//! A server in this process whose answers come from a script.

use std::{
    collections::VecDeque,
    future::ready,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arbitrary::Arbitrary;
use quorlock::{__internals::KINDS, LockKind, MasterSpec};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    task::yield_now,
    time::sleep,
};

use testkit::hostile::{
    answers::{CHANNELS, NO_SCRIPT, answers, greeting, honest, nested, subscription},
    resp,
};

/// The answers of a master, in order. After the last one, the master is honest.
#[derive(Arbitrary, Debug)]
pub(crate) struct Script {
    /// `true` if the answers are also for the commands of a greeting.
    is_for_greetings: bool,
    answers: Vec<Answer>,
}

/// The answer to one command.
#[derive(Arbitrary, Clone, Debug)]
enum Answer {
    /// The honest answer, with some bytes before and after it.
    Between(Vec<Bytes>, Vec<Bytes>),
    Close,
    /// A part of the honest answer. The connection closes after it.
    Cut(u8),
    Flip(u8, u8),
    Honest,
    Instead(Vec<Bytes>),
    Late(u8),
    Never,
    NoScript,
    /// The honest answer comes after the next one.
    Overtaken,
    Piecemeal(u8),
    Twice,
}

#[derive(Arbitrary, Clone, Debug)]
enum Bytes {
    Any(Vec<u8>),
    Changed(u8),
    Confirmation(bool, u8),
    Error(u8),
    Guard { since: u64, now: u64, run_id: u8 },
    Huge(u8),
    Message(u8, String),
    Nested(u8, u16),
    Number(i64),
    Push(u8),
    Reply(u8),
    Text(Vec<Word>),
}

/// A word of a text that scripts return.
#[derive(Arbitrary, Clone, Debug)]
enum Word {
    Any(String),
    Known(u8),
    Line,
    Number(i64),
}

/// A master, and what it has seen.
#[derive(Clone, Debug)]
pub(crate) struct HostileMaster(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    number: usize,
    is_for_greetings: bool,
    answers: VecDeque<Answer>,
    connections: usize,
    commands: usize,
}

impl HostileMaster {
    pub(crate) fn new(number: usize, script: Script) -> Self {
        Self(Arc::new(Mutex::new(State {
            number,
            is_for_greetings: script.is_for_greetings,
            answers: script.answers.into(),
            connections: 0,
            commands: 0,
        })))
    }

    /// Makes the master honest from now on.
    pub(crate) fn repent(&self) {
        self.with(|state| state.answers.clear());
    }

    /// Returns the number of connections and of commands so far, without greetings.
    pub(crate) fn load(&self) -> (usize, usize) {
        self.with(|state| (state.connections, state.commands))
    }

    /// Returns this master for a coordinator.
    pub(crate) fn spec(&self, address: &str) -> MasterSpec {
        let master = self.clone();
        MasterSpec::with_connector(&format!("redis://{address}"), move || {
            master.with(|state| state.connections += 1);
            let (ours, theirs) = duplex(64 * 1024);
            tokio::spawn(master.clone().serve(ours));
            ready(Ok(theirs))
        })
    }

    /// Answers until the client closes the connection, or until an answer closes it.
    async fn serve(self, mut stream: DuplexStream) {
        let (mut input, mut overtaken) = (Vec::new(), Vec::new());
        loop {
            let mut at = 0;
            while let Some((words, length)) = resp::command(&input[at..]) {
                at += length;
                if self
                    .answer(&words, &mut overtaken, &mut stream)
                    .await
                    .is_none()
                {
                    return;
                }
            }
            input.drain(..at);
            if !matches!(stream.read_buf(&mut input).await, Ok(1..)) {
                return;
            }
        }
    }

    async fn answer(
        &self,
        words: &[Vec<u8>],
        overtaken: &mut Vec<u8>,
        stream: &mut DuplexStream,
    ) -> Option<()> {
        let mut sent = self.next(words).apply(self.honest(words));
        sent.bytes.append(overtaken);
        *overtaken = sent.later;
        if !sent.pause.is_zero() {
            sleep(sent.pause).await;
        }
        for piece in sent.bytes.chunks(sent.piece) {
            stream.write_all(piece).await.ok()?;
            if piece.len() < sent.bytes.len() {
                yield_now().await;
            }
        }
        (!sent.is_last).then_some(())
    }

    fn next(&self, words: &[Vec<u8>]) -> Answer {
        let is_greeting = is_greeting(words);
        self.with(|state| {
            state.commands += usize::from(!is_greeting);
            let is_scripted = state.is_for_greetings || !is_greeting;
            let answer = is_scripted.then(|| state.answers.pop_front());
            answer.flatten().unwrap_or(Answer::Honest)
        })
    }

    fn honest(&self, words: &[Vec<u8>]) -> Vec<u8> {
        if !is_origin_query(words) {
            return honest(words);
        }
        let run_id = self.with(|state| format!("a{}", state.number));
        text(&format!("0 5 {run_id} earlier"))
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_origin_query(words: &[Vec<u8>]) -> bool {
    words.get(3).is_some_and(|key| key == b"quorlock:origin")
}

/// Returns whether a command prepares a connection.
fn is_greeting(words: &[Vec<u8>]) -> bool {
    greeting(words).is_some() || words[0] == b"CLIENT" || is_origin_query(words)
}

/// The bytes that an answer sends, and the way in which it sends them.
struct Sent {
    bytes: Vec<u8>,
    /// The bytes that come after those of the next answer.
    later: Vec<u8>,
    /// The most bytes that are written at once.
    piece: usize,
    pause: Duration,
    /// `true` if the connection closes after the bytes.
    is_last: bool,
}

impl Answer {
    /// Returns what is sent in place of the honest answer.
    fn apply(&self, honest: Vec<u8>) -> Sent {
        let sent = |bytes| Sent {
            bytes,
            later: Vec::new(),
            piece: usize::MAX,
            pause: Duration::ZERO,
            is_last: false,
        };
        match self {
            Self::Between(before, after) => {
                sent([encoded(before), honest, encoded(after)].concat())
            }
            Self::Close => Sent {
                is_last: true,
                ..sent(Vec::new())
            },
            Self::Cut(length) => {
                let length = honest.len().min(usize::from(*length));
                Sent {
                    is_last: true,
                    ..sent(honest[..length].to_vec())
                }
            }
            Self::Flip(at, bits) => {
                let mut bytes = honest;
                let at = usize::from(*at) % bytes.len();
                bytes[at] ^= bits;
                sent(bytes)
            }
            Self::Honest => sent(honest),
            Self::Instead(bytes) => sent(encoded(bytes)),
            Self::Late(millis) => {
                let pause = Duration::from_millis((*millis).into());
                Sent {
                    pause,
                    ..sent(honest)
                }
            }
            Self::Never => sent(Vec::new()),
            Self::NoScript => sent(NO_SCRIPT.to_vec()),
            Self::Overtaken => Sent {
                later: honest,
                ..sent(Vec::new())
            },
            Self::Piecemeal(length) => {
                let piece = usize::from(length % 8) + 1;
                Sent {
                    piece,
                    ..sent(honest)
                }
            }
            Self::Twice => sent(honest.repeat(2)),
        }
    }
}

fn encoded(bytes: &[Bytes]) -> Vec<u8> {
    let mut out = Vec::new();
    bytes.iter().for_each(|bytes| bytes.encode(&mut out));
    out
}

impl Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        let pick = |heading, number: u8| {
            let mut answers = answers(heading);
            answers.swap_remove(usize::from(number) % answers.len())
        };
        let name = |channel: u8| CHANNELS[usize::from(channel) % CHANNELS.len()];
        out.extend(match self {
            Self::Any(bytes) => bytes.clone(),
            Self::Changed(name) => {
                let name = format!("n{}", name % 3);
                format!(">2\r\n+invalidate\r\n*1\r\n${}\r\n{name}\r\n", name.len()).into_bytes()
            }
            Self::Confirmation(begins, channel) => {
                let what = if *begins { "subscribe" } else { "unsubscribe" };
                subscription(what, name(*channel))
            }
            Self::Error(number) => pick("Errors", *number),
            Self::Guard { since, now, run_id } => {
                text(&format!("{since} {now} a{} earlier", run_id % 4))
            }
            Self::Huge(number) => pick("Huge", *number),
            Self::Message(channel, text) => {
                let channel = String::from_utf8_lossy(name(*channel));
                let (long, length) = (channel.len(), text.len());
                format!(">3\r\n+message\r\n${long}\r\n{channel}\r\n${length}\r\n{text}\r\n").into()
            }
            Self::Nested(kind, depth) => nested(b"*~>%|"[usize::from(kind % 5)], (*depth).into()),
            Self::Number(number) => format!(":{number}\r\n").into_bytes(),
            Self::Push(number) => pick("Pushes", *number),
            Self::Reply(number) => pick("Replies", *number),
            Self::Text(words) => {
                let words: Vec<_> = words.iter().map(Word::text).collect();
                text(&words.join(" ").replace(" \n ", "\n"))
            }
        });
    }
}

impl Word {
    fn text(&self) -> String {
        const OTHERS: &[&str] = &["free", "held", "kind", "other", "queued", "skew", "stale"];
        match self {
            Self::Any(text) => text.clone(),
            Self::Known(number) => {
                let mut known = [&KINDS.map(LockKind::as_str)[..], OTHERS].concat();
                known.sort_unstable();
                known[usize::from(*number) % known.len()].to_owned()
            }
            Self::Line => "\n".to_owned(),
            Self::Number(number) => number.to_string(),
        }
    }
}

fn text(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}
