//! Random commands on one lock with queues. In every state that they reach, a common case does what
//! the rest of its script does. A command that makes the turn of a waiter come calls the waiter.

use testkit::random::Random;

use super::{
    commands::digest,
    common_cases::{left, rest_of},
    *,
};
use crate::core::kind::table::fixture::scripts;

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
                let words = format!("99 1 30000 {PERMITS} 0 {ticket} 9000 0");
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
                let words = format!("{attempt} 1 {ttl} {PERMITS} {slot} {waits} {queue}");
                ("acquire", words)
            }
            4 => ("extend", format!("{attempt} 2 {ttl} {wants}")),
            5 => ("release", format!("{attempt} {waits} {last}")),
            6 => ("yield", format!("{attempt} {waits} 9000")),
            _ => {
                let holder = format!("{name} {}\n", digest(owner));
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
struct Scripts {
    interpreter: Interpreter,
    compiled: BTreeMap<String, Function>,
}

impl Scripts {
    fn new() -> Self {
        let interpreter = Interpreter::new().unwrap();
        let mut compiled = BTreeMap::new();
        for script in scripts() {
            let whole = interpreter.compiled(script).unwrap();
            compiled.insert(script.name.to_owned(), whole);
            let rest = rest_of(&interpreter, script);
            compiled.extend(rest.map(|rest| (format!("{} rest", script.name), rest)));
        }
        Self {
            interpreter,
            compiled,
        }
    }

    fn run(
        &self,
        script: &str,
        kind: Kind,
        words: &[String],
        before: &Database,
    ) -> (Replied, Database) {
        self.interpreter.database.replace(copy(before));
        let keys = kind.keys();
        let all = keys.iter().map(|key| (*key).to_owned());
        let all: Variadic<_> = all.chain(words.iter().cloned()).collect();
        let script = self.compiled[script].clone();
        let ran = self.interpreter.run.call((script, keys.len(), all));
        (replied(ran), self.interpreter.database.take())
    }

    /// Returns the tickets of the waiters that would be served now, but not of those that hold the
    /// lock.
    fn served(&self, kind: Kind, database: &Database) -> Vec<String> {
        let hash = database.keys.hash("lock").unwrap();
        let mut served = Vec::new();
        for (queue, wants) in kind.queues() {
            for ticket in database.keys.zrange(queue).unwrap() {
                let Call { script, words } = Call::of_waiter(ticket, wants);
                let owner = &words[0];
                let holds = hash.iter().any(|(field, value)| {
                    field.ends_with(&format!(":{owner}")) || value.ends_with(&format!(" {owner}"))
                });
                let (reply, _) = self.run(&script, kind, &words, database);
                if !holds && matches!(reply, Ok(Reply::Int(_))) {
                    served.push(ticket.to_owned());
                }
            }
        }
        served
    }
}

/// Returns the same keys at the same time.
fn copy(database: &Database) -> Database {
    Database {
        keys: database.keys.clone(),
        micros: database.micros,
        ..Database::default()
    }
}

/// Checks a command that has led from one state to the other.
fn check(
    scripts: &Scripts,
    kind: Kind,
    call: &Call,
    before: &Database,
    log: &[String],
) -> Database {
    let Call { script, words } = call;
    let (reply, after) = scripts.run(script, kind, words, before);
    assert!(reply.is_ok(), "{call:?} {reply:?} {log:#?}");
    let rest = format!("{script} rest");
    if scripts.compiled.contains_key(&rest) {
        let (other, theirs) = scripts.run(&rest, kind, words, before);
        let (ours, theirs) = ((&reply, left(&after)), (&other, left(&theirs)));
        assert_eq!(ours, theirs, "{call:?} {log:#?}");
    }
    let earlier = scripts.served(kind, before);
    let now = scripts.served(kind, &after);
    let is_called = |ticket: &&String| after.published.iter().any(|(_, called)| called == *ticket);
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
        let mut database = Database::default();
        for _ in 0..STEPS {
            if random.is_one_in(5) {
                now += random.pick(&[1, 5_000, 20_000, 30_000, 30_001, 60_001]);
            }
            database.keys.at(now);
            database.micros = now * 1_000;
            let call = Call::draw(kind, &mut attempts, random);
            log.push(format!("{now} {call:?}"));
            database = check(&scripts, kind, &call, &database, &log);
        }
    }
}
