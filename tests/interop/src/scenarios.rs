//! The scenarios. Each is written once, for any two programs.

use std::fs;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use testkit::server::Server;

use crate::process::{Process, Program, TTL};
use crate::{Failure, Outcome, in_target};

/// Checks that `other` does not get the lock while `holder` has it, and gets it after the release.
pub fn exclusion(holder: &mut Process, other: &mut Process, name: &str) -> Outcome<()> {
    holder.lock(name, TTL)?;
    refusal(other, holder, name)?;
    holder.unlock()?;
    other.lock(name, TTL)?;
    other.unlock()
}

/// Checks that a holder whose TTL has passed does not release the lock of the next holder.
pub fn late_release(late: &mut Process, next: &mut Process, name: &str) -> Outcome<()> {
    late.lock(name, Duration::from_millis(500))?;
    next.lock(name, TTL)?; // waits until the TTL has passed
    late.ask("unlock")?; // libraries differ in whether this is an error
    refusal(late, next, name)?;
    next.unlock()
}

/// Measures the time from a release until the waiter has the lock.
pub fn wake_up(
    holder: &mut Process,
    waiter: &mut Process,
    masters: &[Server],
    name: &str,
    rounds: u32,
) -> Outcome<Vec<Duration>> {
    let mut times = Vec::new();
    for round in 0..rounds {
        holder.lock(name, TTL)?;
        let before = attempts(masters);
        waiter.send_lock(name, TTL)?;
        let deadline = Instant::now() + Duration::from_secs(5);
        while attempts(masters) == before && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        // Each round meets the waiter at another moment between two of its polls.
        thread::sleep(Duration::from_millis(500) + Duration::from_millis(97) * round);
        let released = Instant::now();
        holder.send("unlock")?;
        let reply = waiter.reply()?;
        if reply.text == "locked" && reply.at < released {
            let text = format!("a waiter got {name} before it was released");
            return Err(Failure::Violation(text));
        }
        if reply.text != "locked" {
            let text = format!("a waiter did not get {name}: {}", reply.text);
            return Err(Failure::Breakdown(text));
        }
        times.push(reply.at - released);
        holder.expect("unlocked", "unlock")?;
        waiter.unlock()?;
    }
    times.sort_unstable();
    Ok(times)
}

/// Checks that `viewer` sees how often `holder` holds the lock, and is refused until the last
/// release.
pub fn hold_counts(holder: &mut Process, viewer: &mut Process, name: &str) -> Outcome<()> {
    holder.lock(name, TTL)?;
    holder.lock(name, TTL)?;
    for depth in [2, 1] {
        viewer.see_depth(name, depth)?;
        refusal(viewer, holder, name)?;
        holder.unlock()?;
    }
    viewer.lock(name, TTL)?;
    viewer.unlock()
}

/// Checks that a lock of another kind is not given away, not harmed, and reported by this crate.
pub fn kind_mismatch(
    ours_as_other_kind: &mut Process,
    peer: &mut Process,
    name: &str,
) -> Outcome<()> {
    let ours = ours_as_other_kind;
    peer.lock(name, TTL)?;
    let seen = ours.try_held(name, peer)?;
    ours.send_lock(name, TTL)?;
    let begun = Instant::now();
    let waited = ours.reply()?;
    if [&*seen, &*waited.text] != ["refused other kind"; 2] || waited.at > begun + PROMPT {
        let text = format!("another kind of {name} was not reported: {seen}, {waited:?}");
        return Err(Failure::Violation(text));
    }
    peer.unlock()?;

    ours.lock(name, TTL)?;
    peer.try_held(name, ours)?;
    let left = ours.ask("extend")?;
    if left != "extended" {
        let text = format!("a lock of another kind was harmed by a try: {name}: {left}");
        return Err(Failure::Violation(text));
    }
    ours.unlock()?;
    peer.lock(name, TTL)?;
    peer.unlock()
}

/// The acquisitions of one process that counted.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub acquired: u64,
    /// The attempts and releases that failed.
    pub failed: u64,
    pub longest_wait: Duration,
}

/// The result of a shared counter.
#[derive(Debug)]
pub struct Count {
    /// The shares, in the order of the programs.
    pub shares: Vec<Share>,
    pub lost: u64,
}

impl Count {
    pub fn acquired(&self) -> u64 {
        self.shares.iter().map(|share| share.acquired).sum()
    }

    /// Fails if an update was lost, or if a process never had the lock.
    pub fn check(self) -> Outcome<Self> {
        if self.lost > 0 {
            let text = format!("{} of {} updates were lost", self.lost, self.acquired());
            return Err(Failure::Violation(text));
        }
        if self.shares.iter().any(|share| share.acquired == 0) {
            let text = format!("a process never got the lock: {:?}", self.shares);
            return Err(Failure::Breakdown(text));
        }
        Ok(self)
    }
}

/// Lets processes count in one file. Each of them takes the lock, reads the number, sleeps, writes
/// the number plus one, releases the lock, and pauses.
pub fn counter(
    programs: &[&Program],
    masters: &[Server],
    name: &str,
    [length, pause]: [Duration; 2],
) -> Outcome<Count> {
    // Another run or test may count at the same time.
    let path = in_target(&format!(
        "count-{}-{}",
        process::id(),
        name.replace('/', "-")
    ));
    let broken = |error| Failure::Breakdown(format!("{}: {error}", path.display()));
    fs::create_dir_all(in_target("")).map_err(broken)?;
    fs::write(&path, "0").map_err(broken)?;
    let processes = programs.iter().map(|program| program.start(masters));
    let mut processes: Vec<_> = processes.collect::<Outcome<_>>()?;
    let [ttl, millis, pause] = [TTL, length, pause].map(|time| time.as_millis());
    let command = format!("count {name} {ttl} {millis} {pause} {}", path.display());
    for process in &mut processes {
        process.send(&command)?;
    }
    let mut shares = Vec::new();
    for process in &mut processes {
        let reply = process.reply_within(length + Duration::from_secs(40))?.text;
        shares.push(Share::parse(&reply).ok_or(Failure::Breakdown(reply))?);
    }
    let counted = fs::read_to_string(&path).map_err(broken)?;
    fs::remove_file(&path).map_err(broken)?;
    let counted: u64 = counted.trim().parse().unwrap_or_default();
    let acquired: u64 = shares.iter().map(|share| share.acquired).sum();
    let lost = acquired.saturating_sub(counted);
    Ok(Count { shares, lost })
}

impl Share {
    fn parse(reply: &str) -> Option<Self> {
        let mut words = reply.strip_prefix("counted ")?.split(' ');
        let mut number = || words.next()?.parse().ok();
        Some(Self {
            acquired: number()?,
            failed: number()?,
            longest_wait: Duration::from_millis(number()?),
        })
    }
}

fn refusal(other: &mut Process, holder: &Process, name: &str) -> Outcome<()> {
    let reply = other.try_held(name, holder)?;
    match reply.starts_with("refused") {
        true => Ok(()),
        false => Err(Failure::Breakdown(format!("no refusal of {name}: {reply}"))),
    }
}

/// Returns how many commands that may take a lock the masters have received.
fn attempts(masters: &[Server]) -> u64 {
    let is_attempt = |command: &str| ["set", "eval", "evalsha"].contains(&command);
    masters.iter().map(|master| master.calls(is_attempt)).sum()
}

/// The time limit for `OtherKind`, which does not wait.
const PROMPT: Duration = Duration::from_secs(3);
