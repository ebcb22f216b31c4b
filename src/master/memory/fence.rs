//! What the parts of `lua/shared/` for fenced locks do, line by line.

use super::{
    State,
    keys::{Answer, Value},
    scripts::{Replied, Words, say, whole},
};
use crate::core::{
    bid::{Ballot, Bid, ballot},
    command::Reply,
};

/// How long a counter that nobody raises is kept, in milliseconds: 30 days.
const IDLE: u64 = 2_592_000_000;

impl State {
    pub(super) fn mutex_acquire(&mut self, words: Words<'_>) -> Replied {
        let ([key], [token, ttl]) = words.take();
        let holder = self.keys.get(key)?.map(str::to_owned);
        let is_mine = holder.as_deref() == Some(token);
        if holder.is_some() && !is_mine {
            return Ok(self.left(key));
        }
        if let Some(refused) = self.ballot(words, 1, 2, is_mine)? {
            return Ok(refused);
        }
        if is_mine {
            self.prolong(key, whole(ttl));
        } else {
            let token = Value::Text(token.to_owned());
            self.keys.put(key.to_owned(), token, Some(whole(ttl)));
        }
        Ok(Reply::Int(1))
    }

    /// Of a fenced lock: what it is refused with, if it is. The counter is key number `key`, the candidate argument
    /// number `argument`, and the window the next one.
    pub(super) fn ballot(
        &mut self,
        words: Words<'_>,
        key: usize,
        argument: usize,
        is_mine: bool,
    ) -> Answer<Option<Reply<'static>>> {
        let Some(fence) = words.key(key) else {
            return Ok(None);
        };
        let (candidate, window) = (words.argument(argument), words.argument(argument + 1));
        let counter = self.keys.get(fence)?.map_or(Ok(0), counted);
        let clock = self.wall_micros();
        let (candidate, window) = (whole(candidate), whole(window));
        // A bid that is not far off keeps the counter for another while.
        let is_near = window != 0 && candidate.abs_diff(clock) <= window;
        if is_near && counter.is_err() {
            self.keys.pexpire(fence, IDLE);
        }
        let counter = counter?;
        let verdict = ballot(candidate, counter, is_mine, clock, window);
        if is_near || (verdict == Ballot::Accepted && candidate > counter) {
            self.raise(fence, candidate.max(counter));
        }
        Ok(match verdict {
            Ballot::Accepted => None,
            Ballot::Stale => Some(say(format!("stale {counter}"))),
            Ballot::Skewed => Some(say(format!("skew {clock}"))),
        })
    }

    /// Goes behind a release.
    pub(super) fn tombstone(&mut self, words: Words<'_>, replied: Replied) -> Replied {
        let reply = replied?;
        let (fence, candidate) = words.last();
        let candidate = whole(candidate);
        // What is no counter must not keep anybody from releasing.
        let Ok(counter) = self.keys.get(fence) else {
            return Ok(reply);
        };
        let counter = counter.map_or(Ok(0), counted).unwrap_or(0);
        let ahead = self.wall_micros() + Bid::WINDOW.as_micros() as u64;
        if candidate > counter && candidate <= ahead.max(counter + 1) {
            self.raise(fence, candidate);
        }
        Ok(reply)
    }

    fn raise(&mut self, fence: &str, candidate: u64) {
        let value = Value::Text(candidate.to_string());
        self.keys.put(fence.to_owned(), value, Some(IDLE));
    }
}

fn counted(counter: &str) -> Answer<u64> {
    let counter = counter.parse();
    counter.map_err(|_| "ERR the counter is no number")
}
