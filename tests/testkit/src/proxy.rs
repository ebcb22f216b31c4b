//! TCP proxies in front of real masters. They delay the data that passes, or lose it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A proxy that accepts connections until it is dropped. Open connections stay open after that.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    /// The port of the server.
    server: Arc<AtomicU16>,
    is_over: Arc<AtomicBool>,
}

impl Proxy {
    /// Delays all data by `each_way` in each direction. The bandwidth is not limited.
    pub fn delay(server: u16, each_way: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            server: Arc::new(AtomicU16::new(server)),
            is_over: Arc::default(),
        };
        let (server, is_over) = (proxy.server.clone(), proxy.is_over.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let port = server.load(Ordering::Relaxed);
                let Ok(master) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
                    continue; // the master is down, so the client's connection is closed
                };
                let _ = client.set_nodelay(true);
                let _ = master.set_nodelay(true);
                let _ = delay_both(client, master, each_way);
            }
        });
        proxy
    }

    /// Sends new connections to another server.
    pub fn lead_to(&self, server: u16) {
        self.server.store(server, Ordering::Relaxed);
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Makes one more connection to wake the listening thread. The thread then sees `is_over`.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn delay_both(client: TcpStream, server: TcpStream, each_way: Duration) -> io::Result<()> {
    pass_delayed(client.try_clone()?, server.try_clone()?, each_way);
    pass_delayed(server, client, each_way);
    Ok(())
}

/// Passes on all data with a delay.
fn pass_delayed(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, parts) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
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
