//! Watches when the keys of held locks are renewed. A separate process asks one master for the TTL
//! of every key again and again. The TTL that is left shows when the key was last set or extended.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::{Child, over};
use crate::load::Result;

/// The environment variable that a bench sets for the process of the sweep.
const ROLE: &str = "QUORLOCK_BENCH_SWEEP";

/// The number of keys per request.
const BATCH: usize = 500;

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweepResult {
    /// The number of renewals.
    pub renewals: u64,
    /// The number of late renewals. A renewal is due a third of the TTL after the last one. It is
    /// late if it comes more than a tenth of the TTL after that. A key whose next renewal is
    /// already late at the end of the sweep counts, too.
    pub late: u64,
    /// The number of times that a key was missing.
    pub missing: u64,
    /// The longest time between two renewals of a key.
    pub worst: Duration,
}

/// Returns the key of the n-th lock.
pub fn key(n: usize) -> String {
    format!("scale-{n}")
}

/// A running sweep.
pub struct Sweep(Child);

impl Sweep {
    /// Starts a sweep of the first `keys` keys on the master at `address`. These keys have the TTL
    /// `ttl`.
    pub fn start(address: &str, keys: usize, ttl: Duration) -> Result<Self> {
        let role = format!("{address} {keys} {}", ttl.as_millis());
        Child::start(ROLE, role).map(Self)
    }

    pub fn end(mut self) -> Result<SweepResult> {
        self.0.send_line()?;
        let out = self.0.lines.next().ok_or("no sweep")??;
        let mut numbers = out.split_whitespace().map(str::parse::<u64>);
        let mut number = || Ok::<_, crate::load::Error>(numbers.next().ok_or("no sweep")??);
        Ok(SweepResult {
            renewals: number()?,
            late: number()?,
            missing: number()?,
            worst: Duration::from_millis(number()?),
        })
    }
}

/// Returns false if no bench started this process for a sweep. Otherwise sweeps, and returns true.
pub fn play() -> Result<bool> {
    let Ok(role) = env::var(ROLE) else {
        return Ok(false);
    };
    let mut words = role.split(' ');
    let mut word = || words.next().ok_or("malformed role");
    let (address, keys, ttl) = (word()?, word()?.parse()?, word()?.parse()?);
    let SweepResult {
        renewals,
        late,
        missing,
        worst,
    } = sweep(address, keys, ttl, &over())?;
    println!("{renewals} {late} {missing} {}", worst.as_millis());
    Ok(true)
}

fn sweep(address: &str, keys: usize, ttl: u64, over: &AtomicBool) -> Result<SweepResult> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let epoch = Instant::now();
    // The time at which each key was last set or extended, in milliseconds since `epoch`.
    let mut set_at: Vec<Option<i64>> = vec![None; keys];
    let too_long = (ttl / 3 + ttl / 10) as i64;
    let mut swept = SweepResult::default();
    let mut worst = 0;
    let mut line = String::new();
    while !over.load(Ordering::Acquire) {
        let began = Instant::now();
        for first in (0..keys).step_by(BATCH) {
            let batch = first..keys.min(first + BATCH);
            let mut request = String::new();
            for n in batch.clone() {
                request.push_str(&format!("PTTL {}\r\n", key(n)));
            }
            stream.write_all(request.as_bytes())?;
            for n in batch {
                line.clear();
                answers.read_line(&mut line)?;
                let left: i64 = line.trim_start_matches(':').trim_end().parse()?;
                if left < 0 {
                    swept.missing += 1;
                    continue;
                }
                let at = epoch.elapsed().as_millis() as i64 - (ttl as i64 - left);
                let before = *set_at[n].get_or_insert(at);
                // A smaller difference is no renewal. It comes from the time that the answer took.
                if at - before > ttl as i64 / 30 {
                    swept.renewals += 1;
                    swept.late += u64::from(at - before > too_long);
                    worst = worst.max(at - before);
                    set_at[n] = Some(at);
                }
            }
        }
        let pause = Duration::from_millis(ttl / 30);
        thread::sleep(pause.saturating_sub(began.elapsed()).max(pause / 4));
    }
    let now = epoch.elapsed().as_millis() as i64;
    let ages = set_at.iter().flatten().map(|at| now - at);
    swept.late += ages.clone().filter(|age| *age > too_long).count() as u64;
    worst = worst.max(ages.max().unwrap_or_default());
    swept.worst = Duration::from_millis(worst as u64);
    Ok(swept)
}
