//! Checks of memory masters.

use std::time::Duration;

use quorlock::{Coordinator, Fault, MemoryMaster, Quarantine, Severity};
use tokio::time::sleep;

fn found(report: &quorlock::CheckReport) -> Vec<(Severity, &'static str)> {
    let findings = report.findings.iter();
    findings
        .map(|finding| (finding.severity, finding.setting.name()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_fault_is_a_finding_and_nothing_else_is() {
    let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
    let locks = Coordinator::new(&masters).unwrap();
    let report = locks.check().await;
    assert_eq!(found(&report), [], "{report}");
    assert!(masters.iter().all(|master| master.keys().is_empty()));

    for (fault, expected) in [
        (Fault::Down, (Severity::Unknown, "connection")),
        (Fault::Hang, (Severity::Unknown, "connection")),
        (
            Fault::ErrorReply("LOADING Redis is loading".into()),
            (Severity::Warn, "votes"),
        ),
        (
            Fault::ErrorReply("NOPERM this user has no permissions".into()),
            (Severity::Refuse, "EVALSHA"),
        ),
    ] {
        masters[1].inject(fault.clone());
        sleep(Duration::from_millis(1)).await; // the connection breaks meanwhile
        let report = locks.check().await;
        assert_eq!(found(&report), [expected], "{fault:?} {report}");
        masters[1].inject(Fault::None);
        sleep(Duration::from_secs(2)).await; // the master is dialled again meanwhile
    }
}

#[tokio::test(start_paused = true)]
async fn a_master_that_lost_its_keys_is_reported_until_its_quarantine_is_over() {
    let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
    let locks = Coordinator::new(&masters).unwrap();
    assert_eq!(locks.check().await.worst(), None);
    masters[0].forget();
    let report = locks.check().await;
    assert_eq!(
        found(&report),
        [(Severity::Refuse, "quorlock:guard")],
        "{report}"
    );

    masters[0].inject(Fault::Down);
    sleep(Duration::from_millis(1)).await;
    masters[0].inject(Fault::None);
    sleep(Duration::from_secs(2)).await;
    let report = locks.check().await;
    assert_eq!(
        found(&report),
        [(Severity::Warn, "quorlock:guard")],
        "{report}"
    );
    sleep(Duration::from_secs(61)).await;
    assert_eq!(locks.check().await.worst(), None);
}

#[tokio::test(start_paused = true)]
async fn fewer_than_a_majority_can_vote() {
    let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
    for master in &masters[1..] {
        master.inject(Fault::Down);
    }
    let locks = Coordinator::new(&masters).unwrap();
    let report = locks.check().await;
    let unknown = (Severity::Unknown, "connection");
    let expected = [(Severity::Refuse, "votes"), unknown, unknown];
    assert_eq!(found(&report), expected, "{report}");
    assert!(locks.mutex("r").try_acquire().await.is_err());

    // Under `Strict`, new masters are in quarantine. The report only warns of this.
    let builder = Coordinator::builder().quarantine(Quarantine::Strict);
    let masters = (0..3).map(|_| MemoryMaster::new());
    let locks = builder.masters(masters).build().unwrap();
    let report = locks.check().await;
    assert_eq!(report.worst(), Some(Severity::Warn), "{report}");
    let text = report.to_string();
    let votes = "warn: votes: only 0 of 3 masters now (need 2), for another 60.6s: ";
    assert!(text.contains(votes), "{text}");
    sleep(Duration::from_secs(61)).await;
    assert_eq!(locks.check().await.worst(), None);
    assert!(locks.mutex("r").try_acquire().await.is_ok());
}
