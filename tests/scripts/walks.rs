//! Random commands on one lock with queues. In every state that they reach, a common case does what
//! the rest of its script does. A command that makes the turn of a waiter come calls the waiter.

use quorlock_memory::heart::Value;
use testkit::random::Random;

use super::{common_cases::rest_of, *};

const WALKS: u64 = 4_000;
const STEPS: u32 = 16;
const START: u64 = 1_700_000_000_000;
const OWNERS: [&str; 3] = ["a", "b", "c"];
/// The number of permits of the semaphore.
const PERMITS: u64 = 2;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    ReadWrite,
    Semaphore,
}

impl Kind {
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::ReadWrite => &["lock", "quorlock:writers:lock", "deadlines", "readers"],
            Self::Semaphore => &["lock", "quorlock:waiters:lock", "deadlines"],
        }
    }

    /// Returns the queues, and what their waiters want.
    fn queues(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::ReadWrite => &[("quorlock:writers:lock", "write"), ("readers", "read")],
            Self::Semaphore => &[("quorlock:waiters:lock", "permit")],
        }
    }
}

/// A command: its script, and the arguments.
#[derive(Clone, Debug)]
struct Call {
    script: String,
    words: Vec<String>,
}

impl Call {
    fn new(script: &str, owner: &str, words: &str) -> Self {
        let words = [owner].into_iter().chain(words.split_whitespace());
        Self {
            script: script.to_owned(),
            words: words.map(str::to_owned).collect(),
        }
    }

    /// Returns an acquisition by the waiter with this ticket.
    fn of_waiter(ticket: &str, wants: &str) -> Self {
        let owner = ticket.rsplit(':').next().unwrap();
        match wants {
            "permit" => {
                let words = format!("99 30000 {PERMITS} 0 {ticket} 9000 0");
                Self::new("semaphore/acquire", owner, &words)
            }
            access => {
                let words = format!("99 1 30000 {access} {ticket} 9000 0");
                Self::new("read_write/acquire", owner, &words)
            }
        }
    }

    /// Draws a command of an owner that has made as many attempts as `attempts` says.
    fn draw(kind: Kind, attempts: &mut [u32; 3], random: &mut Random) -> Self {
        let who = random.index(OWNERS.len());
        let owner = OWNERS[who];
        attempts[who] += u32::from(attempts[who] == 0 || random.is_one_in(2));
        let attempt = attempts[who];
        let ttl = random.pick(&[30_000, 60_000]);
        let queue = random.pick(&["", "9000 0", "0 0", "-1 0"]);
        let (access, slot) = (random.pick(&["read", "write"]), 1 + random.below(PERMITS));
        // A waiter has one ticket. A writer that has become a reader keeps that of the writer.
        let reads = kind == Kind::ReadWrite && access == "read";
        let was_writer = queue == "-1 0" && random.is_one_in(2);
        let number = who as u64 + if reads && !was_writer { 3 } else { 0 };
        let ticket = format!("{}:{owner}", START * 1_000 + number);
        let (name, waits, wants, last) = match kind {
            Kind::ReadWrite => (
                "read_write",
                format!("{access} {ticket}"),
                access.to_owned(),
                "",
            ),
            Kind::Semaphore => ("semaphore", ticket, slot.to_string(), "2"),
        };
        let (verb, words) = match random.below(8) {
            0..=3 if kind == Kind::ReadWrite => {
                ("acquire", format!("{attempt} 1 {ttl} {waits} {queue}"))
            }
            0..=3 => {
                let is_any = queue != "-1 0" && !random.is_one_in(4);
                let slot = if is_any { 0 } else { slot };
                let words = format!("{attempt} {ttl} {PERMITS} {slot} {waits} {queue}");
                ("acquire", words)
            }
            4 if kind == Kind::ReadWrite => ("extend", format!("{attempt} 2 {ttl} {wants}")),
            4 => ("extend", format!("{attempt} {ttl} {wants}")),
            5 => ("release", format!("{attempt} {waits} {last}")),
            6 => ("yield", format!("{attempt} {waits} 9000")),
            _ => {
                let holder = format!("{name} {}\n", Script::new(owner).hash());
                return Self {
                    script: "shared/break".to_owned(),
                    words: vec!["channel".to_owned(), holder],
                };
            }
        };
        Self::new(&format!("{name}/{verb}"), owner, &words)
    }
}

