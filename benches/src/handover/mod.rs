//! Processes that hand one lock around, and the times of the hand-overs.

mod bare;
mod clients;

use std::env;
use std::io::{BufRead, Write};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::child::Child;
use crate::load::Result;
use crate::servers::{self, Server, Stats};

/// The name of the lock.
pub const NAME: &str = "handover";

/// The environment variable that is set in the processes that a bench starts.
const ROLE: &str = "QUORLOCK_BENCH_HANDOVER";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Entrant {
    /// The limit: raw sockets. PUBLISH sends the message, and SET takes the lock, each on a
    /// majority.
    Bare,
    Quorlock,
    Rslock,
    /// `rslock` in the first process, and this crate in the others.
    Mixed,
}

impl Entrant {
    const ALL: [Self; 4] = [Self::Bare, Self::Quorlock, Self::Rslock, Self::Mixed];
}

/// A run with a number of processes, and a number of tasks in each process. Each task waits for the
/// lock, holds it, releases it and pauses for a moment, so that another process gets it.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub who: Entrant,
    pub processes: usize,
    pub tasks: usize,
    pub hold: Duration,
    pub rest: Duration,
    pub warm_up: Duration,
    pub measured: Duration,
}

/// The work of one process.
#[derive(Debug)]
struct Role {
    who: Entrant,
    index: usize,
    tasks: usize,
    hold: Duration,
    rest: Duration,
    urls: Vec<String>,
}

/// A period in which a task holds the lock, in nanoseconds of the system clock. Only this clock has
/// an epoch that processes share. If the clock steps, a sample or two are wrong, but not the
/// median.
#[derive(Clone, Copy, Debug)]
struct HoldPeriod {
    acquired: u64,
    released: u64,
}

/// The result of a run.
#[derive(Debug)]
pub struct HandoverTimes {
    /// The times of hand-overs between two processes in microseconds, from the call of `release` to
    /// the return of `acquire`, sorted.
    pub micros: Vec<f64>,
    /// The times of all hand-overs, sorted.
    pub all_micros: Vec<f64>,
    /// The times of the hand-overs from the first process to another one, sorted.
    pub from_first: Vec<f64>,
    /// The share of the hand-overs that the process with the fewest got.
    pub least_share: f64,
    /// The most consecutive hand-overs within one process.
    pub longest_within: usize,
    /// The number of commands that clients sent to all masters together in the measured time.
    pub commands: u64,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Returns false if no bench started this process. Otherwise plays the role of the process, and
/// returns true.
pub fn play() -> Result<bool> {
    let Ok(role) = env::var(ROLE) else {
        return Ok(false);
    };
    let role = Role::parse(&role).ok_or("malformed role")?;
    let periods = match role.who {
        Entrant::Bare => bare::play(&role)?,
        Entrant::Quorlock => clients::quorlock(&role)?,
        Entrant::Mixed if role.index > 0 => clients::quorlock(&role)?,
        Entrant::Rslock | Entrant::Mixed => clients::rslock(&role)?,
    };
    let mut out = String::new();
    for HoldPeriod { acquired, released } in periods {
        out.push_str(&format!("{acquired} {released}\n"));
    }
    std::io::stdout().lock().write_all(out.as_bytes())?;
    Ok(true)
}

/// Reports that this process is ready, and waits until all processes are ready.
fn ready() -> Result<()> {
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

impl Role {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let who = words.next()?;
        let who = Entrant::ALL
            .into_iter()
            .find(|one| format!("{one:?}") == who)?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let (index, tasks) = (number()? as usize, number()? as usize);
        let hold = Duration::from_micros(number()?);
        let rest = Duration::from_micros(number()?);
        Some(Self {
            who,
            index,
            tasks,
            hold,
            rest,
            urls: words.map(str::to_owned).collect(),
        })
    }
}

/// Starts the processes of `plan` and measures them.
pub fn run(plan: Plan, servers: &[Server]) -> Result<HandoverTimes> {
    let mut hands = (0..plan.processes)
        .map(|index| start(plan, index, servers))
        .collect::<Result<Vec<_>>>()?;
    for hand in &mut hands {
        if hand.lines.next().transpose()?.as_deref() != Some("ready") {
            return Err(format!("{:?}: a process did not get ready", plan.who).into());
        }
    }
    for hand in &mut hands {
        hand.send_line()?;
    }
    thread::sleep(plan.warm_up);
    let (from, before) = (now(), commands(servers)?);
    thread::sleep(plan.measured);
    let (until, after) = (now(), commands(servers)?);
    for hand in &mut hands {
        hand.send_line()?;
    }
    let mut periods = Vec::new();
    for (process, hand) in hands.iter_mut().enumerate() {
        for line in &mut hand.lines {
            let line = line?;
            let (acquired, released) = line.split_once(' ').ok_or("malformed period")?;
            let period = HoldPeriod {
                acquired: acquired.parse()?,
                released: released.parse()?,
            };
            periods.push((period, process));
        }
        if !hand.process.wait()?.success() {
            return Err(format!("{:?}: a process failed", plan.who).into());
        }
    }
    periods.sort_by_key(|(period, _)| period.acquired);
    let mut micros = Vec::new();
    let mut all_micros = Vec::new();
    let mut from_first = Vec::new();
    let mut shares = vec![0_usize; plan.processes];
    let (mut within, mut longest_within) = (0, 0);
    for pair in periods.windows(2) {
        let [(from_whom, giver), (to_whom, taker)] = [pair[0], pair[1]];
        if to_whom.acquired < from || to_whom.acquired > until {
            continue;
        }
        let took = to_whom.acquired as i64 - from_whom.released as i64;
        if took < 0 {
            return Err(format!("{:?}: two processes held the lock at once", plan.who).into());
        }
        let took = took as f64 / 1000.0;
        all_micros.push(took);
        shares[taker] += 1;
        if giver == taker {
            within += 1;
            longest_within = longest_within.max(within);
        } else {
            within = 0;
            micros.push(took);
            if giver == 0 {
                from_first.push(took);
            }
        }
    }
    micros.sort_by(f64::total_cmp);
    all_micros.sort_by(f64::total_cmp);
    from_first.sort_by(f64::total_cmp);
    let least = shares.into_iter().min().unwrap_or_default();
    Ok(HandoverTimes {
        least_share: least as f64 / all_micros.len().max(1) as f64,
        micros,
        all_micros,
        from_first,
        longest_within,
        commands: after - before,
    })
}

/// Returns the number of commands that clients have sent to all masters so far. The commands that
/// the release script calls do not count, and the commands of this function do not count.
fn commands(servers: &[Server]) -> Result<u64> {
    const OURS: [&str; 9] = [
        "set",
        "delex",
        "delifeq",
        "eval",
        "evalsha",
        "client", // Redis 6 does not tell its subcommands apart
        "client|caching",
        "client|tracking",
        "ping",
    ];
    Ok(Stats::of(servers, &OURS)?.calls)
}

/// Starts a process.
fn start(plan: Plan, index: usize, servers: &[Server]) -> Result<Child> {
    let role = format!(
        "{:?} {index} {} {} {} {}",
        plan.who,
        plan.tasks,
        plan.hold.as_micros(),
        plan.rest.as_micros(),
        servers::urls(servers).join(" ")
    );
    Child::start(ROLE, role)
}
