//! Tables of what a claim does, and a search of all orders of inputs.

use std::fmt::Write as _;

use std::sync::Arc;

use testkit::times::millis;

use super::{ask::Asking, *};
use crate::{
    core::{
        kind::LockKind,
        protocol::{
            Identity, QueueOptions, Ticket, command::fixture::lock_id, identity::OwnerAttempt,
            name::Token,
        },
        time::{Drift, Renewal},
        vote::{CastVote, Failure, Quorum, Refusal, Roster, Slot, Vote},
    },
    machine::{ClaimId, Machine, Now, VotesTo, fixture::config},
};

/// The transitions. A line has what happens, and then what the claim does.
///
/// - `begin:m` asks for a mutex, `t` for one with a fencing token, `r` for a reentrant lock, and
///   `f` for a fair lock. `begin:m1` asks master 1 first, and `choose:1` does so in a new attempt.
///   `held:m` is a mutex that has been won and has a guard.
/// - `g0` is a grant of master 0, `n` no key, `h` held by another, `f` failed, and `s` a larger
///   candidate seen. `^g0` is a vote in the round before the newest. `70` is a grant of slot 7 by
///   master 0.
/// - With `seen`, the caller sees the outcome of the round. With `due`, the renewer looks at the
///   claim. `+500` lets 500 ms pass on both clocks, and `sleep:500` only on the clock of the
///   leases. `look` shows the state, and `slot` the slot that was won.
/// - The TTL is 9002 ms, and the lease 9000 ms.
const TRANSITIONS: &str = include_str!("../../../tests/tables/transitions.txt");

