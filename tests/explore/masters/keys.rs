//! What the keys of a master say, and how leases end in them.

use quorlock_memory::heart::{Keyspace, Value};

use super::{START, call::owner};

/// What a client has on a master. A mutex does not tell attempts apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::explore) struct Entry {
    pub(in crate::explore) attempt: u8,
    pub(in crate::explore) writes: bool,
    /// 0 for a lock without slots.
    pub(in crate::explore) slot: u8,
}

/// What the keys of a master say. Leases and waiters that have ended are left out.
#[derive(Clone, Debug, Default)]
pub(in crate::explore) struct View {
    /// The entries of the clients, some of which may read and write.
    pub(in crate::explore) entries: Vec<(u8, Entry)>,
    /// A bit for each ticket.
    pub(in crate::explore) tickets: u8,
    /// The counter lives for seconds only.
    pub(in crate::explore) fades: bool,
}

/// Returns what the keys say.
pub(super) fn view(keyspace: &Keyspace, lock: &str) -> View {
    let mut view = View::default();
    for name in names(keyspace, |_| true) {
        match keyspace.value(&name, START) {
            Some(Value::Hash(_)) => view.entries = entries(keyspace, lock),
            Some(Value::Sorted(deadlines)) if name.contains("deadlines") => {
                let alive = deadlines.iter().filter(|(_, at)| at.get() > 1.0);
                let tickets = alive.map(|(ticket, _)| text(&ticket[..16]).parse::<u64>());
                view.tickets = tickets.fold(0, |all, ticket| all | 1 << (ticket.unwrap() - START));
            }
            Some(Value::Text(token)) if name == lock => {
                view.entries.push((token[1] - b'0', Entry::default()));
            }
            Some(Value::Text(_)) => view.fades = keyspace.pttl(&name, START) < DAY,
            _ => {}
        }
    }
    view
}

/// Returns the entries whose leases have not ended.
fn entries(keyspace: &Keyspace, lock: &str) -> Vec<(u8, Entry)> {
    let Some(Value::Hash(fields)) = keyspace.value(lock, START) else {
        return Vec::new();
    };
    let entries = fields.iter();
    let entries = entries.filter_map(|(field, value)| entry(text(field), text(value)));
    let alive = entries.filter(|(_, _, ends)| *ends > 1);
    alive.map(|(client, entry, _)| (client, entry)).collect()
}

/// Lets the lease of a client end in the first millisecond, or removes its entries.
pub(super) fn end_lease(keyspace: &mut Keyspace, lock: &str, client: u8, keeps_ended: bool) {
    let Some(Value::Hash(fields)) = keyspace.value(lock, START).cloned() else {
        return;
    };
    for (field, value) in &fields {
        let (name, value) = (text(field), text(value));
        match entry(name, value) {
            Some((of, _, ends)) if of == client && keeps_ended => {
                let ended = value.replace(&format!(" {ends}"), " 1");
                keyspace.run(&["HSET", lock, name, &ended], START);
            }
            Some((of, _, _)) if of == client => drop(keyspace.run(&["HDEL", lock, name], START)),
            None if name.starts_with("quorlock:slot:") && value == owner(client) => {
                keyspace.run(&["HDEL", lock, name], START);
            }
            _ => {}
        }
    }
    // A semaphore also has a time before which no lease ends.
    if keeps_ended && fields.contains_key(&b"quorlock:semaphore"[..]) {
        keyspace.run(&["HSET", lock, "quorlock:semaphore", "1"], START);
    }
    if !keeps_ended && entries(keyspace, lock).is_empty() {
        keyspace.run(&["DEL", lock], START);
    }
}

/// Lets keys end at times that do not depend on when they were written, so that there are fewer
/// states.
pub(super) fn settle(keyspace: &mut Keyspace) {
    for name in names(keyspace, |_| true) {
        let left = match keyspace.pttl(&name, START) {
            ..0 => continue,
            left if left < DAY && name.contains("fence") => DAY / 2,
            _ => 100 * DAY,
        };
        keyspace.run(&["PEXPIRE", &name, &left.to_string()], START);
    }
}

pub(super) fn names(keyspace: &Keyspace, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let names = keyspace
        .names(START)
        .map(|name| str::from_utf8(name).unwrap());
    names
        .filter(|name| is_wanted(name))
        .map(str::to_owned)
        .collect()
}

/// Returns the client of a field, its entry, and when its lease ends. See `lua/shared/entries.lua`
/// and `lua/shared/permits.lua`.
fn entry(field: &str, value: &str) -> Option<(u8, Entry, u64)> {
    let words: Vec<_> = value.split(' ').collect();
    let writes = field == "quorlock:writer";
    let is_permit = field.starts_with("quorlock:permit:");
    let (attempt, ends, last) = match &words[..] {
        [attempt, ends, slot] if is_permit => (attempt, ends, Some(slot)),
        [attempt, _, ends, last @ ..] => (attempt, ends, last.first()),
        _ => return None,
    };
    let owner = if writes {
        last?
    } else {
        field.rsplit(':').next()?
    };
    let entry = Entry {
        attempt: attempt.parse().ok()?,
        writes,
        slot: if is_permit { last?.parse().ok()? } else { 0 },
    };
    Some((owner.as_bytes()[0] - b'a', entry, ends.parse().ok()?))
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// A day in milliseconds. A counter that lives for less is that of a release.
const DAY: i64 = 86_400_000;
