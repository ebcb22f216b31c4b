//! Masters that may have forgotten locks: when one may vote again.

use std::time::Duration;

use super::lease::{Drift, Ttl};

/// What is done about masters that may have forgotten the locks they held: by a restart, `FLUSHALL`, or a replica in
/// their place.
///
/// Such a master must not vote until every lock that it may have forgotten is over: that is its quarantine. The
/// coordinator keeps a key on every master, `quorlock:guard`, and looks at it on every dial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartGuard {
    /// Nothing. A master that restarts empty may grant a lock that others hold.
    Off,
    /// A master that has another run id than its key says, or none of the two where this process has seen it before, is
    /// quarantined. One that nobody has a memory of is taken for new. One that cannot be asked (no right to
    /// `INFO`, say) is not watched, and the log says so.
    #[default]
    Observed,
    /// As `Observed`, and a master without the key is quarantined, too; also when it is used for the first time.
    /// One that cannot be asked is not used.
    Strict,
}

/// For how long a master that forgot must not vote, where no lock lives longer than `max_ttl`.
pub(crate) fn quarantine(max_ttl: Ttl, drift: Drift) -> Duration {
    /// Candidates for fencing tokens may be a second off either way, and clocks of masters half a second.
    const TOKENS: Duration = Duration::from_secs(3);
    let ttl = max_ttl.duration();
    ttl.saturating_add(drift.allowance(ttl)).max(TOKENS)
}

/// A master as it was found on a dial.
#[cfg(any(test, feature = "redis"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incarnation {
    pub(crate) run_id: String,
    /// How long ago it may have forgotten locks; `None`: not that anybody knows.
    pub(crate) age: Option<Duration>,
}

#[cfg(any(test, feature = "redis"))]
impl Incarnation {
    /// See `lua/shared/guard.lua`. `None` when it makes no sense.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(3, ' ');
        let since: u64 = words.next()?.parse().ok()?;
        let now: u64 = words.next()?.parse().ok()?;
        let run_id = words.next().filter(|run_id| !run_id.is_empty())?;
        Some(Self {
            run_id: run_id.to_owned(),
            // A clock that was set back makes it look younger than it is.
            age: (since > 0).then(|| Duration::from_millis(now.saturating_sub(since))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_than_any_lock_and_than_clocks_are_apart() {
        let drift = Drift::from_ppm(10_000).unwrap();
        let ttl =
            |seconds| Ttl::parse(Duration::from_secs(seconds), Duration::ZERO, drift).unwrap();
        assert_eq!(quarantine(ttl(60), drift), Duration::from_millis(60_602));
        assert_eq!(quarantine(ttl(1), drift), Duration::from_secs(3));
    }

    #[test]
    fn incarnation_table() {
        for (text, run_id, age) in [
            ("0 5 abc", "abc", None),
            ("5 1005 abc", "abc", Some(1_000)),
            ("9 5 abc", "abc", Some(0)),
        ] {
            let found = Incarnation::parse(text).unwrap();
            assert_eq!(found.run_id, run_id);
            assert_eq!(found.age, age.map(Duration::from_millis), "{text}");
        }
        for text in ["", "0 5", "0 5 ", "x 5 abc"] {
            assert_eq!(Incarnation::parse(text), None, "{text}");
        }
    }
}
