//! Measures groups of masters: the load of each master, the price of groups that are idle, and the
//! costs from which one computes what groups carry.

mod capacity;
mod cycles;
mod idle;
mod load;

use std::time::Duration;

use quorlock::{Builder, Coordinator, Group, Groups, Quarantine};

use crate::load::{Flavour, Result};
use crate::options::Options;
use crate::servers::{self, Server};

/// The number of servers. The load needs them all: eight groups of three.
const SERVERS: usize = 24;

/// The number of addresses of each server. Redis listens on 16 at most.
const ADDRESSES: usize = 16;

/// On a busy machine, a cycle must take longer rather than fail.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// The time until the last answers arrive. A call returns after those of a majority.
const LAST_ANSWERS: Duration = Duration::from_millis(50);

pub fn run(options: &Options) -> Result<()> {
    if !cfg!(target_os = "linux") {
        println!("groups need the addresses 127.0.0.2 and on: left out");
        return Ok(());
    }
    let servers = servers::masters_at(SERVERS, ADDRESSES);
    // The end of a runtime ends the connections and the tasks of a part.
    let runtime = || Flavour::CurrentThread.runtime();
    runtime()?.block_on(load::run(options, &servers))?;
    runtime()?.block_on(idle::run(options, &servers))?;
    runtime()?.block_on(capacity::run(options, &servers))
}

/// Connects to groups with these masters.
fn open(settings: Builder, groups: impl Iterator<Item = Vec<String>>) -> Result<Groups> {
    let groups = groups.enumerate();
    let groups = groups.map(|(number, urls)| Group::new(format!("g{number}"), urls));
    Ok(Groups::new(settings, groups)?)
}

fn settings() -> Builder {
    let builder = Coordinator::builder().quarantine(Quarantine::Off);
    builder.node_timeout(NODE_TIMEOUT)
}

/// Returns the URLs of servers at this one of their addresses, counted from 1. A server may be a
/// master of several groups, at a different address in each.
fn urls_at(masters: &[Server], address: usize) -> Vec<String> {
    let url = |master: &Server| format!("redis://127.0.0.{address}:{}", master.port());
    masters.iter().map(url).collect()
}
