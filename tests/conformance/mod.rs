//! One suite for memory masters and servers. The same rows must give the same votes on both, and
//! leave the same keys.
//!
//! Most tests of the crate run on memory masters. Because of this suite, their results hold for
//! servers.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a server keeps real time, somebody has to spawn the supervisors, and a failed test ends"
)]

use std::{sync::Arc, time::Duration};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use testkit::server::{self, Listener, Server};
use tokio::{
    runtime::{self, Runtime},
    task::{AbortHandle, yield_now},
};

use self::{
    step::{RowCommand, Step},
    store::Store,
    words::{alike, in_seconds, kind_of, written},
};
use crate::{
    Fault, MemoryMaster,
    clock::wall_micros,
    core::{
        kind::Kind,
        protocol::{
            client_name::ClientName,
            command::{Action, Ballot, Command, Holding},
            connection_name::ConnectionName,
            identity::Identity,
            name::{KeyTemplate, LockId, Token},
        },
        time::lease::{Drift, Ttl},
        vote::{Failure, Refusal, Verb, Vote, lists::Roster, quorum::Quorum},
        wait::pauses::Backoff,
    },
    driver::round_handle::RoundHandle,
    machine::{Machine, fixture::session_config},
    master::{DistinctServers, HealthBoard, MasterConfig, MasterSpec, Shared},
    observe::observer::LockObserver,
};

mod losses;
mod origin;
mod plain;
mod random;
mod rows;
mod step;
mod store;
mod times;
mod watch;
mod words;

/// Posts several commands without waiting for votes. A lost acquisition and its release follow each
/// other in this way.
#[tokio::test]
async fn the_order_of_posts_is_the_order_of_execution() {
    for subject in subjects().await {
        for number in 0..100 {
            let key = format!("key {number}");
            let asked = [
                (Verb::Acquire, 'A'),
                (Verb::Release, 'A'),
                (Verb::Acquire, 'B'),
                (Verb::Extend, 'A'),
                (Verb::Release, 'B'),
            ]
            .map(|(verb, token)| subject.post(command(verb, &key, token, seconds(40)), None));
            let expected = ["granted", "granted", "granted", "held 40s", "granted"];
            for (asked, expected) in asked.into_iter().zip(expected) {
                let (_, vote, _) = asked.answer().await;
                let answer = written(&vote, "");
                assert!(alike(&answer, expected, seconds(40)), "{answer}");
            }
            assert_eq!(subject.store.state(&key), "nothing");
        }
    }
}

#[tokio::test]
async fn a_key_lives_for_its_ttl_and_not_much_longer() {
    const TTL: Duration = Duration::from_millis(120);
    let gone = Vote::Refuse(Refusal::Gone);
    for subject in subjects().await {
        // One key is acquired with the TTL. The other key is extended to the TTL.
        for (key, first) in [("acquired", TTL), ("extended", TTL / 2)] {
            let before = loop {
                let acquired = now();
                let acquire = command(Verb::Acquire, key, 'A', first);
                assert_eq!(subject.ask(acquire).await, Vote::Grant);
                if first == TTL {
                    break acquired;
                }
                let extended = now();
                let extend = command(Verb::Extend, key, 'A', TTL);
                let vote = subject.ask(extend).await;
                if vote == Vote::Grant {
                    break extended;
                }
                // A busy machine may be late with the extension.
                assert_eq!(vote, gone);
                assert!(now() - acquired >= first);
            };
            let answered = now();
            let mut last_seen = before;
            loop {
                let asked = now();
                if subject.store.state(key) == "nothing" {
                    break;
                }
                last_seen = asked;
                yield_now().await;
            }
            assert!(now() - before >= TTL);
            assert!(last_seen < answered + TTL + MILLISECOND * 2);

            let late = command(Verb::Extend, key, 'A', seconds(40));
            assert_eq!(subject.ask(late).await, gone);
            let late = command(Verb::Release, key, 'A', seconds(40));
            assert_eq!(subject.ask(late).await, gone);
            let next = command(Verb::Acquire, key, 'B', seconds(40));
            assert_eq!(subject.ask(next).await, Vote::Grant);
        }
    }
}

/// A key lives until the end of the millisecond in which it expires, as on a server.
#[tokio::test(start_paused = true)]
async fn the_last_millisecond_of_a_key() {
    let subject = Subject::memory(seconds(10));
    for (token, wait, expected) in [
        ('A', 0, "granted"),
        ('B', 60, "held -"),
        ('C', 1, "granted"),
    ] {
        tokio::time::sleep(MILLISECOND * wait).await;
        let acquire = command(Verb::Acquire, "key", token, MILLISECOND * 60);
        let vote = subject.ask(acquire).await;
        assert_eq!(written(&vote, ""), expected, "{token}");
    }
}

