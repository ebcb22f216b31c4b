//! News of outages while a lock is held.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::pending,
    time::{Duration, Instant},
};

use quorlock::{
    LockState,
    health::{MasterHealth, MasterState},
};
use tokio::time::sleep;

use crate::{
    ask::Held,
    loss::{blame, not_renewed},
    outage::obstacle,
    output::complain,
    times::rounded,
    wanted::name_of,
};

/// Says on stderr that masters are down and that the lock is in doubt, once for each outage, and
/// that the outage is over. An outage that is shorter than the time between two looks is no news.
pub(crate) async fn tell(held: &Held) -> Infallible {
    if held.is_quiet {
        return pending().await;
    }
    let (mut doubt, mut masters) = (Trouble::default(), BTreeMap::<_, Trouble>::new());
    loop {
        sleep(LOOK_EVERY).await;
        let guard = &held.guard;
        let in_doubt = match guard.state() {
            LockState::Held => None,
            LockState::InDoubt => {
                let (since, votes) = (not_renewed(guard), blame(&guard.votes()));
                Some(format!("is in doubt{since}{votes}"))
            }
            LockState::Lost(_) => return pending().await, // the loss is told by others
        };
        doubt.look(&name_of(guard), in_doubt, "is renewed again");
        for health in held.locks.health() {
            let trouble = masters.entry(health.master.clone()).or_default();
            let name = format!("master {}", health.master);
            trouble.look(&name, obstruction(&health), "votes again");
        }
    }
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
struct Trouble {
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
