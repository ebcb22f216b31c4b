//! One suite for both kinds of master: the same rows, the same votes, the same keys left behind.
//!
//! Most tests run on memory masters. What they show holds for servers because of this.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a server keeps real time, somebody has to spawn the supervisors, and a failed test ends"
)]

use std::cell::RefCell;

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tokio::{
    runtime::{self, Runtime},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{AbortHandle, yield_now},
};

use self::server::Server;
use super::*;
use crate::core::{
    claim::Claim,
    command::Verb,
    lease::{Drift, Ttl},
    name::{KeyTemplate, Kind, Token},
    quorum::{Failure, Refusal},
};

#[path = "../support/server.rs"]
mod server;

#[tokio::test]
async fn acquire() {
    check(&[
        "acquire A 40: granted, left A 40",
        "acquire A 40: granted, acquire B 80: held, left A 40",
        // A token is for one attempt, so that it is there already is no success.
        "acquire A 40: granted, acquire A 80: held, left A 40",
        "write 40, acquire A 80: held, left another's 40",
        "write -, acquire A 40: held, left another's -",
        "write-hash 40, acquire A 80: held, left hash 40",
        "write-hash -, acquire A 80: held, left hash -",
        "acquire A 40: granted, delete, acquire B 80: granted, left B 80",
    ])
    .await;
}

#[tokio::test]
async fn extend() {
    check(&[
        "acquire A 40: granted, extend A 80: granted, left A 80",
        "acquire A 80: granted, extend A 40: granted, left A 80",
        "acquire A 40: granted, extend A 40: granted, left A 40",
        "write-A -, extend A 40: granted, left A 40",
        "extend A 40: gone, left nothing",
        "acquire A 40: granted, delete, extend A 80: gone, left nothing",
        "acquire A 40: granted, extend B 80: held 40, left A 40",
        "write 40, extend A 80: held 40, left another's 40",
        "write -, extend A 40: held, left another's -",
        "write-hash 40, extend A 80: kind, left hash 40",
        "write-hash -, extend A 40: kind, left hash -",
    ])
    .await;
}

#[tokio::test]
async fn release() {
    check(&[
        "acquire A 40: granted, release A: granted, left nothing",
        "write-A -, release A: granted, left nothing",
        "release A: gone, left nothing",
        "acquire A 40: granted, release A: granted, release A: gone, left nothing",
        "acquire A 40: granted, release B: held 40, left A 40",
        "write 40, release A: held 40, left another's 40",
        "write -, release A: held, left another's -",
        "write-hash 40, release A: kind, left hash 40",
        "acquire A 40: granted, release A: granted, acquire B 80: granted, release A: held 80, left B 80",
    ])
    .await;
}

/// In steps that are posted at once, which is how a rollback follows its acquire.
#[tokio::test]
async fn the_order_of_posts_is_the_order_of_execution() {
    for mut subject in subjects().await {
        for number in 0..100 {
            let key = format!("key {number}");
            for (verb, token) in [
                (Verb::Acquire, 'A'),
                (Verb::Release, 'A'),
                (Verb::Acquire, 'B'),
                (Verb::Extend, 'A'),
                (Verb::Release, 'B'),
            ] {
                subject.post(command(verb, &key, token, seconds(40)), None);
            }
            for expected in ["granted", "granted", "granted", "held 40", "granted"] {
                let (_, vote) = subject.vote().await;
                assert!(agree(&vote, &parse_vote(expected), seconds(40)), "{vote:?}");
            }
            assert_eq!(subject.store.state(&key), None);
        }
    }
}

#[tokio::test]
async fn a_key_lives_for_its_ttl_and_not_much_longer() {
    const TTL: Duration = Duration::from_millis(60);
    for mut subject in subjects().await {
        // Acquired with it, and extended to it.
        for (key, first) in [("acquired", TTL), ("extended", TTL / 6)] {
            let mut before = now();
            let acquire = command(Verb::Acquire, key, 'A', first);
            assert_eq!(subject.ask(acquire).await, Vote::Grant);
            if first < TTL {
                before = now();
                let extend = command(Verb::Extend, key, 'A', TTL);
                assert_eq!(subject.ask(extend).await, Vote::Grant);
            }
            let answered = now();
            let mut last_seen = before;
            loop {
                let asked = now();
                if subject.store.state(key).is_none() {
                    break;
                }
                last_seen = asked;
                yield_now().await;
            }
            assert!(now() - before >= TTL);
            assert!(last_seen < answered + TTL + MILLISECOND * 2);

            let gone = parse_vote("gone");
            let late = command(Verb::Extend, key, 'A', seconds(40));
            assert_eq!(subject.ask(late).await, gone);
            let late = command(Verb::Release, key, 'A', seconds(40));
            assert_eq!(subject.ask(late).await, gone);
            let next = command(Verb::Acquire, key, 'B', seconds(40));
            assert_eq!(subject.ask(next).await, Vote::Grant);
        }
    }
}

