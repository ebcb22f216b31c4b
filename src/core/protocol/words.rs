//! The words that a client sends for each kind and verb, and the refusals with which a master can
//! answer.

use std::iter;

use super::{
    Action, Command, Holding, Identity, QueueOptions, Reply, identity::whole_millis, name::Token,
};
use crate::core::{
    kind::{
        self, LockKind, Script,
        companion::{CHANNEL, Companion, FENCE},
        fair, mutex, read_write, reentrant,
        script::{BREAK, INSPECT},
        semaphore,
    },
    time::lease::CLOCK_WINDOW,
    vote::{self, Refusal, Verb},
};

use Word::{
    Access, Ballot, By, Channel, Depth, Holders, Key, Permits, Queue, Slot, Text, Ticket, Timeout,
    Ttl,
};

const SET: Word = Text("SET");
const NX: Word = Text("NX");
const PX: Word = Text("PX");
/// In the hash of a lock, one of these fields names the kind. The value of that field is the number
/// of the attempt that holds the lock.
const REENTRANT: Word = Text("quorlock:reentrant");
const FAIR: Word = Text("quorlock:fair");

impl Command {
    /// Returns the words of this command for a server. The headers of the scripts describe the
    /// words.
    // Each row is one line, so that the kinds are side by side.
    #[rustfmt::skip]
    pub(crate) fn words(&self) -> Words<'_> {
        use LockKind::{Fair, Mutex, ReadWrite, Reentrant, Semaphore};
        use Verb::{Acquire, Break, Extend, Heal, Inspect, Probe, Release, Yield};
        let keys = self.lock_id.kind().spec().companions;
        let is_level = self.holding().is_some_and(|holding| holding.depth > 0);
        let of = |script, companions, words| Words { command: self, script, companions, words };
        let run_on = |keys, script, words| of(Some(script), keys, words);
        let run = |script, words| run_on(keys, script, words);
        let one = |[plain, fenced]: &'static [_; 2]| if self.is_fenced() { fenced } else { plain };
        match (self.lock_id.kind(), self.verb()) {
            (_, Probe) => run_on(self.tried_keys(), &mutex::ACQUIRE_WATCHED, &[Text("probe"), Text("1")]),
            (_, Break) => run(&BREAK, &[Channel, Holders]),
            (Fair, Inspect) => run_on(&keys[..1], &INSPECT, &[]),
            (_, Inspect) => run(&INSPECT, &[]),

            (Mutex, _) if self.is_set() => of(None, &[], &[SET, Key, By, NX, PX, Ttl]),
            (Mutex, Acquire | Heal) if self.is_fenced() => run(&mutex::ACQUIRE, &[By, Ttl, Ballot]),
            (Mutex, Acquire | Heal) => run(&mutex::ACQUIRE_WATCHED, &[By, Ttl]),
            (Mutex, Extend) => run(&mutex::EXTEND, &[By, Ttl]),
            (Mutex, Release | Yield) => run(one(&mutex::RELEASE), &[By, Ballot]),

            (Reentrant, Acquire | Heal) =>
                run(&reentrant::ACQUIRE, &[By, Depth, Ttl, REENTRANT, Ballot]),
            (Reentrant, Extend) => run(&reentrant::EXTEND, &[By, Depth, Ttl, REENTRANT]),
            (Reentrant, Release | Yield) =>
                run(one(&reentrant::RELEASE), &[By, Depth, REENTRANT, Channel, Ballot]),
            (Fair, Acquire) => run(&fair::ACQUIRE, &[By, Depth, Ttl, Ticket, Queue, Ballot]),
            // A fair lock that is held is treated as a reentrant lock: its queue does not matter.
            (Fair, Heal) => run_on(&[], &reentrant::ACQUIRE, &[By, Depth, Ttl, FAIR, Ballot]),
            (Fair, Extend) => run_on(&[], &reentrant::EXTEND, &[By, Depth, Ttl, FAIR]),
            (Fair, Release) if is_level =>
                run_on(&[], one(&reentrant::RELEASE), &[By, Depth, FAIR, Text(""), Ballot]),
            (Fair, Release) => run(one(&fair::RELEASE), &[By, Ticket, Ballot]),
            (Fair, Yield) => run(&fair::YIELD, &[By, Ticket, Timeout]),

            (ReadWrite, Acquire | Heal) =>
                run(&read_write::ACQUIRE, &[By, Depth, Ttl, Access, Ticket, Queue, Ballot]),
            (ReadWrite, Extend) => run(&read_write::EXTEND, &[By, Depth, Ttl, Access]),
            // Sets the access, too: the released level may have been the last exclusive one.
            (ReadWrite, Release) if is_level => run(&read_write::EXTEND, &[By, Depth, Ttl, Access]),
            (ReadWrite, Release) => run(one(&read_write::RELEASE), &[By, Access, Ticket, Ballot]),
            (ReadWrite, Yield) => run(&read_write::YIELD, &[By, Access, Ticket, Timeout]),

            (Semaphore, Acquire | Heal) =>
                run(&semaphore::ACQUIRE, &[By, Ttl, Permits, Slot, Ticket, Queue, Ballot]),
            (Semaphore, Extend) => run(&semaphore::EXTEND, &[By, Ttl, Slot]),
            (Semaphore, Release) => run(one(&semaphore::RELEASE), &[By, Ticket, Permits, Ballot]),
            (Semaphore, Yield) => run(&semaphore::YIELD, &[By, Ticket, Timeout]),
        }
    }

    /// Returns the keys that a probe names to try the rights to them.
    fn tried_keys(&self) -> &'static [&'static Companion] {
        self.tries
            .map_or(&[], |rights| rights.kind.spec().companions)
    }

    /// Returns whether this command is a SET, which needs no script.
    pub(in crate::core) fn is_set(&self) -> bool {
        let is_mutex = self.lock_id.kind() == LockKind::Mutex;
        let needs_script = self.watch || self.tries.is_some() || self.is_fenced();
        is_mutex && self.is_acquisition() && !needs_script
    }

    pub(in crate::core) fn can_be_refused(&self, refusal: &Refusal) -> bool {
        let (kind, verb) = (self.lock_id.kind(), self.verb());
        match refusal {
            Refusal::Gone => !self.is_acquisition(),
            // If a break leaves holders, its reply does not name their owners.
            Refusal::Held { owners, .. } => {
                verb != Verb::Yield
                    && owners.is_empty() != (kind.has_owner() && verb != Verb::Break)
            }
            Refusal::OtherKind => verb == Verb::Break || verb != Verb::Yield && kind.has_owner(),
            Refusal::Queued { .. } => verb == Verb::Acquire && kind.has_queue(),
            Refusal::Skewed { .. } => {
                verb == Verb::Acquire && (self.is_fenced() || kind.has_queue())
            }
            Refusal::Stale { .. } => self.is_acquisition() && self.is_fenced(),
        }
    }

    /// Returns the key and the token, if this command only has to compare the token and delete the
    /// key. This is so for the release of a mutex that was won and is not fenced.
    pub(crate) fn plain_release(&self) -> Option<(&[u8], &Token)> {
        let was_won = matches!(self.action, Action::Release { was_won: true, .. });
        let is_plain = was_won && !self.is_fenced() && !self.watch;
        let token = self.by()?.token().filter(|_| is_plain)?;
        Some((self.lock_id.key().as_bytes(), token))
    }
}

