//! The command `SET NX PX` and the scripts of `lua/`, translated to Rust line by line.

use std::array;

use super::{
    keys::{Error, KeyResult, Replied, Value},
    server::State,
};
use crate::core::kind::{
    command::{Call, Command, Reply},
    script::Script,
};

pub(super) const FAIR: &str = "quorlock:fair";

/// The field `mode` and its value. Redisson's read-write lock takes a hash without this field for a
/// free lock.
pub(super) const MODE: (&str, &str) = ("mode", "quorlock");

/// The values of an owner in the hash of a lock: the depth, the attempt, and `mode`.
pub(super) type Mine = [Option<String>; 3];

/// The keys and arguments of a script.
#[derive(Clone, Copy)]
pub(super) struct ScriptWords<'a> {
    keys: &'a [&'a [u8]],
    arguments: &'a [&'a [u8]],
}

impl<'a> ScriptWords<'a> {
    pub(super) fn take<const K: usize, const A: usize>(self) -> ([&'a str; K], [&'a str; A]) {
        (text(self.keys), text(self.arguments))
    }

    pub(super) fn key(self, at: usize) -> Option<&'a str> {
        let [key] = text(self.keys.get(at..=at)?);
        Some(key)
    }

    pub(super) fn argument(self, at: usize) -> &'a str {
        let [argument] = text(self.arguments.get(at..).unwrap_or_default());
        argument
    }

    /// Returns the last key and the last argument.
    pub(super) fn last(self) -> (&'a str, &'a str) {
        let last = |words: &'a [&'a [u8]]| {
            let [word] = text(words.last().map_or(&[][..], std::slice::from_ref));
            word
        };
        (last(self.keys), last(self.arguments))
    }
}

fn text<'a, const N: usize>(words: &[&'a [u8]]) -> [&'a str; N] {
    array::from_fn(|at| {
        let word = words.get(at).copied().unwrap_or_default();
        std::str::from_utf8(word).unwrap_or_default()
    })
}

impl State {
    pub(in crate::master) fn execute(&mut self, command: &Command) -> Replied {
        self.keys(); // sets the time of the keys
        command.call(|call| match call {
            Call::Plain(words) => self.set_nx_px(text(words)),
            Call::Script {
                script,
                keys,
                arguments,
            } => self.run(script, keys, arguments),
        })
    }

    /// Does the same by the translations of the scripts to Rust.
    #[cfg(test)]
    pub(in crate::master) fn execute_twin(&mut self, command: &Command) -> Replied {
        self.keys(); // sets the time of the keys
        command.call(|call| match call {
            Call::Plain(words) => self.set_nx_px(text(words)),
            Call::Script {
                script,
                keys,
                arguments,
            } => self.run_twin(script, ScriptWords { keys, arguments }),
        })
    }

    fn run_twin(&mut self, script: &Script, words: ScriptWords<'_>) -> Replied {
        match script.name {
            "mutex/acquire" => self.mutex_acquire(words),
            "mutex/acquire_watched" => self.mutex_acquire_watched(words),
            "mutex/release_fenced" => {
                let replied = self.mutex_release(words);
                self.tombstone(words, replied)
            }
            "reentrant/release_fenced" => {
                let replied = self.reentrant_release(words);
                self.tombstone(words, replied)
            }
            "fair/release_fenced" => {
                let replied = self.fair_release(words);
                self.tombstone(words, replied)
            }
            "mutex/extend" => self.mutex_extend(words),
            "mutex/release" => self.mutex_release(words),
            "reentrant/acquire" => self.reentrant_acquire(words),
            "reentrant/extend" => self.reentrant_extend(words),
            "reentrant/release" => self.reentrant_release(words),
            "fair/acquire" => self.fair_acquire(words),
            "fair/release" => self.fair_release(words),
            "fair/yield" => self.fair_yield(words),
            "shared/inspect" => self.inspect(words),
            "shared/break" => self.break_held(words),
            name => Err(format!("ERR memory masters do not know {name}").into()),
        }
    }

