//! The scripts `shared/inspect` and `shared/break`, translated to Rust line by line.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{
    fair::QueueKeys,
    keys::{Replied, Value},
    scripts::{ScriptWords, other_kind, say},
    server::State,
};
use crate::core::kind::{client_name::ClientName, command::Reply};

impl State {
    pub(super) fn inspect(&self, words: ScriptWords<'_>) -> Replied {
        let ([key, queue], []) = words.take();
        let holder = self.describe_any_holder(key);
        let mut lines = vec![holder.as_str()];
        let waiters = self.keys.zrange(queue).unwrap_or_default();
        lines.extend(waiters.into_iter().take(1000));
        Ok(say(lines.join("\n")))
    }

    pub(super) fn break_held(&mut self, words: ScriptWords<'_>) -> Replied {
        let ([key, queue, deadlines], [channel, holders]) = words.take();
        let holder = self.describe_any_holder(key);
        let parts: Vec<_> = holder.split(' ').collect();
        let [kind, _left, _depth, digest, ..] = parts[..] else {
            return Ok(Reply::Int(0));
        };
        if kind == "other" {
            return Ok(other_kind());
        }
        if !holders.contains(&format!("{kind} {digest}\n")) {
            return Ok(self.left(key));
        }
        self.keys.del(key);
        if kind == "reentrant" {
            self.publish(channel, "0");
        }
        if !deadlines.is_empty() {
            self.notify_next(QueueKeys { queue, deadlines });
        }
        Ok(Reply::Int(1))
    }

    /// Does the same as `shared/any_holder`.
    fn describe_any_holder(&self, key: &str) -> String {
        let left = self.keys.pttl(key);
        let holder = match self.keys.value(key) {
            None => Some("free".to_owned()),
            Some(Value::Text(token)) => {
                let client = ClientName::of_value(token).unwrap_or_default();
                Some(format!("mutex {left} 1 {} {client}", digest(token)))
            }
            Some(Value::Hash(_)) => ["fair", "reentrant"].into_iter().find_map(|name| {
                let holder = self.holder(key, &format!("quorlock:{name}")).ok()??;
                let (owner, depth) = holder;
                let (digest, owner) = (digest(&owner), owner.replace('\n', " "));
                Some(format!("{name} {left} {depth:.0} {digest} {owner}"))
            }),
            Some(Value::Sorted(_)) => None,
        };
        holder.unwrap_or_else(|| format!("other {left} 0 - "))
    }
}

/// Returns a digest of a token or an owner. Servers show its SHA-1. A memory master only needs a
/// text that is the same for the same holder and does not reveal it.
fn digest(holder: &str) -> String {
    let mut hasher = DefaultHasher::new();
    holder.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
