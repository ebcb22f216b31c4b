//! Fake servers whose replies come from a closure.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::answers::{greeting, honest};
use super::resp;

/// A server that listens until it is dropped. Open connections stay open after that.
#[derive(Debug)]
pub struct Fake {
    port: u16,
    tally: Arc<Tally>,
    is_over: Arc<AtomicBool>,
}

/// The connections and commands so far.
#[derive(Debug, Default)]
pub struct Tally {
    connections: AtomicUsize,
    commands: AtomicUsize,
    acquires: AtomicUsize,
}

impl Fake {
    /// Listens on a TCP port. Serves every connection with `serve`, on a thread of its own.
    pub fn tcp(serve: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let fake = Self {
            port: listener.local_addr().unwrap().port(),
            tally: Arc::default(),
            is_over: Arc::default(),
        };
        let (tally, is_over, serve) = (fake.tally.clone(), fake.is_over.clone(), Arc::new(serve));
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let _ = socket.set_nodelay(true);
                tally.connections.fetch_add(1, Ordering::Relaxed);
                let (tally, serve) = (tally.clone(), serve.clone());
                thread::spawn(move || serve(&mut Peer::new(socket, tally)));
            }
        });
        fake
    }

    /// Starts a master that grants and releases everything, and takes `pause` for each command
    /// after the greeting.
    pub fn honest(pause: Duration) -> Self {
        Self::tcp(move |peer| peer.serve_honestly(pause))
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The number of accepted connections.
    pub fn connections(&self) -> usize {
        self.tally.connections.load(Ordering::Relaxed)
    }

    /// The number of commands read so far, without the commands of greetings.
    pub fn commands(&self) -> usize {
        self.tally.commands.load(Ordering::Relaxed)
    }

    /// The number of commands read so far that acquire a mutex.
    pub fn acquires(&self) -> usize {
        self.tally.acquires.load(Ordering::Relaxed)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Makes one more connection to wake the listening thread. The thread then sees `is_over`.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// A client of a fake server.
#[derive(Debug)]
pub struct Peer {
    socket: TcpStream,
    input: Vec<u8>,
    /// The offset of the first command that was not read yet.
    at: usize,
    tally: Arc<Tally>,
}

impl Peer {
    fn new(socket: TcpStream, tally: Arc<Tally>) -> Self {
        Self {
            socket,
            input: Vec::new(),
            at: 0,
            tally,
        }
    }

    /// Reads the next command. Returns `None` once the client has closed the connection.
    pub fn command(&mut self) -> Option<Vec<Vec<u8>>> {
        loop {
            if let Some((words, length)) = resp::command(&self.input[self.at..]) {
                self.at += length;
                if greeting(&words).is_none() {
                    self.tally.commands.fetch_add(1, Ordering::Relaxed);
                }
                if words[0] == b"SET" {
                    self.tally.acquires.fetch_add(1, Ordering::Relaxed);
                }
                return Some(words);
            }
            self.fill()?;
        }
    }

    /// Answers all commands of a greeting, and returns the first command after it.
    pub fn greet(&mut self) -> Option<Vec<Vec<u8>>> {
        loop {
            let words = self.command()?;
            match greeting(&words) {
                Some(reply) => self.say(&reply)?,
                None => return Some(words),
            }
        }
    }

    /// Sends `bytes`. Returns `None` once the client has closed the connection.
    pub fn say(&mut self, bytes: &[u8]) -> Option<()> {
        self.socket.write_all(bytes).ok()
    }

    /// Answers everything like a good master, and takes `pause` for each command.
    pub fn serve_honestly(&mut self, pause: Duration) {
        let mut out = Vec::new();
        while let Some(words) = self.command() {
            out.extend_from_slice(&honest(&words));
            if greeting(&words).is_none() {
                wait(pause);
            }
            let is_last = resp::command(&self.input[self.at..]).is_none();
            if is_last || !pause.is_zero() {
                if self.say(&out).is_none() {
                    return;
                }
                out.clear();
            }
        }
    }

    /// Reads and discards everything until the client closes the connection.
    pub fn swallow(&mut self) {
        let mut buffer = [0; 64 * 1024];
        while let Ok(1..) = self.socket.read(&mut buffer) {}
    }

    fn fill(&mut self) -> Option<()> {
        self.input.drain(..self.at);
        self.at = 0;
        let mut buffer = [0; 64 * 1024];
        match self.socket.read(&mut buffer) {
            Ok(length @ 1..) => {
                self.input.extend_from_slice(&buffer[..length]);
                Some(())
            }
            _ => None,
        }
    }
}

fn wait(pause: Duration) {
    if pause > Duration::from_millis(1) {
        return thread::sleep(pause);
    }
    // The pause is too short for a sleep.
    let start = Instant::now();
    while start.elapsed() < pause {
        std::hint::spin_loop();
    }
}
