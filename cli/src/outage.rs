//! The reason why no lock can be acquired, although nobody holds it.

use std::{collections::BTreeSet, fmt, time::Duration};

use quorlock::{
    AskError, Coordinator,
    health::{MasterHealth, MasterState},
    tools::DialRefusal,
    votes::{Failure as VoteFailure, VoteRow, Votes},
};

use crate::{
    exit::Exit,
    failure::Failure,
    lists::Tallies,
    rights::with_all_rights,
    times::rounded,
    words::{ADVICE, in_short, in_words_of_the_file},
};

/// The reason why too few masters can vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Enough masters are connected, but some of them may have forgotten locks.
    Quarantine {
        /// The time until a majority can vote.
        wait: Duration,
        /// The masters that can vote now.
        able: Tallies,
        /// The reasons of those that are not connected or take no locks.
        others: Option<String>,
    },
    /// So many masters refuse the login, a certificate or a right, or cannot be masters, that the
    /// others are no majority. The reasons, and what to do.
    Refused(String),
    /// Too few masters are connected and take locks. `why` has the reasons of the others, if they
    /// are known.
    TooFew {
        connected: Tallies,
        /// Whether some of the connected ones may not take locks either.
        is_limit: bool,
        why: Option<String>,
    },
}

/// How far a command is with its masters. This decides which of their refusals are mistakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is not known yet whether the masters are listed rightly, so each refusal is a mistake.
    #[default]
    Begins,
    /// The command waits, and some time all masters were dialled and were no mistake. A server that
    /// is no master now may have been one, and may be one soon: a proxy answers before its server
    /// is ready, and a Sentinel that restarts does not know its service yet.
    Waits,
}

impl Stage {
    fn is_mistake(self, refusal: DialRefusal) -> bool {
        use DialRefusal::{OtherServer, Service, Tls};
        self == Self::Begins || !matches!(refusal, OtherServer | Service | Tls)
    }

    /// Returns why dials to the master fail until a setting is changed.
    fn refusal(self, health: &MasterHealth) -> Option<String> {
        let refusal = health.refusal.filter(|refusal| self.is_mistake(*refusal));
        refusal.and_then(|_| obstacle(health))
    }
}

impl Outage {
    /// Returns the reason why too few masters can vote now. `None` if a majority can.
    pub(crate) fn of(locks: &Coordinator, stage: Stage) -> Option<Self> {
        let health = &locks.health()[..];
        let able_after = |time: Duration| {
            let is_able = |master: &MasterHealth| wait_for(master).is_some_and(|wait| wait <= time);
            Tallies::of_health(locks, health, is_able)
        };
        let waits: BTreeSet<_> = health.iter().filter_map(wait_for).collect();
        match waits
            .into_iter()
            .find(|time| able_after(*time).has_quorum())
        {
            Some(Duration::ZERO) => None,
            Some(wait) => Some(Self::Quarantine {
                wait,
                able: able_after(Duration::ZERO),
                others: obstacles(health),
            }),
            None => Some(Self::too_few(locks, health, stage)),
        }
    }

    fn too_few(locks: &Coordinator, health: &[MasterHealth], stage: Stage) -> Self {
        let refusal = |master: &MasterHealth| stage.refusal(master);
        let others = Tallies::of_health(locks, health, |master| refusal(master).is_none());
        let refusals = health.iter().map(|one| (&*one.master, refusal(one)));
        match all_reasons(refusals) {
            Some(why) if !others.has_quorum() => Self::Refused(why),
            _ => Self::TooFew {
                connected: Tallies::of_health(locks, health, |master| wait_for(master).is_some()),
                is_limit: false,
                why: obstacles(health),
            },
        }
    }

    /// Returns the reason why an attempt with these votes found too few masters.
    pub(crate) async fn of_attempt(locks: &Coordinator, votes: &Votes, stage: Stage) -> Self {
        if locks.health().iter().any(MasterHealth::needs_repair) {
            // The others may refuse dials, too: people want to read all reasons at once.
            let _ = locks.all_ready_within(DIAL_LIMIT).await;
        }
        let in_votes = Self::in_votes(locks, votes, stage);
        match Self::of(locks, stage) {
            // The votes count a quarantine as a failure.
            Some(outage @ Self::Quarantine { .. }) if !in_votes.is_refusal() => outage,
            _ => in_votes,
        }
    }

