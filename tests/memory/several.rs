//! Locks of several names.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use quorlock::{
    ConfigError, Coordinator, ExtendError, Fault, LostError, LostReason, MemoryMaster, Reason,
    Renewal,
};
use testkit::captured_log::CapturedLog;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tracing::Level;

use super::world::{World, delay, millis, seconds, start, timed};

/// Returns the names that masters hold.
fn held(masters: &[MemoryMaster]) -> Vec<Vec<String>> {
    masters.iter().map(MemoryMaster::keys).collect()
}

/// Waits until each master holds these names.
async fn until_held(masters: &[MemoryMaster], names: &[&str]) {
    let all = vec![names.to_vec(); masters.len()];
    let is_so = async {
        while held(masters) != all {
            sleep(millis(1)).await;
        }
    };
    let is_so = timeout(seconds(60), is_so).await;
    assert!(is_so.is_ok(), "{:?}, not {names:?}", held(masters));
}

#[tokio::test(start_paused = true)]
async fn all_names_are_held_or_none() {
    let world = World::new(3).await;
    let lock = world.locks.multi_mutex(["c", "a", "b", "a"]).plain();
    let guard = lock.try_acquire().await.unwrap();
    assert!(guard.names().eq(["a", "b", "c"]));
    assert_eq!((guard.name(), guard.rounds()), ("a", 1));
    until_held(&world.masters, &["a", "b", "c"]).await;
    for name in ["a", "b", "c"] {
        assert!(world.locks.mutex(name).try_acquire().await.is_err());
    }
    guard.release().await.unwrap();
    until_held(&world.masters, &[]).await;

    let other = world.locks.mutex("b").acquire().await.unwrap();
    let refused = lock.try_acquire().await.unwrap_err();
    assert_eq!(
        (refused.name(), refused.is_busy()),
        ("b", true),
        "{refused}"
    );
    let inspection = lock.inspect().await.unwrap();
    assert_eq!(&*inspection.name, "b");
    until_held(&world.masters, &["b"]).await;
    other.release().await.unwrap();
    assert!(!lock.is_held().await.unwrap());
    drop(lock.try_acquire().await.unwrap());
    until_held(&world.masters, &[]).await;
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn names_that_cannot_be_used_are_refused_before_anything_is_sent() {
    let world = World::new(3).await;
    let sent = world.commands();
    let many: Vec<_> = (0..101).map(|number| format!("{number}")).collect();
    let none: [&str; 0] = [];
    let names = |given: usize| ConfigError::OutOfRange {
        setting: "lock",
        given: format!("{given} names"),
        range: "from 1 to 100".to_owned(),
    };
    for (lock, expected) in [
        (world.locks.multi_mutex(none).plain(), names(0)),
        (world.locks.multi_mutex(&many).plain(), names(101)),
        (
            world.locks.multi_mutex(["a", ""]).plain(),
            ConfigError::EmptyName,
        ),
    ] {
        let refused = lock.acquire().await.unwrap_err();
        assert_eq!(*refused.reason(), Reason::Config(expected));
    }
    assert_eq!(world.commands(), sent);
    let guard = world
        .locks
        .multi_mutex(&many[1..])
        .plain()
        .acquire()
        .await
        .unwrap();
    assert_eq!(guard.names().count(), 100);
}

/// A waiter keeps the names before the one that it waits for, and no others.
#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_the_first_names_only() {
    let world = World::new(3).await;
    let other = world.locks.mutex("b").acquire().await.unwrap();
    let lock = world.locks.multi_mutex(["a", "b", "c"]).plain();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_held(&world.masters, &["a", "b"]).await;
    assert!(world.locks.mutex("a").try_acquire().await.is_err());
    drop(world.locks.mutex("c").try_acquire().await.unwrap());
    other.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.names().eq(["a", "b", "c"]));
    until_held(&world.masters, &["a", "b", "c"]).await;
    drop(guard);
    world.close().await;
    assert!(held(&world.masters).concat().is_empty());
}