/// A part of a command: no word, one word or several words.
#[derive(Clone, Copy)]
enum Word {
    /// For a lock with readers and writers: whether the caller reads or writes.
    Access,
    /// For a fenced lock: the candidate, and then the [`CLOCK_WINDOW`] if the command takes the
    /// lock, or 0 if it puts the lock back. The last key of the script is the key of the counter.
    /// For any other lock: nothing.
    Ballot,
    /// The token, or the owner and the number of its attempt.
    By,
    /// The channel of Redisson.
    Channel,
    Depth,
    /// The holders to remove.
    Holders,
    Key,
    Permits,
    /// The silent-waiter timeout, and then the [`CLOCK_WINDOW`], or 0 if masters do not check the
    /// ticket. For an attempt that does not wait, both are 0, or are left out if nothing follows.
    /// For a command that puts the lock back, the silent-waiter timeout is -1: such a command
    /// ignores all waiters.
    Queue,
    /// The slot that another master has granted to the caller, or 0 for any slot.
    Slot,
    Text(&'static str),
    Ticket,
    /// The silent-waiter timeout.
    Timeout,
    /// The TTL. It is 0 for the release of a level, which prolongs nothing.
    Ttl,
}

/// The words of a command. No memory is allocated to build or send them.
pub(crate) struct Words<'a> {
    command: &'a Command,
    /// `None` for a plain command, which has arguments only.
    pub(crate) script: Option<&'static Script>,
    /// The keys after the key of the lock.
    companions: &'static [&'static Companion],
    words: &'static [Word],
}

