//! Direct access to the keys of a master, without the mailbox.

use std::collections::BTreeMap;

use testkit::server::Listener;

use super::{step::*, *};
use crate::core::{
    kind::fair::{DEADLINES, QUEUE},
    protocol::companion::CHANNEL,
};

pub(super) enum Store {
    Memory(MemoryMaster),
    Real(Server, Listener),
}

/// A sorted set: members, and their scores relative to the master's clock.
type Scores = Vec<(String, f64)>;

impl Store {
    pub(super) fn memory(&self) -> &MemoryMaster {
        match self {
            Self::Memory(master) => master,
            Self::Real(..) => panic!("a server has no faults to inject"),
        }
    }

    /// Returns how often clients have called `command` on a server.
    pub(super) fn server_calls(&self, command: &str) -> u64 {
        match self {
            Self::Memory(_) => panic!("a memory master counts no calls"),
            Self::Real(server, _) => server.calls(|name| name == command),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Memory(_) => "a memory master",
            Self::Real(..) => "a server",
        }
    }

    pub(super) fn write(&self, key: &str, who: char, ttl: Option<Duration>) {
        self.write_text(key, &text_of(&token(who)), ttl);
    }

    fn write_text(&self, key: &str, value: &str, ttl: Option<Duration>) {
        match self {
            Self::Memory(master) => master.set(key, value, ttl),
            Self::Real(server, _) => {
                assert_eq!(server.command(&["SET", key, value]), "OK");
                expire(server, key, ttl);
            }
        }
    }

    /// Changes `key` by a step that is not a command. `flush` deletes all keys.
    pub(super) fn change(&self, key: &str, change: &str) {
        match (change, self) {
            ("flush", Self::Memory(master)) => master.forget(),
            ("flush", Self::Real(server, _)) => {
                assert_eq!(server.command(&["FLUSHALL"]), "OK");
            }
            _ => self.run(key, &Step::parse(change)),
        }
    }

    /// Runs a step that is not a command.
    pub(super) fn run(&self, key: &str, step: &Step) {
        match (step, self) {
            (Step::Command(_), _) => panic!("a command goes through the mailbox"),
            (Step::Write(who, ttl), _) => self.write(key, *who, *ttl),
            (Step::WriteText(text, ttl), _) => self.write_text(key, text, *ttl),
            (Step::Delete, Self::Memory(master)) => master.delete(key),
            (Step::Delete, Self::Real(server, _)) => {
                server.command(&["DEL", key]);
            }
            (Step::Count(_) | Step::Miscount(..), _) => {
                panic!("only a subject knows the time of its row")
            }
            (Step::WriteHash(fields, ttl), Self::Memory(master)) => {
                master.set_hash(key, fields.iter().cloned(), *ttl);
            }
            (Step::WriteHash(fields, ttl), Self::Real(server, _)) => {
                server.command(&["DEL", key]);
                for (field, value) in fields {
                    assert_eq!(server.command(&["HSET", key, field, value]), "1");
                }
                expire(server, key, *ttl);
            }
            (Step::Enqueue(ticket, deadline), _) => self.enqueue(key, ticket, *deadline),
            (Step::Spoil { is_queue }, _) => {
                let fair = lock_id(Kind::Fair, key);
                let key = if *is_queue {
                    fair.companion(&QUEUE)
                } else {
                    fair.companion(&DEADLINES)
                };
                self.write(key, '?', Some(seconds(60)));
            }
        }
    }

    fn enqueue(&self, key: &str, ticket: &str, deadline: Option<i64>) {
        let fair = lock_id(Kind::Fair, key);
        let after = deadline.map(|deadline| deadline as f64 * 1000.0);
        match self {
            Self::Memory(master) => {
                master.add(fair.companion(&QUEUE), ticket, |_| 0.0);
                if let Some(after) = after {
                    master.add(fair.companion(&DEADLINES), ticket, |now| now as f64 + after);
                }
            }
            Self::Real(server, _) => {
                server.command(&["ZADD", fair.companion(&QUEUE), "0", ticket]);
                if let Some(after) = after {
                    let score = (clock_of(server) + after).to_string();
                    server.command(&["ZADD", fair.companion(&DEADLINES), &score, ticket]);
                }
            }
        }
    }

