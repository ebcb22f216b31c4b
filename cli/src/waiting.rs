//! News for people while a program waits for a lock.

use std::{
    env,
    mem::discriminant,
    time::{Duration, Instant},
};

use quorlock::Holder;
use tokio::time::sleep;

use crate::{
    ancestors::ancestors,
    args::{Asking, Common},
    client_name::Program,
    exit::Exit,
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
    if let Err(failure) = find_itself(wanted, asking).await {
        return failure;
    }
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
