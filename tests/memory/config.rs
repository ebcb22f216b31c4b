//! Unusable settings are refused before anything is sent.

use std::{sync::Arc, time::Duration};

use quorlock::{AcquireError, Builder, ConfigError, Coordinator, MemoryMaster};
use tokio::time::sleep;

use crate::world::{NAME, World, millis, seconds};

#[tokio::test(start_paused = true)]
async fn every_setting_is_checked() {
    let refused = |set: fn(Builder) -> Builder| {
        let builder = Coordinator::builder().master(MemoryMaster::new());
        set(builder).build().unwrap_err()
    };
    assert_eq!(
        refused(|builder| builder.ttl(millis(0))),
        ConfigError::TtlTooShort {
            ttl: millis(0),
            least: millis(52)
        }
    );
    assert_eq!(
        refused(|builder| builder.ttl(seconds(1)).node_timeout(seconds(1))),
        ConfigError::TtlTooShort {
            ttl: seconds(1),
            least: millis(1_012)
        }
    );
    assert_eq!(
        refused(|builder| builder.ttl(Duration::MAX)),
        ConfigError::TtlTooLong {
            ttl: Duration::MAX,
            most: YEAR
        }
    );
    for given in [
        Duration::ZERO,
        Duration::from_micros(999),
        millis(60_001),
        Duration::MAX,
    ] {
        let builder = || Coordinator::builder().master(MemoryMaster::new()).ttl(YEAR);
        let (least, most) = (millis(1), seconds(60));
        let error = builder().node_timeout(given).build().unwrap_err();
        assert_eq!(error, ConfigError::NodeTimeout { given, least, most });
        let error = builder().connect_timeout(given).build().unwrap_err();
        assert_eq!(error, ConfigError::ConnectTimeout { given, least, most });
    }
    assert_eq!(
        refused(|builder| builder.drift_ppm(1_000_000)),
        ConfigError::Drift { ppm: 1_000_000 }
    );
    for (least, most) in [(0, 10), (11, 10), (1, 3_600_001)] {
        let (least, most) = (millis(least), millis(most));
        let builder = Coordinator::builder().master(MemoryMaster::new());
        let error = builder.retry_delay(least, most).build().unwrap_err();
        assert_eq!(error, ConfigError::RetryDelay { least, most });
        let builder = Coordinator::builder().master(MemoryMaster::new());
        let error = builder.poll_interval(least, most).build().unwrap_err();
        assert_eq!(error, ConfigError::PollInterval { least, most });
    }
    assert_eq!(
        refused(|builder| builder.key_template("locks:")),
        ConfigError::KeyTemplate {
            template: "locks:".into()
        }
    );
}

