//! The settings of a coordinator, checked once.

use std::{sync::Arc, time::Duration};

use super::{
    config_error::{ConfigError, shown},
    protocol::{client_name::ClientName, name::KeyTemplate},
    restart::Quarantine,
    time::{
        lease::{Drift, Ttl},
        renewal::Renewal,
        timeout::NodeTimeout,
    },
    wait::pauses::Backoff,
};

/// The default maximum of the TTL. A master that forgot locks is quarantined for about this long.
const LONGEST_TTL: Duration = Duration::from_secs(60);

/// The settings of the user, before they are checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) ttl: Duration,
    /// `None` means the default: the timeout is measured.
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) connect_timeout: Duration,
    pub(crate) drift_ppm: u32,
    pub(crate) retry_delay: (Duration, Duration),
    pub(crate) poll_interval: (Duration, Duration),
    pub(crate) waiters_poll: bool,
    pub(crate) key_template: String,
    pub(crate) client_name: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) renewal: Renewal,
    /// `None` means the default, which depends on the node timeout.
    pub(crate) waiter_timeout: Option<Duration>,
    pub(crate) quarantine: Quarantine,
    /// `None` means the default, which depends on the setting `quarantine`.
    pub(crate) max_ttl: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(10),
            node_timeout: None,
            connect_timeout: Duration::from_secs(1),
            drift_ppm: 10_000,
            retry_delay: (Duration::from_millis(10), Duration::from_millis(200)),
            poll_interval: (Duration::from_millis(500), Duration::from_millis(1_500)),
            waiters_poll: false,
            key_template: "{name}".to_owned(),
            client_name: None,
            label: None,
            renewal: Renewal::Unlimited,
            waiter_timeout: None,
            quarantine: Quarantine::default(),
            max_ttl: None,
        }
    }
}

/// The settings after the check.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) ttl: Ttl,
    pub(crate) node_timeout: NodeTimeout,
    pub(crate) connect_timeout: Duration,
    pub(crate) drift: Drift,
    pub(crate) retry: Backoff,
    pub(crate) poll: Backoff,
    pub(crate) waiters_poll: bool,
    pub(crate) key_template: KeyTemplate,
    pub(crate) client_name: Option<ClientName>,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) renewal: Renewal,
    pub(crate) waiter_timeout: Duration,
    pub(crate) quarantine: Quarantine,
    pub(crate) max_ttl: Ttl,
}

impl Config {
    /// Checks all settings. No setting is checked again later.
    pub(crate) fn parse(settings: Settings) -> Result<Self, ConfigError> {
        // Without `..`, this fails to compile if a new setting is not handled.
        let Settings {
            ttl,
            node_timeout,
            connect_timeout,
            drift_ppm,
            retry_delay,
            poll_interval,
            waiters_poll,
            key_template,
            client_name,
            label,
            renewal,
            waiter_timeout,
            quarantine,
            max_ttl,
        } = settings;
        let node_timeout = node_timeout.map_or(NodeTimeout::Measured, NodeTimeout::Fixed);
        let least = checked("node timeout", node_timeout.least(), TIMEOUTS, "")?;
        let drift = Drift::from_ppm(drift_ppm)?;
        let max_ttl = max_ttl.unwrap_or_else(|| default_max_ttl(quarantine, ttl));
        let max_ttl = Ttl::parse(max_ttl, least, drift)?;
        Ok(Self {
            ttl: Ttl::parse(ttl, least, drift)?.at_most(max_ttl)?,
            max_ttl,
            quarantine,
            waiters_poll,
            node_timeout,
            connect_timeout: checked("connect timeout", connect_timeout, TIMEOUTS, "")?,
            drift,
            retry: range("retry delay", retry_delay)?,
            poll: range("poll interval", poll_interval)?,
            key_template: KeyTemplate::parse(&key_template)?,
            client_name: client_name.map(ClientName::parse).transpose()?,
            label: label.map(Arc::from),
            renewal,
            waiter_timeout: checked_waiter_timeout(waiter_timeout, least)?,
        })
    }

    /// Checks the TTL of one lock.
    pub(crate) fn ttl(&self, ttl: Duration) -> Result<Ttl, ConfigError> {
        Ttl::parse(ttl, self.node_timeout.least(), self.drift)?.at_most(self.max_ttl)
    }
}

fn range(
    setting: &'static str,
    (least, most): (Duration, Duration),
) -> Result<Backoff, ConfigError> {
    Backoff::new(least, most).ok_or_else(|| {
        let given = format!("{} to {}", shown(least), shown(most));
        ConfigError::out_of_range(setting, given, "0 < least <= most <= 1 h")
    })
}

/// The minimum and the maximum of the node timeout and of the connect timeout.
const TIMEOUTS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(60));

