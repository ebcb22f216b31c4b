//! The picture of a round: an acquisition on five masters at different distances.

mod drawing;

use std::time::{Duration, Instant};

use quorlock::{Coordinator, Guard, Renewal, Vote};
use testkit::server::{Server, masters};

use crate::Result;
use crate::runs::typical;
use crate::tap::{Tap, Way};
use crate::times::{millis, ms};

const TTL: Duration = Duration::from_secs(2);
/// The delays in each direction, in microseconds. The last master hangs.
const DELAYS: [u64; 5] = [500, 1_500, 2_500, 4_500, 500];
const HANGING: usize = 4;
/// The most milliseconds that the other masters may take. The last one needs 9.
const MOST: f64 = 14.0;

/// The recorded round. All times are in milliseconds after the start.
#[derive(Debug)]
struct Round {
    decided: f64,
    valid_until: f64,
    masters: Vec<Seat>,
}

/// One master's part in the round.
#[derive(Debug)]
struct Seat {
    asked: f64,
    /// The time of the vote, or of the timeout.
    voted: f64,
    has_granted: bool,
}

pub async fn picture() -> Result<String> {
    let run = typical(record, Round::is_typical).await?;
    Ok(run.draw())
}

async fn record() -> Result<Round> {
    let servers = masters(DELAYS.len());
    let tap = |(server, delay): (&Server, _)| Tap::new(server.port(), Duration::from_micros(delay));
    let taps: Vec<_> = servers.iter().zip(DELAYS).map(tap).collect();
    let locks = Coordinator::builder()
        .masters(taps.iter().map(Tap::url))
        .ttl(TTL)
        .renewal(Renewal::Off)
        .build()?;
    let mut best = None::<(Round, Guard, Instant)>;
    // In some of these rounds, the machine may be busy. The first one is slow in any case.
    for number in 0..6 {
        locks.all_ready(Duration::from_secs(5)).await?;
        let lock = locks.mutex(format!("orders/{number}"));
        servers[HANGING].pause();
        let start = Instant::now();
        let guard = lock.try_acquire().await?;
        let round = Round {
            decided: ms(start, Instant::now()),
            valid_until: ms(start, guard.valid_until()),
            masters: seats(&guard, &taps, start).await?,
        };
        servers[HANGING].resume();
        let is_better = |best: &(Round, Guard, Instant)| round.delay() < best.0.delay();
        if best.as_ref().is_none_or(is_better) {
            best = Some((round, guard, start));
        }
    }
    let (round, guard, start) = best.ok_or("no round")?;
    round.check(&servers, guard, start).await?;
    Ok(round)
}

async fn seats(guard: &Guard, taps: &[Tap], start: Instant) -> Result<Vec<Seat>> {
    let votes = guard.settled().await;
    let seats = votes.iter().zip(taps).map(|(row, tap)| {
        let parts = tap.since(start);
        let mut asked = parts.iter().filter(|part| part.way == Way::ToMaster);
        let asked = asked.next().ok_or("a master was not asked")?;
        Ok(Seat {
            asked: ms(start, asked.arrived),
            voted: row.latency().map(millis).ok_or("a master has no vote")?,
            has_granted: row.vote() == Some(&Vote::Grant),
        })
    });
    seats.collect()
}

impl Round {
    /// Returns whether the masters answered in the order of their distances and in time, and the
    /// last one did not answer.
    fn is_typical(&self) -> bool {
        let (answers, hanging) = self.masters.split_at(HANGING);
        answers.is_sorted_by(|a, b| a.voted < b.voted)
            && answers
                .iter()
                .all(|seat| seat.has_granted && seat.voted < MOST)
            && !hanging[0].has_granted
    }

    /// Returns a measure for how long the messages took.
    fn delay(&self) -> f64 {
        self.masters
            .iter()
            .map(|seat| seat.asked + seat.voted)
            .sum()
    }

    /// Checks that the keys live for the TTL from the time that the picture shows, and that the
    /// guard ends when the picture says so.
    async fn check(&self, servers: &[Server], guard: Guard, start: Instant) -> Result<()> {
        for (server, seat) in servers.iter().zip(&self.masters).take(HANGING) {
            let left: f64 = server.command(&["PTTL", guard.name()]).parse()?;
            let end = ms(start, Instant::now()) + left;
            near("a key ends", end, seat.asked + millis(TTL))?;
        }
        guard.lost().await;
        near(
            "the guard ends",
            ms(start, Instant::now()),
            self.valid_until,
        )
    }
}

/// Fails if a time is not the expected one. Some tolerance allows for a busy machine.
fn near(what: &str, time: f64, expected: f64) -> Result<()> {
    match (time - expected).abs() {
        0.0..100.0 => Ok(()),
        _ => Err(format!("{what} after {time} ms and not after {expected} ms").into()),
    }
}
