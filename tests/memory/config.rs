//! Unusable settings are refused before anything is sent.

use std::time::Duration;

use quorlock::{
    Builder, ConfigError, Coordinator, MemoryMaster, Quarantine, Reason, SharedSettings,
};
use tokio::time::sleep;

use crate::world::{NAME, World, millis, seconds};

/// Programs must agree on the longest TTL, and do not know each other's TTLs.
#[tokio::test(start_paused = true)]
async fn a_long_ttl_needs_a_longer_max_ttl() {
    let shared = || SharedSettings::default().builder().unwrap();
    for builder in [Coordinator::builder as fn() -> Builder, shared] {
        let builder = || builder().master(MemoryMaster::new()).ttl(seconds(120));
        let range = "at most 60s (max_ttl), so give a shorter TTL (without one, a lock has \
                     QUORLOCK_TTL, 10 s by default), or first a longer max_ttl (QUORLOCK_MAX_TTL) in \
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
    let builder = builder
        .response_timeout(millis(60_001))
        .drift_ppm(1_000_000);
    let builder = builder.response_timeout(millis(50));
    let first = out_of_range("response timeout", millis(60_001), "from 1ms to 60s");
    assert_eq!(builder.build().unwrap_err(), first);
}

#[tokio::test(start_paused = true)]
async fn settings_at_their_bounds_are_accepted() {
    let most = |builder: Builder| {
        builder
            .ttl(YEAR)
            .response_timeout(seconds(60))
            .connect_timeout(seconds(60))
            .drift_ppm(900_000)
            .retry_delay(seconds(3_600)..=seconds(3_600))
    };
    let least = |builder: Builder| {
        builder
            .ttl(millis(4))
            .response_timeout(millis(1))
            .connect_timeout(millis(1))
            .drift_ppm(0)
            .retry_delay(Duration::from_nanos(1)..=Duration::from_nanos(1))
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
                "more than 52.52ms, the response timeout (QUORLOCK_RESPONSE_TIMEOUT) and the drift allowance together",
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
            assert_eq!(*error.reason(), Reason::Config(expected.clone()));
        }
    }
    sleep(millis(1)).await;
    assert_eq!(world.commands(), [0; 3]);
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

/// An error must not show a value: it may be a URL with a password, in the wrong place.
#[cfg(feature = "serde")]
#[test]
fn a_wrong_value_in_a_file_is_shown_nowhere() {
    let read = |text: &str| serde_json::from_str::<SharedSettings>(text);
    for key in ["masters", "old_masters", "ttl", "max_ttl", "quarantine"] {
        for value in [
            r#"{"hunter2": "hunter2"}"#,
            r#""hunter2""#,
            r#"[["hunter2"]]"#,
        ] {
            if let Err(error) = read(&format!(r#"{{"{key}": {value}}}"#)) {
                assert!(!error.to_string().contains("hunter2"), "{error}");
            }
        }
    }
    let settings = read(r#"{"masters": "redis://a,redis://b", "ttl": 20, "quarantine": "off"}"#);
    let settings = settings.unwrap();
    assert_eq!(
        (settings.masters.len(), settings.quarantine),
        (2, Some(Quarantine::Off))
    );
    assert_eq!(settings.ttl, Some(Duration::from_secs(20)));
}