    pub(super) fn count(&self, key: &str, counter: &str, ttl: Option<Duration>) {
        let key = lock_id(Kind::Mutex, key).counter();
        match (self, counter) {
            (Self::Memory(master), "hash") => {
                master.set_hash(&*key, [("field", "1")], None);
            }
            (Self::Real(server, _), "hash") => {
                server.command(&["DEL", &key]);
                assert_eq!(server.command(&["HSET", &key, "field", "1"]), "1");
            }
            (Self::Memory(master), counter) => master.set(&*key, counter, ttl),
            (Self::Real(server, _), counter) => {
                assert_eq!(server.command(&["SET", &key, counter]), "OK");
                expire(server, &key, ttl);
            }
        }
    }

    /// Returns the counter of a fenced lock as it is stored, and its TTL.
    pub(super) fn counter(&self, key: &str) -> Option<(String, String)> {
        let key = lock_id(Kind::Mutex, key).counter();
        let counter = match self {
            Self::Memory(master) => {
                let hash = master.hash(&key).map(|_| "hash".to_owned());
                hash.or_else(|| master.get(&key))?
            }
            Self::Real(server, _) => match &*server.command(&["TYPE", &key]) {
                "none" => return None,
                "hash" => "hash".to_owned(),
                _ => server.command(&["GET", &key]),
            },
        };
        Some((counter, self.ttl(&key)))
    }

    /// Subscribes to all channels of `key`.
    pub(super) fn listen(&self, key: &str) {
        let Self::Memory(master) = self else {
            return; // its listener is subscribed to all channels
        };
        master.listen(lock_id(Kind::Reentrant, key).companion(&CHANNEL));
        for who in ['a', 'b', 'c'] {
            master.listen(&format!("quorlock:turn:{}", process(who)));
        }
    }

    /// Returns the messages since the last call, each as ` +channel:message`.
    pub(super) fn heard(&mut self, key: &str) -> String {
        let messages = match self {
            Self::Memory(master) => master.heard(),
            Self::Real(_, listener) => listener.heard().unwrap(),
        };
        let turns = ['a', 'b', 'c'].map(|who| {
            let channel = format!("quorlock:turn:{}", process(who));
            (channel, format!("turn-{who}"))
        });
        let lock_id = lock_id(Kind::Reentrant, key);
        let redisson = (
            lock_id.companion(&CHANNEL).to_owned(),
            "redisson".to_owned(),
        );
        let names: BTreeMap<_, _> = turns.into_iter().chain([redisson]).collect();
        messages
            .iter()
            .map(|(channel, text)| {
                let name = names.get(channel).unwrap_or(channel);
                format!(" +{name}:{}", short(text))
            })
            .collect()
    }

    /// Returns the state of a lock: its holder, its waiters with their deadlines, and the TTLs of
    /// the queue and of the deadlines.
    pub(super) fn state(&self, key: &str) -> String {
        let fair = lock_id(Kind::Fair, key);
        let mut spoilt = String::new();
        let mut scores = |name: &str, key: &str| {
            if self.is_text(key) {
                spoilt.push_str(&format!(" spoilt-{name} {}", self.ttl(key)));
                return None;
            }
            self.scores(key)
        };
        let queue = scores("queue", fair.companion(&QUEUE));
        let deadlines = scores("deadlines", fair.companion(&DEADLINES));
        let mut state = self.holder(key);
        if queue.is_some() || deadlines.is_some() {
            state.push_str(&self.waiters(&fair, queue, deadlines));
        }
        state + &spoilt
    }

    /// Returns the part of a state that is about waiters.
    fn waiters(&self, fair: &LockId, queue: Option<Scores>, deadlines: Option<Scores>) -> String {
        let mut state = String::new();
        state.push_str(" |");
        let mut deadlines: BTreeMap<_, _> = deadlines.unwrap_or_default().into_iter().collect();
        for (member, _) in queue.unwrap_or_default() {
            let deadline = deadlines.remove(&member);
            let deadline =
                deadline.map_or_else(|| "-".to_owned(), |left| in_seconds(left / 1000.0));
            state.push_str(&format!(" {} {deadline}", short(&member)));
        }
        for (member, left) in deadlines {
            let left = in_seconds(left / 1000.0);
            state.push_str(&format!(" unqueued {} {left}", short(&member)));
        }
        let ttls = [fair.companion(&QUEUE), fair.companion(&DEADLINES)].map(|key| self.ttl(key));
        format!("{state} | {}", ttls.join(" "))
    }