/// Every request gets a vote in time, whatever the fault of the master is.
#[tokio::test(start_paused = true)]
async fn a_vote_is_in_time() {
    for (fault, after, expected) in [
        (Fault::None, 0, "granted"),
        (delay(20), 20, "granted"),
        (delay(80), 50, "no answer in 50ms"),
        (Fault::Down, 0, "unreachable: closed by the server"),
        (error(), 0, "answered OOM no room"),
        (Fault::Hang, 50, "no answer in 50ms"),
        (Fault::Mute, 50, "no answer in 50ms"),
    ] {
        let inject = async |master: &MemoryMaster| {
            tokio::time::sleep(MILLISECOND).await; // the supervisor dials
            master.inject(fault.clone());
            yield_now().await;
        };
        check_time(inject, async |_| {}, after, expected).await;
    }
}

/// A command waits for the first dial, and its timeout begins after the dial.
#[tokio::test(start_paused = true)]
async fn a_vote_is_in_time_during_the_first_dial() {
    const SILENT: &str = "unreachable: no connection in 1s: waiting for memory to answer the login";
    for (fault, after, expected) in [
        (Fault::None, 0, "granted"),
        (delay(20), 40, "granted"),
        (delay(80), 130, "no answer in 50ms; its answers take 80ms"),
        (
            Fault::Down,
            0,
            "unreachable: connecting to memory: connection refused",
        ),
        (error(), 0, "answered OOM no room"),
        (Fault::Hang, 1_000, SILENT),
        (Fault::Mute, 1_000, SILENT),
    ] {
        let inject = async |master: &MemoryMaster| master.inject(fault.clone());
        check_time(inject, async |_| {}, after, expected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_vote_is_in_time_when_the_command_is_on_its_way() {
    for (fault, after, expected) in [
        (Fault::None, 10, "granted"),
        (delay(45), 45, "granted"),
        (delay(80), 50, "no answer in 50ms"),
        (Fault::Down, 10, "connection lost: closed by the server"),
        (error(), 10, "answered OOM no room"),
        (Fault::Hang, 50, "no answer in 50ms"),
        (Fault::Mute, 50, "no answer in 50ms"),
    ] {
        let slow = async |master: &MemoryMaster| {
            tokio::time::sleep(MILLISECOND).await; // the supervisor dials
            master.inject(delay(30));
        };
        let fault_later = async |master: &MemoryMaster| {
            tokio::time::sleep(MILLISECOND * 10).await;
            master.inject(fault.clone());
        };
        check_time(slow, fault_later, after, expected).await;
    }
}

/// An owed command is sent before newer commands. When an owed command is posted while the master
/// is down, a failure is cast as its vote.
#[tokio::test(start_paused = true)]
async fn a_vote_is_in_time_after_an_owed_command() {
    let subject = Subject::memory(MILLISECOND * 50);
    subject.store.memory().inject(Fault::Down);
    tokio::time::sleep(MILLISECOND).await;
    let start = now();
    let release = command(Verb::Release, "key", 'A', seconds(40));
    let release = subject.post(release, Some(seconds(40)));
    subject.store.memory().inject(Fault::None);
    // The master is dialled again after a pause of 30 ms.
    tokio::time::sleep(MILLISECOND * 28).await;
    subject.store.memory().inject(delay(80));
    tokio::time::sleep(MILLISECOND * 90).await;
    let acquisition = subject.post(command(Verb::Acquire, "key", 'B', seconds(40)), None);
    for (asked, after, expected) in [
        (
            release,
            0,
            "unreachable: connecting to memory: connection refused",
        ),
        (acquisition, 168, "no answer in 50ms; its answers take 80ms"),
    ] {
        let (at, vote, _) = asked.answer().await;
        let seen = (at - start, subject.said(&vote));
        assert_eq!(seen, (MILLISECOND * after, expected.to_owned()));
    }
    let is_owed = |machine: &mut Machine| machine.rounds.pending_until().is_some();
    let is_unanswered = |machine: &mut Machine| !machine.sessions[0].is_empty();
    for (after, owed, unanswered) in [
        (188, true, true),
        (189, false, true),
        (197, false, true),
        (198, false, false),
    ] {
        let at = start + MILLISECOND * after + MILLISECOND / 2;
        tokio::time::sleep_until(at).await;
        let seen = (
            subject.machine.lock(is_owed),
            subject.machine.lock(is_unanswered),
        );
        assert_eq!(seen, (owed, unanswered), "{after}");
    }
    assert!(subject.store.state("key").starts_with("B "));
}

#[test]
fn a_vote_is_in_time_whatever_happens() {
    runner(1024)
        .run(
            &(
                any::<bool>(),
                prop::collection::vec((0..60u32, any_event()), 1..40),
            ),
            |(is_connected, events)| {
                let runtime = runtime::Builder::new_current_thread()
                    .enable_time()
                    .start_paused(true)
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let subject = Subject::memory(MILLISECOND * 50);
                    // The command has one timeout until it is sent, and one timeout until its
                    // answer. The first dial comes before both. An owed command may wait for the
                    // connect timeout more.
                    let mut longest = MILLISECOND * 2 * 50;
                    if is_connected {
                        tokio::time::sleep(MILLISECOND).await;
                    } else {
                        longest += seconds(1);
                    }
                    let mut asked = Vec::new();
                    for (gap, event) in events {
                        tokio::time::sleep(MILLISECOND * gap).await;
                        match event {
                            Event::Inject(fault) => subject.store.memory().inject(fault),
                            Event::Post(verb, owed) => {
                                let owed = owed.then(|| seconds(1));
                                let command = command(verb, "key", 'A', seconds(1));
                                let longest = longest + owed.unwrap_or_default();
                                asked.push((longest, subject.post(command, owed)));
                            }
                        }
                    }
                    for (longest, asked) in asked {
                        let start = asked.at;
                        let (at, ..) = asked.answer().await;
                        prop_assert!(at - start <= longest, "after {:?}", at - start);
                    }
                    Ok(())
                })
            },
        )
        .unwrap();
}

/// A supervisor ends when the runtime of the coordinator shuts down. A caller may run in another
/// runtime.
#[tokio::test(start_paused = true)]
async fn a_supervisor_that_ends_fails_all_votes() {
    let subject = Subject::memory(MILLISECOND * 50);
    tokio::time::sleep(MILLISECOND).await; // the supervisor dials
    subject.store.memory().inject(Fault::Hang);
    let acquire = || command(Verb::Acquire, "key", 'A', seconds(40));
    let sent = subject.post(acquire(), None);
    tokio::time::sleep(MILLISECOND).await; // the supervisor sends
    subject.supervisor.abort();
    let posted = subject.post(acquire(), None);
    for asked in [sent, posted] {
        let (_, vote, _) = asked.answer().await;
        assert_eq!(vote, Vote::Fail(Failure::Closed));
    }
}

/// Runs each row twice on both kinds of master. The second run sends two copies of every command
/// that may be repeated. It must leave the same keys as the first run, and the copies must publish
/// nothing.
async fn check(rows: &[&str]) {
    check_on(&mut subjects().await, rows).await;
}

async fn check_on(subjects: &mut [Subject], rows: &[&str]) {
    for subject in subjects {
        for (number, row) in rows.iter().enumerate() {
            for copies in [1, 2] {
                // Tries again if the machine stalled for so long that the candidates are too old,
                // or that times which should be the same differ.
                for again in 0.. {
                    let key = format!("{number} {copies} {again}");
                    let start = now();
                    let result = subject.run_row(&key, row, copies, start).await;
                    if start.elapsed() > LONGEST_ROW && again < MOST_STALLS {
                        continue;
                    }
                    let kind = subject.store.kind();
                    result.unwrap_or_else(|wrong| panic!("{row}: {wrong} on {kind}"));
                    break;
                }
            }
        }
    }
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None, // not needed: a failure prints its smallest case
        ..Config::default()
    })
}

