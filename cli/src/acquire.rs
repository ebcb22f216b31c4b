//! `quorlock acquire`: a lock that another process releases.

use std::time::Duration;

use quorlock::{Coordinator, DetachError, ExtendError, Guard};

use crate::{
    args::{Acquire, Asking, Common},
    ask::{ask, close},
    attach::give_back,
    exit::Exit,
    failure::Failure,
    handle,
    masters::Masters,
    news::{tell_apart, tell_misfits},
    runtime::block_on,
    signals::{ENDING, Signals},
    wanted,
    words::in_words_of_the_file,
};

/// The longest TTL of the lock while this process renews it. If the process is killed, what it left
/// ends soon.
const TTL: Duration = Duration::from_secs(10);

pub(crate) fn acquire(args: &Acquire, common: &Common) -> Result<Exit, Failure> {
    let asking = Asking {
        request: args.request.clone(),
        ttl: Some(args.ttl.min(TTL)),
        min_hold: None,
        max_hold: None,
    };
    wanted::check(&args.names, &asking)?;
    handle::check_room(&args.handle_file)?; // nobody should wait for hours first
    let masters = Masters::find(common, asking.quiet)?;
    block_on(async {
        let mut signals = Signals::catch(&ENDING)?;
        let stop = async { Failure::silent(signals.next().await) };
        let locks = masters.of_holder(&asking, Some(args.ttl), "")?;
        let held = ask(locks, &args.names, &asking, common, stop).await?;
        tell_misfits(&held.locks).await;
        tell_apart(&held.locks, None);
        let done = hand_over(held.guard, &held.locks, args, common).await;
        close(&held.locks).await;
        done.map(|()| Exit::Success)
    })
}

/// Detaches the lock and writes its handle. If that fails, releases the lock.
async fn hand_over(
    guard: Guard,
    locks: &Coordinator,
    args: &Acquire,
    common: &Common,
) -> Result<(), Failure> {
    // Nobody brings the lock later to a master that was late.
    let _ = guard.all_votes().await;
    let detached = guard.detach(args.ttl).await.map_err(not_detached)?;
    let written = handle::write(&args.handle_file, &detached);
    if written.is_err()
        && let Err(left) = give_back(locks, &detached).await
    {
        left.report(common.is_verbose());
    }
    written
}

/// Drops the guard, which releases the lock.
fn not_detached(failed: DetachError) -> Failure {
    let exit = match failed.error {
        ExtendError::Lost(_) => Exit::Lost,
        _ => Exit::Unavailable,
    };
    Failure::new(exit, in_words_of_the_file(&failed.to_string()))
}
