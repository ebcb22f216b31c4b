//! Tables of what a claim does, and a search of all orders of inputs.

use std::fmt::Write as _;

use std::sync::Arc;

use super::{ask::Asking, *};
use crate::core::{
    kind::Kind,
    protocol::{
        command::fixture::lock_id,
        identity::{Identity, OwnerAttempt, QueueOptions, Ticket},
        name::Token,
    },
    time::lease::Renewal,
    vote::{
        Failure, Refusal, SlotVote, Vote,
        quorum::{Quorum, Roster},
    },
};
use crate::machine::{ClaimId, Machine, Now, VotesTo, fixture::session_config};

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
const TRANSITIONS: &str = "
a lock is won, renewed and released
    begin:m           | ask 012
    g0 g1 seen hold   | Won, timer 3000
    g2                |
    +2999 due         | timer 3000
    +1 due            | extend 012 by 9002 depth 1, timer 3450
    g0                |
    g1                | renewed 9000
    g2 look           | held
    leave             | ended, release 012, owed until 12002 by 012
    due               |

a claim keeps the slot that it has won
    begin:r           | ask 012
    21 70 72 seen     | Won
    +1 extend:9000    | extend 012 by 9002 depth 1
    g0 g1             | renewed 9000
    slot              | slot 7

another candidate is offered for the slot that the agreed master has chosen
    begin:t1          | ask 1 for 5
    71 others         | ask 02 for 5 in slot 7
    s0 s2 again:9     | ask 012 for 9 in slot 7

a new attempt may get another slot than the one before
    begin:f1          | ask 1
    71 others         | ask 02 in slot 7
    h0 h2 again:0     | queue 012 as attempt 2

a claim on a lock without slots has none
    held:m slot       | no slot

a round that is not won is taken back
    begin:m           | ask 012
    g0 h1 h2 seen     | NoMajority
    leave             | take back 012, owed until 9002 by 0

a round that is dropped is taken back, whatever its votes are
    begin:m           | ask 012
    g0 leave          | take back 012, owed until 9002 by 012
    g1 seen look      | Won, lost: its validity ended without an extension

a round that no one saw won is released like a lock
    begin:m           | ask 012
    g0 g1 leave       | release 012, owed until 9002 by 012

an agreed master that refuses is the only one to hear of it
    begin:m1          | ask 1
    h1 leave          | take back , owed until 9002 by 02

an agreed master that has not answered may have the key
    begin:m1          | ask 1
    leave             | take back 1, owed until 9002 by 012

an agreed master that grants is asked once
    begin:m1          | ask 1
    g1 +20 others     | ask 02
    g0 seen hold      | Won, timer 3000
    leave             | ended, release 012, owed until 9022 by 012

a lock is taken back where others were asked
    begin:m1          | ask 1
    g1 others leave   | ask 02, take back 012, owed until 9002 by 012

after another round, the release goes to all masters that it asked
    begin:m1          | ask 1
    h1 again:0        | ask 012
    h1 leave          | take back 012, owed until 9002 by 02

a round that asks an agreed master leaves out none that an earlier round asked
    begin:f           | ask 012
    20 71 h2 choose:1 | ask 1
    h1 leave          | take back 01, owed until 12000 by 012

a master that refused is not owed the release
    begin:m           | ask 012
    h0 g1 g2 seen     | Won
    leave             | ended, release 012, owed until 9002 by 12

a master that got the key back is owed the release
    begin:m           | ask 012
    h0 g1 g2 seen     | Won
    extend:9000       | extend 012 by 9002 depth 1
    n0 g1 g2          | heal 0
    leave             | ended, release 012, owed until 9002 by 012

a master that granted an earlier round is owed the release
    begin:m           | ask 012
    g0 g1 h2 seen     | Won
    extend:9000       | extend 012 by 9002 depth 1
    n0 g1 f2          |
    leave             | ended, release 012, owed until 9002 by 012

a majority without validity is not a lock
    begin:m           | ask 012
    g0 g1 +9000 seen  | TooLate
    look              | lost: its validity ended without an extension
    leave             | release 012, owed until 9002 by 012

