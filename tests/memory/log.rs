//! The events logged through `tracing`, and their number.

use std::{array, pin::pin};

use quorlock::{Builder, Coordinator, Fault, MemoryMaster, Quarantine};
use testkit::captured_log::CapturedLog;
use tokio::time::{sleep, timeout};
use tracing::Level;

use crate::world::{KINDS, NAME, World, error, millis, own, seconds};

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_as_one_warning() {
    let (said, _listening) = CapturedLog::listen();
    let world = World::new(1).await;
    let master = &world.addresses()[0];
    for _outage in 0..2 {
        said.take();
        world.inject([Fault::Down]);
        let _ = world.lock().try_acquire().await; // notices the loss of the connection
        sleep(seconds(30)).await;
        let [down, still] =
            ["down", "still down"].map(|what| format!("master {what} master={master}"));
        assert_eq!(said.count(Level::WARN, &down), 1, "{said:?}");
        assert!(said.count(Level::DEBUG, &still) > 10, "{said:?}");
        world.clear_faults();
        sleep(seconds(2)).await;
    }
}

/// A lock is acquired and renewed, is in doubt for a while, and is released. Another attempt is
/// refused meanwhile.
#[tokio::test(start_paused = true)]
async fn the_life_of_a_lock_is_logged() {
    let (said, _listening) = CapturedLog::listen();
    let world = World::new(3).await;
    let lock = world.locks.mutex(NAME);
    said.take();
    let guard = lock.try_acquire().await.unwrap();
    lock.try_acquire().await.unwrap_err();
    sleep(seconds(4)).await; // one renewal
    world.inject([Fault::Down, Fault::Down]);
    sleep(seconds(5)).await;
    world.clear_faults();
    sleep(seconds(2)).await;
    guard.release().await.unwrap();
    let lines = said.take();
    let mut events: Vec<_> = lines
        .iter()
        .filter_map(|(level, text)| {
            let text = text.strip_prefix(" message=")?;
            let message = text.split(" lock=").next()?;
            message.starts_with("lock ").then_some((*level, message))
        })
        .collect();
    events.dedup();
    assert_eq!(
        events,
        [
            (Level::DEBUG, "lock acquired"),
            (Level::DEBUG, "lock not acquired"),
            (Level::DEBUG, "lock renewed"),
            (Level::WARN, "lock in doubt: it could not be renewed"),
            (Level::INFO, "lock no longer in doubt"),
            (Level::DEBUG, "lock released"),
        ],
        "{lines:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_longer_than_a_ttl_is_logged() {
    let (said, _listening) = CapturedLog::listen();
    for kind in KINDS {
        let world = World::new(3).await;
        let holder = Coordinator::new(&world.masters).unwrap();
        let held = own(kind, &holder).acquire().await.unwrap();
        said.take();
        let waiting = own(kind, &world.locks);
        let late = waiting.acquire_within(seconds(25)).await.unwrap_err();
        assert!(late.is_busy(), "{late}");
        let waits = |(_, line): &(Level, String)| line.contains("waiting for a lock");
        let lines: Vec<_> = said.take().into_iter().filter(waits).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0].0, Level::INFO, "{lines:?}");
        held.release().await.unwrap();
    }
}

/// Another client takes a master that lost the key before the key is put back there.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_put_back_is_logged() {
    let (said, _listening) = CapturedLog::listen();
    for is_released in [false, true] {
        let world = World::new(3).await;
        let guard = world.guard().await;
        world.masters[0].forget();
        world.masters[0].inject(Fault::Delay(millis(40)));
        guard.extend(seconds(20)).await.unwrap();
        sleep(millis(60)).await;
        world.occupy([0], seconds(60));
        if is_released {
            drop(guard);
        }
        said.take();
        sleep(seconds(1)).await;
        let shown = said.count(Level::INFO, "lock not put back on a master");
        assert_eq!(shown, usize::from(!is_released), "{said:?}");
    }
}

