//! The work of a hand-over of Redisson's fair lock on a master, rewritten here for comparison. In
//! Redisson's queue, the deadlines of the waiters are one timeout apart. So when a waiter gets the
//! lock, the deadlines of all other waiters move by one timeout.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::load::Result;
use crate::servers::{Server, Stats};

/// Grants the lock to `ARGV[1]`, the first in the queue.
const GRANT: &str = r"
local now = tonumber(ARGV[4])
local head = redis.call('LINDEX', KEYS[2], 0)
local dead_at = head and redis.call('ZSCORE', KEYS[3], head)
if dead_at and tonumber(dead_at) <= now then return 'dead' end
if redis.call('EXISTS', KEYS[1]) == 1 or head ~= ARGV[1] then return 'not its turn' end
redis.call('LPOP', KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[1])
for _, waiter in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  redis.call('ZINCRBY', KEYS[3], -tonumber(ARGV[3]), waiter)
end
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'granted'";

/// Releases the lock of `ARGV[1]` and notifies the first in the queue.
const RELEASE: &str = r"
local now = tonumber(ARGV[2])
local head = redis.call('LINDEX', KEYS[2], 0)
local dead_at = head and redis.call('ZSCORE', KEYS[3], head)
if dead_at and tonumber(dead_at) <= now then return 'dead' end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 'not its lock' end
redis.call('DEL', KEYS[1])
if head then redis.call('PUBLISH', KEYS[4] .. ':' .. head, 0) end
return 'released'";

/// Queues the waiters from number `ARGV[1]` to `ARGV[2]`.
const FILL: &str = r"
for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local waiter = ARGV[5] .. n
  redis.call('RPUSH', KEYS[1], waiter)
  redis.call('ZADD', KEYS[2], string.format('%.0f', ARGV[4] + ARGV[3] * (n + 1)), waiter)
end
return 'filled'";

const TIMEOUT_MS: &str = "300000";
const TTL_MS: &str = "3600000";
/// The first part of an owner. As in Redisson, this is the UUID of a process, and a thread number
/// follows.
const PROCESS: &str = "6e0f6f4e-7c39-4d0b-9f0e-0a8f8d3c1b57:";

/// A queue like Redisson's on one master, and a holder of the lock.
pub struct Redisson<'a> {
    server: &'a Server,
    names: [String; 4],
    grant: String,
    release: String,
    served: usize,
    queued: usize,
}

impl<'a> Redisson<'a> {
    pub fn new(server: &'a Server, waiters: usize) -> Result<Self> {
        let name = |what: &str| format!("redisson{what}-{waiters}");
        let mut this = Self {
            server,
            names: [name(""), name("-queue"), name("-timeout"), name("-channel")],
            grant: server.command(&["SCRIPT", "LOAD", GRANT]),
            release: server.command(&["SCRIPT", "LOAD", RELEASE]),
            served: 0,
            queued: 0,
        };
        this.fill(waiters + 1)?;
        this.grant()?;
        Ok(this)
    }

    /// Adds `more` waiters at the end of the queue.
    pub fn fill(&mut self, more: usize) -> Result<()> {
        const BATCH: usize = 1_000;
        let (first, last) = (self.queued, self.queued + more);
        for first in (first..last).step_by(BATCH) {
            let (from, to) = (first.to_string(), (last.min(first + BATCH) - 1).to_string());
            let [_, queue, timeouts, _] = &self.names;
            let words = [
                "EVAL",
                FILL,
                "2",
                queue,
                timeouts,
                &from,
                &to,
                TIMEOUT_MS,
                &now(),
                PROCESS,
            ];
            expect(&self.server.command(&words), "filled")?;
        }
        self.queued = last;
        Ok(())
    }

    /// Hands the lock over `times` times. Returns the server's statistics of these hand-overs.
    pub fn hand_over(&mut self, times: usize) -> Result<Stats> {
        let before = Stats::of(std::slice::from_ref(self.server), &["evalsha"])?;
        for _ in 0..times {
            self.release()?;
            self.served += 1;
            self.grant()?;
        }
        Ok(Stats::of(std::slice::from_ref(self.server), &["evalsha"])? - before)
    }

    pub fn clear(self) {
        let [lock, queue, timeouts, _] = &self.names;
        self.server.command(&["DEL", lock, queue, timeouts]);
    }

    fn grant(&self) -> Result<()> {
        let [lock, queue, timeouts, _] = &self.names;
        let owner = format!("{PROCESS}{}", self.served);
        let words = [
            "EVALSHA",
            &self.grant,
            "3",
            lock,
            queue,
            timeouts,
            &owner,
            TTL_MS,
            TIMEOUT_MS,
            &now(),
        ];
        expect(&self.server.command(&words), "granted")
    }

    fn release(&self) -> Result<()> {
        let [lock, queue, timeouts, channel] = &self.names;
        let owner = format!("{PROCESS}{}", self.served);
        let words = [
            "EVALSHA",
            &self.release,
            "4",
            lock,
            queue,
            timeouts,
            channel,
            &owner,
            &now(),
        ];
        expect(&self.server.command(&words), "released")
    }
}

fn expect(reply: &str, wanted: &str) -> Result<()> {
    if reply == wanted {
        Ok(())
    } else {
        Err(format!("a queue like Redisson's: {reply}").into())
    }
}

/// Returns this client's time in milliseconds. Redisson also uses the clocks of clients.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis()).to_string()
}