a lock expires
    held:m            |
    stop              |
    +8999 look        | held
    +1 look           | Expired, lost: its validity ended without an extension
    due extend:9000   |
    leave             | release 012, owed until 9002 by 012

an expiry that no one noticed is announced with the release
    held:m            |
    +9000 leave       | Expired after 6000, release 012, owed until 9002 by 012

a machine that sleeps loses its locks
    held:m            |
    sleep:9000 look   | Expired after 6000, lost: its validity ended without an extension
    leave             | release 012, owed until 9002 by 012

a renewer that has missed no retry is no reason for a loss
    held:m            |
    +3000 due f0 f1   | extend 012 by 9002 depth 1, timer 3450
    +5500 due f0 f1   | doubt, extend 012 by 9002 depth 1, timer 8950
    +500 look         | Expired, lost: its validity ended without an extension

a lock that is lost is held no more
    held:r            |
    stop +9000 look   | Expired, lost: its validity ended without an extension
    hold due          |
    reenter           |

a renewal ends at its limit
    begin:m           | ask 012
    g0 g1 seen        | Won
    hold:5000         | timer 3000
    +3000 due g0 g1   | extend 012 by 9002 depth 1, timer 3450, renewed 9000
    +450 due          |
    +8550 look        | RenewalLimit, lost: it reached the limit of its renewal

of two limits the later one counts
    begin:r           | ask 012
    g0 g1 seen        | Won
    hold:5000         | timer 3000
    reenter g0 g1     | extend 012 by 9002 depth 2
    hold:2000         |
    +3000 due g0 g1   | extend 012 by 9002 depth 2, timer 3450, renewed 9000

a failed renewal puts the lock in doubt until one succeeds
    held:m            |
    +3000 due         | extend 012 by 9002 depth 1, timer 3450
    +50 f0 f1 look    | in doubt
    +400 due          | doubt, extend 012 by 9002 depth 1, timer 3900
    look              | in doubt
    g0 g1 look        | renewed 9000, no doubt, held

a shorter extension ends a doubt, too
    held:m            |
    extend:9000 f0 f1 | extend 012 by 9002 depth 1
    +100 extend:1000  | doubt, extend 012 by 1002 depth 1
    g0 g1 look        | renewed 8900, no doubt, held

a renewal is repeated while a master has not answered
    held:m            |
    +3000 due         | extend 012 by 9002 depth 1, timer 3450
    g0 f1             |
    +450 due          | extend 012 by 9002 depth 1, timer 3900
    g0 g1 look        | renewed 9000, held
    +450 due          | timer 6450

late answers to a renewal count
    held:m            |
    +3000 due         | extend 012 by 9002 depth 1, timer 3450
    +50 f0 f1 f2 look | in doubt
    +10 g1            |
    n0 g2 look        | renewed 8940, heal 0, held
    +390 due          | timer 6000
    leave             | ended, release 012, owed until 12062 by 012

a renewal that fails after the next one began puts the lock in doubt, too
    held:m            |
    +3000 due         | extend 012 by 9002 depth 1, timer 3450
    +450 due          | extend 012 by 9002 depth 1, timer 3900
    ^f0 ^f1 look      | doubt, in doubt
    ^f2 +450 due      | extend 012 by 9002 depth 1, timer 4350
    ^f0 ^f1 look      | in doubt
    g0 g1 look        | renewed 9000, no doubt, held

a renewal that fails after a later one was confirmed puts nothing in doubt
    held:m            |
    +3000 due         | extend 012 by 9002 depth 1, timer 3450
    +450 due          | extend 012 by 9002 depth 1, timer 3900
    g0 g1             | renewed 9000
    ^f0 ^f1 look      | held

late answers count after the next renewal, too
    held:m            |
    +3000 due f0 f1   | extend 012 by 9002 depth 1, timer 3450
    +450 due          | doubt, extend 012 by 9002 depth 1, timer 3900
    ^g0 ^g1 look      | renewed 8550, no doubt, held
    f0 f1 look        | in doubt

late answers to a lost lock change nothing
    held:m            |
    +3000 due f0 f1   | extend 012 by 9002 depth 1, timer 3450
    +6000 g0 g1 look  | Expired after 5550, lost: its validity ended without an extension