    fn set_nx_px(&mut self, [_set, key, token, _nx, _px, ttl]: [&str; 6]) -> Replied {
        if self.keys.exists(key) {
            return Ok(Reply::Nil);
        }
        let token = Value::Text(token.to_owned());
        self.keys.put(key.to_owned(), token, Some(whole(ttl)));
        Ok(Reply::Ok)
    }

    fn mutex_acquire_watched(&mut self, words: ScriptWords<'_>) -> Replied {
        let ([key], [token, ttl]) = words.take();
        match self.keys.get(key)? {
            Some(holder) if holder == token => {}
            Some(_) => return Ok(self.left(key)),
            None => {
                let value = Value::Text(token.to_owned());
                self.keys.put(key.to_owned(), value, Some(whole(ttl)));
            }
        }
        Ok(Reply::Int(1))
    }

    fn mutex_extend(&mut self, words: ScriptWords<'_>) -> Replied {
        let ([key], [token, ttl]) = words.take();
        let Some(holder) = self.keys.get(key)? else {
            if mutant!(ExtensionTakes) {
                return self.mutex_acquire_watched(words);
            }
            return Ok(Reply::Int(0));
        };
        if holder == token {
            self.prolong(key, whole(ttl));
            return Ok(Reply::Int(1));
        }
        Ok(self.left(key))
    }

    fn mutex_release(&mut self, words: ScriptWords<'_>) -> Replied {
        let ([key], [token]) = words.take();
        let Some(holder) = self.keys.get(key)? else {
            return Ok(Reply::Int(0));
        };
        if holder == token || mutant!(ReleasesOthers) {
            self.keys.del(key);
            return Ok(Reply::Int(1));
        }
        Ok(self.left(key))
    }

    fn reentrant_acquire(&mut self, words: ScriptWords<'_>) -> Replied {
        let ([key], [owner, attempt, depth, ttl, marker]) = words.take();
        let mine = self.keys.hmget(key, [owner, marker, MODE.0])?;
        if self.keys.exists(key)
            && !(is_at_most(&mine, attempt)? && self.is_unaltered(key, &mine)?)
        {
            return self.describe_holder(key, marker, 0);
        }
        let is_same = is_of(&mine, attempt);
        if let Some(refused) = self.ballot_reply(words, 1, 5, is_same)? {
            return Ok(refused);
        }
        self.keys
            .hset(key, [(owner, depth), (marker, attempt), MODE])?;
        self.prolong(key, whole(ttl));
        Ok(Reply::Int(1))
    }

    fn reentrant_extend(&mut self, words: ScriptWords<'_>) -> Replied {
        let ([key], [owner, attempt, depth, ttl, marker]) = words.take();
        let mine = self.keys.hmget(key, [owner, marker, MODE.0])?;
        if is_of(&mine, attempt) && self.is_unaltered(key, &mine)? {
            self.prolong(key, whole(ttl));
            self.keys.hset(key, [(owner, depth)])?;
            return Ok(Reply::Int(1));
        }
        if !self.keys.exists(key) {
            return Ok(Reply::Int(0));
        }
        self.describe_holder(key, marker, 0)
    }

    fn reentrant_release(&mut self, words: ScriptWords<'_>) -> Replied {
        let ([key], [owner, attempt, depth, marker, channel]) = words.take();
        let mine = self.keys.hmget(key, [owner, marker, MODE.0])?;
        if is_at_most(&mine, attempt)? {
            if depth != "0" {
                self.keys.hset(key, [(owner, depth)])?;
                return Ok(Reply::Int(1));
            }
            if self.remove_owner(key, [owner, marker], &mine)? && !channel.is_empty() {
                self.publish(channel, "0");
            }
            return Ok(Reply::Int(1));
        }
        if !self.keys.exists(key) {
            return Ok(Reply::Int(0));
        }
        self.describe_holder(key, marker, 0)
    }

