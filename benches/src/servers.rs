//! The servers for the benches: the tests' fixture, and functions that only the benches need.

pub use testkit::server::{Server, masters};

use std::ops::Sub;
use std::thread;
use std::time::{Duration, Instant};

use testkit::proxy::Proxy;

use crate::load::Result;
use crate::stats;

/// Returns a link in front of each server, with a delay of a millisecond each way. With links, the
/// figures are those of a network, where a round trip takes longer than all work of the servers and
/// the client.
pub fn links(servers: &[Server]) -> Vec<Proxy> {
    let link = |server: &Server| Proxy::delay(server.port(), Duration::from_millis(1));
    servers.iter().map(link).collect()
}

pub fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// Returns a number in `INFO`.
fn info(server: &Server, field: &str) -> Result<f64> {
    let said = server.command(&["INFO"]);
    let values = said.lines().filter_map(|line| line.split_once(':'));
    let value = values.into_iter().find(|(name, _)| *name == field);
    let (_, value) = value.ok_or_else(|| format!("INFO has no {field}"))?;
    Ok(value.trim().parse()?)
}

/// Returns the sum of a whole number in `INFO` over all servers.
pub fn total(servers: &[Server], field: &str) -> Result<u64> {
    let values = servers.iter().map(|server| info(server, field));
    Ok(values.sum::<Result<f64>>()? as u64)
}

/// Returns the processor time of the servers' main threads so far in microseconds, as the mean of
/// the servers, or zero if the system does not tell.
pub fn cpu_us(servers: &[Server]) -> f64 {
    let of = |server: &Server| stats::cpu_us(&server.pid().to_string());
    servers.iter().map(of).sum::<f64>() / servers.len() as f64
}

/// Returns the command with which the servers compare and delete a key, in small letters, if they
/// have one.
pub fn native_release(servers: &[Server]) -> Option<&'static str> {
    let has = |command: &&str| {
        let reply = servers[0].command(&[command]);
        reply.contains("wrong number of arguments")
    };
    ["delex", "delifeq"].into_iter().find(has)
}

/// Fails if a lock is left on any server. Deletes the counters of fencing tokens, which remain
/// after a lock. Keeps the key of the quarantine, because a master without this key counts as a
/// master that forgot its locks.
pub fn check_empty(servers: &[Server], whom: &str) -> Result<()> {
    const LEFT: &str = "local counters = redis.call('KEYS', 'quorlock:fence:*')
        if #counters > 0 then redis.call('DEL', unpack(counters)) end
        return redis.call('DBSIZE') - redis.call('EXISTS', 'quorlock:origin')";
    for server in servers {
        let left = server.command(&["EVAL", LEFT, "0"]);
        if left != "0" {
            return Err(format!("{whom}: {left} keys are on {} after close", server.url()).into());
        }
    }
    Ok(())
}

/// Returns the largest number of keys seen on all servers together during `span`. Commands for an
/// unreachable master may still arrive after everything was released.
pub fn most_keys(servers: &[Server], span: Duration) -> Result<u64> {
    let until = Instant::now() + span;
    let mut most = 0;
    while Instant::now() < until {
        let mut keys = 0;
        for server in servers {
            keys += server.command(&["DBSIZE"]).parse::<u64>()?;
        }
        most = most.max(keys);
        thread::sleep(Duration::from_millis(5));
    }
    Ok(most)
}

/// The statistics of some commands from `INFO commandstats`, summed over all servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub calls: u64,
    /// The processor time of those commands in microseconds.
    pub micros: u64,
}

impl Stats {
    /// Returns the statistics so far. If a script calls a command, the call counts under the name
    /// of that command. The time of the call also counts for the script.
    pub fn of(servers: &[Server], commands: &[&str]) -> Result<Self> {
        let mut sum = Self::default();
        for server in servers {
            for line in server.command(&["INFO", "commandstats"]).lines() {
                let stats = line
                    .strip_prefix("cmdstat_")
                    .and_then(|l| l.split_once(':'));
                let Some((_, stats)) = stats.filter(|(name, _)| commands.contains(name)) else {
                    continue;
                };
                for stat in stats.split(',') {
                    match stat.split_once('=') {
                        Some(("calls", calls)) => sum.calls += calls.parse::<u64>()?,
                        Some(("usec", micros)) => sum.micros += micros.parse::<u64>()?,
                        _ => {}
                    }
                }
            }
        }
        Ok(sum)
    }
}

impl Sub for Stats {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            calls: self.calls - before.calls,
            micros: self.micros - before.micros,
        }
    }
}
