//! Replies that no server gives, in RESP2 and RESP3, generated from one seed.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::answers::{CHANNELS, ERRORS, HUGE, NO_SCRIPT, PUSHES, REPLIES, nested, subscription};
use super::resp;
use crate::proxy::{Proxy, pass_delayed};
use crate::random::Random;

/// Falsifies one reply out of a given number.
#[derive(Debug)]
pub struct Mutator {
    seed: u64,
    one_in: AtomicU64,
    connections: AtomicU64,
    passed: AtomicU64,
    mutated: AtomicU64,
}

impl Mutator {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            one_in: AtomicU64::new(u64::MAX),
            connections: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            mutated: AtomicU64::new(0),
        }
    }

    /// Falsifies one reply out of `number` from now on.
    pub fn set_one_in(&self, number: u64) {
        self.one_in.store(number, Ordering::Relaxed);
    }

    /// The number of replies that the mutator has received.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// The number of replies that were falsified.
    pub fn mutated(&self) -> u64 {
        self.mutated.load(Ordering::Relaxed)
    }

    pub(super) fn connection(self: &Arc<Self>) -> Mutation {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        Mutation {
            mutator: self.clone(),
            random: Random::new(self.seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d)),
            seen: 0,
            held_back: None,
            no_script: 0,
            is_silent: false,
            dribbles: false,
        }
    }
}

/// The falsification of one connection's replies.
#[derive(Debug)]
pub(super) struct Mutation {
    mutator: Arc<Mutator>,
    random: Random,
    seen: u64,
    /// A reply that is sent after the next one.
    held_back: Option<Vec<u8>>,
    /// The number of replies that will still become `NOSCRIPT`.
    no_script: u64,
    is_silent: bool,
    dribbles: bool,
}

impl Mutation {
    /// Appends the possibly falsified `frame` to `out`. Returns whether the connection stays open.
    pub(super) fn pass(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        self.seen += 1;
        self.mutator.passed.fetch_add(1, Ordering::Relaxed);
        if self.is_silent {
            return true;
        }
        if self.no_script > 0 {
            self.no_script -= 1;
            out.extend_from_slice(NO_SCRIPT);
            return true;
        }
        // Most greetings stay intact: a connection that never serves commands tests little.
        let rarer = if self.seen <= GREETING { 20 } else { 1 };
        let one_in = self.mutator.one_in.load(Ordering::Relaxed);
        if !self.random.is_one_in(one_in.saturating_mul(rarer)) {
            out.extend_from_slice(frame);
            out.extend(self.held_back.take().into_iter().flatten());
            return true;
        }
        self.mutator.mutated.fetch_add(1, Ordering::Relaxed);
        match self.random.below(3) {
            0 => self.falsify(frame, out),
            1 => self.misplace(frame, out),
            _ => {
                self.insert(frame, out);
                true
            }
        }
    }

    /// Writes `out` in one piece, or byte by byte if that is the current fault.
    pub(super) fn write(&mut self, out: &[u8], to: &mut TcpStream) -> io::Result<()> {
        if !self.dribbles {
            return to.write_all(out);
        }
        self.dribbles = false;
        out.iter().try_for_each(|byte| to.write_all(&[*byte]))
    }

    /// Changes or replaces the reply itself.
    fn falsify(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        match self.random.below(8) {
            0 => {
                let start = out.len();
                out.extend_from_slice(frame);
                let at = start + self.random.index(frame.len());
                out[at] ^= 1 << self.random.below(8);
            }
            1 => out.extend_from_slice(&frame[..self.random.index(frame.len())]),
            2 => {
                out.extend_from_slice(&frame[..self.random.index(frame.len())]);
                return false;
            }
            3 => out.extend_from_slice(self.random.pick(REPLIES)),
            4 => out.extend_from_slice(self.random.pick(ERRORS)),
            5 => {
                self.no_script = self.random.below(200);
                out.extend_from_slice(NO_SCRIPT);
            }
            6 => out.extend_from_slice(self.random.pick(HUGE)),
            _ => self.nest(out),
        }
        true
    }

    /// Delivers the reply late, out of order, twice, in pieces, or not at all.
    fn misplace(&mut self, frame: &[u8], out: &mut Vec<u8>) -> bool {
        match self.random.below(7) {
            0 => {}
            1 => self.held_back = Some(frame.to_vec()),
            2 => {
                out.extend_from_slice(frame);
                out.extend_from_slice(frame);
            }
            3 => {
                out.extend_from_slice(frame);
                thread::sleep(Duration::from_millis(self.random.below(80)));
            }
            4 => {
                out.extend_from_slice(frame);
                self.dribbles = true;
            }
            5 => self.is_silent = true,
            _ => return false,
        }
        true
    }

    /// Inserts data that answers no command, before the reply or instead of it.
    fn insert(&mut self, frame: &[u8], out: &mut Vec<u8>) {
        let is_instead = self.random.is_one_in(2);
        let channel = self.random.pick(CHANNELS);
        match self.random.below(6) {
            0 => out.extend_from_slice(self.random.pick(REPLIES)),
            1 => out.extend_from_slice(&subscription("subscribe", channel)),
            2 => out.extend_from_slice(&subscription("unsubscribe", channel)),
            3 => out.extend_from_slice(&subscription("message", channel)),
            4 => out.extend_from_slice(self.random.pick(PUSHES)),
            _ => {
                let noise = (0..self.random.below(40)).map(|_| self.random.number() as u8);
                out.extend(noise.collect::<Vec<_>>());
            }
        }
        if !is_instead {
            out.extend_from_slice(frame);
        }
    }

    fn nest(&mut self, out: &mut Vec<u8>) {
        let kind = self.random.pick(b"*~>%|");
        out.extend(nested(kind, self.random.below(3_000) as usize));
    }
}

/// The approximate number of replies in a greeting.
const GREETING: u64 = 20;

/// Starts a proxy whose replies pass through `mutator`.
pub fn falsifying_proxy(server: u16, mutator: Arc<Mutator>) -> Proxy {
    Proxy::start(server, move |client, server| {
        pass_delayed(client.try_clone()?, server.try_clone()?, Duration::ZERO);
        let mutation = mutator.connection();
        thread::spawn(move || pass_mutated(server, client, mutation));
        Ok(())
    })
}

fn pass_mutated(mut from: TcpStream, mut to: TcpStream, mut mutation: Mutation) {
    let mut buffer = vec![0; 64 * 1024];
    let mut input = Vec::new();
    let mut out = Vec::new();
    'open: while let Ok(length @ 1..) = from.read(&mut buffer) {
        input.extend_from_slice(&buffer[..length]);
        let mut used = 0;
        while let Some(length) = resp::frame_length(&input[used..]) {
            let goes_on = mutation.pass(&input[used..used + length], &mut out);
            used += length;
            if !goes_on {
                let _ = to.write_all(&out);
                break 'open;
            }
        }
        input.drain(..used);
        if mutation.write(&out, &mut to).is_err() {
            break;
        }
        out.clear();
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