    /// Does the same as `is_unaltered` in `shared/ownership`.
    pub(super) fn is_unaltered(&self, key: &str, mine: &Mine) -> KeyResult<bool> {
        let fields = if mine[2].as_deref() == Some(MODE.1) {
            3
        } else {
            2
        };
        Ok(self.keys.hgetall(key)?.len() == fields)
    }

    /// Does the same as `remove_owner` in `shared/ownership`.
    pub(super) fn remove_owner(
        &mut self,
        key: &str,
        mine: [&str; 2],
        was: &Mine,
    ) -> KeyResult<bool> {
        if self.is_unaltered(key, was)? {
            self.keys.del(key);
            return Ok(true);
        }
        self.keys.hdel(key, &mine.map(str::to_owned))?;
        if was[2].as_deref() == Some(MODE.1) {
            self.keys.hdel(key, &[MODE.0.to_owned()])?;
        }
        Ok(false)
    }

    /// Does the same as `describe_holder` in `shared/holder`.
    pub(super) fn describe_holder(&self, key: &str, marker: &str, position: usize) -> Replied {
        let Some((owner, depth)) = self.holder(key, marker)? else {
            return Ok(other_kind());
        };
        let left = self.keys.pttl(key);
        Ok(say(format!("held {left} {depth:.0} {position} {owner}")))
    }

    /// Returns the owner and the depth of the lock under `key`. Returns `None` if the key is not a
    /// lock of the kind that `marker` names.
    pub(super) fn holder(&self, key: &str, marker: &str) -> KeyResult<Option<(String, f64)>> {
        let fields = self.keys.hgetall(key)?;
        if fields.len() > 3 {
            return Ok(None);
        }
        let (mut holder, mut is_marked, mut has_mode) = (None, false, false);
        for (field, value) in fields {
            if field == marker {
                is_marked = true;
            } else if (&*field, &*value) == MODE {
                has_mode = true;
            } else if field.starts_with("quorlock:") || holder.is_some() {
                return Ok(None);
            } else {
                holder = Some((field, number(&value).ok()));
            }
        }
        Ok(match holder {
            Some((owner, Some(depth)))
                if (0.0..9_007_199_254_740_992.0).contains(&depth)
                    && (is_marked || !(has_mode || marker == FAIR)) =>
            {
                Some((owner, depth))
            }
            _ => None,
        })
    }

    /// Makes `key` live for at least `ttl`. A key without a TTL, for which PTTL is -1, gets this
    /// TTL.
    pub(super) fn prolong(&mut self, key: &str, ttl: u64) {
        if u64::try_from(self.keys.pttl(key)).is_ok_and(|left| left >= ttl) {
            return;
        }
        self.keys.pexpire(key, ttl);
    }

    /// Returns the reply for a mutex that another attempt holds.
    pub(super) fn left(&self, key: &str) -> Reply<'static> {
        match self.keys.pttl(key) {
            ..0 => Reply::Nil,
            left => Reply::Int(-left.max(1)),
        }
    }
}

/// Returns whether this attempt holds the lock.
pub(super) fn is_of(mine: &Mine, attempt: &str) -> bool {
    matches!(mine, [Some(_), Some(holds), _] if holds == attempt)
}

/// Returns whether this attempt or an earlier one holds the lock.
pub(super) fn is_at_most(mine: &Mine, attempt: &str) -> KeyResult<bool> {
    let [Some(_), Some(holds), _] = mine else {
        return Ok(false);
    };
    Ok(number(holds)? <= number(attempt)?)
}

pub(super) fn say(text: String) -> Reply<'static> {
    Reply::Text(text.into())
}

pub(super) fn other_kind() -> Reply<'static> {
    Reply::Text("kind".into())
}

pub(super) fn number(text: &str) -> KeyResult<f64> {
    let number = text.trim().parse();
    number.map_err(|_| Error::Borrowed("ERR Error running script: not a number"))
}

/// Returns the number in an argument.
pub(super) fn whole(argument: &str) -> u64 {
    argument.parse().unwrap_or(u64::MAX)
}
