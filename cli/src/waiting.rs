//! News for people while a program waits for a lock.

use std::{
    env,
    mem::discriminant,
    time::{Duration, Instant},
};

use quorlock::{Coordinator, Lock};
use tokio::time::sleep;

use crate::{
    args::Common, failure::Failure, holders::clients, outage::Outage, output::complain,
    times::rounded,
};

/// Says on stderr why nothing happens: once who holds the lock, and for each outage once what is
/// wrong. A program that waits without a terminal says only what is wrong.
///
/// Returns if it is no use to wait.
pub(crate) async fn tell(locks: &Coordinator, lock: &Lock, name: &str, common: &Common) -> Failure {
    let wants_news = common.wants_news();
    let patience = if wants_news { PATIENCE } else { LONG_PATIENCE };
    let (mut knows_holder, mut known, mut since) = (!wants_news, None, Instant::now());
    sleep(PATIENCE).await;
    if env::var_os("QUORLOCK_LOCK").is_some_and(|held| held == *name) {
        complain(format_args!(
            "the command of `quorlock run {name}` waits for the same lock, so it may wait for itself"
        ));
    }
    loop {
        match Outage::of(locks) {
            None => {
                (known, since) = (None, Instant::now());
                if !knows_holder {
                    knows_holder = true;
                    say_who_holds(lock, name).await;
                }
            }
            Some(outage @ Outage::Refused(_)) => {
                return outage.failure(&format!("cannot lock {name:?}"));
            }
            Some(outage) => {
                let kind = discriminant(&outage);
                if since.elapsed() >= patience && known != Some(kind) {
                    known = Some(kind);
                    complain(format_args!("waiting for {name:?}: {outage}"));
                }
            }
        }
        sleep(PATIENCE).await;
    }
}

async fn say_who_holds(lock: &Lock, name: &str) {
    // If too few masters answer, the next look finds an outage.
    let Ok(seen) = lock.inspect().await else {
        return;
    };
    let holder = seen.holders.first().map(|holder| {
        let who = clients(&seen.holders);
        let who = who.as_deref().unwrap_or("another");
        match holder.remaining.map(rounded) {
            Some(left) => {
                format!(", which is held by {who} for {left} more, or longer if it is renewed")
            }
            None => format!(", which is held by {who}"),
        }
    });
    complain(format_args!(
        "waiting for {name:?}{}",
        holder.unwrap_or_default()
    ));
}

/// The time after which a person wants to know what a program waits for.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for a person who gets it by mail from cron. A master that restarts is no news.
const LONG_PATIENCE: Duration = Duration::from_secs(5);
