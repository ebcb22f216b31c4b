//! Faults of one master, on demand.

use std::thread;

use testkit::hostile::fake_server::Fake;

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

/// Returns an endpoint that accepts connections and reads nothing, until the process ends.
pub fn black_hole() -> Fake {
    Fake::tcp(|_| {
        loop {
            thread::park();
        }
    })
}