/// A key is kept to the end of the millisecond in which it expires, as on a server.
#[tokio::test(start_paused = true)]
async fn the_last_millisecond_of_a_key() {
    let mut subject = Subject::memory(seconds(10));
    for (token, wait, expected) in [('A', 0, "granted"), ('B', 60, "held"), ('C', 1, "granted")] {
        tokio::time::sleep(MILLISECOND * wait).await;
        let acquire = command(Verb::Acquire, "key", token, MILLISECOND * 60);
        assert_eq!(subject.ask(acquire).await, parse_vote(expected), "{token}");
    }
}

#[test]
fn random_steps() {
    let runtime = Runtime::new().unwrap();
    let state = RefCell::new((runtime.block_on(subjects()), 0));
    runner(96)
        .run(&prop::collection::vec(any_step(), 1..16), |steps| {
            let (subjects, run) = &mut *state.borrow_mut();
            *run += 1;
            let ran: Vec<_> = subjects
                .iter_mut()
                .map(|subject| runtime.block_on(random_run(subject, &steps, *run)))
                .collect();
            let slack = ran.iter().map(|ran| ran.took).sum();
            for other in &ran[1..] {
                for (ours, theirs) in ran[0].votes.iter().zip(&other.votes) {
                    prop_assert!(agree(ours, theirs, slack), "{:?} {:?}", ours, theirs);
                }
                for (ours, theirs) in ran[0].left.iter().zip(&other.left) {
                    prop_assert!(same(ours, theirs, slack), "{:?} {:?}", ours, theirs);
                }
            }
            Ok(())
        })
        .unwrap();
}

/// A vote for every ask, in time, whatever is wrong with the master.
#[tokio::test(start_paused = true)]
async fn a_vote_is_in_time() {
    for (fault, after, expected) in [
        (Fault::None, 0, "granted"),
        (delay(20), 20, "granted"),
        (delay(80), 50, "no answer in 50ms"),
        (Fault::Down, 0, "unreachable: connection reset"),
        (error(), 0, "answered OOM no room"),
        (Fault::Hang, 50, "no answer in 50ms"),
        (Fault::Mute, 50, "no answer in 50ms"),
    ] {
        let order = async |master: &MemoryMaster| {
            tokio::time::sleep(MILLISECOND).await; // it dials
            master.order(fault.clone());
            yield_now().await;
        };
        check_time(order, async |_| {}, after, expected).await;
    }
}

