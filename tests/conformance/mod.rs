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

use testkit::{
    server::{self, Listener, Server},
    times::seconds,
};
use tokio::task::AbortHandle;

use self::{
    step::{RowCommand, Step},
    store::Store,
    words::{alike, in_seconds, kind_of, written},
};
use crate::{
    Fault, MemoryMaster,
    clock::wall_micros,
    core::{
        kind::LockKind,
        protocol::{
            command::{Action, Command, Holding},
            identity::{ClientName, Identity},
            name::{KeyTemplate, LockId, Token},
        },
        time::lease::{Drift, Ttl},
        vote::{
            Failure, Refusal, Verb, Vote,
            quorum::{Quorum, Roster},
        },
    },
    driver::round_handle::RoundHandle,
    machine::{Machine, fixture::config},
    master::{MasterSpec, Shared},
};

mod origin;
mod plain;
mod rows;
mod step;
mod store;
mod times;
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
            .map(|(verb, token)| subject.post(command(verb, &key, token, seconds(40))));
            let expected = ["granted", "granted", "granted", "held 40s", "granted"];
            for (asked, expected) in asked.into_iter().zip(expected) {
                let (vote, _) = answered(asked).await;
                let answer = written(&vote, "");
                assert!(alike(&answer, expected, seconds(40)), "{answer}");
            }
            assert_eq!(subject.store.state(&key), "nothing");
        }
    }
}

/// A supervisor ends when the runtime of the coordinator shuts down. A caller may run in another
/// runtime.
#[tokio::test(start_paused = true)]
async fn a_supervisor_that_ends_fails_all_votes() {
    let subject = Subject::memory();
    tokio::time::sleep(MILLISECOND).await; // the supervisor dials
    subject.store.memory().inject(Fault::Hang);
    let acquire = || command(Verb::Acquire, "key", 'A', seconds(40));
    let sent = subject.post(acquire());
    tokio::time::sleep(MILLISECOND).await; // the supervisor sends
    subject.supervisor.abort();
    let posted = subject.post(acquire());
    for asked in [sent, posted] {
        let (vote, _) = answered(asked).await;
        assert_eq!(vote, Vote::Fail(Failure::Closed));
    }
}

/// Runs each row twice on each of these masters. The second run sends two copies of every command
/// that may be repeated. It must leave the same keys as the first run, and the copies must publish
/// nothing.
async fn check(subjects: &mut [Subject], rows: &[&str]) {
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

/// A master, and the machine of a coordinator that has only this master.
struct Subject {
    store: Store,
    machine: Arc<Shared>,
    supervisor: AbortHandle,
    /// The wall clock at the start of the row. Candidates are relative to this time.
    began: u64,
}

/// Waits for the vote of the master. Also returns the text of the reply to an inspection.
async fn answered(round: RoundHandle) -> (Vote, String) {
    let vote = round.voted(0).await;
    let seen = round.seen().pop().flatten();
    (vote, seen.map_or_else(String::new, |seen| seen.text))
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
    let mut subjects = vec![Subject::memory()];
    if !server::only_urls() {
        let server = tokio::task::spawn_blocking(Server::start).await.unwrap();
        subjects.push(Subject::server(server));
    }
    subjects
}

impl Subject {
    fn memory() -> Self {
        let master = MemoryMaster::new();
        let spec = MasterSpec::from(&master);
        Self::new(Store::of_memory(master), spec)
    }

    fn server(server: Server) -> Self {
        let spec = MasterSpec::from(server.url());
        Self::new(Store::of_server(server), spec)
    }

    fn new(store: Store, spec: MasterSpec) -> Self {
        let roster = Roster::new([spec.address().unwrap()], Quorum::of(1));
        let machine = Arc::new(Shared::new(roster, config(PATIENCE)));
        let supervisor = spec.open(0, "n".to_owned(), &machine);
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
        let candidate = command
            .ballot
            .map(|off| self.began.saturating_add_signed(off));
        let sent = if command.verb == Verb::Break {
            let holders = self.holder(key, command).await.into();
            let lock_id = step::lock_id(command.kind, key);
            Command::new(&lock_id, Action::Break(holders))
        } else {
            command.command(key, candidate)
        };
        let (vote, note) = answered(self.post(sent)).await;
        let answer = match &vote {
            Vote::Refuse(Refusal::Stale { counter }) => format!("stale {}", self.since(*counter)),
            _ => written(&vote, &note),
        };
        answer + &self.store.heard(key).await
    }

    /// Returns the holder that `command` means, as an inspection reports it, or no one if it holds
    /// nothing. Servers and memory masters have different digests.
    async fn holder(&self, key: &str, command: &RowCommand) -> String {
        let lock_id = step::lock_id(LockKind::Mutex, key);
        let inspect = Command::new(&lock_id, Action::Inspect);
        let (_, note) = answered(self.post(inspect)).await;
        let mut holders = note.lines().map(|line| Vec::from_iter(line.splitn(5, ' ')));
        let it = holders.find(|words| {
            kind_of(words[0]) == command.kind.as_str()
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
        answered(self.post(command)).await.0
    }

    fn post(&self, command: Command) -> RoundHandle {
        let round = (self.machine).with(|machine, now| machine.ask_any(command, None, now));
        RoundHandle::new(&self.machine, round)
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