late answers disown
    held:m            |
    +3000 due f0 f1   | extend 012 by 9002 depth 1, timer 3450
    +450 due          | doubt, extend 012 by 9002 depth 1, timer 3900
    ^n0 ^n1 look      | Disowned, lost: a majority of masters no longer hold it for this guard

no answer to an extension disowns after a later extension was confirmed
    held:m            |
    +3000 due f0 f1   | extend 012 by 9002 depth 1, timer 3450
    +450 due          | doubt, extend 012 by 9002 depth 1, timer 3900
    g0 g1             | renewed 9000, no doubt
    ^n0 ^n1 look      | held
    +1 extend:9000    | extend 012 by 9002 depth 1
    n0 n1             | Disowned

a majority that disowns ends the lock
    held:m            |
    +3000 due         | extend 012 by 9002 depth 1, timer 3450
    n0 h1             | Disowned
    look              | lost: a majority of masters no longer hold it for this guard
    g2 +450 due       |
    leave             | release 012, owed until 12002 by 012

votes after the loss revive nothing
    held:m            |
    +3000 due         | extend 012 by 9002 depth 1, timer 3450
    g0 +6000 look     | Expired after 5550, lost: its validity ended without an extension
    g1 look           | lost: its validity ended without an extension

votes after the release say nothing
    held:m            |
    +3000 due         | extend 012 by 9002 depth 1, timer 3450
    f0 f1 +450 due    | doubt, extend 012 by 9002 depth 1, timer 3900
    leave             | ended, release 012, owed until 12452 by 012
    g0 g1             |

keys are put back once a majority confirms
    held:m            |
    +3000 due         | extend 012 by 9002 depth 1, timer 3450
    n0 g1             |
    g2                | renewed 9000, heal 0
    leave             | ended, release 012, owed until 12002 by 012

a key that is put back late is owed for longer
    held:m            |
    extend:20000      | extend 012 by 20002 depth 1
    g0 g1             | renewed 20000
    +30 n2            | heal 2
    leave             | ended, release 012, owed until 20032 by 012

another holder on one master is no reason to put a key back
    held:m            |
    extend:20000      | extend 012 by 20002 depth 1
    g0 g1             | renewed 20000
    h2 look           | held

a failure that decides is followed by answers that disown
    held:m            |
    extend:20000      | extend 012 by 20002 depth 1
    f0 h1 look        | in doubt
    n2                | Disowned

a grant after a failure that decided changes nothing
    held:m            |
    extend:20000      | extend 012 by 20002 depth 1
    n0 f1 look        | in doubt
    g2 look           | in doubt

nothing is put back after the release
    held:m            |
    extend:20000 g0   | extend 012 by 20002 depth 1
    leave             | ended, release 012, owed until 20002 by 012
    n1 g2             |

nothing is put back after the loss
    held:m            |
    stop              |
    extend:9000 g0 g1 | extend 012 by 9002 depth 1
    +9000 n2          | Expired

an extension never shortens a lock
    held:m            |
    extend:20000      | extend 012 by 20002 depth 1
    g0 g1             | renewed 20000
    extend:9000 g0 g1 | extend 012 by 9002 depth 1
    +3000 due         | timer 14000
    +8000 look        | held

an older extension confirms nothing new
    held:m            |
    extend:9000       | extend 012 by 9002 depth 1
    +10 extend:20000  | extend 012 by 20002 depth 1
    g0 g1             | renewed 20000
    ^g0 ^g1 look      | held

an older extension that is longer counts
    held:m            |
    extend:20000      | extend 012 by 20002 depth 1
    +10 extend:9000   | extend 012 by 9002 depth 1
    f0 f1 look        | in doubt
    ^g0 ^g1 look      | renewed 19990, in doubt

a majority after the old lease is too late
    held:m            |
    stop              |
    +8990 extend:9000 | extend 012 by 9002 depth 1
    g0 +10 g1 seen    | TooLate
    look              | Expired, lost: its validity ended without an extension

an owner acquires a lock again
    held:r            |
    +100 reenter      | extend 012 by 9002 depth 2
    g0 g1 hold        | renewed 9000
    leave             | depth 1
    leave             | ended, release 012, owed until 9102 by 012
    reenter           |

