//! Unusable settings are refused before anything is sent.

use std::{sync::Arc, time::Duration};

use quorlock::{
    AcquireError, Builder, ConfigError, Coordinator, MemoryMaster, Quarantine, SharedSettings,
};
use tokio::time::sleep;

use crate::world::{NAME, World, millis, seconds};

#[tokio::test(start_paused = true)]
async fn every_setting_is_checked() {
    let refused = |set: fn(Builder) -> Builder| {
        let builder = Coordinator::builder().master(MemoryMaster::new());
        set(builder).build().unwrap_err()
    };
    let ttl = |given: Duration, range: &str| out_of_range("TTL", given, range);
    let together = "the node timeout and the drift allowance together";
    assert_eq!(
        refused(|builder| builder.ttl(seconds(1)).node_timeout(seconds(1))),
        ttl(seconds(1), &format!("more than 1.012s, {together}"))
    );
    assert_eq!(
        refused(|builder| builder.ttl(Duration::MAX)),
        ttl(Duration::MAX, TTL_RANGE)
    );
    for given in [Duration::from_micros(999), millis(60_001), Duration::MAX] {
        let builder = || Coordinator::builder().master(MemoryMaster::new()).ttl(YEAR);
        let error = builder().node_timeout(given).build().unwrap_err();
        assert_eq!(
            error,
            out_of_range("node timeout", given, "from 1ms to 60s")
        );
        let error = builder().connect_timeout(given).build().unwrap_err();
        assert_eq!(
            error,
            out_of_range("connect timeout", given, "from 1ms to 60s")
        );
    }
    for (least, most) in [(1, 0), (11, 10), (1, 3_600_001)] {
        let (least, most) = (millis(least), millis(most));
        let builder = || Coordinator::builder().master(MemoryMaster::new());
        for (setting, builder) in [
            ("retry delay", builder().retry_delay(least, most)),
            ("poll interval", builder().poll_interval(least, most)),
        ] {
            let ConfigError::OutOfRange { setting: found, .. } = builder.build().unwrap_err()
            else {
                panic!("{setting}");
            };
            assert_eq!(found, setting);
        }
    }
    let zero = refused(|builder| builder.retry_delay(millis(0), millis(10)));
    assert!(zero.to_string().contains("of 0s to 10ms"), "{zero}");
    assert_eq!(
        refused(|builder| builder.key_template("locks:")),
        ConfigError::KeyTemplate {
            template: "locks:".into()
        }
    );
    for given in [Duration::from_micros(999), millis(3_600_001)] {
        let builder = Coordinator::builder().master(MemoryMaster::new());
        assert_eq!(
            builder.waiter_timeout(given).build().unwrap_err(),
            out_of_range("waiter timeout", given, "from 1ms to 3600s")
        );
    }
    let name = refused(|builder| builder.client_name("a b").label("web"));
    assert!(name.to_string().contains("client name \"a b\""), "{name}");
}

/// Programs must agree on the longest TTL, and do not know each other's TTLs.
#[tokio::test(start_paused = true)]
async fn a_long_ttl_needs_a_longer_max_ttl() {
    let shared = || SharedSettings::default().builder().unwrap();
    for builder in [Coordinator::builder as fn() -> Builder, shared] {
        let builder = || builder().master(MemoryMaster::new()).ttl(seconds(120));
        let range = "at most 60s, so set a shorter ttl (10 s by default), or a longer max_ttl in \
                     all programs";
        let error = builder().build().unwrap_err();
        assert_eq!(error, out_of_range("TTL", seconds(120), range));
        builder().max_ttl(seconds(120)).build().unwrap();
        builder().quarantine(Quarantine::Off).build().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_error_stays_when_its_setting_is_set_again() {
    let builder = Coordinator::builder().master(MemoryMaster::new());
    let builder = builder.node_timeout(millis(60_001)).drift_ppm(1_000_000);
    let builder = builder.node_timeout(millis(50));
    let first = out_of_range("node timeout", millis(60_001), "from 1ms to 60s");
    assert_eq!(builder.build().unwrap_err(), first);
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
        ConfigError::OutOfRange {
            setting: "list",
            given: "65 masters".to_owned(),
            range: "at most 64, and 3 or 5 are usual".to_owned(),
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
            out_of_range(
                "TTL",
                millis(52),
                "more than 52.52ms, the node timeout and the drift allowance together",
            ),
        ),
        (
            world.lock().ttl(Duration::MAX),
            out_of_range("TTL", Duration::MAX, TTL_RANGE),
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

const TTL_RANGE: &str = "at most 366 days";

fn out_of_range(setting: &'static str, given: Duration, range: &str) -> ConfigError {
    ConfigError::OutOfRange {
        setting,
        given: format!("{given:?}"),
        range: range.to_owned(),
    }
}