#[tokio::test(start_paused = true)]
async fn settings_at_their_bounds_are_accepted() {
    let most = |builder: Builder| {
        builder
            .ttl(YEAR)
            .node_timeout(seconds(60))
            .connect_timeout(seconds(60))
            .drift_ppm(900_000)
            .retry_delay(seconds(3_600), seconds(3_600))
    };
    let least = |builder: Builder| {
        builder
            .ttl(millis(4))
            .node_timeout(millis(1))
            .connect_timeout(millis(1))
            .drift_ppm(0)
            .retry_delay(Duration::from_nanos(1), Duration::from_nanos(1))
    };
    World::with(3, most)
        .await
        .guard()
        .await
        .release()
        .await
        .unwrap();
    World::with(3, least)
        .await
        .guard()
        .await
        .release()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_list_of_masters_is_checked() {
    let none: [MemoryMaster; 0] = [];
    assert_eq!(Coordinator::new(none).unwrap_err(), ConfigError::NoMasters);

    let many: Vec<_> = (0..65).map(|_| MemoryMaster::new()).collect();
    assert_eq!(
        Coordinator::new(&many).unwrap_err(),
        ConfigError::TooManyMasters {
            given: 65,
            most: 64
        }
    );
    assert_eq!(Coordinator::new(&many[1..]).unwrap().master_count(), 64);

    let (a, b) = (MemoryMaster::new(), MemoryMaster::new());
    let error = Coordinator::new([&b, &a, &a.clone()]).unwrap_err();
    assert!(
        matches!(
            error,
            ConfigError::DuplicateMaster {
                first: 2,
                second: 3,
                ..
            }
        ),
        "{error:?}"
    );

    let error = Coordinator::builder()
        .master(MemoryMaster::new())
        .master("https://hunter2@example.org")
        .build()
        .unwrap_err();
    assert!(
        matches!(error, ConfigError::BadMaster { master: 2, .. }),
        "{error:?}"
    );
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn building_a_coordinator_needs_a_runtime() {
    let error = Coordinator::new([MemoryMaster::new()]).unwrap_err();
    assert_eq!(error, ConfigError::NoRuntime);
}

#[tokio::test(start_paused = true)]
async fn the_settings_of_a_lock_are_checked_when_it_is_acquired() {
    let world = World::new(3).await;
    for (lock, expected) in [
        (world.locks.mutex(""), ConfigError::EmptyName),
        (
            world.locks.mutex("quorlock:fence:{a}"),
            ConfigError::ReservedKey {
                key: "quorlock:fence:{a}".to_owned(),
            },
        ),
        (
            world.lock().ttl(millis(52)),
            ConfigError::TtlTooShort {
                ttl: millis(52),
                least: Duration::from_micros(52_520),
            },
        ),
        (
            world.lock().ttl(Duration::MAX),
            ConfigError::TtlTooLong {
                ttl: Duration::MAX,
                most: YEAR,
            },
        ),
    ] {
        for error in [
            lock.try_acquire().await.unwrap_err(),
            lock.acquire().await.unwrap_err(),
            lock.acquire_within(seconds(1)).await.unwrap_err(),
        ] {
            assert!(
                matches!(&error, AcquireError::Config(error) if *error == expected),
                "{error}"
            );
        }
    }
    sleep(millis(1)).await;
    assert_eq!(world.commands(), [0; 3]);
}

#[tokio::test(start_paused = true)]
async fn the_last_ttl_set_applies() {
    let world = World::new(3).await;
    let lock = world.lock().ttl(millis(1)).ttl(millis(1_500));
    let guard = lock.try_acquire().await.unwrap();
    assert_eq!(world.ttls(), [Some(millis(1_500)); 3]);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_ttl_is_cut_to_milliseconds() {
    let world = World::with(3, |builder| builder.ttl(Duration::from_micros(1_500_999))).await;
    let guard = world.guard().await;
    assert_eq!(world.ttls(), [Some(millis(1_500)); 3]);
    assert_eq!(guard.validity(), millis(1_483));
}

#[tokio::test(start_paused = true)]
async fn keys_are_made_by_the_template() {
    let world = World::with(3, |builder| builder.key_template("redlock:{name}!")).await;
    let guard = world.guard().await;
    assert_eq!(guard.name(), NAME);
    assert_eq!(world.masters[0].keys(), [format!("redlock:{NAME}!")]);
    guard.release().await.unwrap();
    assert_eq!(world.masters[0].keys(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn lock_names_and_masters_can_be_any_strings() {
    let world = World::new(1).await;
    let name = NAME.to_owned();
    let shared: Arc<str> = NAME.into();
    let owner = world.locks.owner();
    let locks = [
        world.locks.mutex(NAME),
        world.locks.mutex(&name),
        world.locks.mutex(&shared),
        world.locks.mutex(shared),
        world.locks.reentrant(&name, &owner),
        world.locks.fair(name, &owner),
    ];
    for lock in locks {
        let guard = lock.try_acquire().await.unwrap();
        assert_eq!(guard.name(), NAME);
        guard.release().await.unwrap();
    }

    let urls = ["nonsense"];
    let error = Coordinator::new(urls.iter()).unwrap_err();
    assert!(matches!(error, ConfigError::BadMaster { master: 1, .. }));
}

/// The longest TTL that is allowed, 366 days. A longer TTL is a mistake in units.
const YEAR: Duration = seconds(366 * 24 * 60 * 60);
