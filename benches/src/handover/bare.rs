//! The limit: two processes that notify each other through the masters, on raw sockets and with one
//! thread each. A process that receives a message from a majority writes a key on a majority. A
//! hand-over takes at least this time.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream as BlockingStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::{HoldPeriod, NAME, Role, now, ready};
use crate::child::over;
use crate::load::{Result, TTL_MS};

pub(super) fn play(role: &Role) -> Result<Vec<HoldPeriod>> {
    let poll = Poll::new()?;
    let mut links = Vec::new();
    for (i, url) in role.urls.iter().enumerate() {
        let mut link = Link::connect(url, role.index)?;
        poll.registry()
            .register(&mut link.stream, Token(i), Interest::READABLE)?;
        links.push(link);
    }
    let key = format!("{NAME}-bare");
    let ttl = TTL_MS.to_string();
    let set = request(&["SET", &key, &"0".repeat(40), "PX", &ttl]);
    let publish = request(&["PUBLISH", &channel(1 - role.index), "0"]);
    let mut party = Party {
        poll,
        majority: links.len() / 2 + 1,
        links,
    };
    ready()?;
    let over = over();
    let mut periods = Vec::new();
    let mut heard = 0;
    while !over.load(Ordering::Acquire) {
        // The first process begins without a message.
        if role.index == 1 || !periods.is_empty() {
            heard += 1;
            while !party.poll_until(|link| link.heard >= heard)? {
                if over.load(Ordering::Acquire) {
                    break;
                }
            }
        }
        party.send(&set)?;
        let written = periods.len() + 1;
        while !party.poll_until(|link| link.written >= written)? {}
        let acquired = now();
        thread::sleep(role.hold);
        let released = now();
        party.send(&publish)?;
        periods.push(HoldPeriod { acquired, released });
    }
    party.send(&request(&["DEL", &key]))?;
    let published = 2 * periods.len() + 1; // every PUBLISH, and the DEL
    while !party.poll_until(|link| link.written + link.counted >= published)? {}
    Ok(periods)
}

fn channel(index: usize) -> String {
    format!("quorlock:wake:{{{NAME}}}:{index}")
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len());
    for word in words {
        out.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    out.into()
}

struct Party {
    poll: Poll,
    links: Vec<Link>,
    majority: usize,
}

impl Party {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        for link in &mut self.links {
            // The send buffer of the socket is empty, so the socket takes these few bytes at once.
            link.stream.write_all(bytes)?;
        }
        Ok(())
    }

    /// Waits for answers for at most 100 ms. Returns whether `done` is true for a majority of the
    /// links.
    fn poll_until(&mut self, done: impl Fn(&Link) -> bool) -> Result<bool> {
        let is_done =
            |links: &[Link]| links.iter().filter(|link| done(link)).count() >= self.majority;
        if is_done(&self.links) {
            return Ok(true);
        }
        let mut events = Events::with_capacity(16);
        self.poll
            .poll(&mut events, Some(Duration::from_millis(100)))?;
        for event in &events {
            self.links[event.token().0].read()?;
        }
        Ok(is_done(&self.links))
    }
}

/// One connection. It receives messages between its replies.
struct Link {
    stream: TcpStream,
    input: Vec<u8>,
    message: Vec<u8>,
    /// The numbers of messages (`heard`), of replies to SET (`written`), and of replies to other
    /// commands (`counted`).
    heard: usize,
    written: usize,
    counted: usize,
}

impl Link {
    fn connect(url: &str, index: usize) -> Result<Self> {
        let address = url.strip_prefix("redis://").ok_or("bare: not a TCP url")?;
        let channel = channel(index);
        let mut stream = BlockingStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(&request(&["HELLO", "3"]))?;
        stream.write_all(&request(&["SUBSCRIBE", &channel]))?;
        let len = channel.len();
        let subscribed = format!(">3\r\n$9\r\nsubscribe\r\n${len}\r\n{channel}\r\n:1\r\n");
        let mut answer = Vec::new();
        while !answer.ends_with(subscribed.as_bytes()) {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            answer.push(byte[0]);
        }
        stream.set_nonblocking(true)?;
        let message = format!(">3\r\n$7\r\nmessage\r\n${len}\r\n{channel}\r\n$1\r\n0\r\n");
        Ok(Self {
            stream: TcpStream::from_std(stream),
            input: Vec::with_capacity(4096),
            message: message.into(),
            heard: 0,
            written: 0,
            counted: 0,
        })
    }

    fn read(&mut self) -> Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err("bare: a server hung up".into()),
                Ok(got) => self.input.extend_from_slice(&buffer[..got]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.count(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes all complete replies from the input.
    fn count(&mut self) -> Result<()> {
        loop {
            let input = &self.input;
            let len = match input.first() {
                Some(b'>') if input.starts_with(&self.message) => {
                    self.heard += 1;
                    self.message.len()
                }
                Some(b'>') if self.message.starts_with(input) => return Ok(()),
                Some(b'+' | b':') => {
                    let Some(end) = input.windows(2).position(|two| two == b"\r\n") else {
                        return Ok(());
                    };
                    if input[0] == b'+' {
                        self.written += 1;
                    } else {
                        self.counted += 1;
                    }
                    end + 2
                }
                None => return Ok(()),
                Some(_) => {
                    return Err(format!("bare: got {}", String::from_utf8_lossy(input)).into());
                }
            };
            self.input.drain(..len);
        }
    }
}
