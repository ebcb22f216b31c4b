//! Reports of changes, which wake waiters.

use std::{future::poll_fn, task::Poll};

use super::{step::RowCommand, *};
use crate::{
    machine::waiters::{Topic, WaiterId},
    master::Shared,
};

/// A watched key is reported at its next change by anyone, and only once.
#[tokio::test]
async fn a_change_is_reported_once_after_each_command_that_watches() {
    for subject in subjects().await {
        let mut number = 0;
        for (kind, verb, holder) in [
            (Kind::Mutex, Verb::Acquire, "write 40s"),
            (Kind::Mutex, Verb::Release, "write 40s"),
            (Kind::Mutex, Verb::Extend, "write 40s"),
            (
                Kind::Reentrant,
                Verb::Acquire,
                "write-hash b=1 reentrant=1 40s",
            ),
            (
                Kind::Reentrant,
                Verb::Release,
                "write-hash b=1 reentrant=1 40s",
            ),
            (Kind::Fair, Verb::Acquire, "write-hash b=1 fair=1 40s"),
        ] {
            for change in ["delete", "write 60s", "write-hash c=1 mode=x 40s", "flush"] {
                number += 1;
                let key: Arc<str> = format!("watched {number}").into();
                let mut row = RowCommand::new(kind, verb, 'a');
                row.watch = true;
                let watching = row.command(&key, None);
                let case = format!("{kind} {verb:?} {change} on {}", subject.store.kind());
                check_report(&subject, &key, holder, watching, change, &case).await;
            }
        }
    }
}

async fn check_report(
    subject: &Subject,
    key: &Arc<str>,
    holder: &str,
    watching: Command,
    change: &str,
    case: &str,
) {
    let machine = &subject.machine;
    let waiter = machine.with(|machine, now| {
        let waiter = machine.waiters.add_alone(now.lease);
        machine.listen(waiter, &Topic::Key(key.clone()));
        waiter
    });
    for _ in 0..2 {
        subject.store.change(key, holder);
    }
    let vote = subject.ask(watching).await;
    assert!(matches!(vote, Vote::Refuse(_)), "{case}: {vote}");
    assert!(!is_reported(machine, waiter), "{case}: nothing has changed");
    subject.store.change(key, change);
    let report = tokio::time::timeout(seconds(20), report(machine, waiter)).await;
    assert_eq!(report, Ok(()), "{case}");
    machine.lock(|machine| machine.waiters.begin_attempt(waiter));
    subject.store.change(key, "delete");
    subject.store.change(key, "write 60s");
    // A report of these changes would come before the next reply.
    let inspect = RowCommand::new(Kind::Fair, Verb::Inspect, '?');
    subject.ask(inspect.command(key, None)).await;
    assert!(!is_reported(machine, waiter), "{case}: reported twice");
    machine.with(|machine, now| machine.leave(waiter, now));
}

fn is_reported(machine: &Shared, waiter: WaiterId) -> bool {
    machine.lock(|machine| !machine.waiters.heard(waiter).changed.is_empty())
}

async fn report(machine: &Shared, waiter: WaiterId) {
    poll_fn(|cx| {
        machine.poll(cx, |machine, waker| machine.waiters.keep(waiter, waker));
        match is_reported(machine, waiter) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}
