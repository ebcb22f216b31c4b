//! Random steps on both kinds of master.

use std::cell::RefCell;

use proptest::strategy::Union;

use super::{step::parse_field, *};
use crate::core::{kind::Access, protocol::identity::QueueOptions};

/// Steps, each with the number of its lock.
type Steps = [(usize, Step)];

#[test]
fn random_steps_do_the_same_on_both_kinds_of_master() {
    let runtime = Runtime::new().unwrap();
    let state = RefCell::new((runtime.block_on(subjects()), 0));
    runner(256)
        .run(&prop::collection::vec(any_step(), 1..20), |steps| {
            let (subjects, run) = &mut *state.borrow_mut();
            *run += 1;
            let ran: Vec<_> = subjects
                .iter_mut()
                .map(|subject| runtime.block_on(random_run(subject, &steps, *run)))
                .collect();
            if ran.iter().any(|ran| ran.took > seconds(1)) {
                return Ok(()); // the machine stalled, and the candidates are too old
            }
            let slack = ran.iter().map(|ran| ran.took).sum();
            for other in &ran[1..] {
                for (ours, theirs) in ran[0].seen.iter().zip(&other.seen) {
                    prop_assert!(alike(ours, theirs, slack), "{:?} {:?}", ours, theirs);
                }
            }
            Ok(())
        })
        .unwrap();
}

/// The results of a random run: the answers, and the keys that were left.
struct Ran {
    seen: Vec<String>,
    took: Duration,
}

async fn random_run(subject: &mut Subject, steps: &Steps, run: usize) -> Ran {
    let start = now();
    subject.began = wall_micros();
    let mut seen = Vec::new();
    let mut left = Vec::new();
    // The steps run twice. The second run sends two copies of every command that may be repeated.
    for copies in [1, 2] {
        let keys = [0, 1].map(|key| format!("{run} {copies} {key}"));
        for (key, step) in steps {
            seen.push(subject.run(&keys[*key], step, copies).await);
        }
        left.push(keys.map(|key| subject.state(&key)));
    }
    let took = start.elapsed();
    if took > seconds(1) {
        return Ran { seen, took };
    }
    for (once, twice) in left[0].iter().zip(&left[1]) {
        let is_same = alike(
            &without_dead_waiters(once),
            &without_dead_waiters(twice),
            took,
        );
        assert!(is_same, "once {once}, twice {twice}");
    }
    seen.extend(left.concat());
    Ran { seen, took }
}

/// Returns a state without dead waiters. The second copy of a command may remove dead waiters that
/// were after its own ticket when the first copy ran.
fn without_dead_waiters(state: &str) -> String {
    let parts: Vec<_> = state.split(" | ").collect();
    let [holder, queues @ .., last] = &parts[..] else {
        return state.to_owned();
    };
    if queues.is_empty() || state.contains("unqueued") {
        return state.to_owned();
    }
    let mut rest = last.split(' ');
    let mut kept = vec![(*holder).to_owned()];
    let mut ttls = Vec::new();
    for queue in queues {
        let ttl = rest.next();
        let living = living(queue);
        if !living.is_empty() {
            kept.push(living);
            ttls.extend(ttl);
        }
    }
    let of_deadlines = rest.next();
    if kept.len() > 1 {
        ttls.extend(of_deadlines);
        kept.push(ttls.join(" "));
    }
    rest.fold(kept.join(" | "), |state, word| format!("{state} {word}"))
}