/// While the first dial is under way, nothing has been sent yet.
#[tokio::test(start_paused = true)]
async fn a_vote_is_in_time_during_the_first_dial() {
    for (fault, after, expected) in [
        (Fault::None, 0, "granted"),
        (delay(20), 40, "granted"),
        (delay(80), 50, "unreachable: still connecting"),
        (Fault::Down, 0, "unreachable: connection refused"),
        (error(), 0, "answered OOM no room"),
        (Fault::Hang, 50, "unreachable: still connecting"),
        (Fault::Mute, 50, "unreachable: still connecting"),
    ] {
        let order = async |master: &MemoryMaster| master.order(fault.clone());
        check_time(order, async |_| {}, after, expected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_vote_is_in_time_when_the_command_is_on_its_way() {
    for (fault, after, expected) in [
        (Fault::None, 10, "granted"),
        (delay(45), 45, "granted"),
        (delay(80), 50, "no answer in 50ms"),
        (Fault::Down, 10, "connection lost: connection reset"),
        (error(), 10, "answered OOM no room"),
        (Fault::Hang, 50, "no answer in 50ms"),
        (Fault::Mute, 50, "no answer in 50ms"),
    ] {
        let slow = async |master: &MemoryMaster| {
            tokio::time::sleep(MILLISECOND).await; // it dials
            master.order(delay(30));
        };
        let strike = async |master: &MemoryMaster| {
            tokio::time::sleep(MILLISECOND * 10).await;
            master.order(fault.clone());
        };
        check_time(slow, strike, after, expected).await;
    }
}

/// What is owed is sent first, and its vote was cast long ago.
#[tokio::test(start_paused = true)]
async fn a_vote_is_in_time_behind_an_owed_command() {
    let mut subject = Subject::memory(MILLISECOND * 50);
    subject.store.memory().order(delay(80)); // the dial, and then what is sent
    let release = command(Verb::Release, "key", 'A', seconds(40));
    subject.post(release, Some(now() + seconds(40)));
    tokio::time::sleep(MILLISECOND * 40).await;
    let start = now();
    subject.post(command(Verb::Acquire, "key", 'B', seconds(40)), None);
    for (after, expected) in [
        (10, "unreachable: still connecting"),
        (50, "no answer in 50ms"),
        (120, "holds nothing"),
        (120, "granted"),
    ] {
        let (at, vote) = subject.vote().await;
        let seen = (at - start, vote.to_string());
        assert_eq!(seen, (MILLISECOND * after, expected.to_owned()));
    }
}

#[test]
fn a_vote_is_in_time_whatever_happens() {
    runner(1024)
        .run(
            &prop::collection::vec((0..60u32, any_event()), 1..40),
            |events| {
                let runtime = runtime::Builder::new_current_thread()
                    .enable_time()
                    .start_paused(true)
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let subject = Subject::memory(MILLISECOND * 50);
                    let mut asked = Vec::new();
                    for (gap, event) in events {
                        tokio::time::sleep(MILLISECOND * gap).await;
                        match event {
                            Event::Order(fault) => subject.store.memory().order(fault),
                            Event::Post(verb, owed) => {
                                let (votes, ballot) = unbounded_channel();
                                let owed = owed.then(|| now() + seconds(1));
                                let command = command(verb, "key", 'A', seconds(1));
                                subject.post_with(command, owed, votes);
                                asked.push((now(), ballot));
                            }
                        }
                    }
                    for (start, mut ballot) in asked {
                        let (at, _) = ballot.recv().await.unwrap();
                        prop_assert!(at - start <= MILLISECOND * 50, "after {:?}", at - start);
                    }
                    Ok(())
                })
            },
        )
        .unwrap();
}

/// As when the runtime that the coordinator was built in shuts down, and a caller lives in another.
#[tokio::test(start_paused = true)]
async fn a_supervisor_that_ends_leaves_nobody_waiting() {
    let mut subject = Subject::memory(MILLISECOND * 50);
    tokio::time::sleep(MILLISECOND).await; // it dials
    subject.store.memory().order(Fault::Hang);
    subject.post(command(Verb::Acquire, "key", 'A', seconds(40)), None);
    tokio::time::sleep(MILLISECOND).await; // it sends
    subject.supervisor.abort();
    subject.post(command(Verb::Acquire, "key", 'A', seconds(40)), None);
    for _ in 0..2 {
        let (_, vote) = subject.vote().await;
        assert_eq!(vote, Vote::Fail(Failure::Closed));
    }
}

/// Steps of a row, on one key.
#[derive(Clone, Debug)]
enum Step {
    Ask(Verb, char, Duration),
    Delete,
    /// By somebody who is not us: a string under this letter's token, or anybody's.
    Write(char, Option<Duration>),
    WriteHash(Option<Duration>),
}

/// What is under a key: whose token, or `hash`, and for how long.
type State = Option<(String, Option<Duration>)>;

/// Runs each row on both kinds of master as it is written, and with each extension and release sent
/// twice, which must leave the same.
async fn check(rows: &[&str]) {
    for mut subject in subjects().await {
        for (number, row) in rows.iter().enumerate() {
            for copies in [1, 2] {
                let key = format!("{number} {copies}");
                let start = now();
                let mut steps: Vec<_> = row.split(", ").collect();
                let left = steps.pop().and_then(|last| last.strip_prefix("left "));
                for step in steps {
                    let (step, expected) = parse_step(step);
                    let vote = subject.run(&key, &step, copies).await;
                    let agreed = match (&vote, &expected) {
                        (Some(vote), Some(expected)) => agree(vote, expected, start.elapsed()),
                        _ => vote == expected,
                    };
                    assert!(
                        agreed,
                        "{row}: {step:?}: {vote:?} on {}",
                        subject.store.kind()
                    );
                }
                let (left, state) = (parse_state(left.unwrap()), subject.store.state(&key));
                let agreed = same(&state, &left, start.elapsed());
                assert!(agreed, "{row}: left {state:?} on {}", subject.store.kind());
            }
        }
    }
}

fn parse_step(text: &str) -> (Step, Option<Vote>) {
    let (step, vote) = match text.split_once(": ") {
        Some((step, vote)) => (step, Some(parse_vote(vote))),
        None => (text, None),
    };
    let words: Vec<_> = step.split(' ').collect();
    let letter = |word: &str| word.chars().next().unwrap();
    let step = match words[..] {
        ["acquire", who, ttl] => Step::Ask(Verb::Acquire, letter(who), parse_ttl(ttl).unwrap()),
        ["extend", who, ttl] => Step::Ask(Verb::Extend, letter(who), parse_ttl(ttl).unwrap()),
        ["release", who] => Step::Ask(Verb::Release, letter(who), seconds(1)),
        ["write", ttl] => Step::Write('?', parse_ttl(ttl)),
        ["write-A", ttl] => Step::Write('A', parse_ttl(ttl)),
        ["write-hash", ttl] => Step::WriteHash(parse_ttl(ttl)),
        ["delete"] => Step::Delete,
        _ => panic!("no step is written {text:?}"),
    };
    (step, vote)
}

fn parse_vote(text: &str) -> Vote {
    let held = |remaining| Vote::Refuse(Refusal::held(remaining));
    match text.split_once(' ').unwrap_or((text, "-")) {
        ("granted", _) => Vote::Grant,
        ("gone", _) => Vote::Refuse(Refusal::Gone),
        ("kind", _) => Vote::Refuse(Refusal::OtherKind),
        ("held", remaining) => held(parse_ttl(remaining)),
        _ => panic!("no vote is written {text:?}"),
    }
}

fn parse_state(text: &str) -> State {
    let (what, ttl) = text.split_once(' ')?;
    Some((what.to_owned(), parse_ttl(ttl)))
}

fn parse_ttl(text: &str) -> Option<Duration> {
    (text != "-").then(|| seconds(text.parse().unwrap()))
}

/// Whether two masters said the same, give or take the time between them.
fn agree(one: &Vote, other: &Vote, slack: Duration) -> bool {
    match (one, other) {
        (
            Vote::Refuse(Refusal::Held { remaining: one, .. }),
            Vote::Refuse(Refusal::Held {
                remaining: other, ..
            }),
        ) => close(*one, *other, slack),
        _ => one == other,
    }
}

fn same(one: &State, other: &State, slack: Duration) -> bool {
    match (one, other) {
        (Some((one, one_ttl)), Some((other, other_ttl))) => {
            one == other && close(*one_ttl, *other_ttl, slack)
        }
        _ => one == other,
    }
}

/// A stall of the machine makes no difference: it is in `slack`.
fn close(one: Option<Duration>, other: Option<Duration>, slack: Duration) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.abs_diff(other) <= slack + MILLISECOND * 2,
        _ => one == other,
    }
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None, // a failure is printed, smallest case and all
        ..Config::default()
    })
}