a reentry that fails takes no level
    held:r            |
    reenter f0 f1     | extend 012 by 9002 depth 2
    leave look        | depth 1, in doubt
    +3000 due         | doubt, extend 012 by 9002 depth 1, timer 3450
    g0 g1 look        | renewed 9000, no doubt, held

an owner cannot acquire a lost lock again
    held:r            |
    reenter n0 n1     | extend 012 by 9002 depth 2, Disowned
    reenter           |
    leave             | depth 1
    leave             | release 012, owed until 9002 by 012

renewal starts again with another guard
    held:r            |
    stop due          |
    reenter g0 g1     | extend 012 by 9002 depth 2
    hold              | timer 3000

a waiter tries first and then joins the queues
    begin:f           | ask 012
    g0 h1 h2 seen     | NoMajority
    yield             | yield 0
    again:0           | queue 012 as attempt 2
    h0 h1 h2 seen     | NoMajority
    +1000 again:0     | queue 012 as attempt 3
    g0 g1 seen hold   | Won, timer 4000
    leave             | ended, release 012, owed until 13000 by 012

a waiter that gives up leaves the queues
    begin:f           | ask 012
    h0 h1 h2 seen     | NoMajority
    again:0           | queue 012 as attempt 2
    h0 h1 h2 leave    | take back 012, owed until 12000 by 012

a further ballot keeps the attempt
    begin:t           | ask 012 for 5
    g0 s1 s2 seen     | NoMajority
    again:9           | ask 012 for 9
    ^g1 seen          | Pending
    g0 g1 seen hold   | Won, timer 3000
    leave             | ended, release 012, owed until 9002 by 012

a lock that is held is not asked for
    held:m            |
    others again:0    |

a lock is left in place for its minimum time
    held:m            |
    stay:60000 stay:9 |
    +1000 leave       | left, extend 012 by 59002 depth 1

a lock is released after its minimum time
    held:m            |
    stay:1000         |
    +1001 leave       | ended, release 012, owed until 9002 by 012

a lost lock is not left in place
    held:m            |
    stay:60000 stop   |
    +9000 leave       | Expired, release 012, owed until 9002 by 012
";

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
            || *input == "leave" && case.machine.claim(case.id).depth() == 0
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
        ends += ["Expired", "Disowned"]
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
    /// The rounds of the claim.
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
        let terms = Terms {
            lock_id: lock_id(Kind::Mutex, "r"),
            ttl: ttl(9_000),
            drift: drift(),
        };
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
        let mut machine = Machine::new(
            Roster::new(addresses, quorum),
            None,
            &session_config(millis(50)),
            start,
        );
        let id = machine.begin(terms, holding, Asking::plain(asked), now);
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
                self.step(|claim, step| claim.hold(step, renewal, millis(50)));
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
                    claim.reenter(step, ttl(9_000), Access::Exclusive)
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
            "slot" => match self.machine.claim(self.id).slot() {
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

    /// Adds what the claim has done to the text.
    fn tell(&mut self) {
        let newest = self.machine.claim(self.id).newest;
        if self.rounds.last() != Some(&newest) {
            self.rounds.push(self.machine.rounds.share(newest));
        }
        let posts = mem::take(&mut self.machine.posts.waiting);
        for effect in mem::take(&mut self.machine.out) {
            let Effect::Event(_, _, what) = effect else {
                continue;
            };
            match what {
                What::HoldEnded { end: LEFT } => self.say("left"),
                What::HoldEnded { end: LOST } => {} // told with the loss
                What::HoldEnded { .. } => self.say("ended"),
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
                What::NotKept | What::NotPutBack { .. } => {}
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
                waiter_timeout: millis(6_000),
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
        let vote = SlotVote::new(vote, slot);
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
        assert_eq!((claim.depth(), claim.holding.access), expected);
    }
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn drift() -> Drift {
    Drift::from_ppm(0).unwrap()
}

/// Returns the TTL for a lease of `millis`.
fn ttl(millis: u64) -> Ttl {
    let ttl = Duration::from_millis(millis + 2);
    Ttl::parse(ttl, Duration::ZERO, drift()).unwrap()
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
