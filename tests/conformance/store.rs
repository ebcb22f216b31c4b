//! Direct access to the keys of a master, without the machine.

use std::collections::BTreeMap;

use super::{
    plain::{Messages, Plain},
    step::*,
    *,
};
use crate::core::kind::companion::{CHANNEL, Companion};

pub(super) struct Store {
    pub(super) plain: Plain,
    messages: Messages,
}

/// A sorted set: members, and their scores relative to the master's clock.
type Scores = Vec<(String, f64)>;

/// The queues: their names, and how a state begins what it shows of them.
const QUEUES: [(&str, &str); 4] = [
    ("queue", " |"),
    ("waiters", " | waiters"),
    ("writers", " | writers"),
    ("readers", " | readers"),
];

impl Store {
    pub(super) fn of_memory(master: MemoryMaster) -> Self {
        Self {
            messages: Messages::Memory(master.connect().unwrap()),
            plain: Plain::Memory(master),
        }
    }

    pub(super) fn of_server(server: Server) -> Self {
        Self {
            messages: Messages::Server(server.listen()),
            plain: Plain::Server(server),
        }
    }

    pub(super) fn memory(&self) -> &MemoryMaster {
        match &self.plain {
            Plain::Memory(master) => master,
            Plain::Server(_) => panic!("a server has no faults to inject"),
        }
    }