/// Checks the waiter timeout. The minimum of four node timeouts leaves time for two polls of a slow
/// master.
fn checked_waiter_timeout(
    given: Option<Duration>,
    node_timeout: Duration,
) -> Result<Duration, ConfigError> {
    const DEFAULT: Duration = Duration::from_secs(3);
    const MOST: Duration = Duration::from_secs(60 * 60);
    let least = 4 * node_timeout;
    let given = given.unwrap_or_else(|| least.max(DEFAULT));
    let least_is = " (least: four node timeouts)";
    checked("waiter timeout", given, (least, MOST), least_is)
}

/// Returns `given` if it is from `least` to `most`. The error ends with `note`.
fn checked(
    setting: &'static str,
    given: Duration,
    (least, most): (Duration, Duration),
    note: &str,
) -> Result<Duration, ConfigError> {
    if (least..=most).contains(&given) {
        return Ok(given);
    }
    let range = format!("from {least:?} to {most:?}{note}");
    Err(ConfigError::time(setting, given, range))
}

fn default_max_ttl(quarantine: Quarantine, ttl: Duration) -> Duration {
    match quarantine {
        // The maximum only limits the length of quarantines. With quarantine off, there are none.
        Quarantine::Off => Ttl::MOST,
        Quarantine::Observed | Quarantine::Strict => ttl.max(LONGEST_TTL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_pass() {
        let config = Config::parse(Settings::default()).unwrap();
        assert_eq!(config.ttl.duration(), Duration::from_secs(10));
        assert_eq!(config.waiter_timeout, Duration::from_secs(3));
        assert_eq!(config.max_ttl.duration(), Duration::from_secs(60));
        assert_eq!(config.renewal, Renewal::Unlimited);

        let node_timeout = Duration::from_secs(60);
        let config = Config::parse(Settings {
            node_timeout: Some(node_timeout),
            ttl: 2 * node_timeout,
            ..Settings::default()
        });
        assert_eq!(config.unwrap().waiter_timeout, 4 * node_timeout);
    }

    #[test]
    fn the_longest_ttl_depends_on_the_guard_and_on_the_ttl() {
        let (minute, longer) = (Duration::from_secs(60), Duration::from_secs(120));
        for (quarantine, ttl, expected) in [
            (Quarantine::Off, minute, Ttl::MOST),
            (Quarantine::Observed, minute / 2, minute),
            (Quarantine::Strict, longer, longer),
        ] {
            let config = Config::parse(Settings {
                ttl,
                quarantine,
                ..Settings::default()
            });
            let config = config.unwrap();
            assert_eq!(config.max_ttl.duration(), expected);
            assert_eq!(config.ttl(expected).unwrap().duration(), expected);
            assert!(config.ttl(expected + minute).is_err());
        }
    }

    #[test]
    fn a_waiter_timeout_is_at_most_an_hour() {
        let hour = Duration::from_secs(3_600);
        let with = |waiter_timeout| {
            let waiter_timeout = Some(waiter_timeout);
            Config::parse(Settings {
                waiter_timeout,
                ..Settings::default()
            })
        };
        assert_eq!(with(hour).unwrap().waiter_timeout, hour);
        assert!(with(hour + Duration::from_millis(1)).is_err());
        assert!(with(Duration::from_millis(200)).is_ok()); // four times the least node timeout
    }

    #[test]
    fn every_setting_is_checked() {
        let refused = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            Config::parse(settings).unwrap_err().to_string()
        };
        for (error, part) in [
            (
                refused(|s| s.ttl = Duration::ZERO),
                "TTL of 0s is out of range",
            ),
            (
                refused(|s| s.ttl = Duration::from_millis(52)),
                "more than 52.52ms",
            ),
            (refused(|s| s.ttl = Duration::MAX), "at most 31622400s"),
            (
                refused(|s| s.node_timeout = Some(Duration::ZERO)),
                "node timeout of 0s",
            ),
            (
                refused(|s| s.connect_timeout = Duration::MAX),
                "connect timeout",
            ),
            (refused(|s| s.drift_ppm = 1_000_000), "1000000 ppm"),
            (
                refused(|s| s.waiter_timeout = Some(Duration::from_millis(199))),
                "waiter timeout of 199ms",
            ),
            (
                refused(|s| s.retry_delay.0 = Duration::MAX),
                "a retry delay of",
            ),
            (
                refused(|s| s.poll_interval.1 = Duration::ZERO),
                "a poll interval of 500ms to 0s",
            ),
            (
                refused(|s| s.key_template = "x".into()),
                "{name} exactly once",
            ),
            (
                refused(|s| s.client_name = Some("a b".into())),
                "client name \"a b\"",
            ),
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
