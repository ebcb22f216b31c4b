//! The Rust twins of the scripts, as an oracle for what memory masters do with the scripts.

use std::{cell::RefCell, collections::BTreeMap, mem};

use super::{random::any_step, step::parse_field, *};
use crate::master::memory::{
    keys::Value,
    server::{Push, State},
};

/// The number of the connection that hears all messages.
const CONNECTION: u64 = 1;

/// A step on one of two locks, after this many milliseconds.
type Timed = (usize, Step, u64);

#[test]
fn the_scripts_do_what_their_twins_do() {
    let cases = std::env::var("ORACLE_CASES").map_or(256, |cases| cases.parse().unwrap());
    let notices = RefCell::new(BTreeMap::<String, u64>::new());
    let steps = RefCell::new(0_u64);
    runner(cases)
        .run(&prop::collection::vec(any_timed(), 1..40), |sequence| {
            let mut masters = [false, true].map(|is_twin| Master::new(is_twin));
            for (lock, step, after) in &sequence {
                let seen = masters
                    .each_mut()
                    .map(|master| master.run(*lock, step, *after));
                *steps.borrow_mut() += 1;
                prop_assert_eq!(&seen[0].0, &seen[1].0, "{:?}", step);
                if seen[0].1 != seen[1].1 {
                    let what = match step {
                        Step::Command(command) => {
                            let fenced = if command.ballot.is_some() {
                                ", fenced"
                            } else {
                                ""
                            };
                            let reply = seen[0].0.split('\n').next().unwrap_or_default();
                            let reply: String =
                                reply.chars().filter(|c| !c.is_numeric()).take(24).collect();
                            format!(
                                "{:?} {:?}{fenced}: {reply}: {:?} {:?}",
                                command.kind, command.verb, seen[0].1, seen[1].1
                            )
                        }
                        other => format!("{other:?}"),
                    };
                    *notices.borrow_mut().entry(what).or_default() += 1;
                }
            }
            Ok(())
        })
        .unwrap();
    println!("{} steps", steps.into_inner());
    for (what, count) in notices.into_inner() {
        println!("{count} {what}");
    }
}

struct Master {
    state: State,
    is_twin: bool,
    micros: u64,
}

impl Master {
    fn new(is_twin: bool) -> Self {
        let mut state = State::new("oracle".into());
        for who in ['a', 'b', 'c'] {
            let channel = format!("quorlock:turn:{}", step::process(who));
            state.subscriptions.insert((channel, CONNECTION));
        }
        for key in ["0", "1"] {
            let channel = step::resource(Kind::Reentrant, key).channel().to_owned();
            state.subscriptions.insert((channel, CONNECTION));
        }
        Self {
            state,
            is_twin,
            micros: 1_700_000_000_000_000,
        }
    }

    /// Runs a step. Returns what it answers and leaves, and the keys that it has changed.
    fn run(&mut self, lock: usize, step: &Step, after: u64) -> (String, Vec<String>) {
        self.micros += after * 1_000 + 137;
        self.state.set_time(self.micros);
        let key = &lock.to_string();
        let replied = match step {
            Step::Command(command) => {
                let ballot = command.ballot.map(|off| Ballot {
                    counter: step::resource(command.kind, key).counter(),
                    candidate: 1_700_000_000_000_000_u64.saturating_add_signed(off),
                });
                let mut sent = command.command(key, ballot);
                if command.attempt == 3 && command.verb == Verb::Inspect {
                    let shown = format!("{:?}", self.execute(&sent));
                    let words: Vec<_> = shown.split([' ', '"', '\\']).collect();
                    let holder = match words[..] {
                        [_, kind, _, _, digest, ..] => format!("{kind} {digest}\n"),
                        _ => String::new(),
                    };
                    sent = Command::break_held(&sent.resource, holder.into());
                }
                self.execute(&sent)
            }
            other => {
                self.write(key, other);
                String::new()
            }
        };
        let mut changed = mem::take(&mut self.state.keys.changed);
        changed.sort();
        changed.dedup();
        let pushes = self.state.pushes.remove(&CONNECTION).unwrap_or_default();
        let messages = pushes.into_iter().filter_map(|push| match push {
            Push::Message(channel, text) => Some(format!("{channel} {text}")),
            Push::Changed(_) => None,
        });
        let messages: Vec<_> = messages.collect();
        self.state.keys.names(); // removes the keys that have expired
        let left = format!("{:?}", self.state.keys);
        (format!("{replied}\n{messages:?}\n{left}"), changed)
    }

    fn execute(&mut self, command: &Command) -> String {
        let replied = match self.is_twin {
            true => self.state.execute_twin(command),
            false => self.state.execute(command),
        };
        match replied {
            Err(error) if error.contains("Error running script") => "script error".to_owned(),
            replied => format!("{replied:?}"),
        }
    }

    fn write(&mut self, key: &str, step: &Step) {
        let fair = step::resource(Kind::Fair, key);
        let keys = &mut self.state.keys;
        let millis = |ttl: &Option<Duration>| ttl.map(|ttl| ttl.as_millis() as u64);
        match step {
            Step::Command(_) => unreachable!(),
            Step::Delete => {
                keys.del(key);
            }
            Step::Write(who, ttl) => {
                keys.put(
                    key.into(),
                    Value::Text(step::text_of(&step::token(*who))),
                    millis(ttl),
                );
            }
            Step::WriteText(text, ttl) => {
                keys.put(key.into(), Value::Text(text.clone()), millis(ttl))
            }
            Step::WriteHash(fields, ttl) => {
                keys.put(
                    key.into(),
                    Value::Hash(fields.iter().cloned().collect()),
                    millis(ttl),
                );
            }
            Step::Count(off) => {
                let counter = 1_700_000_000_000_000_u64
                    .saturating_add_signed(*off)
                    .to_string();
                keys.put(
                    fair.counter().to_string(),
                    Value::Text(counter),
                    Some(900_000),
                );
            }
            Step::Miscount("hash", ttl) => {
                let hash = Value::Hash([parse_field("field=1")].into());
                keys.put(fair.counter().to_string(), hash, millis(ttl));
            }
            Step::Miscount(text, ttl) => {
                keys.put(
                    fair.counter().to_string(),
                    Value::Text((*text).to_owned()),
                    millis(ttl),
                );
            }
            Step::Spoil { is_queue } => {
                let key = if *is_queue {
                    fair.queue()
                } else {
                    fair.deadlines()
                };
                keys.put(key.to_owned(), Value::Text("?".to_owned()), Some(60_000));
            }
            Step::Enqueue(ticket, deadline) => {
                let _ = keys.zadd(fair.queue(), 0.0, ticket);
                if let Some(after) = deadline {
                    let at = keys.now() as f64 + *after as f64 * 1000.0;
                    let _ = keys.zadd(fair.deadlines(), at, ticket);
                }
            }
        }
    }
}

fn any_timed() -> impl Strategy<Value = Timed> {
    let step = prop_oneof![
        30 => any_step(),
        1 => (0..2usize, any::<bool>()).prop_map(|(lock, is_queue)| (lock, Step::Spoil { is_queue })),
    ];
    let after = prop_oneof![4 => 0..3_u64, 1 => prop::sample::select(vec![1_000, 90_000, 200_000])];
    (step, after).prop_map(|((lock, step), after)| (lock, step, after))
}
