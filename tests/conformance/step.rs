//! The steps of a row.
//!
//! A step begins with a verb and an attempt. `A`, `B` and `C` are tokens of mutexes. `a1` is an
//! owner and the number of its attempt. `C` and `c` are of a coordinator with a client name. After
//! these come options in any order:
//!
//! - `40s`: the TTL
//! - `x2`: the depth
//! - `@2`: the time in the ticket
//! - `~20s`: the silent-waiter timeout
//! - `^500`: the candidate of a fenced lock, in milliseconds from the start of the row. `^500+1` is
//!   one microsecond more
//! - `fresh`: no majority has seen the ticket
//! - `watch`: the master is asked to report the next change of the key
//! - `won`: the attempt that is released got the lock
//! - `of3`: the number of permits of a semaphore, 1 without it
//! - `slot2`: the slot that the attempt asks for; without it, an acquisition takes any slot, and
//!   all other commands have slot 1
//! - `read`, `write`: what the attempt does with a read-write lock. Without these, it writes
use super::*;
use crate::core::{
    kind::{Access, companion::Companion, companion_keys},
    protocol::identity::{OwnerAttempt, QueueOptions, Ticket},
    vote::Slot,
};

#[derive(Clone, Debug)]
pub(super) enum Step {
    Command(RowCommand),
    Delete,
    /// Writes a string as another client would: the token of this letter, or another text for `?`.
    Write(char, Option<Duration>),
    /// Writes this string as another client would.
    WriteText(String, Option<Duration>),
    /// Writes a hash as another client would.
    WriteHash(Vec<(String, String)>, Option<Duration>),
    /// Writes the counter of a fenced lock, in microseconds from the start of the row.
    Count(i64),
    /// Writes a text or a hash, with a TTL, in place of the counter.
    Miscount(&'static str, Option<Duration>),
    /// Writes a text in place of this key.
    Spoil(&'static Companion),
    /// Puts a ticket into this queue. Its deadline, if there is one, is this many seconds from now.
    Enqueue(&'static Companion, String, Option<i64>),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RowCommand {
    pub(super) kind: LockKind,
    pub(super) verb: Verb,
    pub(super) who: char,
    pub(super) attempt: u64,
    pub(super) ttl: Duration,
    pub(super) depth: u32,
    pub(super) access: Access,
    pub(super) permits: u16,
    /// 0 for any slot.
    pub(super) slot: u16,
    /// The time in the ticket, in seconds from [`ORIGIN`].
    pub(super) drawn: u64,
    pub(super) queue: Option<QueueOptions>,
    pub(super) watch: bool,
    pub(super) was_won: bool,
    /// The candidate, in microseconds from the start of the row.
    pub(super) ballot: Option<i64>,
}

impl RowCommand {
    pub(super) fn mutex(verb: Verb, who: char, ttl: Duration) -> Self {
        Self {
            ttl,
            ..Self::new(LockKind::Mutex, verb, who)
        }
    }

    pub(super) fn new(kind: LockKind, verb: Verb, who: char) -> Self {
        Self {
            kind,
            verb,
            who,
            attempt: 1,
            ttl: seconds(40),
            depth: u32::from(verb != Verb::Release),
            access: Access::Exclusive,
            permits: 1,
            slot: u16::from(verb != Verb::Acquire),
            drawn: u64::from(who as u8 % 32),
            queue: None,
            watch: false,
            was_won: false,
            ballot: None,
        }
    }

    pub(super) fn command(&self, key: &str, candidate: Option<u64>) -> Command {
        let lock_id = &lock_id(self.kind, key).with_permits(self.permits);
        let holding = Holding {
            by: self.identity(),
            depth: self.depth,
            access: self.access,
            slot: Slot::new(self.slot),
            candidate,
        };
        let ttl = checked(self.ttl);
        let (queue, was_won) = (self.queue, self.was_won);
        let action = match self.verb {
            Verb::Acquire => Action::Acquire(holding, ttl, queue),
            Verb::Heal => Action::Heal(holding, ttl),
            Verb::Extend => Action::Extend(holding, ttl),
            Verb::Release => Action::Release { holding, was_won },
            Verb::Yield => {
                let timeout = queue.map(|queue| queue.silent_waiter_timeout);
                let silent_waiter_timeout = timeout.unwrap_or_default();
                Action::Yield(holding, silent_waiter_timeout)
            }
            Verb::Inspect => Action::Inspect,
            Verb::Probe => Action::Probe,
            Verb::Break => Action::Break("".into()), // `Subject::answer` knows them
        };
        let mut command = Command::new(lock_id, action);
        command.watch = self.watch;
        command
    }

    fn identity(&self) -> Identity {
        if !self.kind.has_owner() {
            return Identity::Token(token(self.who));
        }
        Identity::Owner(OwnerAttempt {
            owner: owner(self.who).into(),
            attempt: self.attempt,
            ticket: (self.kind.has_queue()).then(|| ticket(self.who, self.drawn)),
        })
    }

    /// Returns whether the command may be sent twice. Only the SET that takes a mutex may not.
    pub(super) fn may_be_copied(&self) -> bool {
        self.ballot.is_some()
            || self.watch
            || self.kind.has_owner()
            || !matches!(self.verb, Verb::Acquire | Verb::Heal)
    }

    fn parse(kind: LockKind, verb: Verb, who: &str, words: &[&str]) -> Self {
        let mut letters = who.chars();
        let mut command = Self::new(kind, verb, letters.next().unwrap());
        command.attempt = letters.as_str().parse().unwrap_or(1);
        let is_fresh = words.contains(&"fresh");
        for word in words {
            match word.split_at(1) {
                ("f", "resh") => {}
                ("r", "ead") => command.access = Access::Shared,
                ("w", "rite") => command.access = Access::Exclusive,
                ("w", "atch") => command.watch = true,
                ("w", "on") => command.was_won = true,
                ("o", permits) => {
                    command.permits = permits.strip_prefix('f').unwrap().parse().unwrap();
                }
                ("s", slot) => command.slot = slot.strip_prefix("lot").unwrap().parse().unwrap(),
                ("x", depth) => command.depth = depth.parse().unwrap(),
                ("^", off) => command.ballot = Some(micros(off)),
                ("@", drawn) => command.drawn = drawn.parse().unwrap(),
                ("~", timeout) => {
                    let silent_waiter_timeout = parse_ttl(timeout).unwrap();
                    command.queue = Some(QueueOptions {
                        silent_waiter_timeout,
                        is_fresh,
                    });
                }
                _ => command.ttl = parse_ttl(word).unwrap(),
            }
        }
        command
    }
}

impl Step {
    pub(super) fn parse(text: &str) -> Self {
        let words: Vec<_> = text.split(' ').collect();
        let (kind, words) = match LockKind::of_word(words[0]) {
            Some(kind) => (kind, &words[1..]),
            None => (LockKind::Mutex, &words[..]),
        };
        let ask = |verb, who, rest| Self::Command(RowCommand::parse(kind, verb, who, rest));
        match words {
            ["acquire", who, rest @ ..] => ask(Verb::Acquire, who, rest),
            ["heal", who, rest @ ..] => ask(Verb::Heal, who, rest),
            ["extend", who, rest @ ..] => ask(Verb::Extend, who, rest),
            ["release", who, rest @ ..] => ask(Verb::Release, who, rest),
            ["yield", who, rest @ ..] => ask(Verb::Yield, who, rest),
            ["break", who] => ask(Verb::Break, who, &[]),
            // An inspection of a kind with a queue also shows locks of the other kinds.
            ["inspect"] => {
                let kind = if kind.has_queue() {
                    kind
                } else {
                    LockKind::Fair
                };
                Self::Command(RowCommand::new(kind, Verb::Inspect, '?'))
            }
            ["write", ttl] => Self::Write('?', parse_ttl(ttl)),
            ["write-A", ttl] => Self::Write('A', parse_ttl(ttl)),
            ["write-text", text, ttl] => Self::WriteText((*text).to_owned(), parse_ttl(ttl)),
            ["write-hash", fields @ .., ttl] => Self::WriteHash(
                fields.iter().map(|field| parse_field(field)).collect(),
                parse_ttl(ttl),
            ),
            ["enqueue", ..] => Self::parse(&text.replacen("enqueue", "enqueue-queue", 1)),
            [enqueue, waiter, deadline] if enqueue.starts_with("enqueue-") => {
                let (who, drawn) = waiter.split_once('@').unwrap();
                let ticket = ticket(who.parse().unwrap(), drawn.parse().unwrap());
                let deadline = deadline.strip_suffix('s').map(|left| left.parse().unwrap());
                let queue = companion(enqueue.strip_prefix("enqueue-").unwrap());
                Self::Enqueue(queue, ticket.as_str().to_owned(), deadline)
            }
            ["count", off] => Self::Count(micros(off.strip_prefix('^').unwrap())),
            ["count-text"] => Self::Miscount("text", None),
            ["count-text-60s"] => Self::Miscount("text", parse_ttl("60s")),
            ["count-letters"] => Self::Miscount("0123456789abcdef", None),
            ["count-hexadecimal"] => Self::Miscount("0x10", None),
            ["count-nine"] => Self::Miscount("9", None),
            ["count-nine-40s"] => Self::Miscount("9", parse_ttl("40s")),
            ["count-hash"] => Self::Miscount("hash", None),
            ["delete"] => Self::Delete,
            [spoil] if spoil.starts_with("spoil-") => {
                Self::Spoil(companion(spoil.strip_prefix("spoil-").unwrap()))
            }
            _ => panic!("no step is written {text:?}"),
        }
    }
}

/// Returns the companion key with this name.
pub(super) fn companion(name: &str) -> &'static Companion {
    let mut all = companion_keys();
    all.find(|companion| companion.name == name).unwrap()
}

/// Parses a candidate: `500+1` is half a second and a microsecond.
fn micros(text: &str) -> i64 {
    let (millis, micros) = text.split_once('+').unwrap_or((text, "0"));
    millis.parse::<i64>().unwrap() * 1000 + micros.parse::<i64>().unwrap()
}

/// Writes a candidate as `micros` parses it.
pub(super) fn candidate(micros: i64) -> String {
    match micros.rem_euclid(1000) {
        0 => format!("^{}", micros / 1000),
        more => format!("^{}+{more}", micros.div_euclid(1000)),
    }
}

/// Parses a field of a hash. `a=1` is the field of an owner. `odd=1` and the words of the kinds, as
/// `fair=1`, are fields that tell the kind. `writer=3x1:40s:a` and `reader:b=3x2:40s` are entries
/// of a read-write lock: the attempt, the depth, and when the lease ends, or `ended`. Among the
/// keys that are left, a lock of this crate also has the field `mode=quorlock`, unless the row says
/// `modeless`, and a read-write lock its marker, unless the row says `unmarked`.
/// `permit:a=3:40s:1` is an entry of a semaphore, with its slot at the end, and `slot:1=a` is its
/// other half. `semaphore=40s` says when the first lease ends. Among the keys that are left, these
/// two are left out if they follow from the entries.
pub(super) fn parse_field(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap();
    let name = match name {
        "a" | "b" | "c" => owner(name.parse().unwrap()),
        "odd" | "writer" => format!("quorlock:{name}"),
        _ if LockKind::of_word(name).is_some() => format!("quorlock:{name}"),
        _ => match name.split_once(':') {
            Some((entry @ ("reader" | "permit"), who)) => {
                format!("quorlock:{entry}:{}", owner(who.parse().unwrap()))
            }
            Some(("slot", _)) => {
                return (format!("quorlock:{name}"), owner(value.parse().unwrap()));
            }
            _ => name.to_owned(),
        },
    };
    (name, value.to_owned())
}

/// Returns the value of a field as it is stored, by the clock of a master in milliseconds.
pub(super) fn stored(value: &str, clock: u64) -> String {
    let entry = || {
        let (numbers, rest) = value.split_once(':')?;
        let (left, who) = rest.split_once(':').unwrap_or((rest, ""));
        let ends = match left {
            "ended" => clock.saturating_sub(5_000),
            left => clock + u64::try_from(parse_ttl(left)?.as_millis()).unwrap(),
        };
        let last = match who.parse::<char>() {
            Ok(who) if who.is_alphabetic() => owner(who),
            _ => who.to_owned(),
        };
        let entry = format!("{} {ends} {last}", numbers.replace('x', " "));
        Some(entry.trim_end().to_owned())
    };
    let time = || match value {
        "ended" => Some(clock.saturating_sub(5_000).to_string()),
        _ => {
            let left: u64 = value.strip_suffix('s')?.parse().ok()?;
            Some((clock + left * 1000).to_string())
        }
    };
    entry().or_else(time).unwrap_or_else(|| value.to_owned())
}

/// Writes the value of a field as [`stored`] takes it.
pub(super) fn shown(field: &str, value: &str, clock: u64) -> String {
    let words: Vec<_> = value.splitn(4, ' ').collect();
    let (numbers, ends, last) = match words[..] {
        [attempt, ends, slot] if field.starts_with("quorlock:permit:") => {
            (attempt.to_owned(), ends, Some(slot))
        }
        [attempt, depth, ends] => (format!("{attempt}x{depth}"), ends, None),
        [attempt, depth, ends, owner] => (format!("{attempt}x{depth}"), ends, Some(owner)),
        _ => return value.to_owned(),
    };
    let Ok(ends) = ends.parse::<u64>() else {
        return value.to_owned();
    };
    let last = last.map(|last| format!(":{}", short(last)));
    let left = time_left(ends, clock);
    format!("{numbers}:{left}{}", last.unwrap_or_default())
}

pub(super) fn time_left(ends: u64, clock: u64) -> String {
    match ends.checked_sub(clock) {
        None => "ended".to_owned(),
        Some(left) => in_seconds(left as f64 / 1000.0),
    }
}

fn parse_ttl(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    Some(Duration::from_secs_f64(number.parse().unwrap()))
}

pub(super) fn checked(ttl: Duration) -> Ttl {
    Ttl::parse(ttl, Duration::ZERO, Drift::from_ppm(0).unwrap()).unwrap()
}

pub(super) fn lock_id(kind: LockKind, key: &str) -> LockId {
    let names = KeyTemplate::parse("{name}").unwrap();
    names.lock_id(kind, key.into()).unwrap()
}

pub(super) const CLIENT: &str = "web-3/812";
/// The time of an attempt, as its token has it.
const SINCE: u64 = 1_764_252_180_042;

pub(super) fn token(who: char) -> Token {
    let client = ClientName::parse(CLIENT.to_owned()).unwrap();
    Token::new([who as u8; 20], (who == 'C').then_some((&client, SINCE)))
}

pub(super) fn text_of(token: &Token) -> String {
    String::from_utf8(token.bytes().to_vec()).unwrap()
}

/// Returns the owner of this letter. Each owner is in a process of its own.
pub(super) fn owner(who: char) -> String {
    match who {
        'c' => format!("{}:1@{CLIENT}", process(who)),
        _ => format!("{}:1", process(who)),
    }
}

pub(super) fn process(who: char) -> String {
    [8, 4, 4, 4, 12]
        .map(|digits| who.to_string().repeat(digits))
        .join("-")
}

const ORIGIN: u64 = 1_700_000_000;

pub(super) fn ticket(who: char, drawn: u64) -> Ticket {
    Ticket::new((ORIGIN + drawn) * 1_000_000, &owner(who))
}

/// Shortens a text of a master: `a` is an owner, `b@2` is a ticket.
pub(super) fn short(text: &str) -> String {
    if let Some((micros, who)) = text.split_once(':')
        && let Ok(micros) = micros.parse::<u64>()
    {
        return format!("{}@{}", short(who), micros / 1_000_000 - ORIGIN);
    }
    for entry in ["reader", "permit"] {
        let of_entry = text.strip_prefix("quorlock:");
        let of_entry = of_entry.and_then(|text| text.strip_prefix(entry)?.strip_prefix(':'));
        if let Some(who) = of_entry {
            return format!("{entry}:{}", short(who));
        }
    }
    ('a'..='g')
        .find(|who| owner(*who) == text)
        .map_or_else(|| text.replacen("quorlock:", "", 1), String::from)
}
