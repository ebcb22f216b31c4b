//! The effects of time, measured by the masters' own clocks.

use super::*;
use crate::core::protocol::identity::{OwnerAttempt, QueueOptions, Ticket};

/// Returns an acquisition of a fair lock by owner b. Its ticket has the time `drawn`.
fn queue_up(key: &str, drawn: u64, is_fresh: bool) -> Command {
    let by = OwnerAttempt {
        owner: "b".into(),
        attempt: 1,
        ticket: Some(Ticket::new(drawn, "b")),
    };
    let queue = QueueOptions {
        silent_waiter_timeout: seconds(40),
        is_fresh,
    };
    let holding = Holding {
        by: Identity::Owner(by),
        depth: 1,
        access: crate::core::kind::Access::Exclusive,
        slot: None,
        candidate: None,
    };
    let ttl = step::checked(seconds(40));
    let queue = Some(queue);
    Command::new(
        &step::lock_id(LockKind::Fair, key),
        Action::Acquire(holding, ttl, queue),
    )
}

/// Both queues of a read-write lock count.
#[tokio::test]
async fn an_inspection_shows_a_thousand_waiters() {
    for mut subject in subjects().await {
        for (kind, queues) in [
            (LockKind::Fair, ["queue", "queue"]),
            (LockKind::ReadWrite, ["writers", "readers"]),
        ] {
            for waiter in 1..=1001 {
                let ticket = step::ticket('b', waiter).as_str().to_owned();
                let queue = step::companion(queues[waiter as usize % 2]);
                let enqueue = Step::Enqueue(queue, ticket, None);
                subject.store.run(kind.as_str(), &enqueue);
            }
            let inspect = RowCommand::new(kind, Verb::Inspect, '?');
            let shown = subject.answer(kind.as_str(), &inspect).await;
            assert!(shown.starts_with("free b@1 b@2 b@3 "), "{kind}");
            assert!(shown.ends_with(" b@999 b@1000"), "{kind}");
        }
    }
}

/// A lease lives until the end of the millisecond in which it ends, as a key does. The key outlives
/// it, because another lease is longer.
#[tokio::test(start_paused = true)]
async fn the_last_millisecond_of_a_lease() {
    for (wait, is_held) in [(60, true), (61, false)] {
        let mut subject = Subject::memory();
        let hash = "writer=1x1:0.060s:a read_write=3 mode=quorlock";
        let hash = hash.split(' ').map(step::parse_field).collect();
        // Waits for the first dial.
        let _ = subject
            .ask(command(Verb::Release, "other", 'A', seconds(40)))
            .await;
        let written = Step::WriteHash(hash, Some(seconds(40)));
        subject.store.run("key", &written);
        tokio::time::sleep(MILLISECOND * wait).await;
        let reader = RowCommand {
            access: crate::core::kind::Access::Shared,
            ..RowCommand::new(LockKind::ReadWrite, Verb::Acquire, 'b')
        };
        let extended = RowCommand::new(LockKind::ReadWrite, Verb::Extend, 'a');
        let expected = if is_held {
            ["held a x1 0.001s", "granted"]
        } else {
            ["granted", "held b x1 40.000s"]
        };
        for (command, expected) in [reader, extended].iter().zip(expected) {
            assert_eq!(subject.answer("key", command).await, expected, "{wait}");
        }
    }
}

/// Readers do not look for dead readers each time, because there may be many readers.
#[tokio::test]
async fn entries_of_dead_readers_are_removed_when_there_are_many() {
    for mut subject in subjects().await {
        for (dead, silent_waiter_timeout) in
            [(67, None), (68, None), (67, Some(20)), (68, Some(20))]
        {
            let key = format!("key {dead} {silent_waiter_timeout:?}");
            let marked = ["read_write=3", "mode=quorlock", "reader:a=1x1:40s"];
            let entries = (1..=dead).map(|reader| {
                let field = format!("quorlock:reader:dead {reader}");
                (field, "1x1:ended".to_owned())
            });
            let fields = marked.into_iter().map(step::parse_field).chain(entries);
            let written = Step::WriteHash(fields.collect(), Some(seconds(40)));
            subject.store.run(&key, &written);
            let reader = RowCommand {
                access: crate::core::kind::Access::Shared,
                queue: silent_waiter_timeout.map(|timeout| QueueOptions {
                    silent_waiter_timeout: seconds(timeout),
                    is_fresh: false,
                }),
                ..RowCommand::new(LockKind::ReadWrite, Verb::Acquire, 'b')
            };
            assert_eq!(subject.answer(&key, &reader).await, "granted");
            let state = subject.store.state(&key);
            let expected = if dead == 67 { 67 } else { 0 };
            assert_eq!(state.matches(":ended").count(), expected, "{state}");
            assert!(state.contains("reader:a=1x1:") && state.contains("reader:b=1x1:"));
        }
    }
}

/// A new ticket whose time is off by more than a second is not queued. A ticket that is already in
/// the queue stays there.
#[tokio::test]
async fn the_time_in_a_ticket_is_checked_by_the_masters_clock() {
    for mut subject in subjects().await {
        let mut key = 0;
        subject.store.write("held", '?', None);
        for (off, is_queued) in [
            (0, true),
            (700, true),
            (1300, false),
            (-700, true),
            (-1300, false),
        ] {
            // Tries again if the machine stalled for so long that the clocks may disagree.
            loop {
                key += 1;
                let key = format!("{key}");
                let others = RowCommand::new(LockKind::Fair, Verb::Acquire, 'a');
                assert_eq!(subject.answer(&key, &others).await, "granted");
                let before = wall_micros();
                let drawn = before.saturating_add_signed(off * 1000);
                let vote = subject.ask(queue_up(&key, drawn, true)).await;
                let after = wall_micros();
                if after - before > 200_000 {
                    continue;
                }
                match vote {
                    Vote::Refuse(Refusal::Skewed { clock }) => {
                        assert!(!is_queued, "{off}");
                        let clock = u64::try_from(clock.as_micros()).unwrap();
                        // A memory master begins with a whole millisecond.
                        assert!(
                            (before - 1_000..=after).contains(&clock),
                            "{before} {clock} {after}"
                        );
                        // Queues the ticket as if a majority had seen it.
                        subject.ask(queue_up(&key, drawn, false)).await;
                    }
                    _ => assert!(is_queued, "{off}"),
                }
                let queued = subject.ask(queue_up(&key, drawn, true)).await;
                assert!(written(&queued, "").starts_with("held a x1 #1 "));
                break;
            }
        }
    }
}