/// Returns the part of a state that is about one queue, without dead waiters. Empty if all of them
/// are dead.
fn living(queue: &str) -> String {
    let words: Vec<_> = queue.split(' ').collect();
    let (label, waiters) = words.split_at(words.len() % 2);
    // A waiter with at most a second left counts as dead.
    let is_alive = |waiter: &&[&str]| words::time(waiter[1]).is_some_and(|left| left > 1.0);
    let living: Vec<_> = waiters.chunks(2).filter(is_alive).flatten().collect();
    if living.is_empty() {
        return String::new();
    }
    let words = label.iter().chain(living).copied();
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn dead_waiters_are_not_compared() {
    for (state, expected) in [
        ("nothing", "nothing"),
        ("c=1 fair=2 9s | a@2 - | 5s -", "c=1 fair=2 9s"),
        (
            "nothing | a@2 -1s b@3 0.000s | 5s 5s ^800 7s",
            "nothing ^800 7s",
        ),
        (
            "nothing | a@2 -1s b@3 2s | 5s 5s",
            "nothing | b@3 2s | 5s 5s",
        ),
        (
            "nothing | unqueued a@2 -1s | 5s 5s",
            "nothing | unqueued a@2 -1s | 5s 5s",
        ),
        (
            "nothing | a@1 - | writers a@2 -1s b@3 2s | readers c@3 -1s | 4s 5s - 6s ^800 7s",
            "nothing | writers b@3 2s | 5s 6s ^800 7s",
        ),
    ] {
        assert_eq!(without_dead_waiters(state), expected);
    }
}

fn any_step() -> impl Strategy<Value = (usize, Step)> {
    let some_ttl = || prop::option::weighted(0.8, any_ttl());
    let token = || prop::sample::select(vec!['A', 'B', 'C']);
    let ticket = ("[abc]", 1..4u64).prop_map(|(who, drawn)| {
        let who = who.parse().unwrap();
        step::ticket(who, drawn).as_str().to_owned()
    });
    let queue = prop::sample::select(vec!["queue", "waiters", "writers", "readers"]);
    let queue = queue.prop_map(step::companion);
    let deadline = prop::option::weighted(0.8, prop::sample::select(vec![-100, 100, 200]));
    let step = prop_oneof![
        24 => any_command().prop_map(Step::Command),
        1 => Just(Step::Delete),
        1 => some_ttl().prop_map(|ttl| Step::Write('?', ttl)),
        1 => (token(), some_ttl()).prop_map(|(who, ttl)| Step::Write(who, ttl)),
        1 => (any_hash(), some_ttl()).prop_map(|(hash, ttl)| Step::WriteHash(hash, ttl)),
        1 => any_candidate().prop_map(Step::Count),
        1 => Just(Step::Miscount("hash", None)),
        1 => Just(Step::Miscount("text", Some(seconds(60)))),
        1 => (queue, ticket, deadline)
            .prop_map(|(queue, ticket, deadline)| Step::Enqueue(queue, ticket, deadline)),
    ];
    (0..2usize, step)
}

fn any_command() -> impl Strategy<Value = RowCommand> {
    use Verb::{Acquire, Break, Extend, Heal, Inspect, Release, Yield};
    let verbs = |verbs: &[Verb]| prop::sample::select(verbs.to_vec());
    let of_kind = |kind: Kind| {
        let (weight, verbs) = if kind.has_queue() {
            (
                8,
                verbs(&[
                    Acquire, Acquire, Acquire, Break, Extend, Heal, Inspect, Release, Yield,
                ]),
            )
        } else {
            (3, verbs(&[Acquire, Acquire, Break, Extend, Heal, Release]))
        };
        (weight, (Just(kind), verbs))
    };
    let kind_and_verb = Union::new_weighted(Kind::ALL.into_iter().map(of_kind).collect());
    let queue = (any_ttl(), prop::bool::weighted(0.1));
    let queue = queue.prop_map(|(waiter_timeout, is_fresh)| QueueOptions {
        waiter_timeout,
        is_fresh,
    });
    let numbers = (0..3u8, 1..4u64, 0..3u32, 1..4u64);
    let access = prop::bool::weighted(0.6).prop_map(|is_reader| match is_reader {
        true => Access::Shared,
        false => Access::Exclusive,
    });
    (
        (kind_and_verb, access, (1..4u16, 0..4u16)),
        numbers,
        any_ttl(),
        prop::option::weighted(0.7, queue),
        prop::option::weighted(0.5, any_candidate()),
    )
        .prop_map(
            |(
                ((kind, verb), access, (permits, slot)),
                (who, attempt, depth, drawn),
                ttl,
                queue,
                candidate,
            )| {
                let access = if kind.spec().has_readers {
                    access
                } else {
                    Access::Exclusive
                };
                // A reader has no fencing token.
                let candidate = candidate.filter(|_| access == Access::Exclusive);
                let first = if kind.has_owner() { b'a' } else { b'A' };
                RowCommand {
                    attempt,
                    access,
                    permits,
                    // Only a first attempt takes any slot. Masters then choose the same ones.
                    slot: slot.clamp(u16::from(verb != Acquire), permits),
                    drawn,
                    ttl,
                    queue,
                    ballot: candidate,
                    depth: depth + u32::from(verb != Release),
                    ..RowCommand::new(kind, verb, char::from(first + who))
                }
            },
        )
}

/// Returns candidates. The masters accept most of them for at least a second.
fn any_candidate() -> impl Strategy<Value = i64> {
    let candidates = [
        600_000, 600_000, 600_001, 700_000, 800_000, 900_000, 9_000_000, 9_000_001, -9_000_000,
    ];
    prop::sample::select(candidates.to_vec())
}

/// Returns hashes of this crate, of Redisson and of others.
fn any_hash() -> impl Strategy<Value = Vec<(String, String)>> {
    let hashes = [
        "a=1 reentrant=2",
        "b=2 fair=1",
        "a=1",
        "c=2",
        "field=1",
        "field=some",
        "a=1 b=1",
        "a=1 odd=1",
        "fair=1",
        "a=1 fair=1 reentrant=1",
        "a=1 b=2 fair=2",
        "a=1 reentrant=2 mode=quorlock",
        "b=2 fair=1 mode=quorlock",
        "a=1 reentrant=2 mode=quorlock c=1",
        "b=1 fair=1 mode=write c=1",
        "a=1 mode=read",
        "writer=1x1:100s:a read_write=3 mode=quorlock",
        "writer=2x1:ended:b reader:c=1x2:100s read_write=3 mode=quorlock",
        "reader:a=2x1:100s reader:b=1x1:200s read_write=3 mode=quorlock",
        "reader:a=1x1:ended reader:b=2x1:ended read_write=3 mode=quorlock",
        "writer=1x1:100s:a read_write=3 mode=quorlock c=1",
        "reader:b=1x1:100s read_write=some mode=quorlock",
        "read_write=3 mode=quorlock",
        "permit:a=1:100s:1 slot:1=a semaphore=100s mode=quorlock",
        "permit:a=2:100s:2 slot:2=a permit:b=1:200s:1 slot:1=b semaphore=100s mode=quorlock",
        "permit:b=1:ended:1 slot:1=b permit:c=1:100s:3 slot:3=c semaphore=ended mode=quorlock",
        "permit:a=1:100s:1 slot:2=a semaphore=100s mode=quorlock",
        "permit:a=1:100s:1 slot:1=b semaphore=100s mode=quorlock c=1",
        "permit:a=1x1:100s:1 semaphore=some mode=quorlock",
    ];
    prop::sample::select(hashes.to_vec())
        .prop_map(|fields| fields.split(' ').map(parse_field).collect())
}

/// Returns TTLs that differ so much that no stall changes their order.
fn any_ttl() -> impl Strategy<Value = Duration> {
    prop::sample::select(vec![seconds(100), seconds(200), seconds(300)])
}
