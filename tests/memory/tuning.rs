//! The table in the section "Tuning" of `docs/settings.md`.

use std::{iter, mem, time::Duration};

use quorlock::{Coordinator, Fault, LockState};
use tokio::{
    join,
    time::{Instant, advance, sleep},
};

use crate::world::*;

/// The number of moments between two renewals at which a fault begins.
const PHASES: u32 = 8;

/// The shortest and the longest time, in seconds.
type Range = [f64; 2];

/// What differs by chance: a master that was down is dialled again after a random pause.
const REDIALS: f64 = 0.6;

#[tokio::test(start_paused = true)]
async fn the_table_of_ttls_has_the_times_that_are_measured() {
    let rows = documented();
    assert_eq!(rows.len(), 5);
    for (ttl, documented) in rows {
        let exact = 0.1 + ttl.as_secs_f64() / 25.0;
        let columns = [
            ("takeover", exact),
            ("outage", exact + REDIALS),
            ("pause", exact),
        ];
        let times = iter::zip(measured(ttl).await, documented);
        for ((column, tolerance), (measured, documented)) in columns.into_iter().zip(times) {
            let mut ends = iter::zip(measured, documented);
            assert!(
                ends.all(|(measured, documented)| (measured - documented).abs() <= tolerance),
                "{ttl:?}, {column}: {measured:.2?} s, and not {documented:?}"
            );
        }
    }
}

/// Returns each TTL of the table, with its takeover, outage and pause.
fn documented() -> Vec<(Duration, [Range; 3])> {
    let page = include_str!("../../docs/settings.md");
    let (_, table) = page.split_once("| TTL |").unwrap();
    let rows = table.lines().skip(2);
    let rows = rows.map_while(|row| row.strip_prefix("| "));
    let second = |text: &str| text.trim().trim_end_matches(" s").parse::<f64>().unwrap();
    rows.map(|row| {
        let cells: Vec<_> = row.split(" | ").collect();
        let range = |cell: usize| {
            let (least, most) = cells[cell].split_once(" to ").unwrap();
            [second(least), second(most)]
        };
        let ttl = Duration::from_secs_f64(second(cells[0]));
        (ttl, [1, 2, 3].map(range))
    })
    .collect()
}

async fn measured(ttl: Duration) -> [Range; 3] {
    let mut times = [const { Vec::new() }; 3];
    for phase in 0..PHASES {
        // After three renewals.
        let moment = valid(ttl) / 3 * (3 * PHASES + phase) / PHASES + millis(3);
        times[0].push(takeover(ttl, moment).await);
        times[1].push(longest(ttl, moment, Event::Outage).await);
        times[2].push(longest(ttl, moment, Event::Pause).await);
    }
    times.map(|times| {
        [times.iter().min(), times.iter().max()].map(|time| time.unwrap().as_secs_f64())
    })
}

/// Returns for how long the lock of a holder that is killed keeps others out.
async fn takeover(ttl: Duration, moment: Duration) -> Duration {
    let world = World::new(3).await;
    let guard = world.locks.mutex(NAME).ttl(ttl).acquire().await.unwrap();
    let other = Coordinator::new(&world.masters).unwrap();
    let waiter = async {
        drop(other.mutex(NAME).acquire().await.unwrap());
        Instant::now()
    };
    let death = async {
        sleep(moment).await;
        guard.stop_renewing();
        mem::forget(guard); // a process that is killed releases nothing
        Instant::now()
    };
    let (taken, died) = join!(waiter, death);
    taken - died
}

#[derive(Clone, Copy)]
enum Event {
    Outage,
    Pause,
}

/// Returns the longest time for which the lock survives the event, in fiftieths of the TTL.
async fn longest(ttl: Duration, moment: Duration, event: Event) -> Duration {
    let (mut survived, mut lost) = (0, 50);
    while survived + 1 < lost {
        let between = u32::midpoint(survived, lost);
        if survives(ttl, moment, event, ttl * between / 50).await {
            survived = between;
        } else {
            lost = between;
        }
    }
    ttl * survived / 50
}

async fn survives(ttl: Duration, moment: Duration, event: Event, time: Duration) -> bool {
    let world = World::new(3).await;
    let guard = world.locks.mutex(NAME).ttl(ttl).acquire().await.unwrap();
    sleep(moment).await;
    match event {
        Event::Outage => {
            world.inject([Fault::Down, Fault::Down]);
            sleep(time).await;
            world.clear_faults();
        }
        Event::Pause => advance(time).await,
    }
    sleep(ttl).await;
    guard.state() == LockState::Held
}