/// Checks the vote of a master on a command of each verb, and the time of the vote. `before` and
/// `after` run before and after the command is posted.
async fn check_time(
    before: impl AsyncFn(&MemoryMaster),
    after: impl AsyncFn(&MemoryMaster),
    millis: u32,
    expected: &str,
) {
    for verb in [Verb::Acquire, Verb::Extend, Verb::Release] {
        let subject = Subject::memory(MILLISECOND * 50);
        if verb != Verb::Acquire {
            subject.store.write("key", 'A', Some(seconds(40)));
        }
        before(subject.store.memory()).await;
        let start = now();
        let asked = subject.post(command(verb, "key", 'A', seconds(40)), None);
        after(subject.store.memory()).await;
        let (at, vote, _) = asked.answer().await;
        let seen = (at - start, subject.said(&vote));
        assert_eq!(
            seen,
            (MILLISECOND * millis, expected.to_owned()),
            "{verb:?}"
        );
    }
}

#[derive(Clone, Debug)]
enum Event {
    Inject(Fault),
    /// A command, and whether it is owed to the master.
    Post(Verb, bool),
}

fn any_event() -> impl Strategy<Value = Event> {
    let verb = prop::sample::select(vec![Verb::Acquire, Verb::Extend, Verb::Release]);
    prop_oneof![
        3 => (verb, any::<bool>()).prop_map(|(verb, owed)| Event::Post(verb, owed)),
        1 => any_fault().prop_map(Event::Inject),
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

/// A master, and the machine of a coordinator that has only this master.
struct Subject {
    store: Store,
    machine: Arc<Shared>,
    supervisor: AbortHandle,
    /// The wall clock at the start of the row. Candidates are relative to this time.
    began: u64,
}

/// A command that was posted.
struct Asked {
    at: tokio::time::Instant,
    round: RoundHandle,
}

/// The time of a vote, the vote, and the text of the reply to an inspection.
type Answer = (tokio::time::Instant, Vote, String);

impl Asked {
    async fn answer(self) -> Answer {
        let vote = self.round.voted(0).await;
        let latency = self.round.cast()[0].as_ref().unwrap().latency();
        let seen = self.round.seen().pop().flatten();
        let text = seen.map_or_else(String::new, |seen| seen.text);
        (self.at + latency, vote, text)
    }
}

/// Returns the servers that have `DELEX` or `DELIFEQ`.
async fn native_subjects() -> Vec<Subject> {
    let programs = ["redis-8.6", "valkey-9.1"]
        .into_iter()
        .filter_map(server::version);
    let mut subjects = Vec::new();
    for program in programs {
        let start = move || Server::start_version(&program);
        let server = tokio::task::spawn_blocking(start).await.unwrap();
        subjects.push(Subject::server(server));
    }
    subjects
}

/// Returns both kinds of master, or only a memory master if there is no server to start.
async fn subjects() -> Vec<Subject> {
    let mut subjects = vec![Subject::memory(PATIENCE)];
    if !server::only_urls() {
        let server = tokio::task::spawn_blocking(Server::start).await.unwrap();
        subjects.push(Subject::server(server));
    }
    subjects
}

impl Subject {
    fn memory(node_timeout: Duration) -> Self {
        let master = MemoryMaster::new();
        let spec = MasterSpec::from(&master);
        Self::new(Store::of_memory(master), spec, node_timeout)
    }

    fn server(server: Server) -> Self {
        let spec = MasterSpec::from(server.url());
        Self::new(Store::of_server(server), spec, PATIENCE)
    }

    fn new(store: Store, spec: MasterSpec, node_timeout: Duration) -> Self {
        let roster = Roster::new([spec.address().unwrap()], Quorum::of(1));
        let config = MasterConfig {
            connection_name: ConnectionName::fixture(),
            session: session_config(node_timeout),
            redial: Backoff::new(MILLISECOND * 30, MILLISECOND * 30).unwrap(), // not random
            servers: DistinctServers::new(1),
        };
        let health = HealthBoard::new(&roster, None);
        let observer = LockObserver::new(None);
        let machine = Arc::new(Shared::new(roster, &config.session, observer, health));
        let supervisor = spec.open(0, &config, &machine);
        Self {
            store,
            machine,
            supervisor: tokio::spawn(supervisor).abort_handle(),
            began: wall_micros(),
        }
    }

    /// Runs a row. Returns the first difference as an error.
    async fn run_row(
        &mut self,
        key: &str,
        row: &str,
        copies: usize,
        start: tokio::time::Instant,
    ) -> Result<(), String> {
        self.began = wall_micros();
        let mut steps: Vec<_> = row.split(", ").collect();
        let left = steps.pop().and_then(|last| last.strip_prefix("left "));
        for step in steps {
            let (step, expected) = step.split_once(": ").unwrap_or((step, ""));
            let answer = self.run(key, &Step::parse(step), copies).await;
            if !alike(&answer, expected, start.elapsed()) {
                return Err(format!("{step}: {answer}"));
            }
        }
        let state = self.state(key);
        if alike(&state, left.unwrap(), start.elapsed()) {
            Ok(())
        } else {
            Err(format!("left {state}"))
        }
    }

    /// Runs one step and returns its answer. A command that may be repeated is sent `copies` times,
    /// and its first answer is returned.
    async fn run(&mut self, key: &str, step: &Step, copies: usize) -> String {
        let command = match step {
            Step::Command(command) => command,
            Step::Count(off) => {
                let counter = self.began.saturating_add_signed(*off).to_string();
                self.store.count(key, &counter, None);
                return String::new();
            }
            Step::Miscount(counter, ttl) => {
                self.store.count(key, counter, *ttl);
                return String::new();
            }
            step => {
                self.store.run(key, step);
                return String::new();
            }
        };
        let answer = self.answer(key, command).await;
        for _ in 1..copies {
            if command.may_be_copied() {
                let again = self.answer(key, command).await;
                assert!(
                    !again.contains(" +"),
                    "{command:?}: {answer}, and then {again}"
                );
            }
        }
        answer
    }

    /// Sends a command. Returns the vote and the messages that were published.
    async fn answer(&mut self, key: &str, command: &RowCommand) -> String {
        self.store.listen(key).await;
        let ballot = command.ballot.map(|off| Ballot {
            counter: step::lock_id(command.kind, key).counter(),
            candidate: self.began.saturating_add_signed(off),
        });
        let sent = if command.verb == Verb::Break {
            let holders = self.holder(key, command).await.into();
            let lock_id = step::lock_id(command.kind, key);
            Command::new(&lock_id, Action::Break(holders))
        } else {
            command.command(key, ballot)
        };
        let (_, vote, note) = self.post(sent, None).answer().await;
        let answer = match &vote {
            Vote::Refuse(Refusal::Stale { counter }) => format!("stale {}", self.since(*counter)),
            _ => written(&vote, &note),
        };
        answer + &self.store.heard(key).await
    }

    /// Returns the holder that `command` means, as an inspection reports it, or no one if it holds
    /// nothing. Servers and memory masters have different digests.
    async fn holder(&self, key: &str, command: &RowCommand) -> String {
        let lock_id = step::lock_id(Kind::Mutex, key);
        let inspect = Command::new(&lock_id, Action::Inspect);
        let (_, _, note) = self.post(inspect, None).answer().await;
        let mut holders = note.lines().map(|line| Vec::from_iter(line.splitn(5, ' ')));
        let it = holders.find(|words| {
            kind_of(words[0]) == command.kind.word()
                && if command.kind.has_owner() {
                    words[4] == step::owner(command.who)
                } else {
                    matches!(command.who, 'A' | 'C')
                }
        });
        it.map_or_else(String::new, |it| format!("{} {}\n", kind_of(it[0]), it[3]))
    }

    /// Returns all keys of a lock, with its counter if there is one.
    fn state(&self, key: &str) -> String {
        let state = self.store.state(key);
        let Some((counter, ttl)) = self.store.counter(key) else {
            return state;
        };
        let counter = counter.parse().map_or(counter, |micros| self.since(micros));
        format!("{state} {counter} {ttl}")
    }

    fn since(&self, micros: u64) -> String {
        step::candidate(micros.cast_signed().wrapping_sub(self.began.cast_signed()))
    }

    async fn ask(&self, command: Command) -> Vote {
        self.post(command, None).answer().await.1
    }

    /// Returns the text of a vote of a memory master, without the number in its address.
    fn said(&self, vote: &Vote) -> String {
        vote.to_string()
            .replace(self.store.memory().address(), "memory")
    }

    /// Posts a command. The master is owed it for that time, if there is one.
    fn post(&self, command: Command, owed: Option<Duration>) -> Asked {
        let at = now();
        let round = (self.machine).with(|machine, now| machine.ask_any(command, owed, now));
        let round = RoundHandle::new(&self.machine, round);
        Asked { at, round }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.machine.lock(Machine::abandon);
    }
}

fn command(verb: Verb, key: &str, who: char, ttl: Duration) -> Command {
    RowCommand::mutex(verb, who, ttl).command(key, None)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

const MILLISECOND: Duration = Duration::from_millis(1);
/// A row that takes longer says nothing, because the machine stalled.
const LONGEST_ROW: Duration = Duration::from_secs(1);
/// A row that takes so long every time is judged anyway.
const MOST_STALLS: u32 = 20;
/// This timeout is longer than any stall of the machine.
const PATIENCE: Duration = Duration::from_secs(20);