/// The scripts. One with a common case is also there without it, under a name with `rest` at its
/// end.
struct Scripts(BTreeMap<String, Script>);

impl Scripts {
    fn new() -> Self {
        let whole = all().into_iter();
        let whole = whole.map(|(name, script)| (name.to_owned(), script));
        let rest = scripts().filter_map(|script| {
            let name = script.name;
            Some((format!("{name} rest"), rest_of(name)?))
        });
        Self(whole.chain(rest).collect())
    }

    fn run(
        &self,
        script: &str,
        kind: Kind,
        words: &[String],
        (before, now): (&Keyspace, u64),
    ) -> (Done, Keyspace) {
        let mut keys = before.clone();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let done = run(&self.0[script], (kind.keys(), &words), &mut keys, now);
        (done, keys)
    }

    /// Returns the tickets of the waiters that would be served now, but not of those that hold the
    /// lock.
    fn served(&self, kind: Kind, (keys, now): (&Keyspace, u64)) -> Vec<String> {
        let value = |key| keys.value(key, now * 1_000);
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
        let is_of = |owner: &str| {
            let Some(Value::Hash(fields)) = value("lock") else {
                return false;
            };
            fields.iter().any(|(field, value)| {
                text(field).ends_with(&format!(":{owner}"))
                    || text(value).ends_with(&format!(" {owner}"))
            })
        };
        let mut served = Vec::new();
        for (queue, wants) in kind.queues() {
            let Some(Value::Sorted(members)) = value(queue) else {
                continue;
            };
            for ticket in members.keys().map(text) {
                let Call { script, words } = Call::of_waiter(&ticket, wants);
                let ((reply, _), _) = self.run(&script, kind, &words, (keys, now));
                if !is_of(&words[0]) && matches!(reply, Reply::Int(_)) {
                    served.push(ticket);
                }
            }
        }
        served
    }
}

/// Checks a command that leads from the state `before` to another one, which it returns.
fn check(
    scripts: &Scripts,
    kind: Kind,
    call: &Call,
    before: (&Keyspace, u64),
    log: &[String],
) -> Keyspace {
    let Call { script, words } = call;
    let ((reply, published), after) = scripts.run(script, kind, words, before);
    assert!(
        !matches!(reply, Reply::Error(_)),
        "{call:?} {reply:?} {log:#?}"
    );
    let rest = format!("{script} rest");
    if scripts.0.contains_key(&rest) {
        let other = scripts.run(&rest, kind, words, before);
        let ours = ((reply, published.clone()), after.clone());
        assert_eq!(ours, other, "{call:?} {log:#?}");
    }
    let earlier = scripts.served(kind, before);
    let now = scripts.served(kind, (&after, before.1));
    let is_called = |ticket: &&String| published.iter().any(|(_, one)| *one == ticket.as_bytes());
    let is_new = |ticket: &&String| {
        !earlier.contains(ticket) && !ticket.ends_with(&format!(":{}", words[0]))
    };
    let new: Vec<_> = now.iter().filter(is_new).collect();
    // A waiter for a semaphore calls the next one when it is served.
    let misses = match kind {
        Kind::ReadWrite => !new.iter().all(is_called),
        Kind::Semaphore => !new.is_empty() && !now.iter().any(|ticket| is_called(&ticket)),
    };
    assert!(!misses, "{call:?} does not call {new:?}: {log:#?}");
    after
}

#[test]
fn commands_call_those_whose_turn_has_come() {
    let scripts = Scripts::new();
    for seed in 0..WALKS {
        let random = &mut Random::new(seed);
        let kind = random.pick(&[Kind::ReadWrite, Kind::Semaphore]);
        let (mut now, mut log, mut attempts) = (START, Vec::new(), [0; 3]);
        let mut keys = Keyspace::default();
        for _ in 0..STEPS {
            if random.is_one_in(5) {
                now += random.pick(&[1, 5_000, 20_000, 30_000, 30_001, 60_001]);
            }
            let call = Call::draw(kind, &mut attempts, random);
            log.push(format!("{now} {call:?}"));
            keys = check(&scripts, kind, &call, (&keys, now), &log);
        }
    }
}
