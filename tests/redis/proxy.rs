//! A TCP proxy in front of a master, which hears its clients some time later.

#![allow(
    clippy::disallowed_methods,
    reason = "what is delayed is delayed in real time"
)]

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Takes connections until it is dropped; those that are open then stay.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    /// Where it leads.
    server: Arc<AtomicU16>,
    is_over: Arc<AtomicBool>,
}

impl Proxy {
    /// In front of the server on `port`: what clients say takes `delay`, what it answers does not.
    pub(crate) fn start(port: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            server: Arc::new(AtomicU16::new(port)),
            is_over: Arc::default(),
        };
        let server = proxy.server.clone();
        let is_over = proxy.is_over.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // A master that is down: the client is hung up on.
                let _ = connect(&client, server.load(Ordering::Relaxed), delay);
            }
        });
        proxy
    }

    /// Leads new connections to another server.
    pub(crate) fn lead_to(&self, port: u16) {
        self.server.store(port, Ordering::Relaxed);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)); // for it to look
    }
}

fn connect(client: &TcpStream, port: u16, delay: Duration) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    pump(client.try_clone()?, server.try_clone()?, delay);
    pump(server, client.try_clone()?, Duration::ZERO);
    Ok(())
}

/// However much is on its way: `delay` is of each part, not between two of them.
fn pump(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, parts) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let part = (Instant::now() + delay, buffer[..length].to_vec());
            if sender.send(part).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, part) in parts {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&part).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
