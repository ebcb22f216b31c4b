//! The error messages that users read, word by word.

use std::{fmt::Display, time::Duration};

use quorlock::{ConfigError, Coordinator, Fault, MemoryMaster, Reason};
use tokio::time::{Instant, advance, sleep};

use crate::world::{World, delay, error, millis, seconds, start};

#[tokio::test(start_paused = true)]
async fn a_held_lock_is_explained() {
    let world = World::new(3).await;
    world.occupy(0..3, seconds(5));
    assert_text(
        &world,
        world.lock().try_acquire().await.unwrap_err(),
        r#"could not lock "orders/42": held by another holder on 3 of 3 masters for 5.0s more: a held by another holder for 5.0s more, b held by another holder for 5.0s more, c held by another holder for 5.0s more"#,
    );
    // Two masters hold the lock without a TTL, so the message names no time.
    world.masters[0].set_hash("orders/42", [("field", "1")], None);
    world.masters[1].set("orders/42", "by hand", None);
    world.masters[2].inject(Fault::Hang);
    assert_text(
        &world,
        world.lock().try_acquire().await.unwrap_err(),
        r#"could not lock "orders/42": held by another holder on 2 of 3 masters: a held by another holder, b held by another holder, c not answered yet"#,
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_quorum_is_explained() {
    let world = World::new(5).await;
    world.occupy([1], seconds(5));
    world.inject([Fault::None, Fault::None, Fault::Down, Fault::Hang, error()]);
    sleep(seconds(1)).await;
    assert_text(
        &world,
        world.lock().try_acquire().await.unwrap_err(),
        r#"could not lock "orders/42": only 2 of 5 masters voted (need 3): a granted, b held by another holder for 4.0s more, c unreachable: connecting to c: connection refused, d no answer in 50ms on a connection that was silent for 1.0s, e answered OOM no room"#,
    );
}

/// The round is lost with the second vote. Only the third one tells that no one can get the lock.
#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_majority_of_answers_is_no_contention() {
    let world = World::new(3).await;
    world.occupy([0], seconds(5));
    world.inject([Fault::None, error(), Fault::Hang]);
    assert_text(
        &world,
        world.lock().try_acquire().await.unwrap_err(),
        r#"could not lock "orders/42": only 1 of 3 masters voted (need 2): a held by another holder for 5.0s more, b answered OOM no room, c no answer in 50ms"#,
    );
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_was_too_slow_is_explained() {
    let world = World::new(3).await;
    let lock = world.lock();
    let mut acquisition = std::pin::pin!(lock.try_acquire());
    start(acquisition.as_mut()).await;
    advance(seconds(12)).await;
    assert_text(
        &world,
        acquisition.await.unwrap_err(),
        r#"could not lock "orders/42": a majority took 12.0s to grant a TTL of 10s: a granted, b granted, c granted"#,
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_explained() {
    let world = World::with(1, |builder| builder.retry_delay(millis(250)..=millis(250))).await;
    world.inject_all(&Fault::ErrorReply("OOM no room".into()));
    let error = world.lock().acquire_within(seconds(1)).await.unwrap_err();
    assert_text(
        &world,
        &error,
        r#"gave up after 1.0s and 5 attempts: could not lock "orders/42": only 0 of 1 masters voted (need 1): a answered OOM no room"#,
    );
    assert_eq!(
        (error.name(), error.reason()),
        ("orders/42", &Reason::NoQuorum)
    );
    assert_eq!((error.waited(), error.attempts()), (seconds(1), 5));
}

#[tokio::test(start_paused = true)]
async fn a_name_used_with_another_kind_is_explained() {
    let world = World::new(3).await;
    let owner = world.locks.new_owner();
    let _held = world.locks.fair("orders/42").owner(&owner).acquire().await;
    sleep(millis(1)).await;
    assert_text(
        &world,
        world.lock().acquire().await.unwrap_err(),
        r#"could not lock "orders/42" as a mutex: it is held as another kind of lock, use each name with one kind: a held as another kind of lock, b held as another kind of lock, c held as another kind of lock"#,
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_explained() {
    let world = World::new(1).await;
    let guard = world.guard().await;
    assert_text(
        &world,
        guard.lost().await,
        r#"lost "orders/42": its validity ended without an extension; last round: a granted"#,
    );
}

#[tokio::test(start_paused = true)]
async fn a_closed_coordinator_is_explained() {
    let world = World::new(1).await;
    world.locks.close().await;
    assert_text(
        &world,
        world.lock().try_acquire().await.unwrap_err(),
        "could not lock \"orders/42\": the coordinator is closed, its runtime ended, a task panicked, \
         or this process was forked, and needs a coordinator of its own",
    );
}

#[tokio::test(start_paused = true)]
async fn failed_extensions_are_explained() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    world.inject([Fault::Down, error()]);
    assert_text(
        &world,
        guard.extend(seconds(20)).await.unwrap_err(),
        r#"could not extend "orders/42": only 1 of 3 masters confirmed (need 2), still valid for 9.9s: a unreachable: closed by the server, b answered OOM no room, c confirmed"#,
    );
    world.clear_faults();
    sleep(seconds(2)).await;

    world.masters[0].forget();
    world.occupy([2], seconds(60));
    assert_text(
        &world,
        guard.extend(seconds(20)).await.unwrap_err(),
        r#"lost "orders/42": a majority of masters no longer hold it for this guard: it was broken, released or forgotten; last round: a holds nothing, b confirmed, c held by another holder for 60.0s more"#,
    );

    // The lock is still reported as lost after its validity has ended.
    sleep(Instant::from_std(guard.valid_until()) - Instant::now() + millis(1)).await;
    assert_text(
        &world,
        guard.extend(seconds(20)).await.unwrap_err(),
        r#"lost "orders/42": a majority of masters no longer hold it for this guard: it was broken, released or forgotten; last round: a holds nothing, b confirmed, c held by another holder for 60.0s more"#,
    );

    world.masters.iter().for_each(MemoryMaster::forget);
    let guard = world.guard().await;
    sleep(guard.remaining() + millis(1)).await;
    assert_text(
        &world,
        guard.extend(seconds(20)).await.unwrap_err(),
        r#"lost "orders/42": its validity ended without an extension; last round: a granted, b granted, c granted"#,
    );
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_was_too_slow_is_explained() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    world.inject([delay(20), delay(20), Fault::Hang]);
    sleep(guard.remaining() - millis(1)).await;
    assert_text(
        &world,
        guard.extend(seconds(20)).await.unwrap_err(),
        r#"lost "orders/42": its validity ended without an extension; last round: a confirmed, b confirmed, c not answered yet"#,
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_on_a_minority_is_explained() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    world.inject([Fault::Down, Fault::Mute]);
    assert_text(
        &world,
        guard.release().await.unwrap_err(),
        r#"released "orders/42" on only 1 of 3 masters (need 2); the others get the release when they can be reached, or the lock ends with its TTL: a unreachable: closed by the server, b no answer in 50ms, c released"#,
    );
}

#[tokio::test(start_paused = true)]
async fn unusable_settings_are_explained() {
    let world = World::new(1).await;
    let master = || MemoryMaster::new();
    let builder = || Coordinator::builder().master(master());
    let none: [MemoryMaster; 0] = [];
    let twin = master();
    for (error, expected) in [
        (Coordinator::new(none), "no masters were given"),
        (
            Coordinator::new((0..65).map(|_| master())),
            "a list of 65 masters is out of range: it must be at most 64, and 3 or 5 are usual",
        ),
        (
            builder().drift_ppm(2_000_000).build(),
            "a drift of 2000000 ppm is out of range: it must be below 1,000,000 (10,000 is 1 %)",
        ),
        (
            builder().key_template("x").build(),
            r#"the key template "x" must contain {name} exactly once"#,
        ),
        (
            builder().retry_delay(millis(20)..=millis(10)).build(),
            "a retry delay of 20ms to 10ms is out of range: it must be 0 < least <= most <= 1 h",
        ),
        (
            builder().response_timeout(Duration::ZERO).build(),
            "a response timeout of 0s is out of range: it must be from 1ms to 60s",
        ),
        (
            builder().response_timeout(millis(60_001)).build(),
            "a response timeout of 60.001s is out of range: it must be from 1ms to 60s",
        ),
        (
            builder().silent_waiter_timeout(Duration::ZERO).build(),
            "a silent-waiter timeout of 0s is out of range: it must be from 1ms to 3600s",
        ),
        (
            builder().silent_waiter_timeout(seconds(3_601)).build(),
            "a silent-waiter timeout of 3601s is out of range: it must be from 1ms to 3600s",
        ),
        (
            builder().poll_interval(millis(1)..=seconds(3_601)).build(),
            "a poll interval of 1ms to 3601s is out of range: it must be 0 < least <= most <= 1 h",
        ),
        (
            builder().client_name("a b").build(),
            r#"the client name "a b" cannot be used: it must be 1 to 64 graphic ASCII characters without spaces"#,
        ),
        (
            builder().connect_timeout(seconds(61)).build(),
            "a connect timeout of 61s is out of range: it must be from 1ms to 60s",
        ),
        (
            builder().ttl(seconds(366 * 24 * 60 * 60 + 1)).build(),
            "a TTL of 31622401s is out of range: it must be at most 366 days",
        ),
        (
            builder().ttl(millis(50)).build(),
            "a TTL of 50ms is out of range: it must be more than 52.5ms, the response timeout (QUORLOCK_RESPONSE_TIMEOUT) and the drift allowance together",
        ),
    ] {
        assert_text(&world, error.unwrap_err(), expected);
    }

    let error = Coordinator::new([&master(), &twin, &twin]).unwrap_err();
    let ConfigError::DuplicateMaster { address, .. } = &error else {
        panic!("{error}");
    };
    let expected = format!(
        "masters 2 and 3 are the same server, {address}: every master must be a server of its own, not a database"
    );
    assert_text(&world, &error, &expected);
    assert_text(
        &world,
        world.locks.mutex("").try_acquire().await.unwrap_err(),
        "the lock's name is empty",
    );

    let url = "redis://hunter2@127.0.0.1"; // the colon is missing
    let error = builder().master(url).build().unwrap_err().to_string();
    let expected = "master 2: its URL has a user and no password: give the password in the URL, ";
    assert!(error.starts_with(expected), "{error}");
    assert!(!error.contains("hunter2"), "{error}");

    let error = builder()
        .master("nonsense")
        .build()
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("master 2: "), "{error}");
    assert!(!error.contains("nonsense"), "{error}");
}

#[test]
fn a_missing_runtime_is_explained() {
    assert_eq!(
        Coordinator::new([MemoryMaster::new()])
            .unwrap_err()
            .to_string(),
        "there is no tokio runtime with timers here: build the coordinator inside one, with time and I/O enabled"
    );
}

/// Compares the message with `expected`, in which the masters are called `a`, `b`, `c` and so on.
#[track_caller]
fn assert_text(world: &World, error: impl Display, expected: &str) {
    let mut text = error.to_string();
    let addresses = world.addresses();
    let names = ["a", "b", "c", "d", "e"].into_iter().zip(&addresses);
    // Replaces the last address first, because `memory:1` is a part of `memory:10`.
    for (name, address) in names.collect::<Vec<_>>().into_iter().rev() {
        text = text.replace(address, name);
    }
    assert_eq!(text, expected);
}