    fn is_text(&self, key: &str) -> bool {
        match self {
            Self::Memory(master) => master.get(key).is_some(),
            Self::Real(server, _) => server.command(&["TYPE", key]) == "string",
        }
    }

    fn holder(&self, key: &str) -> String {
        let (text, hash) = match self {
            Self::Memory(master) => (master.get(key), master.hash(key)),
            Self::Real(server, _) => {
                let kind = server.command(&["TYPE", key]);
                let is = |what: &str| (kind == what).then_some(());
                (
                    is("string").map(|()| server.command(&["GET", key])),
                    is("hash").map(|()| pairs(&server.command(&["HGETALL", key])).collect()),
                )
            }
        };
        let what = match (text, hash) {
            (Some(text), _) => whose(&text),
            (None, Some(hash)) => {
                let is_mode = |field: &str, value: &str| (field, value) == ("mode", "quorlock");
                let has_mode = hash.iter().any(|(field, value)| is_mode(field, value));
                let others = hash.iter().filter(|(field, value)| !is_mode(field, value));
                let mut fields: Vec<_> = others
                    .map(|(field, value)| format!("{}={value}", short(field)))
                    .collect();
                fields.sort();
                // A lock that this version of the crate wrote has the field `mode`.
                let is_ours =
                    |field: &String| field.starts_with("reentrant=") || field.starts_with("fair=");
                match (fields.iter().any(is_ours), has_mode) {
                    (true, false) => fields.push("modeless".to_owned()),
                    (false, true) => fields.push("mode=quorlock".to_owned()),
                    _ => {}
                }
                fields.join(" ")
            }
            (None, None) => return "nothing".to_owned(),
        };
        format!("{what} {}", self.ttl(key))
    }

    fn ttl(&self, key: &str) -> String {
        let ttl = match self {
            Self::Memory(master) => master.pttl(key),
            Self::Real(server, _) => {
                let ttl = server.command(&["PTTL", key]).parse::<i64>().unwrap();
                // PTTL replies -1 without a TTL, and -2 without a key.
                u64::try_from(ttl).ok().map(Duration::from_millis)
            }
        };
        ttl.map_or_else(|| "-".to_owned(), |ttl| in_seconds(ttl.as_secs_f64()))
    }

    /// Returns the members in order.
    fn scores(&self, key: &str) -> Option<Scores> {
        let (mut scores, now): (Scores, f64) = match self {
            Self::Memory(master) => {
                let (scores, now) = master.scores(key)?;
                (scores, now as f64)
            }
            Self::Real(server, _) => {
                let reply = server.command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
                if reply.is_empty() {
                    return None;
                }
                let scores = pairs(&reply).map(|(member, score)| (member, score.parse().unwrap()));
                (scores.collect(), clock_of(server))
            }
        };
        for (_, score) in &mut scores {
            *score -= now;
        }
        Some(scores)
    }
}

/// Returns the lines of a reply in pairs.
fn pairs(reply: &str) -> impl Iterator<Item = (String, String)> {
    let lines: Vec<_> = reply.lines().map(str::to_owned).collect();
    let pairs = lines
        .chunks(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()));
    pairs.collect::<Vec<_>>().into_iter()
}

/// Returns the master's clock in milliseconds.
fn clock_of(server: &Server) -> f64 {
    let reply = server.command(&["TIME"]);
    let (seconds, micros) = reply.split_once('\n').unwrap();
    let number = |text: &str| text.parse::<f64>().unwrap();
    (number(seconds) * 1000.0 + number(micros) / 1000.0).floor()
}

fn expire(server: &Server, key: &str, ttl: Option<Duration>) {
    if let Some(ttl) = ttl {
        let ttl = ttl.as_millis().to_string();
        assert_eq!(server.command(&["PEXPIRE", key, &ttl]), "1");
    }
}

fn whose(value: &str) -> String {
    ['A', 'B', 'C']
        .into_iter()
        .find(|who| text_of(&token(*who)) == value)
        .map_or_else(|| "another's".to_owned(), String::from)
}