fn any_step() -> impl Strategy<Value = (usize, Step)> {
    // Far enough apart that no stall changes which is longer.
    let ttl = || prop::sample::select(vec![seconds(100), seconds(200), seconds(300)]);
    let some_ttl = move || prop::option::weighted(0.8, ttl());
    let verb = prop::sample::select(vec![Verb::Acquire, Verb::Extend, Verb::Release]);
    let token = || prop::sample::select(vec!['A', 'B', 'C']);
    let step = prop_oneof![
        12 => (verb, token(), ttl()).prop_map(|(verb, who, ttl)| Step::Ask(verb, who, ttl)),
        1 => Just(Step::Delete),
        1 => some_ttl().prop_map(|ttl| Step::Write('?', ttl)),
        1 => (token(), some_ttl()).prop_map(|(who, ttl)| Step::Write(who, ttl)),
        1 => some_ttl().prop_map(Step::WriteHash),
    ];
    (0..2usize, step)
}

/// What a random run showed.
struct Ran {
    votes: Vec<Vote>,
    left: Vec<State>,
    took: Duration,
}

async fn random_run(subject: &mut Subject, steps: &[(usize, Step)], run: usize) -> Ran {
    let start = now();
    let mut votes = Vec::new();
    let mut left = Vec::new();
    // Once as it is, and once with every extension and release sent twice.
    for copies in [1, 2] {
        let keys = [0, 1].map(|key| format!("{run} {copies} {key}"));
        for (key, step) in steps {
            votes.extend(subject.run(&keys[*key], step, copies).await);
        }
        left.push(keys.map(|key| subject.store.state(&key)));
    }
    let took = start.elapsed();
    for (once, twice) in left[0].iter().zip(&left[1]) {
        assert!(same(once, twice, took), "once {once:?}, twice {twice:?}");
    }
    Ran {
        votes,
        left: left.concat(),
        took,
    }
}

