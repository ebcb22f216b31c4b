//! The picture of a restart: a master that lost a lock has no vote until it can do no harm.

use std::thread;
use std::time::{Duration, Instant};

use quorlock::{Coordinator, Guard, HealthEvents, MasterHealth, MasterState};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until, timeout_at};

use crate::Result;
use crate::scale::{Piece, Scale};
use crate::server::{Server, masters, try_command_on};
use crate::svg::Svg;
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
    for _ in 0..3 {
        let run = record().await?;
        if run.is_typical() {
            return Ok(run.draw());
        }
    }
    Err("in each of three runs, other masters failed as well".into())
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

    fn look(self) -> (&'static str, &'static str) {
        match self {
            Self::Down => ("red", "down"),
            Self::Quarantined => ("orange", "quarantine: no vote for max_ttl and the drift"),
            Self::Votes => ("green", "votes"),
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

    fn draw(&self) -> String {
        let mut svg = Svg::new(
            BOTTOM + 84.0,
            "A restart: a master that may have forgotten locks has no vote for a while",
            "A real run with three masters, a TTL of 1.5 s and a max_ttl of 4 s. Master 2 is killed, \
             and comes back empty",
        );
        let scale = Scale::new([Piece {
            from: 0.0,
            to: END as f64,
            left: 140.0,
            right: 836.0,
        }]);
        self.draw_marks(&mut svg, &scale);
        self.draw_lock(&mut svg, &scale);
        for master in 0..self.states.len() {
            self.draw_master(&mut svg, &scale, master);
        }
        self.draw_notes(&mut svg, &scale);
        self.draw_axis(&mut svg, &scale);
        legend(&mut svg);
        svg.finish()
    }

    /// Draws the vertical lines at which the state of the restarted master changes.
    fn draw_marks(&self, svg: &mut Svg, scale: &Scale) {
        let names = [
            ("end", "killed"),
            ("", "comes back empty"),
            ("mid", "votes again"),
        ];
        for ((at, _), (side, name)) in self.states[VICTIM].iter().skip(1).zip(names) {
            let x = scale.x(*at);
            svg.line("s-ink thin dashed", (x, LOCK - 18.0), (x, BOTTOM));
            svg.text(&format!("f-ink {side}"), (x, LOCK - 26.0), name);
        }
    }

    fn draw_lock(&self, svg: &mut Svg, scale: &Scale) {
        svg.text("f-ink bold", (24.0, LOCK + 4.5), "your lock");
        svg.text("f-soft", (24.0, LOCK + 34.5), "its renewals");
        let (left, right) = (scale.x(0.0), scale.x(END as f64));
        svg.bar("f-green", (left, right), LOCK, 26.0);
        let middle = (left + right) / 2.0;
        svg.text(
            "f-card bold mid",
            (middle, LOCK + 4.5),
            "held and valid all the time",
        );
        for (at, grants) in &self.renewals {
            let (x, colour) = (scale.x(*at), if *grants == 3 { "green" } else { "soft" });
            if x < right - 9.0 {
                svg.badge(colour, (x, LOCK + 30.0), &grants.to_string());
            }
        }
        for same in self.renewals.chunk_by(|(_, a), (_, b)| a == b) {
            let (from, to, grants) = (same[0].0, same[same.len() - 1].0, same[0].1);
            svg.figure(&format!(
                "Renewals from {from:.0} ms to {to:.0} ms: {grants} of 3 masters."
            ));
        }
    }

    fn draw_master(&self, svg: &mut Svg, scale: &Scale, master: usize) {
        let y = FIRST + ROW * master as f64;
        svg.text(
            "f-ink bold",
            (24.0, y + 4.5),
            &format!("master {}", master + 1),
        );
        let states = &self.states[master];
        for (at, (from, state)) in states.iter().enumerate() {
            let to = states.get(at + 1).map_or(END as f64, |(to, _)| *to);
            let (left, right) = (scale.x(from.max(0.0)), scale.x(to));
            let (colour, text) = state.look();
            svg.bar(&format!("f-{colour} tint"), (left, right), y, 24.0);
            svg.text("f-ink mid", ((left + right) / 2.0, y + 4.5), text);
            svg.figure(&format!(
                "Master {}, from {from:.0} ms to {to:.0} ms: {text}.",
                master + 1
            ));
        }
        for (from, to) in &self.keys[master] {
            svg.bar("f-blue", (scale.x(*from), scale.x(*to)), y + 18.0, 8.0);
        }
    }

    /// Says what happens to the key of the restarted master.
    fn draw_notes(&self, svg: &mut Svg, scale: &Scale) {
        let y = FIRST + ROW * VICTIM as f64 + 27.0;
        let [(_, lost), (back, _)] = self.keys[VICTIM][..] else {
            return;
        };
        svg.text("f-ink s-card halo", (scale.x(lost) + 10.0, y), "no key");
        let note = "the next renewal puts the key back";
        svg.text("f-ink s-card halo end", (scale.x(back) - 44.0, y), note);
    }

    fn draw_axis(&self, svg: &mut Svg, scale: &Scale) {
        for second in 0..=END / 1_000 {
            let x = scale.x(second as f64 * 1_000.0);
            svg.text("f-soft mid", (x, BOTTOM + 20.0), &format!("{second} s"));
        }
    }
}

fn legend(svg: &mut Svg) {
    let y = BOTTOM + 58.0;
    svg.bar("f-blue", (24.0, 48.0), y - 4.6, 8.0);
    svg.text("f-ink", (56.0, y), "the key is on the master");
    svg.badge("green", (252.0, y - 4.6), "n");
    svg.text(
        "f-ink",
        (268.0, y),
        "a renewal, and the number of masters that confirmed it",
    );
}

/// The heights of the rows of the lock and of the first master.
const LOCK: f64 = 124.0;
const FIRST: f64 = 196.0;
const ROW: f64 = 60.0;
const BOTTOM: f64 = FIRST + 2.0 * ROW + 30.0;
