//! The reason why no lock can be acquired, although nobody holds it.

use std::{fmt, time::Duration};

use quorlock::{Coordinator, Failure as VoteFailure, MasterHealth, MasterState, ReadyError, Votes};

use crate::{
    exit::Exit,
    failure::Failure,
    times::rounded,
    words::{LOGIN, in_words_of_the_file},
};

/// The reason why too few masters can vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Enough masters are connected, but some of them may have forgotten locks.
    Quarantine {
        /// The time until a majority can vote.
        wait: Duration,
        waiting: usize,
        connected: usize,
        all: usize,
    },
    /// So many masters refuse the login, a certificate or a right that the others are no majority.
    /// The reason of the first, and what to do.
    Refused(String),
    /// Too few masters are connected and take locks. `why` is the reason of the first other one, if
    /// it is known.
    TooFew {
        connected: usize,
        all: usize,
        quorum: usize,
        /// Whether some of the connected ones may not take locks either.
        is_limit: bool,
        why: Option<String>,
    },
}

impl Outage {
    /// Returns the reason why too few masters can vote now. `None` if a majority can.
    pub(crate) fn of(locks: &Coordinator) -> Option<Self> {
        Self::in_health(&locks.health(), locks.quorum())
    }

    fn in_health(health: &[MasterHealth], quorum: usize) -> Option<Self> {
        let all = health.len();
        let connected = health
            .iter()
            .filter(|master| master.state == MasterState::Connected && master.error.is_none());
        let mut waits: Vec<_> = connected
            .map(|master| master.quarantine.unwrap_or_default())
            .collect();
        waits.sort_unstable();
        match waits.get(quorum - 1) {
            Some(&Duration::ZERO) => return None,
            Some(&wait) => {
                let waiting = waits.iter().filter(|wait| !wait.is_zero()).count();
                let connected = waits.len();
                return Some(Self::Quarantine {
                    wait,
                    waiting,
                    connected,
                    all,
                });
            }
            None => {}
        }
        let mut refused = health.iter().filter_map(refusal);
        if let (true, Some(why)) = (all - refused.clone().count() < quorum, refused.next()) {
            return Some(Self::Refused(why));
        }
        Some(Self::TooFew {
            connected: waits.len(),
            all,
            quorum,
            is_limit: false,
            why: health.iter().find_map(obstacle),
        })
    }

    /// Returns the reason why an attempt with these votes found too few masters.
    pub(crate) fn of_attempt(locks: &Coordinator, votes: &Votes) -> Self {
        let in_votes = Self::in_votes(votes);
        match Self::of(locks) {
            _ if matches!(in_votes, Self::Refused(_)) => in_votes,
            // The votes count a quarantine as a failure.
            Some(outage @ (Self::Refused(_) | Self::Quarantine { .. })) => outage,
            _ => in_votes,
        }
    }

    /// Returns the reason why a round with these votes found too few masters.
    pub(crate) fn in_votes(votes: &Votes) -> Self {
        let (all, quorum) = (votes.master_count(), votes.quorum());
        let rows = votes.iter();
        let failures = rows.filter_map(|row| Some((row.master(), row.failure()?)));
        let failures: Vec<_> = failures.collect();
        let why = |(master, failure): &(&str, &VoteFailure)| {
            format!("{master}: {}", in_words_of_the_file(&failure.to_string()))
        };
        let denials = failures.iter().filter(|(_, failure)| is_denial(failure));
        let mut denials = denials.map(why);
        if let Some(why) = denials.next()
            && all - 1 - denials.count() < quorum
        {
            return Self::Refused(format!(
                "the user lacks a right on {why}; run `quorlock doctor` with the same masters"
            ));
        }
        Self::TooFew {
            connected: all - votes.failed_count(),
            all,
            quorum,
            // The round may be over before all masters have voted.
            is_limit: votes.iter().any(|row| row.vote().is_none()),
            why: failures.first().map(why),
        }
    }

    /// Returns the failure of an action, such as `cannot lock "a"`.
    pub(crate) fn failure(&self, action: &str) -> Failure {
        let exit = match self {
            Self::Refused(_) => Exit::Configuration,
            Self::Quarantine { .. } | Self::TooFew { .. } => Exit::NoQuorum,
        };
        Failure::new(exit, format!("{action}: {self}"))
    }
}

/// Returns the failure of an action if so many masters refuse the login or a certificate that the
/// others are no majority.
pub(crate) fn refused(locks: &Coordinator, action: &str) -> Option<Failure> {
    let outage = Outage::of(locks);
    let refused = outage.filter(|outage| matches!(outage, Outage::Refused(_)));
    refused.map(|outage| outage.failure(action))
}

/// Returns whether the master denied a right, such as the right to a command or a key. Redis 6 and
/// scripts have other words before it.
pub(crate) fn is_denial(failure: &VoteFailure) -> bool {
    let VoteFailure::Rejected(error) = failure else {
        return false;
    };
    let mut signs = ["-NOPERM ", "ACL failure in script"].into_iter();
    error.starts_with("NOPERM ") || signs.any(|sign| error.contains(sign))
}

/// Returns why dials to the master fail until a setting is changed, and which.
fn refusal(health: &MasterHealth) -> Option<String> {
    let master = &health.master;
    match &health.state {
        _ if health.refuses_login() => Some(format!(
            "{master} refused the login; give the password with {LOGIN}"
        )),
        MasterState::Down(why) if health.refuses_certificate() => {
            Some(format!("{master}: {}", in_words_of_the_file(why)))
        }
        _ => None,
    }
}

/// Returns why the master is not connected, or takes no locks.
fn obstacle(health: &MasterHealth) -> Option<String> {
    let why = match &health.state {
        MasterState::Down(why) => why,
        _ => health.error.as_ref()?,
    };
    Some(format!("{}: {}", health.master, in_words_of_the_file(why)))
}

/// Returns the failure of an action for which too few masters were ready.
pub(crate) fn not_ready(error: &ReadyError, locks: &Coordinator, action: &str) -> Failure {
    let failure = match Outage::of(locks) {
        Some(outage) => outage.failure(action),
        None => Failure::new(Exit::NoQuorum, format!("{action}: {error}")),
    };
    match error {
        ReadyError::NoQuorum { votes, .. } => failure.with_votes(votes),
        _ => failure,
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quarantine {
                wait,
                waiting,
                connected,
                all,
            } if connected < all => write!(
                f,
                "{} of {all} masters failed, and {waiting} that may have forgotten locks {} no vote \
                 for {}",
                all - connected,
                if *waiting == 1 { "has" } else { "have" },
                rounded(*wait)
            ),
            Self::Quarantine { wait, .. } => write!(
                f,
                "masters that may have forgotten locks get no vote for {}",
                rounded(*wait)
            ),
            Self::Refused(why) => f.write_str(why),
            Self::TooFew {
                connected,
                all,
                quorum,
                is_limit,
                why,
            } => {
                let only = if *is_limit { "at most" } else { "only" };
                write!(
                    f,
                    "{only} {connected} of {all} masters can vote, and {quorum} are needed; "
                )?;
                if let Some(why) = why {
                    write!(f, "{why}; ")?;
                }
                f.write_str("run `quorlock doctor` with the same masters")
            }
        }
    }
}