impl Words<'_> {
    pub(crate) fn script_keys(&self) -> (usize, impl Iterator<Item = &str>) {
        let lock_id = &self.command.lock_id;
        let companions = self.companions.iter();
        let companions = companions.map(|companion| lock_id.companion(companion));
        let mut arguments = self.words.iter();
        let has_ballot = arguments.any(|word| matches!(word, Ballot)) && self.command.is_fenced();
        let has_counter = has_ballot || self.command.tries.is_some_and(|rights| rights.is_fenced);
        let counter = has_counter.then(|| lock_id.companion(&FENCE));
        let keys = iter::once(&**lock_id.key()).chain(companions);
        let count = 1 + self.companions.len() + usize::from(counter.is_some());
        (count, keys.chain(counter))
    }

    pub(crate) fn argument_count(&self) -> usize {
        let mut count = 0;
        self.arguments(|_| count += 1);
        count
    }

    pub(crate) fn arguments(&self, mut each: impl FnMut(&[u8])) {
        for word in self.words {
            self.argument(*word, &mut each);
        }
    }

    fn argument(&self, word: Word, mut each: impl FnMut(&[u8])) {
        let command = self.command;
        let mut number = |number| each(decimal(number, &mut [0; 20]));
        match (word, &command.action) {
            (Text(text), _) => each(text.as_bytes()),
            (Key, _) => each(command.lock_id.key().as_bytes()),
            (Channel, _) => each(command.lock_id.companion(&CHANNEL).as_bytes()),
            (Permits, _) => number(command.lock_id.permits().into()),
            (Holders, Action::Break(holders)) => each(holders.as_bytes()),
            (Ttl, Action::Acquire(_, ttl, _) | Action::Extend(_, ttl) | Action::Heal(_, ttl)) => {
                number(ttl.millis());
            }
            (Ttl, Action::Release { .. }) => number(0),
            (Queue, Action::Heal(..)) => {
                each(b"-1");
                each(b"0");
            }
            (Queue, Action::Acquire(_, _, None)) if !command.is_fenced() => {}
            (Queue, Action::Acquire(_, _, queue)) => {
                let queue = queue.map_or([0, 0], QueueOptions::in_words);
                queue.into_iter().for_each(number);
            }
            (Timeout, Action::Yield(_, timeout)) => number(whole_millis(*timeout)),
            // No row of the table has a word that its command lacks. So there is a holding.
            (word, _) => {
                if let Some(holding) = command.holding() {
                    self.of_holding(word, holding, each);
                }
            }
        }
    }

    fn of_holding(&self, word: Word, holding: &Holding, mut each: impl FnMut(&[u8])) {
        let mut number = |number| each(decimal(number, &mut [0; 20]));
        match (word, &holding.by, holding.candidate) {
            (Access, ..) => each(match holding.access {
                kind::Access::Exclusive => b"write",
                kind::Access::Shared => b"read",
            }),
            (Depth, ..) => number(holding.depth.into()),
            (Slot, ..) => number(holding.slot.map_or(0, vote::Slot::number).into()),
            (By, Identity::Token(token), _) => each(token.bytes()),
            (By, Identity::Owner(by), _) => {
                each(by.owner.as_bytes());
                each(decimal(by.attempt, &mut [0; 20]));
            }
            (Ticket, by, _) => {
                each(by.ticket().map_or("", |ticket| ticket.as_str()).as_bytes());
            }
            (Ballot, _, Some(candidate)) => {
                number(candidate);
                match self.command.verb() {
                    Verb::Acquire => number(CLOCK_WINDOW.as_micros() as u64),
                    // The candidate may have been accepted long ago, so masters do not compare it
                    // with their clocks.
                    Verb::Heal => number(0),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// Writes `number` in decimal into `digits`. Returns the part of `digits` that was used.
pub(crate) fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// A command that deletes a key if the key holds a given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NativeRelease {
    /// `DELEX key IFEQ token`, in Redis since version 8.4.
    Delex,
    /// `DELIFEQ key token`, in Valkey since version 9.0.
    Delifeq,
}

impl NativeRelease {
    pub(crate) const ALL: [Self; 2] = [Self::Delex, Self::Delifeq];

    /// Returns the name of the command. If only the name is sent, without arguments, the reply
    /// shows whether the server has the command.
    pub(crate) fn name(self) -> &'static [u8] {
        match self {
            Self::Delex => b"DELEX",
            Self::Delifeq => b"DELIFEQ",
        }
    }

    /// Returns whether `reply` can be the reply to this command. Other replies do not prove a
    /// release.
    pub(crate) fn has(self, reply: &Reply<'_>) -> bool {
        match (self, reply) {
            (_, Reply::Int(0 | 1)) => true,
            // Each command has its own error for a key of another type.
            (Self::Delex, Reply::Error(error)) => !error.starts_with("WRONGTYPE"),
            (Self::Delifeq, Reply::Error(error)) => !error.starts_with("ERR Key should be"),
            (_, Reply::Int(_) | Reply::Nil | Reply::Ok | Reply::Other | Reply::Text(_)) => false,
        }
    }
}

#[cfg(test)]
pub(crate) mod fixture {
    use std::collections::BTreeMap;

    use super::*;
    use crate::core::{
        kind::script::Script,
        protocol::command::fixture::{command, fenced},
    };

    pub(crate) fn scripts() -> impl Iterator<Item = &'static Script> {
        let mut scripts = BTreeMap::new();
        for (kind, verb) in verbs() {
            for (is_fenced, watch) in [(false, false), (false, true), (true, false)] {
                let of = if is_fenced { fenced } else { command };
                let mut command = of(kind, verb, 0);
                command.watch = watch;
                let script = command.words().script;
                scripts.extend(script.map(|script| (script.name, script)));
            }
        }
        scripts.into_values()
    }

    /// Returns each kind with each of its verbs. Only a kind with queues has the verb `Yield`.
    pub(crate) fn verbs() -> impl Iterator<Item = (LockKind, Verb)> {
        let of_kind = |kind| Verb::ALL.map(|verb| (kind, verb));
        let all = LockKind::ALL.into_iter().flat_map(of_kind);
        all.filter(|(kind, verb)| *verb != Verb::Yield || kind.has_queue())
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::{
        fixture::{scripts, verbs},
        *,
    };
    use crate::core::{
        kind::{Access, script::Script},
        protocol::{
            command::{
                Holding,
                fixture::{command, fenced, holding, lock_id, of, ttl},
            },
            identity::{ClientName, Identity},
        },
    };

    fn words(command: &Command) -> String {
        let words = command.words();
        let mut arguments = Vec::new();
        words.arguments(|word| arguments.push(str::from_utf8(word).unwrap().to_owned()));
        assert_eq!(words.argument_count(), arguments.len());
        let Some(script) = words.script else {
            return arguments.join(" ");
        };
        let (count, keys) = words.script_keys();
        let keys: Vec<_> = keys.collect();
        assert_eq!(count, keys.len());
        format!("{script:?} {keys:?} {arguments:?}")
    }

    /// A file for each kind lists the words that a client sends. If these files change, masters and
    /// earlier versions of this crate must still understand the words.
    #[test]
    fn the_words_of_all_commands_are_those_of_the_lists() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        let files = fs::read_dir(folder).unwrap();
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let expected = LockKind::ALL.map(|kind| format!("{}.txt", kind.as_str()));
        assert_eq!(files.collect::<BTreeSet<_>>(), BTreeSet::from(expected));
        for kind in LockKind::ALL {
            let lines = listed(kind);
            let list = fs::read_to_string(format!("{folder}/{}.txt", kind.as_str())).unwrap();
            for (line, listed) in lines.lines().zip(list.lines()) {
                assert_eq!(line, listed);
            }
            assert_eq!(lines, list, "some words are missing");
        }
    }

    fn listed(kind: LockKind) -> String {
        const CASES: [(u32, bool, bool); 6] = [
            (0, false, false),
            (0, false, true),
            (0, true, false),
            (0, true, true),
            (2, false, false),
            (2, true, false),
        ];
        let mut lines = String::new();
        for (_, verb) in verbs().filter(|(of, _)| *of == kind) {
            for (depth, is_fenced, watch) in CASES {
                if depth > 0 && kind.spec().has_slots {
                    continue; // a permit has no levels
                }
                for access in accesses(kind) {
                    let mut command = case(kind, verb, depth, is_fenced, *access);
                    command.watch = watch;
                    let is_reader = kind.spec().has_readers && *access == Access::Shared;
                    let shown = [
                        (is_reader, ", reader"),
                        (is_fenced, ", fenced"),
                        (watch, ", watched"),
                    ];
                    let shown = shown
                        .map(|(is_so, what)| if is_so { what } else { "" })
                        .concat();
                    let words = words(&command);
                    let line = format!("{kind}, {verb:?}, depth {depth}{shown}: {words}\n");
                    lines.push_str(&line);
                }
            }
        }
        lines
    }

    fn accesses(kind: LockKind) -> &'static [Access] {
        if kind.spec().has_readers {
            &[Access::Exclusive, Access::Shared]
        } else {
            &[Access::Exclusive]
        }
    }

    fn case(kind: LockKind, verb: Verb, depth: u32, is_fenced: bool, access: Access) -> Command {
        let command = if is_fenced {
            fenced(kind, verb, depth)
        } else {
            command(kind, verb, depth)
        };
        let Some(holding) = command.holding() else {
            return command;
        };
        let holding = Holding {
            access,
            ..holding.clone()
        };
        of(&command.lock_id, verb, holding)
    }

    #[test]
    fn each_script_has_a_text_of_its_own() {
        let texts: BTreeSet<_> = scripts().map(Script::text).collect();
        assert_eq!(texts.len(), scripts().count());
        assert!(texts.iter().all(|text| text.contains("redis.call(")));
        // A server may get another text before that of the script.
        let is_end = |text: &&str| texts.iter().any(|all| all != text && all.ends_with(text));
        assert!(!texts.iter().any(is_end));
    }

    #[test]
    fn kinds_have_names_and_words() {
        let shown = LockKind::ALL.map(|kind| kind.to_string());
        let expected = ["mutex", "reentrant lock", "fair lock", "read-write lock"];
        assert_eq!(shown[..expected.len()], expected);
        for kind in LockKind::ALL {
            assert_eq!(LockKind::of_word(kind.as_str()), Some(kind));
        }
        assert_eq!(LockKind::of_word("other"), None);
    }

    #[test]
    fn a_token_with_a_client_name_is_one_word() {
        let client = ClientName::parse("web-3/812".to_owned()).unwrap();
        let token = format!("{}@0000000000007@web-3/812", "0".repeat(40));
        let mutex = lock_id(LockKind::Mutex, "r");
        for (verb, expected) in [
            (Verb::Acquire, format!("SET r {token} NX PX 10000")),
            (
                Verb::Extend,
                format!("mutex/extend [\"r\"] [\"{token}\", \"10000\"]"),
            ),
            (
                Verb::Release,
                format!("mutex/release [\"r\"] [\"{token}\"]"),
            ),
        ] {
            let mut named = holding(LockKind::Mutex, 0, None);
            named.by = Identity::Token(Token::new([0; 20], Some((&client, 7))));
            assert_eq!(words(&of(&mutex, verb, named)), expected, "{verb:?}");
        }
    }

    #[test]
    fn an_attempt_at_a_fair_lock_that_does_not_wait_has_no_waiter_timeout() {
        let fair = lock_id(LockKind::Fair, "r");
        let attempt = Command::new(
            &fair,
            Action::Acquire(holding(LockKind::Fair, 1, None), ttl(), None),
        );
        let expected = "fair/acquire [\"r\", \"quorlock:queue:{r}\", \"quorlock:deadlines:{r}\"] \
            [\"u:1\", \"7\", \"1\", \"10000\", \"0000000000000005:u:1\"]";
        assert_eq!(words(&attempt), expected);
    }

    #[test]
    fn only_a_mutex_that_was_won_is_released_by_a_comparison() {
        let release = command(LockKind::Mutex, Verb::Release, 0);
        let token = Token::new([0; 20], None);
        assert_eq!(release.plain_release(), Some((&b"r"[..], &token)));
        let mutex = lock_id(LockKind::Mutex, "r");
        let lost = Command::new(
            &mutex,
            Action::Release {
                holding: holding(LockKind::Mutex, 0, None),
                was_won: false,
            },
        );
        let mut watched = release;
        watched.watch = true;
        for command in [
            lost,
            watched,
            command(LockKind::Mutex, Verb::Acquire, 1),
            command(LockKind::Mutex, Verb::Extend, 1),
            fenced(LockKind::Mutex, Verb::Release, 0),
            command(LockKind::Reentrant, Verb::Release, 0),
            command(LockKind::Fair, Verb::Release, 0),
            command(LockKind::ReadWrite, Verb::Release, 0),
        ] {
            assert_eq!(command.plain_release(), None, "{command:?}");
        }
    }

    #[test]
    fn decimal_table() {
        for number in [0, 1, 9, 10, 1_000_000_007, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