/// Asks a master of every verb, and when and how it votes. `before` and `after` the command is posted
/// things may happen to the master.
async fn check_time(
    before: impl AsyncFn(&MemoryMaster),
    after: impl AsyncFn(&MemoryMaster),
    millis: u32,
    expected: &str,
) {
    for verb in [Verb::Acquire, Verb::Extend, Verb::Release] {
        let mut subject = Subject::memory(MILLISECOND * 50);
        if verb != Verb::Acquire {
            subject.store.write("key", 'A', Some(seconds(40)));
        }
        before(subject.store.memory()).await;
        let start = now();
        subject.post(command(verb, "key", 'A', seconds(40)), None);
        after(subject.store.memory()).await;
        let (at, vote) = subject.vote().await;
        let seen = (at - start, vote.to_string());
        assert_eq!(
            seen,
            (MILLISECOND * millis, expected.to_owned()),
            "{verb:?}"
        );
    }
}

#[derive(Clone, Debug)]
enum Event {
    Order(Fault),
    /// And whether the master is owed it.
    Post(Verb, bool),
}

fn any_event() -> impl Strategy<Value = Event> {
    let verb = prop::sample::select(vec![Verb::Acquire, Verb::Extend, Verb::Release]);
    prop_oneof![
        3 => (verb, any::<bool>()).prop_map(|(verb, owed)| Event::Post(verb, owed)),
        1 => any_fault().prop_map(Event::Order),
    ]
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::None),
        Just(Fault::Down),
        Just(Fault::Hang),
        Just(Fault::Mute),
        Just(error()),
        (1..100u32).prop_map(delay),
    ]
}

fn delay(millis: u32) -> Fault {
    Fault::Delay(MILLISECOND * millis)
}

fn error() -> Fault {
    Fault::ErrorReply("OOM no room".into())
}

/// A master behind its mailbox, and what it votes.
struct Subject {
    store: Store,
    mailbox: Arc<Mailbox>,
    supervisor: AbortHandle,
    node_timeout: Duration,
    ballots: UnboundedSender<Ballot>,
    votes: UnboundedReceiver<Ballot>,
}

type Ballot = (tokio::time::Instant, Vote);

/// Both kinds of master, or the one there is.
async fn subjects() -> Vec<Subject> {
    // Nothing is slow here unless the machine is.
    let patience = seconds(20);
    let mut subjects = vec![Subject::memory(patience)];
    if !server::only_urls() {
        let server = tokio::task::spawn_blocking(Server::start).await.unwrap();
        let spec = MasterSpec::from(server.url());
        subjects.push(Subject::new(Store::Real(server), spec, patience));
    }
    subjects
}

impl Subject {
    fn memory(node_timeout: Duration) -> Self {
        let master = MemoryMaster::new();
        let spec = MasterSpec::from(&master);
        Self::new(Store::Memory(master), spec, node_timeout)
    }

    fn new(store: Store, spec: MasterSpec, node_timeout: Duration) -> Self {
        let terms = Terms {
            node_timeout,
            connect_timeout: node_timeout * 20,
            redial: Backoff::new(MILLISECOND * 20, seconds(1)).unwrap(),
            now: || now().into_std(),
            random: || u64::MAX / 2,
            #[cfg(feature = "tls")]
            tls: None,
        };
        let address = spec.address().unwrap();
        let (mailbox, supervisor) = spec.open(0, address, &terms);
        let supervisor = tokio::spawn(supervisor).abort_handle();
        let (ballots, votes) = unbounded_channel();
        Self {
            store,
            mailbox,
            supervisor,
            node_timeout,
            ballots,
            votes,
        }
    }

    /// Runs one step, an extension or release `copies` times: the first vote counts.
    async fn run(&mut self, key: &str, step: &Step, copies: usize) -> Option<Vote> {
        match *step {
            Step::Ask(verb, who, ttl) => {
                let vote = self.ask(command(verb, key, who, ttl)).await;
                if verb != Verb::Acquire {
                    for _ in 1..copies {
                        self.ask(command(verb, key, who, ttl)).await;
                    }
                }
                return Some(vote);
            }
            Step::Delete => self.store.delete(key),
            Step::Write(who, ttl) => self.store.write(key, who, ttl),
            Step::WriteHash(ttl) => self.store.write_hash(key, ttl),
        }
        None
    }