    /// Returns how often clients have called `command` on a server.
    pub(super) fn server_calls(&self, command: &str) -> u64 {
        match &self.plain {
            Plain::Memory(_) => panic!("a memory master counts no calls"),
            Plain::Server(server) => server.calls(|name| name == command),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match &self.plain {
            Plain::Memory(_) => "a memory master",
            Plain::Server(_) => "a server",
        }
    }

    fn command(&self, words: &[&str]) -> String {
        self.plain.command(words)
    }

    pub(super) fn write(&self, key: &str, who: char, ttl: Option<Duration>) {
        self.write_text(key, &text_of(&token(who)), ttl);
    }

    fn write_text(&self, key: &str, value: &str, ttl: Option<Duration>) {
        assert_eq!(self.command(&["SET", key, value]), "OK");
        self.expire(key, ttl);
    }

    fn expire(&self, key: &str, ttl: Option<Duration>) {
        if let Some(ttl) = ttl {
            let ttl = ttl.as_millis().to_string();
            assert_eq!(self.command(&["PEXPIRE", key, &ttl]), "1");
        }
    }

    /// Runs a step that is not a command.
    pub(super) fn run(&self, key: &str, step: &Step) {
        match step {
            Step::Command(_) => panic!("a command goes through the machine"),
            Step::Write(who, ttl) => self.write(key, *who, *ttl),
            Step::WriteText(text, ttl) => self.write_text(key, text, *ttl),
            Step::Delete => drop(self.command(&["DEL", key])),
            Step::Count(_) | Step::Miscount(..) => {
                panic!("only a subject knows the time of its row")
            }
            Step::WriteHash(fields, ttl) => {
                self.command(&["DEL", key]);
                let now = self.plain.clock();
                for (field, value) in fields {
                    let value = stored(value, now);
                    assert_eq!(self.command(&["HSET", key, field, &value]), "1");
                }
                self.expire(key, *ttl);
            }
            Step::Enqueue(queue, ticket, deadline) => {
                self.enqueue(key, queue, ticket, *deadline);
            }
            Step::Spoil(companion) => {
                let key = companion_of(key, companion);
                self.write(&key, '?', Some(seconds(60)));
            }
        }
    }

    fn enqueue(&self, key: &str, queue: &'static Companion, ticket: &str, deadline: Option<i64>) {
        let [queue, deadlines] = [queue, companion("deadlines")].map(|one| companion_of(key, one));
        self.command(&["ZADD", &queue, "0", ticket]);
        if let Some(deadline) = deadline {
            let score = (self.plain.clock() as f64 + deadline as f64 * 1000.0).to_string();
            self.command(&["ZADD", &deadlines, &score, ticket]);
        }
    }

    pub(super) fn count(&self, key: &str, counter: &str, ttl: Option<Duration>) {
        let key = lock_id(LockKind::Mutex, key).counter();
        if counter == "hash" {
            self.command(&["DEL", &key]);
            assert_eq!(self.command(&["HSET", &key, "field", "1"]), "1");
        } else {
            self.write_text(&key, counter, ttl);
        }
    }

    /// Returns the counter of a fenced lock as it is stored, and its TTL.
    pub(super) fn counter(&self, key: &str) -> Option<(String, String)> {
        let key = lock_id(LockKind::Mutex, key).counter();
        let counter = match &*self.command(&["TYPE", &key]) {
            "none" => return None,
            "hash" => "hash".to_owned(),
            _ => self.command(&["GET", &key]),
        };
        Some((counter, self.ttl(&key)))
    }

    /// Subscribes to all channels of `key`.
    pub(super) async fn listen(&mut self, key: &str) {
        let lock_id = lock_id(LockKind::Reentrant, key);
        let turns = ['a', 'b', 'c'].map(|who| format!("quorlock:turn:{}", process(who)));
        let [a, b, c] = turns.each_ref().map(String::as_str);
        let channels = [lock_id.companion(&CHANNEL), a, b, c];
        self.messages.subscribe(&channels).await;
    }

    /// Returns the messages since the last call, each as ` +channel:message`.
    pub(super) async fn heard(&mut self, key: &str) -> String {
        let messages = self.messages.heard().await;
        let turns = ['a', 'b', 'c'].map(|who| {
            let channel = format!("quorlock:turn:{}", process(who));
            (channel, format!("turn-{who}"))
        });
        let lock_id = lock_id(LockKind::Reentrant, key);
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

    /// Returns the state of a lock: its holder, its queues with the deadlines of the waiters, and
    /// the TTLs of the queues and of the deadlines.
    pub(super) fn state(&self, key: &str) -> String {
        let mut spoilt = String::new();
        let mut scores = |name: &str| {
            let key = companion_of(key, companion(name));
            if self.is_text(&key) {
                spoilt.push_str(&format!(" spoilt-{name} {}", self.ttl(&key)));
                return None;
            }
            self.scores(&key)
        };
        let queues = QUEUES.map(|(name, label)| scores(name).map(|queue| (label, queue)));
        let deadlines = scores("deadlines");
        let mut state = self.holder(key);
        let is_queued = queues.iter().any(Option::is_some);
        if is_queued || deadlines.is_some() {
            state.push_str(&waiters(queues.into_iter().flatten(), deadlines));
            let queues = QUEUES.into_iter().filter_map(|(name, _)| {
                let key = companion_of(key, companion(name));
                (self.scores(&key).is_some() || !is_queued && name == "queue").then_some(key)
            });
            let keys = queues.chain([companion_of(key, companion("deadlines"))]);
            let ttls: Vec<_> = keys.map(|key| self.ttl(&key)).collect();
            state.push_str(&format!(" | {}", ttls.join(" ")));
        }
        state + &spoilt
    }

    fn is_text(&self, key: &str) -> bool {
        self.command(&["TYPE", key]) == "string"
    }

    fn holder(&self, key: &str) -> String {
        let what = match &*self.command(&["TYPE", key]) {
            "string" => whose(&self.command(&["GET", key])),
            "hash" => {
                let hash = pairs(&self.command(&["HGETALL", key])).collect();
                fields_of(&hash, self.plain.clock())
            }
            _ => return "nothing".to_owned(),
        };
        format!("{what} {}", self.ttl(key))
    }

    fn ttl(&self, key: &str) -> String {
        let ttl = self.command(&["PTTL", key]).parse::<i64>().unwrap();
        // PTTL replies -1 without a TTL, and -2 without a key.
        let ttl = u64::try_from(ttl).ok().map(Duration::from_millis);
        ttl.map_or_else(|| "-".to_owned(), |ttl| in_seconds(ttl.as_secs_f64()))
    }

    /// Returns the members in order.
    fn scores(&self, key: &str) -> Option<Scores> {
        let reply = self.command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
        if reply.is_empty() {
            return None;
        }
        let now = self.plain.clock() as f64;
        let scores = pairs(&reply).map(|(member, score)| {
            let score: f64 = score.parse().unwrap();
            (member, score - now)
        });
        Some(scores.collect())
    }
}

/// Returns the companion of the lock with this key.
fn companion_of(key: &str, companion: &'static Companion) -> String {
    lock_id(LockKind::Mutex, key)
        .companion(companion)
        .to_owned()
}

/// Returns the part of a state that is about waiters.
fn waiters(
    queues: impl Iterator<Item = (&'static str, Scores)>,
    deadlines: Option<Scores>,
) -> String {
    let mut state = String::new();
    let mut deadlines: BTreeMap<_, _> = deadlines.unwrap_or_default().into_iter().collect();
    for (label, queue) in queues {
        state.push_str(label);
        for (member, _) in queue {
            let deadline = deadlines.remove(&member);
            let deadline =
                deadline.map_or_else(|| "-".to_owned(), |left| in_seconds(left / 1000.0));
            state.push_str(&format!(" {} {deadline}", short(&member)));
        }
    }
    if state.is_empty() {
        state.push_str(" |");
    }
    for (member, left) in deadlines {
        let left = in_seconds(left / 1000.0);
        state.push_str(&format!(" unqueued {} {left}", short(&member)));
    }
    state
}

/// Writes the fields of a hash as `parse_field` takes them.
fn fields_of(hash: &BTreeMap<String, String>, now: u64) -> String {
    let has_mode = hash.get("mode").is_some_and(|mode| mode == "quorlock");
    let marker = hash.get("quorlock:read_write").map(String::as_str);
    let permits: BTreeMap<_, _> = hash.iter().filter_map(permit).collect();
    let first = permits.values().map(|(_, ends)| *ends).min();
    let shown = hash.iter().filter(|(field, value)| match &***field {
        "mode" => *value != "quorlock",
        "quorlock:read_write" => marker != Some("3"),
        "quorlock:semaphore" => !value.parse().is_ok_and(|time: u64| {
            let row = LONGEST_ROW.as_millis();
            first.is_some_and(|first| u128::from(first.abs_diff(time)) <= row)
        }),
        field => match field.strip_prefix("quorlock:slot:") {
            Some(slot) => permits.get(&***value).is_none_or(|(held, _)| *held != slot),
            None => true,
        },
    });
    let mut fields: Vec<_> = shown
        .map(|(field, value)| {
            let value = match (&**field, value.parse()) {
                ("quorlock:semaphore", Ok(time)) => time_left(time, now),
                (field, _) if field.starts_with("quorlock:slot:") => short(value),
                _ => self::shown(field, value, now),
            };
            format!("{}={value}", short(field))
        })
        .collect();
    fields.sort();
    // A lock that this version of the crate wrote has the field `mode`, and a read-write lock has
    // its marker.
    let begins = |words: &[&str]| {
        let is_one = |field: &String| words.iter().any(|word| field.starts_with(word));
        fields.iter().any(is_one)
    };
    let is_entry = begins(&["writer=", "reader:"]);
    let is_permit = begins(&["permit:", "semaphore="]);
    let is_ours = is_entry || is_permit || marker.is_some() || begins(&["reentrant=", "fair="]);
    if is_permit && !hash.contains_key("quorlock:semaphore") {
        fields.push("unmarked".to_owned());
    }
    if is_entry && marker.is_none() {
        fields.push("unmarked".to_owned());
    }
    if !is_entry && marker == Some("3") {
        fields.push("read_write=3".to_owned());
    }
    match (is_ours, has_mode) {
        (true, false) => fields.push("modeless".to_owned()),
        (false, true) => fields.push("mode=quorlock".to_owned()),
        _ => {}
    }
    fields.join(" ")
}

/// Returns the owner of an entry of a semaphore, its slot, and the time when its lease ends.
fn permit<'a>((field, value): (&'a String, &'a String)) -> Option<(&'a str, (&'a str, u64))> {
    let owner = field.strip_prefix("quorlock:permit:")?;
    let mut words = value.split(' ').skip(1);
    let ends = words.next()?.parse().ok()?;
    Some((owner, (words.next()?, ends)))
}

/// Returns the lines of a reply in pairs.
fn pairs(reply: &str) -> impl Iterator<Item = (String, String)> {
    let lines: Vec<_> = reply.lines().map(str::to_owned).collect();
    let pairs = lines
        .chunks(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()));
    pairs.collect::<Vec<_>>().into_iter()
}

fn whose(value: &str) -> String {
    ['A', 'B', 'C']
        .into_iter()
        .find(|who| text_of(&token(*who)) == value)
        .map_or_else(|| "another's".to_owned(), String::from)
}
