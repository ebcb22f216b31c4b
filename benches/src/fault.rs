//! Faults of one master, on demand.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::load::Result;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// A server stopped by SIGSTOP: its kernel accepts data, but nothing answers.
    Hung,
    /// An endpoint that accepts connections and never answers.
    BlackHole,
}

impl Fault {
    pub const ALL: [Self; 2] = [Self::Hung, Self::BlackHole];

    pub fn name(self) -> &'static str {
        match self {
            Self::Hung => "hung",
            Self::BlackHole => "black_hole",
        }
    }
}

/// A listener that accepts connections and reads nothing, until the process ends.
pub struct BlackHole {
    port: u16,
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl BlackHole {
    pub fn open() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let held: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let into = Arc::clone(&held);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                into.lock().unwrap().push(stream);
            }
        });
        Ok(Self { port, held })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The number of connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.held.lock().unwrap().len()
    }
}
