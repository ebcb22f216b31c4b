//! The settings of a coordinator, each checked once.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use super::{
    config_error::{ConfigError, shown},
    protocol::{identity::ClientName, name::KeyTemplate},
    restart::Quarantine,
    time::{Backoff, Drift, Renewal, ResponseTimeout, Ttl},
};

/// The settings of a coordinator. Each was checked when it was set.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) ttl: Ttl,
    pub(crate) response_timeout: ResponseTimeout,
    pub(crate) connect_timeout: Duration,
    pub(crate) drift: Drift,
    pub(crate) retry: Backoff,
    pub(crate) poll: Backoff,
    pub(crate) poll_only: bool,
    pub(crate) key_template: KeyTemplate,
    pub(crate) client_name: Option<ClientName>,
    pub(crate) coordinator: Option<Arc<str>>,
    pub(crate) renewal: Renewal,
    /// Waiters may be silent for this time, or for four response timeouts if that is longer.
    pub(crate) silent_waiter_timeout: Duration,
    pub(crate) quarantine: Quarantine,
    /// `None` means the default, which depends on other settings.
    pub(crate) max_ttl: Option<Ttl>,
    /// A hash of the lists of masters, their databases and the key template. Programs with the same
    /// place have the same locks.
    pub(crate) place: u64,
    /// Whether the program takes no lock, so that its lists are no danger to others.
    pub(crate) only_looks: bool,
}

impl Config {
    /// Returns the default settings. They pass the same checks as settings that a user gives.
    pub(crate) fn of_defaults() -> Result<Self, ConfigError> {
        let millis = Duration::from_millis;
        Ok(Self {
            ttl: Ttl::whole(millis(10_000))?,
            response_timeout: ResponseTimeout::Measured,
            connect_timeout: millis(1_000),
            drift: Drift::from_ppm(10_000)?,
            retry: delays("retry delay", &(millis(10)..=millis(200)))?,
            poll: delays("poll interval", &(millis(500)..=millis(1_500)))?,
            poll_only: false,
            key_template: KeyTemplate::parse("{name}")?,
            client_name: None,
            coordinator: None,
            renewal: Renewal::Unlimited,
            silent_waiter_timeout: millis(3_000),
            quarantine: Quarantine::default(),
            max_ttl: None,
            place: 0,
            only_looks: false,
        })
    }

    /// Checks a TTL against the other settings.
    pub(crate) fn ttl(&self, ttl: Duration) -> Result<Ttl, ConfigError> {
        Ttl::parse(ttl, self.response_timeout.least(), self.drift)?.at_most(self.max_ttl())
    }

    /// Returns the longest TTL. A master that forgot locks is quarantined for about this long.
    pub(crate) fn max_ttl(&self) -> Duration {
        /// The default longest TTL. A longer TTL of the coordinator does not change it, because
        /// other programs do not know that TTL.
        const USUAL: Duration = Duration::from_secs(60);
        let default = || match self.quarantine {
            // The longest TTL only limits the length of quarantines. With quarantine off, there are
            // no quarantines.
            Quarantine::Off => Ttl::MOST,
            Quarantine::Observed | Quarantine::Strict => USUAL,
        };
        self.max_ttl.map_or_else(default, Ttl::duration)
    }

    /// Returns the length of a quarantine, counted from the moment at which a master may have
    /// forgotten locks. To hold a lock for longer than the longest TTL, a client needs new votes.
    /// Keys that were left in place for a minimum hold may stay for longer, but no client holds
    /// their locks.
    pub(crate) fn quarantine_length(&self) -> Duration {
        /// The shortest quarantine. It keeps fencing tokens in order. A candidate may be one second
        /// above or below a master's clock. That clock may itself be wrong by half a second, both
        /// before the master lost its keys and after that.
        const TOKENS: Duration = Duration::from_secs(3);
        let max_ttl = self.max_ttl();
        let allowance = self.drift.allowance(max_ttl);
        max_ttl.saturating_add(allowance).max(TOKENS)
    }
}

/// Checks that a timeout is from one millisecond to `seconds`.
pub(crate) fn timeout(
    setting: &'static str,
    given: Duration,
    seconds: u64,
) -> Result<Duration, ConfigError> {
    const LEAST: Duration = Duration::from_millis(1);
    let most = Duration::from_secs(seconds);
    if (LEAST..=most).contains(&given) {
        return Ok(given);
    }
    let range = format!("from {LEAST:?} to {most:?}");
    Err(ConfigError::time(setting, given, range))
}

pub(crate) fn delays(
    setting: &'static str,
    bounds: &RangeInclusive<Duration>,
) -> Result<Backoff, ConfigError> {
    let (least, most) = (*bounds.start(), *bounds.end());
    Backoff::new(least, most).ok_or_else(|| {
        let given = format!("{} to {}", shown(least), shown(most));
        ConfigError::out_of_range(setting, given, "0 < least <= most <= 1 h")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_ttl_depends_on_the_quarantine_and_not_on_the_ttl() {
        let (minute, longer) = (Duration::from_secs(60), Duration::from_secs(120));
        for (quarantine, ttl, expected) in [
            (Quarantine::Off, minute, Ttl::MOST),
            (Quarantine::Observed, minute / 2, minute),
            (Quarantine::Strict, longer, minute),
        ] {
            let config = Config {
                ttl: Ttl::whole(ttl).unwrap(),
                quarantine,
                ..Config::of_defaults().unwrap()
            };
            assert_eq!(config.max_ttl(), expected);
            assert_eq!(config.ttl(expected).unwrap().duration(), expected);
            assert!(config.ttl(expected + minute).is_err());
        }
    }

    #[test]
    fn a_quarantine_outlasts_every_lock_and_the_difference_of_clocks() {
        for (seconds, millis) in [(60, 60_602), (1, 3_000)] {
            let config = Config {
                max_ttl: Ttl::whole(Duration::from_secs(seconds)).ok(),
                ..Config::of_defaults().unwrap()
            };
            assert_eq!(config.quarantine_length(), Duration::from_millis(millis));
        }
    }
}