    /// Returns the reason why a round with these votes found too few masters.
    pub(crate) fn in_votes(locks: &Coordinator, votes: &Votes, stage: Stage) -> Self {
        let health = locks.health();
        let dial = |row: &VoteRow<'_>| {
            let mut health = health.iter();
            stage.refusal(health.find(|health| *health.master == *row.master)?)
        };
        let failure = |row: &VoteRow<'_>| Some(in_words_of_the_file(&row.failure()?.to_string()));
        let is_permanent = |row: &VoteRow<'_>| row.failure().is_some_and(VoteFailure::is_permanent);
        let refused =
            |row: &VoteRow<'_>| dial(row).or_else(|| failure(row).filter(|_| is_permanent(row)));
        let all = |why: &dyn Fn(&VoteRow<'_>) -> Option<String>| {
            all_reasons(votes.iter().map(|row| (row.master, why(&row))))
        };
        let others = Tallies::of_votes(votes, |row| refused(row).is_none());
        if let (Some(why), false) = (all(&refused), others.has_quorum()) {
            let mut failures = votes.iter().filter_map(|row| row.failure());
            return Self::Refused(match all(&dial) {
                Some(_) => why,
                None if failures.any(VoteFailure::is_denial) => {
                    format!("a right or a command is missing on {why}; {ADVICE}")
                }
                None => format!("{why}; {ADVICE}"),
            });
        }
        Self::TooFew {
            connected: Tallies::of_votes(votes, |row| row.failure().is_none()),
            // The round may be over before all masters have voted.
            is_limit: votes.iter().any(|row| row.vote.is_none()),
            why: all(&failure),
        }
    }

    /// Returns the failure of what cannot be done if so many masters refuse the user or deny a right
    /// that another try is useless. It needs the rights `of` a name, and more: see [`with_all_rights`].
    pub(crate) fn denial(&self, locks: &Coordinator, what: &str, of: [&str; 2]) -> Option<Failure> {
        let mut failure = self.is_refusal().then(|| self.failure(what, ""))?;
        let given = with_all_rights(&failure.sentence, locks, of);
        failure.sentence = given.unwrap_or(failure.sentence);
        Some(failure)
    }

    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Returns the failure of an action, such as `cannot lock "a"`. `wait` is what helps if masters
    /// have no vote yet.
    pub(crate) fn failure(&self, action: &str, wait: &str) -> Failure {
        let (exit, advice) = match self {
            Self::Refused(_) => (Exit::Configuration, ""),
            Self::Quarantine { .. } => (Exit::Unavailable, wait),
            Self::TooFew { .. } => (Exit::Unavailable, ""),
        };
        Failure::new(exit, format!("{action}: {self}{advice}"))
    }
}

/// Returns the time until the master can vote. `None` if it is not connected, or takes no locks.
fn wait_for(health: &MasterHealth) -> Option<Duration> {
    let is_fit = health.state == MasterState::Connected && health.error.is_none();
    is_fit.then(|| health.quarantine.unwrap_or_default())
}

/// Returns each reason with its masters, such as `a and b: no answer in 50ms`.
pub(crate) fn all_reasons<'a>(
    all: impl Iterator<Item = (&'a str, Option<String>)>,
) -> Option<String> {
    let mut masters_of = Vec::<(String, Vec<&str>)>::new();
    for (master, why) in all.filter_map(|(master, why)| Some((master, why?))) {
        match masters_of.iter_mut().find(|(known, _)| *known == why) {
            Some((_, masters)) => masters.push(master),
            None => masters_of.push((why, vec![master])),
        }
    }
    let each = masters_of.iter();
    let each = each.filter_map(|(why, masters)| Some(format!("{}: {why}", in_short(masters)?)));
    in_short(&Vec::from_iter(each))
}

fn obstacles(health: &[MasterHealth]) -> Option<String> {
    all_reasons(health.iter().map(|one| (&*one.master, obstacle(one))))
}

/// Returns why the master is not connected, or takes no locks.
pub(crate) fn obstacle(health: &MasterHealth) -> Option<String> {
    let why = match &health.state {
        MasterState::Down(why) => why,
        _ => health.error.as_ref()?,
    };
    Some(in_words_of_the_file(why))
}

/// Returns the failure of an action for which too few masters were ready.
pub(crate) fn not_ready(
    error: &AskError,
    locks: &Coordinator,
    stage: Stage,
    action: &str,
) -> Failure {
    let Some(votes) = error.votes() else {
        return Failure::new(Exit::Unavailable, format!("{action}: {error}"));
    };
    let in_votes = Outage::in_votes(locks, votes, stage);
    let outage = Outage::of(locks, stage).filter(|_| !in_votes.is_refusal());
    let failure = outage.unwrap_or(in_votes).failure(action, WAIT_LONGER);
    failure.with_votes(votes)
}

/// What helps a command with `--ready` if masters have no vote yet.
pub(crate) const WAIT_LONGER: &str = "; wait longer with --ready";
/// The longest time for the dials that are still under way when enough were refused.
const DIAL_LIMIT: Duration = Duration::from_millis(250);

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (few, why, end) = match self {
            Self::Refused(why) => return f.write_str(why),
            Self::Quarantine { wait, able, others } => {
                let wait = rounded(*wait);
                let end = format!("masters that may have forgotten locks have no vote for {wait}");
                (format!("only {}", able.too_few("can vote")), others, end)
            }
            Self::TooFew {
                connected,
                is_limit,
                why,
            } => {
                let only = if *is_limit { "at most" } else { "only" };
                let few = format!("{only} {}", connected.too_few("can vote"));
                (few, why, ADVICE.to_owned())
            }
        };
        write!(f, "{few}; ")?;
        if let Some(why) = why {
            write!(f, "{why}; ")?;
        }
        f.write_str(&end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_may_be_a_master_soon_is_no_mistake_in_a_wait() {
        use DialRefusal::*;
        for (refusal, is_mistake) in [
            (Certificate, true),
            (Database, true),
            (Login, true),
            (OtherServer, false),
            (RestartQuestion, true),
            (Service, false),
            (Tls, false),
        ] {
            assert!(Stage::Begins.is_mistake(refusal), "{refusal:?}");
            assert_eq!(Stage::Waits.is_mistake(refusal), is_mistake, "{refusal:?}");
        }
    }
}
