//! Taking over a lock that `quorlock acquire` left, and `quorlock release`.

use std::time::{Duration, Instant};

use quorlock::{Coordinator, Detached, Guard, Reason};
use quorlock_check::CheckSettings;
use tokio::time::sleep;

use crate::{
    args::{Asking, Common, Release},
    ask::{self, Held, ONCE_LIMIT, close, too_few, unconfirmed},
    exit::Exit,
    failure::Failure,
    handle,
    masters::Masters,
    outage::{Outage, Stage, WAIT_LONGER},
    runtime::block_on,
    wanted::quoted,
    words::in_words_of_the_file,
};

pub(crate) fn release(args: &Release, common: &Common) -> Result<Exit, Failure> {
    let detached = handle::read(&args.handle_file)?;
    let mut masters = Masters::find(common, false)?;
    // A longer time than that of others makes the quarantines longer, and is safe.
    let most = CheckSettings::from(&masters.settings).max_ttl;
    masters.settings.max_ttl = Some(most.max(detached.ttl()));
    let mut released = block_on(async {
        let locks = masters.coordinator()?;
        let released = give_back(&locks, &detached).await;
        close(&locks).await;
        released.map(|()| Exit::Success)
    });
    if let Err(failure) = &mut released
        && failure.exit == Exit::Unavailable
    {
        failure.sentence.push_str(AGAIN);
    }
    handle::remove_used(&args.handle_file, &detached, &released);
    released
}

/// Releases a lock that was detached.
pub(crate) async fn give_back(locks: &Coordinator, detached: &Detached) -> Result<(), Failure> {
    let guard = attach_within(locks, detached, ONCE_LIMIT, ["cannot release", ""]).await?;
    let released = ask::release(guard).await;
    released.map_err(|why| {
        let sentence = unconfirmed(&quoted(detached.names()), &why);
        Failure::new(Exit::Unavailable, sentence)
    })
}

/// Takes over a lock that was detached, unless a signal makes it `stop`.
pub(crate) async fn attach(
    locks: Coordinator,
    detached: &Detached,
    asking: &Asking,
    stop: impl Future<Output = Failure>,
) -> Result<Held, Failure> {
    let limit = asking.ready.unwrap_or(ONCE_LIMIT);
    let attached = tokio::select! {
        biased;
        attached = attach_within(&locks, detached, limit, ["cannot take over", WAIT_LONGER]) => attached,
        stopped = stop => Err(stopped),
    };
    Ok(Held::new(attached?, asking, locks))
}

/// Tries it for up to `limit` while too few masters answer. `action` is what cannot be done then, and
/// `wait` is what helps.
async fn attach_within(
    locks: &Coordinator,
    detached: &Detached,
    limit: Duration,
    [action, wait]: [&str; 2],
) -> Result<Guard, Failure> {
    let start = Instant::now();
    let error = loop {
        match locks.attach(detached).await {
            Ok(guard) => return Ok(guard),
            Err(error) if error.is_unavailable() && start.elapsed() < limit => sleep(PAUSE).await,
            Err(error) => break error,
        }
    };
    let name = error.name();
    let others = detached.names().nth(1).map_or("", |_| OTHERS);
    let failure = match (error.reason(), too_few(&error)) {
        (Reason::Gone, _) => Failure::new(Exit::Lost, format!("the lock {name:?} {GONE}{others}")),
        (Reason::Config(error), _) => error.clone().into(),
        (_, Some(votes)) => {
            let outage = Outage::of_attempt(locks, votes, Stage::default()).await;
            outage.failure(&format!("{action} {name:?}"), wait)
        }
        _ => Failure::new(Exit::Unavailable, in_words_of_the_file(&error.to_string())),
    };
    Err(failure.with_votes(error.votes()))
}

const GONE: &str = "is not held any more: it expired, or was released, broken or forgotten";
const OTHERS: &str = "; locks of the other names end with their TTL, or with `quorlock break`";
const AGAIN: &str = "; then try again with the same handle";

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
