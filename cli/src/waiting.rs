//! News for people while a program waits for a lock.

use std::{
    collections::BTreeSet,
    env, fs, iter,
    mem::discriminant,
    time::{Duration, Instant},
};

use nix::unistd::{Pid, getppid};
use quorlock::{Holder, Inspection};
use tokio::time::sleep;

use crate::{
    args::{Asking, Common},
    client_name::{Program, client_name_of},
    exit::Exit,
    failure::{Failure, held_by},
    holders::clients,
    outage::Outage,
    output::complain,
    wanted::Wanted,
};

/// Says on stderr why nothing happens: who holds the lock, and for each outage once what is wrong.
/// With `--quiet`, says only what does not end by itself.
///
/// Returns if it is no use to wait.
pub(crate) async fn tell(wanted: &Wanted<'_>, asking: &Asking, common: &Common) -> Failure {
    let names = wanted.quoted();
    let wants_news = common.wants_news();
    let patience = if wants_news { PATIENCE } else { LONG_PATIENCE };
    let (mut known, mut since) = (None, Instant::now());
    let tells_holders = !asking.quiet && !asking.nonblock;
    let mut told = Told {
        repeats: wants_news || asking.wait.is_some(),
        ..Told::default()
    };
    sleep(PATIENCE).await;
    if let Err(failure) = find_itself(wanted, asking).await {
        return failure;
    }
    told.is_silent = wanted.has_news.get();
    loop {
        match wanted.outage() {
            None => {
                (known, since) = (None, Instant::now());
                // The first look comes at once.
                let is_time = told.looked.is_none_or(|at| at.elapsed() >= patience);
                if tells_holders && is_time {
                    say_who_holds(wanted, &mut told).await;
                }
            }
            Some(outage @ Outage::Refused(_)) => {
                return outage.failure(&format!("cannot lock {names}"), "");
            }
            // What a wait with an end could not do is said at its end.
            Some(_) if asking.quiet && (asking.wait.is_some() || asking.nonblock) => {}
            Some(Outage::Quarantine { .. }) if asking.quiet => {}
            Some(outage) => {
                let kind = discriminant(&outage);
                if since.elapsed() >= patience && known != Some(kind) {
                    known = Some(kind);
                    wanted.say(format_args!("waiting for {names}: {outage}"));
                }
            }
        }
        sleep(PATIENCE).await;
    }
}

/// Finds out whether a `quorlock run` that has the lock waits for this process. Then only a limit
/// would end the wait.
async fn find_itself(wanted: &Wanted<'_>, asking: &Asking) -> Result<(), Failure> {
    // Other processes do not run inside a `quorlock run`.
    if env::var_os("QUORLOCK_LOCK").is_none() {
        return Ok(());
    }
    // The holder decides: other masters may have another lock of the same name.
    let Ok(Some(seen)) = wanted.inspect_rival().await else {
        return Ok(());
    };
    let ancestors = ancestors();
    let is_ancestor = |holder: &Holder| {
        let program = holder.client.as_deref().map(Program::parse);
        let client = program.and_then(|program| program.client);
        client.is_some_and(|client| ancestors.contains(&client))
    };
    let is_itself = match asking.permits {
        Some(permits) => seen.holders.len() >= permits && seen.holders.iter().all(is_ancestor),
        None => seen.holders.iter().any(is_ancestor),
    };
    let sentence = format!(
        "this command runs inside a `quorlock run` of the same lock, {:?}, and would wait for itself",
        seen.name
    );
    match asking.wait.is_some() || asking.nonblock {
        _ if !is_itself => {}
        true => complain(sentence),
        false => {
            let advice = "leave out one of the two, or give --wait for a wait that ends";
            return Err(Failure::new(Exit::Usage, format!("{sentence}; {advice}")));
        }
    }
    Ok(())
}

/// Returns the client names of the parent, of its parent, and so on, as far as they can be seen.
fn ancestors() -> Vec<String> {
    let all = iter::successors(Some(getppid()), |pid| parent(*pid));
    let seen = all.take_while(|pid| pid.as_raw() > 0).take(MOST_ANCESTORS);
    seen.filter_map(|pid| client_name_of(pid.as_raw().cast_unsigned()))
        .collect()
}