#[test]
fn every_transition_is_as_the_table_says() {
    let mut wrong = String::new();
    for table in TRANSITIONS.trim().split("\n\n") {
        let (name, lines) = table.split_once('\n').unwrap();
        let mut case = Case::begin("m");
        for line in lines.lines() {
            let (inputs, expected) = line.split_once('|').unwrap();
            inputs.split_whitespace().for_each(|word| case.run(word));
            let said = mem::take(&mut case.said);
            if said != expected.trim() {
                let _ = writeln!(wrong, "{name}: {line}\n  but it says {said}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Tries all short sequences of inputs, from a claim that asks and from a lock that is held.
#[test]
fn no_order_of_inputs_breaks_a_rule() {
    let starts: [&[&str]; 2] = [&[], &["g0", "g1", "seen", "hold"]];
    let mut count = 0;
    for start in starts {
        search(&mut start.to_vec(), 4, &mut count);
    }
    assert!(count > 80_000, "{count}");
}

fn search(path: &mut Vec<&'static str>, left: usize, count: &mut usize) {
    const INPUTS: [&str; 15] = [
        "seen",
        "hold",
        "extend:9000",
        "reenter",
        "due",
        "leave",
        "look",
        "stop",
        "stay:20000",
        "g0",
        "g1",
        "n2",
        "f1",
        "^g1",
        "+4500",
    ];
    if !is_right(path) {
        return;
    }
    *count += 1;
    for input in INPUTS.into_iter().filter(|_| left > 0) {
        path.push(input);
        search(path, left - 1, count);
        path.pop();
    }
}

/// Takes the inputs in `path`, and checks the rules after each. Returns `false` if an input is
/// impossible.
fn is_right(path: &[&str]) -> bool {
    let rank = |case: &Case| match case.machine.claim(case.id).phase {
        Phase::Asking { .. } => 0,
        Phase::Held(_) => 1,
        Phase::Lost { .. } => 2,
        Phase::Released => 3,
    };
    let mut case = Case::begin("r");
    let mut ends = 0;
    for input in path {
        let is_alone = case.rounds.len() < 2;
        if input.starts_with('^') && is_alone
            || *input == "leave" && case.machine.claim(case.id).holding.depth == 0
        {
            return false; // there is no such round, or no such guard
        }
        case.said.clear();
        let (before, until) = (rank(&case), case.machine.claim(case.id).keys_until);
        case.run(input);
        let (after, said) = (rank(&case), &case.said);
        assert!(after >= before, "{path:?}: there is no way back");
        assert!(case.machine.claim(case.id).keys_until >= until, "{path:?}");
        assert!(
            before < 3 || said.is_empty() || ["look", "seen"].contains(input),
            "{path:?}: {said} after the release"
        );
        assert!(!said.contains("heal") || after == 1, "{path:?}: {said}");
        let is_end = |end: &&str| said.contains(*end);
        ends += ["Expired", "TakenAway"]
            .iter()
            .filter(|end| is_end(end))
            .count();
        assert!(ends <= 1, "{path:?}: a lock is lost once");
    }
    true
}

/// A machine with one claim, and a text of what the claim has done.
struct Case {
    machine: Machine,
    id: ClaimId,
    start: Tick,
    /// The time since the start, in milliseconds.
    at: u64,
    /// The time for which the machine was suspended.
    slept: u64,
    rounds: Vec<RoundId>,
    kind: char,
    said: String,
}

impl Case {
    /// Begins a claim. The first letter names the kind of lock. A number after it is the agreed
    /// master.
    fn begin(kind: &str) -> Self {
        let (kind, first) = kind.split_at(1);
        let kind = kind.chars().next().unwrap();
        let first = first.parse().ok();
        let start = Tick::some();
        let quorum = Quorum::of(3);
        let candidate = (kind == 't').then_some(5);
        let asked = first.map_or(MasterSet::ALL, MasterSet::only);
        let now = Now {
            lease: start.with(Duration::ZERO),
            monotonic: start,
        };
        let holding = Holding {
            by: identity(kind, 1),
            depth: 1,
            access: Access::Exclusive,
            slot: None,
            candidate,
        };
        let addresses = ["a:1", "b:1", "c:1"].map(Arc::from);
        let roster = Roster::new(addresses, quorum);
        let mut machine = Machine::new(roster, config(millis(50)), start);
        let (lock_id, how) = (lock_id(LockKind::Mutex, "r"), Asking::plain(asked));
        let id = machine.begin(lock_id, ttl(9_000), holding, how, now);
        let mut case = Self {
            machine,
            id,
            start,
            at: 0,
            slept: 0,
            rounds: Vec::new(),
            kind,
            said: String::new(),
        };
        case.tell();
        case
    }

    /// Returns a lock that was won at the start, and has a guard.
    fn held(kind: &str) -> Self {
        let mut case = Self::begin(kind);
        for word in ["g0", "g1", "seen", "hold"] {
            case.run(word);
        }
        case.said.clear();
        case
    }

    fn run(&mut self, word: &str) {
        let (letter, number) = word.split_at(1);
        match (letter, number.parse::<u64>()) {
            ("+", Ok(time)) => return self.at += time,
            ("^", _) => return self.vote(self.rounds.len() - 2, number),
            ("7" | "2" | "g" | "n" | "h" | "f" | "s", Ok(_)) => {
                return self.vote(self.rounds.len() - 1, word);
            }
            _ => {}
        }
        let (word, number) = word.split_once(':').unwrap_or((word, "0"));
        match word {
            "begin" => return *self = Self::begin(number),
            "held" => return *self = Self::held(number),
            _ => {}
        }
        let number = number.parse().unwrap();
        match word {
            "again" => self.ask_again(MasterSet::ALL, number),
            "choose" => self.ask_again(MasterSet::only(number as usize), 0),
            "due" => {
                let timer = self.machine.claims[self.id].timer.take();
                self.machine.renewals.set(self.id, timer, None);
                let random = 1 << 63; // a renewal that fails is tried again after 450 ms
                self.step(|claim, step| claim.renew(step, random));
            }
            "extend" => {
                self.step(|claim, step| claim.extend(step, ttl(number)));
            }
            "hold" => {
                let renewal = match number {
                    0 => Renewal::Unlimited,
                    limit => Renewal::UpTo(millis(limit)),
                };
                self.step(|claim, step| claim.hold(step, renewal, &mut None));
            }
            "leave" => {
                self.step(|claim, step| claim.leave(step, Access::Exclusive, false));
            }
            "look" => {
                let state = self.step(Claim::look);
                self.say(state);
            }
            "others" => self.step(|claim, step| claim.ask_others(step)),
            "reenter" => {
                let reenter = |claim: &mut Claim, step: &mut Step<'_>| {
                    claim.reenter(step, ttl(9_000), Access::Exclusive, false)
                };
                self.step(reenter).unwrap();
            }
            "seen" => {
                let outcome = self.step(Claim::take_outcome);
                if let Phase::Held(held) = &mut self.machine.claims[self.id].phase {
                    held.has_guard = true;
                }
                self.say(format_args!("{outcome:?}"));
            }
            "slot" => match self.machine.claim(self.id).holding.slot {
                None => self.say("no slot"),
                Some(slot) => self.say(format_args!("slot {}", slot.number())),
            },
            "sleep" => self.slept += number,
            "stay" => self.step(|claim, step| claim.stay(step, millis(number))),
            "stop" => self.step(|claim, _| claim.stop_renewing()),
            "yield" => self.step(|claim, step| {
                let to = step.rounds.of(claim.newest).granted();
                claim.yield_grants(step, to, millis(3_000));
            }),
            other => panic!("no input is written {other}"),
        }
    }

    fn now(&self) -> Now {
        let monotonic = self.start + millis(self.at);
        Now {
            lease: monotonic.with(millis(self.slept)),
            monotonic,
        }
    }

    /// Lets the claim take a step, and adds what it does to the text.
    fn step<T>(&mut self, act: impl FnOnce(&mut Claim, &mut Step<'_>) -> T) -> T {
        let timer = self.machine.claim(self.id).timer;
        let done = self.machine.step(self.id, self.now(), act);
        self.tell();
        let new = self.machine.claim(self.id).timer;
        if let Some(at) = new.filter(|_| new != timer) {
            let after = at.since(self.start.with(Duration::ZERO));
            self.say(format_args!("timer {}", after.as_millis()));
        }
        done
    }

    fn tell(&mut self) {
        let newest = self.machine.claim(self.id).newest;
        if self.rounds.last() != Some(&newest) {
            self.rounds.push(self.machine.rounds.share(newest));
        }
        let posts = mem::take(&mut self.machine.rounds.posts);
        for effect in mem::take(&mut self.machine.out) {
            let Effect::Event(_, _, what) = effect else {
                continue;
            };
            match what {
                What::HoldEnded(KEPT) => self.say("left"),
                What::HoldEnded(LOST) => {} // told with the loss
                What::HoldEnded(_) => self.say("ended"),
                What::InDoubt { .. } => self.say("doubt"),
                What::Lost {
                    reason, stalled, ..
                } => {
                    let after = stalled.map(|time| format!(" after {}", time.as_millis()));
                    self.say(format_args!("{reason:?}{}", after.unwrap_or_default()));
                }
                What::Renewed {
                    validity,
                    was_in_doubt,
                } => {
                    let end = if was_in_doubt { ", no doubt" } else { "" };
                    self.say(format_args!("renewed {}{end}", validity.as_millis()));
                }
                What::NotKept | What::NotPutBack(_) => {}
            }
        }
        for (to, request) in posts {
            self.say(self.text(to, &request.command));
            let round = request.votes_to.round;
            let owed = |master| self.machine.rounds.owed_until(round, master);
            let by: MasterSet = (0..3).filter(|master| owed(*master).is_some()).collect();
            if let Some(until) = (0..3).find_map(owed) {
                let until = until.since(self.start).as_millis();
                self.say(format_args!("owed until {until} by {}", numbers(by)));
            }
        }
    }

    /// Asks again, at first only the masters in `asked`.
    fn ask_again(&mut self, asked: MasterSet, candidate: u64) {
        let is_fair = self.kind == 'f';
        let how = Asking {
            queue: is_fair.then_some(QueueOptions {
                silent_waiter_timeout: millis(6_000),
                is_fresh: true,
            }),
            ..Asking::plain(asked)
        };
        let attempt = self.rounds.len() as u64 + 1;
        self.step(|claim, step| match is_fair {
            true => claim.ask_again(step, identity('f', attempt), Some(candidate), how),
            false => claim.raise_ballot(step, candidate),
        });
    }

    fn vote(&mut self, round: usize, word: &str) {
        let (letter, master) = word.split_at(1);
        let master = master.parse().unwrap();
        let vote = match letter {
            "g" | "2" | "7" => Vote::Grant,
            "n" => Vote::Refuse(Refusal::Gone),
            "h" => Vote::Refuse(Refusal::held(None)),
            "s" => Vote::Refuse(Refusal::Stale { counter: 8 }),
            _ => Vote::Fail(Failure::timed_out(millis(50))),
        };
        let slot = letter.parse().ok().and_then(Slot::new);
        let to = VotesTo {
            round: self.rounds[round],
            heal: None,
        };
        let now = self.now();
        let vote = CastVote::of(vote, slot);
        self.machine.count(to, master, vote, now);
        self.tell();
    }

    fn say(&mut self, what: impl std::fmt::Display) {
        let comma = if self.said.is_empty() { "" } else { ", " };
        write!(self.said, "{comma}{what}").unwrap();
    }

    fn text(&self, to: MasterSet, command: &Command) -> String {
        let to = numbers(to);
        match &command.action {
            Action::Acquire(attempt, _, queue) => {
                let asks = match (attempt.candidate, queue) {
                    (Some(candidate), _) => format!("ask {to} for {candidate}"),
                    (None, Some(_)) => format!("queue {to} as attempt {}", self.rounds.len()),
                    (None, None) => format!("ask {to}"),
                };
                let slot = attempt
                    .slot
                    .map(|slot| format!(" in slot {}", slot.number()));
                asks + &slot.unwrap_or_default()
            }
            Action::Extend(attempt, ttl) => {
                format!("extend {to} by {} depth {}", ttl.millis(), attempt.depth)
            }
            Action::Release { holding, .. } if holding.depth > 0 => {
                format!("depth {}", holding.depth)
            }
            Action::Release { was_won: true, .. } => format!("release {to}"),
            Action::Release { .. } => format!("take back {to}"),
            Action::Heal(..) => format!("heal {to}"),
            Action::Yield(..) => format!("yield {to}"),
            Action::Break(..) | Action::Inspect | Action::Probe => unreachable!(),
        }
    }
}

#[test]
fn levels_share_the_lock_if_all_of_them_do() {
    use Access::{Exclusive, Shared};
    let mut case = Case::begin("r");
    let claim = &mut case.machine.claims[case.id];
    for (added, removed, expected) in [
        (Some(Shared), None, (2, Exclusive)),
        (None, Some(Exclusive), (1, Shared)),
        (Some(Shared), None, (2, Shared)),
        (Some(Exclusive), Some(Shared), (2, Exclusive)),
    ] {
        if let Some(access) = added {
            claim.add_level(access);
        }
        if let Some(access) = removed {
            claim.remove_level(access);
        }
        assert_eq!((claim.holding.depth, claim.holding.access), expected);
    }
}

/// Returns the TTL for a lease of `millis`.
fn ttl(millis: u64) -> Ttl {
    let (ttl, drift) = (Duration::from_millis(millis + 2), Drift::from_ppm(0));
    Ttl::parse(ttl, Duration::ZERO, drift.unwrap()).unwrap()
}

fn identity(kind: char, attempt: u64) -> Identity {
    match kind {
        'r' | 'f' => Identity::Owner(OwnerAttempt {
            owner: "u:1".into(),
            attempt,
            ticket: (kind == 'f').then(|| Ticket::new(5, "u:1")),
        }),
        _ => Identity::Token(Token::new([7; 20], None)),
    }
}

fn numbers(of: MasterSet) -> String {
    let members = (0..3).filter(|master| of.contains(*master));
    members.map(|master| master.to_string()).collect()
}
