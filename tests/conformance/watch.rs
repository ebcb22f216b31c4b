//! Reports of changes, which wake waiters.

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{step::RowCommand, *};
use crate::machine::listeners::{Listener, Topic};

/// Sends an empty message for each report.
#[derive(Debug)]
struct Reports(UnboundedSender<()>);

impl Listener for Reports {
    fn on_news(&self, master: usize, _: &Topic) {
        assert_eq!(master, 0);
        self.0.send(()).unwrap();
    }
}

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
    let (reports, mut reported) = unbounded_channel();
    let listener: Arc<dyn Listener> = Arc::new(Reports(reports));
    let listener_handle = Arc::downgrade(&listener);
    let topic = Topic::Key(key.clone());
    (subject.machine).lock(|machine| machine.listen(&topic, &listener_handle));
    for _ in 0..2 {
        subject.store.change(key, holder);
    }
    let vote = subject.ask(watching).await;
    assert!(matches!(vote, Vote::Refuse(_)), "{case}: {vote}");
    assert!(reported.try_recv().is_err(), "{case}: nothing has changed");
    subject.store.change(key, change);
    let report = tokio::time::timeout(seconds(20), reported.recv()).await;
    assert_eq!(report, Ok(Some(())), "{case}");
    subject.store.change(key, "delete");
    subject.store.change(key, "write 60s");
    // A report of these changes would come before the next reply.
    let inspect = RowCommand::new(Kind::Fair, Verb::Inspect, '?');
    subject.ask(inspect.command(key, None)).await;
    assert!(reported.try_recv().is_err(), "{case}: reported twice");
    (subject.machine).lock(|machine| machine.ignore(&topic, &listener_handle));
}