/// Returns the parent of a process. `None` if it has ended, or on systems without `/proc`.
fn parent(pid: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent?.trim().parse().ok().map(Pid::from_raw)
}

/// More than there are. Numbers may be used again while this process reads, even in a circle.
const MOST_ANCESTORS: usize = 1_000;

/// What was said of the holders.
#[derive(Default)]
struct Told {
    /// The holders that were seen last.
    known: BTreeSet<String>,
    /// The time of the last look.
    looked: Option<Instant>,
    /// The time at which somebody last read who has the lock.
    said: Option<Instant>,
    /// Whether to say it again every minute. A program that waits without an end, and whose news
    /// nobody reads at once, would fill its log.
    repeats: bool,
    /// Whether something else was said of the first holder.
    is_silent: bool,
}

impl Told {
    /// Notes who has the lock `now`. Returns whether that is news: the first look, a new holder, or
    /// a minute after the last news.
    fn note(&mut self, holders: BTreeSet<String>, now: Instant) -> bool {
        let is_first = self.looked.replace(now).is_none();
        let is_new = !holders.is_subset(&self.known);
        let is_due = self.repeats && self.said.is_none_or(|at| now - at >= MINUTE);
        if !is_first && (holders.is_empty() || !is_new && !is_due) {
            return false;
        }
        (self.known, self.said) = (holders, Some(now));
        !is_first || !self.is_silent
    }
}

/// Says who holds the lock, if that is news. Says nothing if too few masters answer.
async fn say_who_holds(wanted: &Wanted<'_>, told: &mut Told) {
    let Ok(seen) = wanted.inspect_rival().await else {
        return;
    };
    let id = |seen: &Inspection, holder: &Holder| {
        format!("{} {:?} {:?}", seen.name, holder.owner, holder.client)
    };
    let holders = seen
        .iter()
        .flat_map(|seen| seen.holders.iter().map(|one| id(seen, one)));
    if !told.note(holders.collect(), Instant::now()) {
        return;
    }
    let holder = seen.and_then(|seen| {
        let left = seen.holders.first()?.remaining;
        let who = clients(&seen.holders);
        let who = who.as_deref().unwrap_or("another");
        let what = match wanted.names {
            [_] => ", which".to_owned(),
            _ => format!(": {:?}", seen.name),
        };
        Some(format!("{what} is {}", held_by(who, left)))
    });
    let (names, holder) = (wanted.quoted(), holder.unwrap_or_default());
    wanted.say(format_args!("waiting for {names}{holder}"));
}

/// The time after which a person wants to know what a program waits for.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for a person who gets it by mail from cron. A master that restarts is no news.
const LONG_PATIENCE: Duration = Duration::from_secs(5);
/// The time after which a person wants to know that the program still waits.
const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_new_holder_is_news_and_once_a_minute_the_old_one() {
        let start = Instant::now();
        for (repeats, is_silent, looks, expected) in [
            (
                true,
                false,
                &[
                    (0, "a"),
                    (1, "a"),
                    (59, "a"),
                    (60, "a"),
                    (61, "a"),
                    (120, "a"),
                ][..],
                &[0, 60, 120][..],
            ),
            // A minute counts from the last news. A lock that is free is no news.
            (
                true,
                false,
                &[
                    (0, "a"),
                    (30, "b"),
                    (60, "b"),
                    (70, ""),
                    (89, "b"),
                    (95, "b"),
                    (96, "a"),
                ],
                &[0, 30, 95, 96],
            ),
            (
                false,
                false,
                &[(0, "a"), (99, "a"), (200, "b"), (300, "b")],
                &[0, 200],
            ),
            (true, false, &[(0, ""), (1, "a")], &[0, 1]),
            // Several holders, of which one has left.
            (false, false, &[(0, "ab"), (1, "a"), (2, "ac")], &[0, 2]),
            (true, true, &[(0, "a"), (1, "a"), (61, "a")], &[61]),
        ] {
            let mut told = Told {
                repeats,
                is_silent,
                ..Told::default()
            };
            let news = looks.iter().filter(|(at, holders)| {
                let holders = holders.chars().map(String::from).collect();
                told.note(holders, start + Duration::from_secs(*at))
            });
            let news: Vec<_> = news.map(|(at, _)| *at).collect();
            assert_eq!(news, expected, "{looks:?}");
        }
    }
}
