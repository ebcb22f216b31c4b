//! What travels over the simulated network, and how well it travels.

use std::{collections::VecDeque, task::Waker};

/// What travels from a client to a master.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    Bytes(Vec<u8>),
    /// The client has closed the connection.
    Fin,
}

/// What travels from a master to a client.
#[derive(Clone, Debug)]
pub(super) enum Delivery {
    Broken(&'static str),
    Bytes {
        bytes: Vec<u8>,
        /// Whether a reply ends here. Otherwise, these are pushes, or a part of a reply, which says
        /// nothing yet.
        has_reply: bool,
    },
}

/// A connection between a process and a master.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) process: usize,
    pub(super) master: usize,
    pub(super) is_open: bool,
    /// `false` once the master has closed its end or has restarted.
    pub(super) is_served: bool,
    pub(super) up: Way,
    pub(super) down: Way,
    pub(super) inbox: VecDeque<Delivery>,
    pub(super) waker: Option<Waker>,
    /// The number of times that the process was stopped since the last reply.
    pub(super) stops: u32,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// Whether everything is lost, because one packet was.
    pub(super) is_lost: bool,
    /// The arrival of the last packet. Packets do not overtake each other.
    pub(super) last: u64,
}

/// The way between a process and a master.
#[derive(Debug, Default)]
pub(super) struct Path {
    pub(super) is_cut_up: bool,
    pub(super) is_cut_down: bool,
    /// Packets that wait for the end of a partition, with their connections.
    pub(super) held_up: Vec<(u64, Packet)>,
    pub(super) held_down: Vec<(u64, Delivery)>,
}
