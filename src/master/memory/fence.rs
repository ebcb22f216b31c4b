//! The scripts for fenced locks in `lua/`, translated to Rust line by line.

use super::{
    keys::{KeyResult, Replied, Value},
    scripts::{ScriptWords, say, whole},
    server::State,
};
use crate::core::{
    ballot::{BallotReply, ballot_reply},
    kind::command::Reply,
    time::lease::CLOCK_WINDOW,
};

/// A counter expires if no candidate raises it for this many milliseconds: 30 days.
const IDLE: u64 = 2_592_000_000;
/// The shortest TTL in milliseconds of a counter that a release has raised.
const TOMBSTONE: u64 = 3_000;

impl State {
    pub(super) fn mutex_acquire(&mut self, words: ScriptWords<'_>) -> Replied {
        let ([key], [token, ttl]) = words.take();
        let holder = self.keys.get(key)?.map(str::to_owned);
        let is_mine = holder.as_deref() == Some(token);
        if holder.is_some() && !is_mine {
            return Ok(self.left(key));
        }
        if let Some(refused) = self.ballot_reply(words, 1, 2, is_mine)? {
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

    /// Returns the reply if the candidate is refused. Returns `None` if the candidate is accepted,
    /// or if the lock is not fenced. The counter is key number `key`. The candidate is argument
    /// number `argument`, and the window is the next argument.
    pub(super) fn ballot_reply(
        &mut self,
        words: ScriptWords<'_>,
        key: usize,
        argument: usize,
        is_mine: bool,
    ) -> KeyResult<Option<Reply<'static>>> {
        let Some(fence) = words.key(key) else {
            return Ok(None);
        };
        let (candidate, window) = (words.argument(argument), words.argument(argument + 1));
        let Some(counter) = self.counter(fence) else {
            let error = format!("ERR the key {fence} is not a counter: delete it");
            return Err(error.into());
        };
        let clock = self.wall_micros();
        let (candidate, window) = (whole(candidate), whole(window));
        let verdict = ballot_reply(candidate, counter, is_mine, clock, window);
        if verdict == BallotReply::Accepted && candidate > counter {
            self.raise(fence, candidate, IDLE);
        }
        Ok(match verdict {
            BallotReply::Accepted => None,
            BallotReply::Stale => Some(say(format!("stale {counter}"))),
            BallotReply::Skewed => Some(say(format!("skew {clock}"))),
        })
    }

    /// Does the same as `shared/tombstone`. `replied` is the reply of the release.
    pub(super) fn tombstone(&mut self, words: ScriptWords<'_>, replied: Replied) -> Replied {
        let reply = replied?;
        let (fence, candidate) = words.last();
        let candidate = whole(candidate);
        // A key that is not a counter must not prevent a release.
        let Some(counter) = self.counter(fence) else {
            return Ok(reply);
        };
        let latest = self.wall_micros() + CLOCK_WINDOW.as_micros() as u64;
        if candidate > counter && candidate <= latest.max(counter + 1) {
            let left = match self.keys.pttl(fence) {
                -2 => 0, // there is no counter
                left => u64::try_from(left).unwrap_or(IDLE),
            };
            self.raise(fence, candidate, left.max(TOMBSTONE));
        }
        Ok(reply)
    }

    /// Returns the counter under `fence`. Returns 0 if there is no key, and `None` if the key is
    /// not a counter.
    fn counter(&self, fence: &str) -> Option<u64> {
        match self.keys.get(fence) {
            Ok(None) => Some(0),
            Ok(Some(text)) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
            Ok(Some(_)) | Err(_) => None,
        }
    }

    fn raise(&mut self, fence: &str, candidate: u64, ttl: u64) {
        let value = Value::Text(candidate.to_string());
        self.keys.put(fence.to_owned(), value, Some(ttl));
    }
}
