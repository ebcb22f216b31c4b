//! News for people while a program waits for a lock.

use std::{
    env,
    mem::discriminant,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{
    args::{Asking, Common},
    failure::{Failure, held_by},
    holders::clients,
    outage::Outage,
    output::complain,
    wanted::Wanted,
};

/// Says on stderr why nothing happens: once who holds the lock, and for each outage once what is
/// wrong. With `--quiet`, says only what does not end by itself.
///
/// Returns if it is no use to wait.
pub(crate) async fn tell(wanted: &Wanted<'_>, asking: &Asking, common: &Common) -> Failure {
    let names = wanted.quoted();
    let wants_news = common.wants_news();
    let patience = if wants_news { PATIENCE } else { LONG_PATIENCE };
    let (mut known, mut since) = (None, Instant::now());
    let mut knows_holder = asking.quiet || asking.nonblock;
    sleep(PATIENCE).await;
    warn_of_itself(wanted);
    knows_holder |= wanted.has_news.get();
    loop {
        match wanted.outage() {
            None => {
                (known, since) = (None, Instant::now());
                knows_holder = knows_holder || say_who_holds(wanted).await;
            }
            Some(outage @ Outage::Refused(_)) => {
                return outage.failure(&format!("cannot lock {names}"));
            }
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

/// Warns of a command that waits for the lock under which it runs.
fn warn_of_itself(wanted: &Wanted<'_>) {
    let held = env::var("QUORLOCK_LOCK").unwrap_or_default();
    let mut names = wanted.names.iter();
    if let Some(name) = names.find(|name| held.lines().any(|held| held == **name)) {
        complain(format_args!(
            "the command of `quorlock run {name}` waits for the same lock, so it may wait for itself"
        ));
    }
}

/// Says who holds the lock. Returns `false` if too few masters answer.
async fn say_who_holds(wanted: &Wanted<'_>) -> bool {
    let Ok(seen) = wanted.inspect_rival().await else {
        return false;
    };
    let holder = seen.as_ref().and_then(|seen| {
        let left = seen.holders.first()?.remaining;
        let who = clients(&seen.holders);
        let who = who.as_deref().unwrap_or("another");
        let what = match wanted.names {
            [_] => ", which".to_owned(),
            _ => format!(": {:?}", seen.name),
        };
        Some(format!("{what} is {}", held_by(who, left)))
    });
    wanted.say(format_args!(
        "waiting for {}{}",
        wanted.quoted(),
        holder.unwrap_or_default()
    ));
    true
}

/// The time after which a person wants to know what a program waits for.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for a person who gets it by mail from cron. A master that restarts is no news.
const LONG_PATIENCE: Duration = Duration::from_secs(5);