/// The names that a waiter has are extended, even without a renewal, as long as it is polled.
#[tokio::test(start_paused = true)]
async fn a_wait_may_be_longer_than_the_ttl() {
    let world = World::new(3).await;
    let other = world.locks.mutex("b").acquire().await.unwrap();
    let lock = world
        .locks
        .multi_mutex(["a", "b"])
        .plain()
        .ttl(seconds(2))
        .renewal(Renewal::Off);
    let mut waiting = Box::pin(async move { lock.acquire().await.unwrap() });
    for _ in 0..100 {
        let _ = timeout(millis(100), waiting.as_mut()).await;
        assert!(world.masters[0].get("a").is_some());
    }
    other.release().await.unwrap();
    let guard = waiting.await;
    assert!(guard.is_valid() && guard.remaining() > millis(1_500));
    let (took, lost) = timed(guard.lost()).await;
    assert_eq!(lost.reason, LostReason::Expired);
    assert!(took < seconds(2));
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_not_polled_keeps_nothing() {
    let world = World::new(3).await;
    let other = world.locks.mutex("b").acquire().await.unwrap();
    let lock = world.locks.multi_mutex(["a", "b"]).plain().ttl(seconds(2));
    let mut waiting = Box::pin(async move { lock.acquire().await.unwrap() });
    let _ = timeout(millis(100), waiting.as_mut()).await;
    until_held(&world.masters, &["a", "b"]).await;
    sleep(seconds(2)).await;
    let name = world.locks.mutex("a").try_acquire().await.unwrap();
    other.release().await.unwrap();
    let mut waiting = Box::pin(timeout(seconds(5), waiting));
    start(waiting.as_mut()).await;
    sleep(seconds(1)).await;
    assert!(name.is_valid());
    name.release().await.unwrap();
    let guard = waiting.await.unwrap();
    assert!(guard.names().eq(["a", "b"]) && guard.is_valid());
}

/// A name that is lost during the wait is acquired again, before those after it.
#[tokio::test(start_paused = true)]
async fn a_name_that_is_lost_during_the_wait_is_acquired_again() {
    let (said, _listening) = CapturedLog::listen();
    let world = World::new(3).await;
    let other = world.locks.mutex("d").acquire().await.unwrap();
    let lock = world
        .locks
        .multi_mutex(["a", "b", "c", "d"])
        .plain()
        .ttl(seconds(3));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_held(&world.masters, &["a", "b", "c", "d"]).await;
    for master in &world.masters {
        master.set("b", "another's", Some(seconds(20)));
    }
    // The waiter holds nothing after the name that it has lost.
    until_held(&world.masters, &["a", "b", "d"]).await;
    drop(other);
    let (took, guard) = timed(waiting).await;
    let guard = guard.unwrap().unwrap();
    assert!(took > seconds(18), "{took:?}");
    assert!(guard.names().eq(["a", "b", "c", "d"]) && guard.is_valid());
    // No guard was lost.
    let lines = said.take();
    let warns = |(level, _): &(Level, String)| *level == Level::WARN;
    assert!(!lines.iter().any(warns), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn the_guard_is_lost_with_its_first_name() {
    let world = World::new(3).await;
    let lock = world.locks.multi_mutex(["a", "b", "c"]).plain();
    let guard = lock.acquire().await.unwrap();
    for master in &world.masters {
        master.set("b", "another's", None);
    }
    let lost = guard.lost().await;
    assert_eq!((&*lost.name, lost.reason), ("b", LostReason::TakenAway));
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert_eq!(&*guard.ensure_valid().unwrap_err().name, "b");
    guard.release().await.unwrap();
    until_held(&world.masters, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_extension_extends_all_names() {
    let world = World::new(3).await;
    let lock = world
        .locks
        .multi_mutex(["a", "b", "c"])
        .plain()
        .renewal(Renewal::Off);
    let guard = lock.acquire().await.unwrap();
    sleep(seconds(1)).await;
    guard.extend(seconds(20)).await.unwrap();
    assert!(guard.remaining() > seconds(19));
    for name in ["a", "b", "c"] {
        assert!(world.masters[0].pttl(name) > Some(seconds(19)));
    }
    world.inject_all(&Fault::Down);
    let failed = guard.extend(seconds(40)).await;
    assert!(failed.is_err() && guard.is_valid());
    world.clear_faults();
    guard.stop_renewing();
    assert_eq!(guard.lost().await.reason, LostReason::Expired);
}

/// All names are asked about at once, and a loss is more than a lack of masters.
#[tokio::test(start_paused = true)]
async fn slow_masters_delay_an_inspection_once_and_hide_no_loss() {
    let world = World::new(3).await;
    let names: Vec<_> = (0..100).map(|number| format!("{number}")).collect();
    let lock = world.locks.multi_mutex(&names).plain();
    world.masters[0].inject(Fault::Delay(millis(40)));
    let (took, inspection) = timed(lock.inspect()).await;
    assert!(!inspection.unwrap().is_held());
    assert!(took < millis(100), "{took:?}");
    world.clear_faults();

    let guard = world
        .locks
        .multi_mutex(["a", "b"])
        .plain()
        .acquire()
        .await
        .unwrap();
    for (master, name) in [(2, "a"), (0, "b"), (2, "b")] {
        world.masters[master].set(name, "another's", None);
    }
    world.masters[1].inject(Fault::Down);
    let failed = guard.extend(seconds(20)).await.unwrap_err();
    let ExtendError::Lost(LostError { name, .. }) = &failed else {
        panic!("{failed}");
    };
    assert_eq!(&**name, "b");
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_by_its_deadline() {
    let world = World::new(3).await;
    let mut others = Vec::new();
    for name in ["b", "d"] {
        others.push(world.locks.mutex(name).acquire().await.unwrap());
    }
    let lock = world.locks.multi_mutex(["a", "b", "c", "d"]).plain();
    for (limit, name) in [(millis(0), "b"), (seconds(3), "b"), (seconds(3), "d")] {
        if name == "d" {
            others.remove(0).release().await.unwrap();
        }
        let (took, error) = timed(lock.acquire_within(limit)).await;
        let error = error.unwrap_err();
        assert!(took >= limit && took < limit + millis(400), "{took:?}");
        assert!(error.to_string().starts_with("gave up after "), "{error}");
        assert_eq!(error.name(), name);
        assert!(error.waited() >= limit && error.waited() <= took);
    }
    until_held(&world.masters, &["d"]).await;
}

#[tokio::test(start_paused = true)]
async fn another_kind_of_lock_and_a_closed_coordinator_end_a_wait() {
    let world = World::new(3).await;
    let reentrant = world.locks.reentrant("b", &world.locks.new_owner());
    let other = reentrant.acquire().await.unwrap();
    let lock = world.locks.multi_mutex(["a", "b", "c"]).plain();
    let error = lock.acquire().await.unwrap_err();
    assert_eq!((error.name(), error.reason()), ("b", &Reason::OtherKind));
    until_held(&world.masters, &["b"]).await;
    other.release().await.unwrap();

    let guard = world.locks.mutex("b").acquire().await.unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until_held(&world.masters, &["a", "b"]).await;
    drop(guard);
    world.locks.close().await;
    let ended = timeout(seconds(3), waiting).await.unwrap().unwrap();
    if let Err(error) = ended {
        assert!(*error.reason() == Reason::Closed, "{error}");
    }
    world.close().await;
    assert!(held(&world.masters).concat().is_empty());
}

/// The last name is asked for before the coordinator is closed, and may be won after that.
#[tokio::test(start_paused = true)]
async fn a_close_at_any_moment_ends_a_wait_in_a_guard_or_an_error() {
    let mut won = 0;
    for moment in 0..60 {
        let world = World::new(3).await;
        let other = world.locks.mutex("b").acquire().await.unwrap();
        let lock = world.locks.multi_mutex(["a", "b"]).plain();
        let waiting = tokio::spawn(async move { lock.acquire().await });
        until_held(&world.masters, &["a", "b"]).await;
        world.inject_all(&delay(20));
        drop(other);
        sleep(millis(2 * moment)).await;
        world.locks.close().await;
        match waiting.await.unwrap() {
            Ok(guard) => {
                assert!(guard.names().eq(["a", "b"]) && guard.is_valid());
                won += 1;
            }
            Err(error) => assert!(*error.reason() == Reason::Closed, "{error}"),
        }
        until_held(&world.masters, &[]).await;
    }
    assert!((1..60).contains(&won), "{won}");
}

#[tokio::test(start_paused = true)]
async fn each_name_has_tokens_of_its_own() {
    let world = World::new(3).await;
    let mut largest = BTreeMap::new();
    for names in [
        vec!["a", "b"],
        vec!["b", "c"],
        vec!["a", "b", "c"],
        vec!["c"],
    ] {
        let guard = world
            .locks
            .multi_mutex(&names)
            .fenced()
            .acquire()
            .await
            .unwrap();
        let tokens: Vec<_> = guard.tokens().collect();
        assert!(guard.names().eq(tokens.iter().map(|(name, _)| *name)));
        for (name, token) in tokens {
            assert!(largest.insert(name.to_owned(), token) < Some(token));
        }
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn each_name_stays_for_its_minimum_time() {
    let world = World::new(3).await;
    let lock = world
        .locks
        .multi_mutex(["a", "b"])
        .plain()
        .min_hold(seconds(20));
    let began = Instant::now();
    lock.acquire().await.unwrap().release().await.unwrap();
    assert!(world.locks.mutex("b").try_acquire().await.is_err());
    drop(lock.acquire().await.unwrap());
    assert!(began.elapsed() >= seconds(20));
}

/// A task that takes and returns a set all the time does not keep a waiter of the same coordinator
/// from one of its names.
#[tokio::test(start_paused = true)]
async fn a_waiter_for_one_name_gets_its_turn() {
    let world = World::new(3).await;
    world.inject_all(&Fault::Delay(millis(1)));
    let lock = world.locks.multi_mutex(["a", "b", "c"]).plain();
    let busy = tokio::spawn(async move {
        loop {
            let guard = lock.acquire().await.unwrap();
            sleep(millis(10)).await;
            guard.release().await.unwrap();
        }
    });
    for name in ["a", "b", "c"].repeat(20) {
        let (took, guard) = timed(world.locks.mutex(name).acquire()).await;
        assert!(took < millis(100), "{name}: {took:?}");
        drop(guard.unwrap());
    }
    busy.abort();
}

/// Counts the holders of each name.
struct Holders([AtomicUsize; 64]);

impl Holders {
    fn new() -> Arc<Self> {
        Arc::new(Self([const { AtomicUsize::new(0) }; 64]))
    }

    /// Holds these names for a while.
    async fn hold(&self, names: &[usize], time: Duration) {
        for name in names {
            assert_eq!(self.0[*name].fetch_add(1, Ordering::SeqCst), 0);
        }
        sleep(time).await;
        for name in names {
            self.0[*name].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn word(number: &usize) -> String {
    format!("name {number}")
}

/// 64 names among single users: each name is wanted by two others all the time. This needs real
/// time: in paused time, the set would ask right after the same two clients each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_of_64_names_gets_its_turn_among_single_users() {
    let world = World::new(3).await;
    world.inject_all(&Fault::Delay(millis(1)));
    let holders = Holders::new();
    let coordinators = [(); 4].map(|()| Coordinator::new(&world.masters).unwrap());
    let mut users = JoinSet::new();
    for user in 0..128_usize {
        let name = user % 64;
        let lock = coordinators[user / 32].mutex(word(&name));
        let holders = holders.clone();
        users.spawn(async move {
            loop {
                let guard = lock.acquire().await.unwrap();
                holders.hold(&[name], millis(10)).await;
                guard.release().await.unwrap();
            }
        });
    }
    let names: Vec<_> = (0..64).collect();
    let lock = world.locks.multi_mutex(names.iter().map(word)).plain();
    for _ in 0..3 {
        let (took, guard) = timed(lock.acquire()).await;
        let guard = guard.unwrap();
        println!("a set of 64 names waited for {took:?}");
        assert!(took < seconds(60), "{took:?}");
        holders.hold(&names, millis(10)).await;
        guard.release().await.unwrap();
    }
}