    async fn ask(&mut self, command: Command) -> Vote {
        self.post(command, None);
        self.vote().await.1
    }

    async fn vote(&mut self) -> Ballot {
        self.votes.recv().await.unwrap()
    }

    fn post(&self, command: Command, owed_until: Option<tokio::time::Instant>) {
        self.post_with(command, owed_until, self.ballots.clone());
    }

    fn post_with(
        &self,
        command: Command,
        owed_until: Option<tokio::time::Instant>,
        ballots: UnboundedSender<Ballot>,
    ) {
        let deadline = (now() + self.node_timeout).into_std();
        let owed_until = owed_until.map(tokio::time::Instant::into_std);
        let ask = Ask::new(command, 1, deadline, BallotBox(ballots, owed_until));
        self.mailbox.post(Arc::new(ask));
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.mailbox.abandon();
    }
}

struct BallotBox(UnboundedSender<Ballot>, Option<Instant>);

impl CountVotes for BallotBox {
    fn count(&self, master: usize, vote: Vote, _now: Instant) {
        assert_eq!(master, 0);
        let _ = self.0.send((now(), vote)); // a later vote may find that nobody is interested
    }

    fn owed_until(&self, _master: usize) -> Option<Instant> {
        self.1
    }
}

/// What is behind the mailbox, by another way in.
enum Store {
    Memory(MemoryMaster),
    Real(Server),
}

impl Store {
    fn memory(&self) -> &MemoryMaster {
        match self {
            Self::Memory(master) => master,
            Self::Real(_) => panic!("a server takes no orders"),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Memory(_) => "a memory master",
            Self::Real(_) => "a server",
        }
    }

    fn delete(&self, key: &str) {
        match self {
            Self::Memory(master) => master.delete(key),
            Self::Real(server) => {
                server.command(&["DEL", key]);
            }
        }
    }

    fn write(&self, key: &str, who: char, ttl: Option<Duration>) {
        let value = text_of(token(who));
        match self {
            Self::Memory(master) => master.set(key, value, ttl),
            Self::Real(server) => {
                assert_eq!(server.command(&["SET", key, &value]), "OK");
                expire(server, key, ttl);
            }
        }
    }

    fn write_hash(&self, key: &str, ttl: Option<Duration>) {
        match self {
            Self::Memory(master) => master.set_hash(key, [("field", "1")], ttl),
            Self::Real(server) => {
                server.command(&["DEL", key]);
                assert_eq!(server.command(&["HSET", key, "field", "1"]), "1");
                expire(server, key, ttl);
            }
        }
    }

    fn state(&self, key: &str) -> State {
        match self {
            Self::Memory(master) => {
                let ttl = master.pttl(key);
                match master.get(key) {
                    Some(value) => Some((whose(&value), ttl)),
                    None => {
                        let keys = master.keys();
                        keys.iter()
                            .any(|other| other == key)
                            .then(|| ("hash".into(), ttl))
                    }
                }
            }
            Self::Real(server) => {
                let value = server.command(&["GET", key]);
                let ttl = server.command(&["PTTL", key]).parse::<i64>().unwrap();
                // -1: no TTL; -2: no key.
                let ttl = u64::try_from(ttl).ok().map(Duration::from_millis);
                if value.starts_with("WRONGTYPE") {
                    Some(("hash".into(), ttl))
                } else {
                    (value != "(nil)").then(|| (whose(&value), ttl))
                }
            }
        }
    }
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
        .find(|who| text_of(token(*who)) == value)
        .map_or_else(|| "another's".to_owned(), String::from)
}

fn text_of(token: Token) -> String {
    String::from_utf8(token.as_bytes().to_vec()).unwrap()
}

fn token(who: char) -> Token {
    Token::new([who as u8; 20])
}

fn command(verb: Verb, key: &str, who: char, ttl: Duration) -> Command {
    let names = KeyTemplate::parse("{name}").unwrap();
    Command {
        verb,
        resource: names.resource(Kind::Mutex, key.into()).unwrap(),
        claim: Claim::Token(token(who)),
        ttl: Ttl::parse(ttl, Duration::ZERO, Drift::from_ppm(0).unwrap()).unwrap(),
        depth: 1,
        wakes: true,
        patience: None,
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

const MILLISECOND: Duration = Duration::from_millis(1);
