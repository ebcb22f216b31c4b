//! Proxies in front of real masters: some delay what passes, others falsify what comes back.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::mutator::{Mutation, Mutator};
use super::resp;

/// Takes connections until it is dropped; those that are open then stay.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    is_over: Arc<AtomicBool>,
}

impl Proxy {
    /// Whatever passes takes `each_way`, however much it is.
    pub fn delay(server: u16, each_way: Duration) -> Self {
        Self::start(server, move |from, to| {
            pass_late(from.try_clone()?, to.try_clone()?, each_way);
            pass_late(to, from, each_way);
            Ok(())
        })
    }

    /// Replies pass through `mutator`.
    pub fn mutate(server: u16, mutator: Arc<Mutator>) -> Self {
        Self::start(server, move |from, to| {
            pass_late(from.try_clone()?, to.try_clone()?, Duration::ZERO);
            let mutation = mutator.connection();
            thread::spawn(move || pass_mutated(to, from, mutation));
            Ok(())
        })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn start(
        server: u16,
        connect: impl Fn(TcpStream, TcpStream) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            is_over: Arc::default(),
        };
        let is_over = proxy.is_over.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(master) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else {
                    continue; // a master that is down: the client is hung up on
                };
                let _ = client.set_nodelay(true);
                let _ = master.set_nodelay(true);
                let _ = connect(client, master);
            }
        });
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)); // for it to look
    }
}

fn pass_late(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
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
