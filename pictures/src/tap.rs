//! A proxy in front of a master that delays all data and notes when it passes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use testkit::proxy::Proxy;

/// A proxy in front of one master, and what has passed it.
#[derive(Debug)]
pub struct Tap {
    proxy: Proxy,
    passed: Passed,
}

type Passed = Arc<Mutex<Vec<Part>>>;

/// Some bytes that passed together.
#[derive(Clone, Debug)]
pub struct Part {
    /// The number of the client's connection, in the order in which clients connected.
    pub client: usize,
    pub way: Way,
    pub sent: Instant,
    pub arrived: Instant,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToClient,
    ToMaster,
}

impl Tap {
    /// Delays all data by `each_way` in each direction.
    pub fn new(port: u16, each_way: Duration) -> Self {
        let passed = Passed::default();
        let log = passed.clone();
        let clients = AtomicUsize::new(0);
        let proxy = Proxy::start(port, move |client, master| {
            let number = clients.fetch_add(1, Ordering::Relaxed);
            let note = |way| (log.clone(), number, way);
            pass(
                client.try_clone()?,
                master.try_clone()?,
                each_way,
                note(Way::ToMaster),
            );
            pass(master, client, each_way, note(Way::ToClient));
            Ok(())
        });
        Self { proxy, passed }
    }

    pub fn url(&self) -> String {
        self.proxy.url()
    }

    /// Returns what was sent since a time, in the order of arrival.
    pub fn since(&self, time: Instant) -> Vec<Part> {
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = passed.iter().filter(|part| part.sent >= time);
        parts.cloned().collect()
    }
}

impl Part {
    pub fn says(&self, text: &str) -> bool {
        self.text.contains(text)
    }
}

/// Passes on all data with a delay, and notes every part when it has arrived.
fn pass(mut from: TcpStream, mut to: TcpStream, delay: Duration, note: (Passed, usize, Way)) {
    let (sender, parts) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sender
                .send((Instant::now(), buffer[..length].to_vec()))
                .is_err()
            {
                return;
            }
        }
    });
    thread::spawn(move || {
        let (passed, client, way) = note;
        for (sent, bytes) in parts {
            thread::sleep((sent + delay).saturating_duration_since(Instant::now()));
            let arrived = Instant::now();
            if to.write_all(&bytes).is_err() {
                break;
            }
            let part = Part {
                client,
                way,
                sent,
                arrived,
                text: String::from_utf8_lossy(&bytes).into_owned(),
            };
            passed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(part);
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
