//! What travels over the simulated network, and how well it travels.

use std::{borrow::Cow, collections::VecDeque, sync::Arc, task::Waker};

use crate::{
    core::{
        protocol::command::{Command, Reply},
        restart::Incarnation,
    },
    master::session::listeners::Change,
};

/// From a client to a master.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    Caching,
    Change(Change),
    Command(Command),
    /// The client has closed the connection.
    Fin,
    /// The greeting, with the arguments of the origin script. `None` if quarantine is off.
    Hello(Option<Vec<String>>),
}

/// From a master to a client.
#[derive(Debug)]
pub(crate) enum Delivery {
    Broken(&'static str),
    /// A part of a reply. It says nothing yet.
    Bytes,
    /// A key has changed. `None` if all keys have.
    Changed(Option<String>),
    /// Many messages that all keys have changed.
    Flood,
    /// A subscription was confirmed.
    Confirmed(Arc<str>),
    Hello(Greeting),
    /// A waiter is called: a master has published the ticket of the waiter.
    Message(String),
    Reply(Result<Reply<'static>, Cow<'static, str>>),
}

#[derive(Debug)]
pub(crate) struct Greeting {
    /// `None` if the quarantine is off.
    pub(super) met: Option<Incarnation>,
    pub(super) reports_changes: bool,
}

/// A connection between a process and a master.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) process: usize,
    pub(super) master: usize,
    pub(super) is_open: bool,
    /// `false` once the master has closed its end or has restarted.
    pub(super) is_served: bool,
    /// The direction in which everything is lost, because one packet was.
    pub(super) is_lost_up: bool,
    pub(super) is_lost_down: bool,
    /// The arrival of the last packet in each direction. Packets do not overtake each other.
    pub(super) last_up: u64,
    pub(super) last_down: u64,
    pub(super) inbox: VecDeque<Delivery>,
    pub(super) waker: Option<Waker>,
    /// The number of times that the process was stopped since the last reply.
    pub(super) stops: u32,
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
