//! The picture of a restart: a master that lost a lock has no vote until it can do no harm.

mod drawing;

use std::thread;
use std::time::{Duration, Instant};

use quorlock::{Coordinator, Guard, HealthEvents, MasterHealth, MasterState};
use testkit::server::{Server, masters, try_command_on};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until, timeout_at};

use crate::Result;
use crate::runs::typical;
use crate::times::ms;

const NAME: &str = "orders/42";
const TTL: Duration = Duration::from_millis(1_500);
const MAX_TTL: Duration = Duration::from_secs(4);
/// The times of the run, in milliseconds after the lock was acquired.
const KILLED: u64 = 1_800;
const RESTARTED: u64 = 2_800;
const END: u64 = 8_500;
/// The master that restarts.
const VICTIM: usize = 1;
/// The time between two looks at the lock.
const LOOK: Duration = Duration::from_millis(10);
const LIMIT: Duration = Duration::from_secs(20);

/// The recorded run. All times are in milliseconds after the lock was acquired.
#[derive(Debug)]
struct Restart {
    /// The states of each master, with the times at which they began.
    states: Vec<Vec<(f64, State)>>,
    /// The times from and to which each master had the key.
    keys: Vec<Vec<(f64, f64)>>,
    /// The times of the renewals, with the number of grants.
    renewals: Vec<(f64, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Down,
    Quarantined,
    Votes,
}

pub async fn picture() -> Result<String> {
    let run = typical(record, Restart::is_typical).await?;
    Ok(run.draw())
}

async fn record() -> Result<Restart> {
    let mut servers = masters(3);
    let locks = Coordinator::builder()
        .masters(servers.iter().map(Server::url))
        .ttl(TTL)
        .max_ttl(MAX_TTL)
        .build()?;
    locks.all_ready(LIMIT).await?;
    let guard = locks.mutex(NAME).try_acquire().await?;

    let start = Instant::now();
    let ports: Vec<_> = servers.iter().map(Server::port).collect();
    let states = tokio::spawn(states(locks.health_events(), ports.clone(), start));
    let renewals = tokio::spawn(renewals(guard, start));
    let keys = spawn_blocking(move || keys(&ports, start));
    sleep_until((start + Duration::from_millis(KILLED)).into()).await;
    servers[VICTIM].kill();
    sleep_until((start + Duration::from_millis(RESTARTED)).into()).await;
    servers[VICTIM].restart();
    Ok(Restart {
        states: states.await?,
        keys: keys.await?,
        renewals: renewals.await?,
    })
}

fn end_after(start: Instant) -> Instant {
    start + Duration::from_millis(END)
}

/// Notes the changes of the masters' states.
async fn states(
    mut events: HealthEvents,
    ports: Vec<u16>,
    start: Instant,
) -> Vec<Vec<(f64, State)>> {
    let mut states = vec![Vec::new(); ports.len()];
    while let Ok(Some(health)) = timeout_at(end_after(start).into(), events.next()).await {
        let is_it = |port: &u16| health.master.ends_with(&format!(":{port}"));
        let Some(master) = ports.iter().position(is_it) else {
            continue;
        };
        let now = ms(start, Instant::now());
        let state = State::of(&health);
        let last: Option<&(f64, State)> = states[master].last();
        if last.is_none_or(|(_, last)| *last != state) {
            states[master].push((now, state));
        }
    }
    states
}

/// Looks for the key on each master, again and again.
fn keys(ports: &[u16], start: Instant) -> Vec<Vec<(f64, f64)>> {
    let mut spans = vec![Vec::<(f64, f64)>::new(); ports.len()];
    let mut had = vec![false; ports.len()];
    while Instant::now() < end_after(start) {
        for (master, port) in ports.iter().enumerate() {
            let reply = try_command_on(*port, &["EXISTS", NAME], LIMIT);
            let now = ms(start, Instant::now());
            let has = reply.is_ok_and(|reply| reply == "1");
            match spans[master].last_mut() {
                Some(span) if has && had[master] => span.1 = now,
                _ if has => spans[master].push((now, now)),
                _ => {}
            }
            had[master] = has;
        }
        thread::sleep(LOOK);
    }
    spans
}

/// Notes the renewals of the lock.
async fn renewals(guard: Guard, start: Instant) -> Vec<(f64, usize)> {
    let mut renewals = Vec::new();
    let mut valid_until = guard.valid_until();
    while Instant::now() < end_after(start) && guard.is_valid() {
        sleep(LOOK).await;
        if guard.valid_until() != valid_until {
            valid_until = guard.valid_until();
            let now = ms(start, Instant::now());
            renewals.push((now, guard.settled().await.granted_count()));
        }
    }
    renewals
}

impl State {
    fn of(health: &MasterHealth) -> Self {
        match health.state {
            MasterState::Connected if health.can_vote() => Self::Votes,
            MasterState::Connected => Self::Quarantined,
            _ => Self::Down,
        }
    }
}

impl Restart {
    /// Returns whether only the master that restarted failed, and the lock was held all the time.
    fn is_typical(&self) -> bool {
        let states = self
            .states
            .iter()
            .map(|states| states.iter().map(|(_, state)| *state));
        let states: Vec<Vec<_>> = states.map(Iterator::collect).collect();
        let grants = self.renewals.chunk_by(|(_, a), (_, b)| a == b);
        let grants: Vec<_> = grants.map(|same| same[0].1).collect();
        let restart = [State::Votes, State::Down, State::Quarantined, State::Votes];
        states == [&[State::Votes][..], &restart, &[State::Votes]]
            && self.keys.iter().map(Vec::len).eq([1, 2, 1])
            && grants == [3, 2, 3]
    }
}
