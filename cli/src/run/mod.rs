//! `quorlock run`: a command that runs while the lock is held.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use quorlock::{Detached, Guard};
use tokio::time::timeout;

use crate::{
    args::{Common, Run},
    ask::{Held, ask},
    attach::attach,
    exit::Exit,
    failure::Failure,
    handle, loss,
    masters::Masters,
    run::{group::Group, watch::Watch},
    runtime::block_on,
    signals::{ENDING, OriginalMask, Signals},
    times::brief,
    wanted,
};

mod group;
mod program;
pub(crate) mod starter;
mod terminal;
mod watch;

pub(crate) fn run(args: &Run, common: &Common) -> Result<Exit, Failure> {
    let program = args.command.first();
    let program = program.ok_or_else(|| Failure::new(Exit::Usage, "there is no command"))?;
    // A command that cannot run should not wait for hours first.
    program::check(program)?;
    wanted::check(&args.names, &args.asking)?;
    let detached = args.attach.as_deref().map(handle::read).transpose()?;
    let mut asking = args.asking.clone();
    asking.ttl = detached.as_ref().map(Detached::ttl).or(asking.ttl);
    let masters = Masters::find(common, asking.quiet)?;
    let mask = OriginalMask::replace()?;
    let ended = block_on(async {
        let label = Path::new(program).file_name().unwrap_or_default();
        let locks = masters.of_holder(&asking, None, &label.to_string_lossy())?;
        let ttl = asking.ttl.unwrap_or(locks.ttl());
        let kill_after = kill_after(args, ttl)?;
        let mut signals = Signals::catch(&ENDING)?;
        let stop = async { Failure::silent(signals.next().await) };
        let held = match &detached {
            Some(detached) => attach(locks, detached, &asking, stop).await?,
            None => ask(locks, &args.names, &asking, common, stop).await?,
        };
        let done = match in_time(&held.guard, ttl, kill_after).await {
            Ok(()) => run_command(&held, args, kill_after, signals, mask).await,
            Err(failure) => Err(failure),
        };
        held.give_back(&asking, common, done).await
    });
    if let Some((file, detached)) = args.attach.as_deref().zip(detached.as_ref()) {
        handle::remove_used(file, detached, &ended);
    }
    ended
}

/// Checks that the lock does not end so early that the command would get TERM at once. The dials
/// may have taken a large part of a short TTL.
async fn in_time(guard: &Guard, ttl: Duration, kill_after: Duration) -> Result<(), Failure> {
    let is_in_time = || Instant::now() + kill_after < deadline(guard);
    if !is_in_time() {
        let extended = guard.extend(ttl).await;
        extended.map_err(|error| Failure::new(Exit::Unavailable, error.to_string()))?;
    }
    if is_in_time() {
        return Ok(());
    }
    let sentence = format!(
        "the masters are too slow for a TTL of {}; give a longer --ttl or a shorter --kill-after",
        brief(ttl)
    );
    Err(Failure::new(Exit::Unavailable, sentence))
}

async fn run_command(
    held: &Held,
    args: &Run,
    kill_after: Duration,
    mut signals: Signals,
    mask: OriginalMask,
) -> Result<Exit, Failure> {
    let guard = &held.guard;
    let start = async {
        let group = Group::start(mask).await?;
        let command = |starter: &mut Command| {
            starter.args(&args.command);
            describe(held, starter);
        };
        group.spawn(command, guard).await
    };
    let group = tokio::select! {
        biased;
        _ = guard.lost() => return Err(loss::failure(guard, "")),
        group = start => group,
    };
    let group = match group {
        Ok(group) => group,
        // A child that has not left the group of this process yet gets the signals to that group,
        // and this process may hear of the child's end first.
        Err(failure) => {
            let signal = timeout(SIGNAL_LIMIT, signals.next()).await;
            return signal.map_or(Err(failure), |signal| Ok(signal.into()));
        }
    };
    Watch::new(held, group, signals, kill_after)?.watch().await
}

/// Returns the time from TERM to KILL. It must leave time for renewals, which begin when two thirds
/// of the TTL are left.
fn kill_after(args: &Run, ttl: Duration) -> Result<Duration, Failure> {
    match args.kill_after {
        None => Ok((ttl / 3).min(MOST_KILL_AFTER)),
        Some(time) if time <= ttl / 2 => Ok(time),
        Some(time) => Err(Failure::new(
            Exit::Usage,
            format!(
                "--kill-after {} is more than half the TTL, which leaves too little time to renew \
                 the lock; give a shorter time or a longer --ttl",
                humantime::format_duration(time)
            ),
        )),
    }
}

/// Sets the environment of the command, so that it does not see that of an outer `quorlock run`.
fn describe(held: &Held, command: &mut Command) {
    let guard = &held.guard;
    let names: Vec<_> = guard.names().collect();
    command
        .env("QUORLOCK_LOCK", names.join("\n"))
        .env("QUORLOCK_VOTES", held.votes())
        .env("QUORLOCK_VALID_UNTIL_MS", held.valid_until_ms().to_string())
        .env_remove(TOKEN)
        .envs(held.token().map(|token| (TOKEN, token.to_string())))
        .env_remove(SLOT)
        .envs(guard.slot().map(|slot| (SLOT, slot.to_string())));
}

const TOKEN: &str = "QUORLOCK_FENCING_TOKEN";
const SLOT: &str = "QUORLOCK_SLOT";
/// The longest time from the end of a child to the arrival of the signal that ended it.
const SIGNAL_LIMIT: Duration = Duration::from_millis(50);
const MOST_KILL_AFTER: Duration = Duration::from_secs(10);

/// Returns the failure of a command that was killed by its keeper.
fn killed_by_keeper(guard: &Guard) -> Failure {
    loss::failure(guard, "; its keeper killed the command if it had not ended")
}

/// Returns the time by which the command of a guard must be dead. It is a little before the end of
/// the validity, because a process that is killed on a busy machine dies a little later.
fn deadline(guard: &Guard) -> Instant {
    let early = (guard.validity() / 20).min(MOST_EARLY);
    let valid_until = guard.valid_until();
    valid_until.checked_sub(early).unwrap_or(valid_until)
}

const MOST_EARLY: Duration = Duration::from_millis(250);
/// The time between two looks while a renewal is late.
const LOOK_EVERY: Duration = Duration::from_millis(100);
