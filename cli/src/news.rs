//! News of outages while a lock is held.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use quorlock::{
    Coordinator, LockState,
    health::{MasterHealth, MasterState},
};
use tokio::time::sleep;

use crate::{
    ask::Held,
    client_name::in_words_for_people,
    loss::{blame, not_renewed},
    outage::obstacle,
    output::complain,
    times::rounded,
    wanted::name_of,
    words::ADVICE,
};

/// First says on stderr which masters can never vote, and which programs list others, also with
/// `--quiet`: such a mistake is no outage, and does not end. Then says that masters are down and that
/// the lock is in doubt, once for each outage, and that the outage is over. An outage that is shorter
/// than the time between two looks is no news.
pub(crate) async fn tell(held: &Held) -> Infallible {
    let mut masters = tell_misfits(&held.locks).await;
    let (mut doubt, mut apart) = (Trouble::default(), None);
    loop {
        apart = tell_apart(&held.locks, apart);
        sleep(LOOK_EVERY).await;
        if held.is_quiet {
            continue;
        }
        for health in held.locks.health() {
            let trouble = masters.entry(health.master.clone()).or_default();
            let name = format!("master {}", health.master);
            trouble.look(&name, obstruction(&health), "votes again");
        }
        let guard = &held.guard;
        let in_doubt = match guard.state() {
            LockState::Held => None,
            LockState::InDoubt => {
                // What is wrong with a master is not told twice.
                let is_told = masters.values().any(|trouble| trouble.is_told);
                let why = if is_told {
                    String::new()
                } else {
                    blame(&guard.votes())
                };
                Some(format!("is in doubt{}{why}", not_renewed(guard)))
            }
            LockState::Lost(_) => return pending().await, // the loss is told by others
        };
        doubt.look(&name_of(guard), in_doubt, "is renewed again");
    }
}

/// Says which programs list other masters, unless they were `told`. Returns which were told.
pub(crate) fn tell_apart(locks: &Coordinator, told: Option<String>) -> Option<String> {
    let apart = locks.programs_apart();
    if let Some(clients) = apart.as_deref().filter(|_| apart != told) {
        let clients = in_words_for_people(clients);
        complain(format_args!(
            "{clients} used other lists of masters lately: such programs and this one may hold one \
             lock at once; {ADVICE}"
        ));
    }
    apart
}

/// Says which masters can never vote as they are listed. Returns the troubles that were told.
pub(crate) async fn tell_misfits(locks: &Coordinator) -> BTreeMap<Arc<str>, Trouble> {
    let start = Instant::now();
    let is_dialled = |health: &MasterHealth| health.state != MasterState::Connecting;
    // The votes of the others may have come first.
    while !locks.health().iter().all(is_dialled) && start.elapsed() < DIAL_LIMIT {
        sleep(LOOK_AT_DIALS_EVERY).await;
    }
    let health = locks.health().into_iter();
    let misfits = health.filter_map(|health| {
        let why = obstacle(&health).filter(|why| health.needs_repair() || is_misfit(why))?;
        let master = health.master;
        complain(format_args!(
            "master {master} can never vote as it is listed: {why}"
        ));
        let (since, is_told) = (Some(Instant::now()), true);
        Some((master, Trouble { since, is_told }))
    });
    misfits.collect()
}

/// Returns whether a dial has failed because of the list, if the library would dial again.
fn is_misfit(why: &str) -> bool {
    ["it is a replica, not a master", "it is the same server as "]
        .iter()
        .any(|text| why.contains(text))
}

/// Says what keeps a master from voting, if something does.
fn obstruction(health: &MasterHealth) -> Option<String> {
    let verb = match health.state {
        MasterState::Down(_) if !health.needs_repair() => "is down",
        _ => "takes no locks",
    };
    obstacle(health)
        .map(|why| format!("{verb}: {why}"))
        .or_else(|| {
            let left = rounded(health.quarantine?);
            let why = health.quarantine_reason.unwrap_or("it has restarted");
            Some(format!(
                "may have forgotten locks, no vote for {left}: {why}"
            ))
        })
}

/// Something that is wrong at times.
#[derive(Default)]
pub(crate) struct Trouble {
    since: Option<Instant>,
    is_told: bool,
}

impl Trouble {
    /// Notes what is wrong with `subject` now, and tells it if it was wrong at the last look, too.
    fn look(&mut self, subject: &str, wrong: Option<String>, end: &str) {
        match (wrong, self.since) {
            (Some(_), None) => self.since = Some(Instant::now()),
            (Some(wrong), Some(_)) if !self.is_told => {
                self.is_told = true;
                complain(format_args!("{subject} {wrong}"));
            }
            (None, Some(since)) => {
                if self.is_told {
                    let time = rounded(since.elapsed());
                    complain(format_args!("{subject} {end} after {time}"));
                }
                *self = Self::default();
            }
            _ => {}
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_AT_DIALS_EVERY: Duration = Duration::from_millis(5);
/// The longest wait for dials that are under way when the lock is acquired.
const DIAL_LIMIT: Duration = Duration::from_secs(1);