/// An extension is confirmed while the guard waits for its release.
#[tokio::test(start_paused = true)]
async fn nothing_is_said_of_a_lock_after_its_release() {
    let (said, _listening) = CapturedLog::listen();
    for was_in_doubt in [false, true] {
        let world = World::new(3).await;
        let guard = world.locks.mutex(NAME).try_acquire().await.unwrap();
        if was_in_doubt {
            world.inject([error(), error()]);
            guard.extend(seconds(10)).await.unwrap_err();
        }
        world.inject([(); 3].map(|()| Fault::Delay(millis(10))));
        sleep(millis(1)).await;
        let extending = timeout(millis(1), guard.extend(seconds(10)));
        assert!(extending.await.is_err());
        guard.release().await.unwrap();
        let lines: Vec<_> = said.take().into_iter().map(|(_, line)| line).collect();
        let after = lines.split(|line| line.starts_with(" message=lock released"));
        let after: Vec<_> = after.skip(1).flatten().collect();
        let is_about_it = |line: &&&String| line.starts_with(" message=lock ");
        assert_eq!(after.iter().find(is_about_it), None, "{was_in_doubt}");
        assert!(lines.iter().any(|line| line.contains("lock released")));
    }
}

/// The log tells of each time without a quorum once, whichever call finds it and however many locks
/// there are.
#[tokio::test(start_paused = true)]
async fn a_time_without_a_quorum_is_logged_once() {
    let (said, _listening) = CapturedLog::listen();
    let world = World::new(3).await;
    for fault in [error(), Fault::Hang, Fault::Down] {
        for kind in KINDS {
            sleep(seconds(20)).await;
            let owner = world.locks.new_owner();
            let names = ["a", "b", "c"].map(|name| world.locks.of_kind(kind, name, &owner));
            drop(names[0].acquire().await.unwrap());
            said.take();
            world.inject([fault.clone(), fault.clone()]);
            let mut waiting = pin!(names[0].acquire());
            assert!(timeout(seconds(60), waiting.as_mut()).await.is_err());
            names[1].try_acquire().await.unwrap_err();
            names[2].acquire_within(seconds(15)).await.unwrap_err();
            let warned = said.count(Level::WARN, "no quorum: no lock can be acquired");
            assert_eq!(warned, 1, "{fault:?} {kind}");
            world.clear_faults();
            drop(waiting.await.unwrap());
            drop(names[1].acquire().await.unwrap());
            let ended = said.count(Level::INFO, "quorum again: locks can be acquired");
            assert_eq!(ended, 1, "{fault:?} {kind}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_outage_of_a_coordinator_is_logged_with_its_name() {
    let (said, _listening) = CapturedLog::listen();
    let masters = [(); 3].map(|()| MemoryMaster::new());
    let builder = Coordinator::builder()
        .masters(&masters)
        .coordinator_name("b");
    let locks = builder.build().unwrap();
    let lock = locks.mutex(NAME);
    drop(lock.acquire().await.unwrap());
    said.take();
    masters.iter().for_each(|master| master.inject(Fault::Down));
    lock.try_acquire().await.unwrap_err();
    masters.iter().for_each(|master| master.inject(Fault::None));
    drop(lock.acquire().await.unwrap());
    let lines = said.take();
    for message in ["no quorum", "quorum again", "master down", "connected"] {
        let is_it = |(_, line): &&(Level, String)| line.contains(message);
        let told: Vec<_> = lines.iter().filter(is_it).collect();
        let names_it = |(_, line): &&(Level, String)| line.contains("coordinator=\"b\"");
        assert!(
            !told.is_empty() && told.iter().all(names_it),
            "{message}: {lines:?}"
        );
    }
}

/// An outage that begins soon after another one is logged once it lasts, even if the only waiter
/// makes no more attempts.
#[tokio::test(start_paused = true)]
async fn an_outage_soon_after_another_one_is_logged_if_it_lasts() {
    let (said, _listening) = CapturedLog::listen();
    for kind in KINDS {
        let world = World::new(3).await;
        let owner = world.locks.new_owner();
        let lock = world.locks.of_kind(kind, "a", &owner);
        for pause in [seconds(1), seconds(60)] {
            drop(lock.acquire().await.unwrap());
            world.inject([Fault::Down, Fault::Down]);
            let mut waiting = pin!(lock.acquire());
            assert!(timeout(pause, waiting.as_mut()).await.is_err());
            world.clear_faults();
            drop(waiting.await.unwrap());
        }
        for (level, text) in [(Level::WARN, "no quorum"), (Level::INFO, "quorum again")] {
            assert_eq!(said.count(level, text), 2, "{kind}: {text}");
        }
        said.take();
    }
}

#[tokio::test(start_paused = true)]
async fn a_master_that_takes_no_locks_is_logged_once() {
    let (said, _listening) = CapturedLog::listen();
    let world = World::new(3).await;
    let master = &world.addresses()[0];
    world.inject([error()]);
    for _ in 0..50 {
        drop(world.guard().await);
    }
    world.clear_faults();
    drop(world.guard().await);
    sleep(millis(10)).await;
    let lines: Vec<_> = said
        .take()
        .into_iter()
        .map(|(level, line)| format!("{level}{line}"))
        .collect();
    let lines: Vec<_> = lines.iter().filter(|line| line.contains("locks")).collect();
    let [warning, end] = lines[..] else {
        panic!("{lines:#?}");
    };
    assert!(
        warning.starts_with("WARN message=master takes no locks"),
        "{warning}"
    );
    assert!(
        warning.contains(master) && warning.contains("OOM no room"),
        "{warning}"
    );
    assert!(
        end.starts_with("INFO message=master takes locks again"),
        "{end}"
    );
}

/// The fields are for people, and have no names of the program in them.
#[tokio::test(start_paused = true)]
async fn a_refused_lock_is_logged_in_words() {
    let (said, _listening) = CapturedLog::listen();
    let world = World::new(3).await;
    let _guard = world.guard().await;
    said.take();
    world.lock().try_acquire().await.unwrap_err();
    let lines = said.take();
    let line = lines
        .iter()
        .find(|(_, line)| line.contains("lock not acquired"));
    let (_, line) = line.unwrap();
    assert!(
        line.contains("held by another holder on 3 of 3 masters for 10.0s more: memory:"),
        "{line}"
    );
}

/// Such a program and this one may hold one lock at once. It may be gone before it is looked for.
#[tokio::test(start_paused = true)]
async fn a_program_with_other_lists_is_logged_once_an_hour() {
    let (said, _listening) = CapturedLog::listen();
    let world = World::with(3, |builder| builder.quarantine(Quarantine::Observed)).await;
    let redial_all = async || {
        world.inject_all(&Fault::Down);
        sleep(seconds(1)).await;
        world.clear_faults();
        sleep(seconds(9)).await;
        let all = said.take();
        let mut told = all.into_iter();
        let told = told.find(|(level, text)| {
            *level == Level::WARN && text.contains("used other lists of masters")
        });
        told.map(|(_, text)| text)
    };
    assert_eq!(redial_all().await, None);
    // A change of the masters begins: its programs have a list in common with this one.
    let joining = MemoryMaster::new();
    let change = Coordinator::builder()
        .masters(&world.masters[1..])
        .master(&joining)
        .old_masters(&world.masters);
    change
        .build()
        .unwrap()
        .all_ready_within(seconds(1))
        .await
        .unwrap();
    assert_eq!(redial_all().await, None);

    let other = Coordinator::builder()
        .client_name("cron-7/33")
        .masters(&world.masters[1..])
        .master(&joining);
    let other = other.build().unwrap();
    other.all_ready_within(seconds(1)).await.unwrap();
    // It knows of the change, but ours has not ended.
    let warned = said.count(Level::WARN, "clients=a program without a client name");
    assert_eq!(warned, 1, "{said:?}");
    said.take();
    other.close_within(seconds(1)).await;
    drop(other);
    let told = redial_all().await.unwrap();
    assert!(told.contains("clients=cron-7/33"), "{told}");
    assert_eq!(redial_all().await, None, "this is known");
    sleep(seconds(3_600)).await;
    assert!(
        redial_all().await.is_some(),
        "it dialled in the last hour and longest TTL"
    );
    sleep(seconds(3_600)).await;
    assert_eq!(redial_all().await, None, "it came and went");
}

/// It may be the one that is wrong.
#[tokio::test(start_paused = true)]
async fn a_program_that_starts_with_other_lists_says_so_itself() {
    let (said, _listening) = CapturedLog::listen();
    let world = World::with(3, |builder| builder.quarantine(Quarantine::Observed)).await;
    said.take();
    let wrong = Coordinator::builder()
        .masters(&world.masters[..2])
        .master(MemoryMaster::new());
    let wrong = wrong.build().unwrap();
    wrong.all_ready_within(seconds(1)).await.unwrap();
    let warned = said.count(Level::WARN, "used other lists of masters");
    assert_eq!(warned, 1, "{said:?}");
}

/// Each of them may be the one that is wrong, so the logs of all of them must say so.
#[tokio::test(start_paused = true)]
async fn programs_that_stay_connected_tell_of_other_lists_and_are_told_of() {
    let (said, _listening) = CapturedLog::listen();
    let web = |builder: Builder| builder.client_name("web").quarantine(Quarantine::Observed);
    let world = World::with(3, web).await;
    sleep(seconds(3 * 3_600)).await; // it has not dialled lately
    assert_eq!(said.count(Level::WARN, ""), 0, "{said:?}");
    let another = MemoryMaster::new();
    let start = async |client| {
        let wrong = Coordinator::builder()
            .client_name(client)
            .masters(&world.masters[..2])
            .master(&another);
        let wrong = wrong.build().unwrap();
        wrong.all_ready_within(seconds(1)).await.unwrap();
        wrong
    };
    let job = start("cron-1").await;
    assert_eq!(said.count(Level::WARN, "clients=web"), 1, "{said:?}");
    job.close_within(seconds(1)).await;
    drop(job);
    sleep(seconds(60)).await;
    assert_eq!(said.count(Level::WARN, "clients=cron-1"), 1, "{said:?}");
    let _again = start("cron-2").await;
    assert_eq!(said.count(Level::WARN, "clients=web"), 2, "{said:?}");

    // A third list is no old news.
    let batch = Coordinator::builder()
        .client_name("batch")
        .masters(&world.masters[1..])
        .master(&another);
    let batch = batch.build().unwrap();
    batch.all_ready_within(seconds(1)).await.unwrap();
    sleep(seconds(60)).await;
    assert_eq!(said.count(Level::WARN, "clients=batch"), 2, "{said:?}");
}

/// A warning in each change of the masters would be ignored when it counts.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_masters_in_its_order_warns_of_nothing() {
    let (said, _listening) = CapturedLog::listen();
    let masters: [_; 4] = array::from_fn(|_| MemoryMaster::new());
    let (old, new) = (&masters[..3], &masters[1..]);
    let mut before = None;
    for (list, old_list) in [(old, &old[..0]), (new, old), (new, &old[..0])] {
        let builder = Coordinator::builder().masters(list).old_masters(old_list);
        let after = builder.build().unwrap();
        after.all_ready_within(seconds(1)).await.unwrap();
        sleep(seconds(600)).await;
        drop(before.replace(after));
        sleep(seconds(61)).await; // the wait of step 3
    }
    sleep(seconds(600)).await;
    assert_eq!(said.count(Level::WARN, ""), 0, "{said:?}");
}
