//! Tests of one's own code on memory masters, without a server. The clock is paused: it advances
//! when all tasks wait, so a test that covers hours takes almost no time.

use std::{error::Error, time::Duration};

use quorlock::{Coordinator, Fault, LostError, LostReason, MemoryMaster, Quarantine, Reason};
use tokio::time::sleep;

/// The code to test: it works in steps of a second under a lock.
async fn work(locks: &Coordinator, steps: u32) -> Result<u32, Box<dyn Error + Send + Sync>> {
    let guard = locks.mutex("report").acquire().await?;
    let work = async {
        for _ in 0..steps {
            sleep(Duration::from_secs(1)).await;
        }
        steps
    };
    Ok(guard.run(work).await?)
}

/// Returns why the lock of the work was lost.
fn lost(worked: Result<u32, Box<dyn Error + Send + Sync>>) -> LostReason {
    worked.unwrap_err().downcast::<LostError>().unwrap().reason
}

fn three() -> [MemoryMaster; 3] {
    [(); 3].map(|()| MemoryMaster::new())
}

#[tokio::test(start_paused = true)]
async fn the_work_survives_the_loss_of_one_master() {
    let masters = three();
    let locks = Coordinator::new(&masters).unwrap();
    masters[0].inject(Fault::Down);
    assert_eq!(work(&locks, 60).await.unwrap(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_dead_majority_ends_the_work() {
    let masters = three();
    let locks = Coordinator::new(&masters).unwrap();
    let outage = async {
        sleep(Duration::from_secs(5)).await;
        masters[0].inject(Fault::Down);
        masters[1].inject(Fault::Hang);
    };
    let (worked, ()) = tokio::join!(work(&locks, 60), outage);
    assert_eq!(lost(worked), LostReason::Expired);
    let refused = locks.mutex("another").try_acquire().await.unwrap_err();
    assert!(*refused.reason() == Reason::NoQuorum);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_ends_the_work() {
    let masters = three();
    let locks = Coordinator::new(&masters).unwrap();
    let mistake = async {
        sleep(Duration::from_secs(5)).await;
        masters.iter().for_each(|master| master.delete("report")); // by hand
    };
    let (worked, ()) = tokio::join!(work(&locks, 60), mistake);
    assert_eq!(lost(worked), LostReason::TakenAway);
}

/// A master that restarts empty has no vote until the locks that it forgot are over.
#[tokio::test(start_paused = true)]
async fn restarts_do_not_give_the_lock_away() {
    let masters = three();
    let locks = Coordinator::new(&masters).unwrap();
    let _guard = locks.mutex("report").acquire().await.unwrap();
    masters.iter().for_each(MemoryMaster::restart);
    sleep(Duration::from_secs(2)).await; // the coordinator has connected again
    let refused = locks.mutex("report").try_acquire().await.unwrap_err();
    assert!(matches!(refused.reason(), Reason::Quarantined { .. }));
}

/// Two coordinators act as two processes.
#[tokio::test(start_paused = true)]
async fn another_process_waits() {
    let masters = three();
    let build = |masters: Vec<MemoryMaster>| {
        let builder = Coordinator::builder().quarantine(Quarantine::Observed);
        builder.masters(masters).build().unwrap()
    };
    let mine = build(masters.to_vec());
    let yours = build(
        masters
            .iter()
            .map(MemoryMaster::for_another_process)
            .collect(),
    );
    let guard = mine.mutex("report").acquire().await.unwrap();
    let waiting = tokio::spawn(async move { work(&yours, 1).await.unwrap() });
    sleep(Duration::from_secs(3_000)).await; // the lock is renewed for up to an hour
    assert!(guard.is_valid() && !waiting.is_finished());
    guard.release().await.unwrap();
    assert_eq!(waiting.await.unwrap(), 1);
}
