//! Asking for a lock, and giving it back.

use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use humantime::format_duration;
use quorlock::{AcquireError, Coordinator, ExtendError, FencingToken, Guard, Reason, votes::Votes};
use tokio::time::{sleep, timeout};

use crate::{
    args::{Asking, Common},
    exit::Exit,
    failure::Failure,
    holders::{HolderLook, clients},
    loss::{self, blame},
    outage::{Outage, WAIT_LONGER, not_ready},
    output::complain,
    times::{brief, passed},
    waiting::tell,
    wanted::{Wanted, name_of, quoted},
    words::{ADVICE, in_words_of_the_file},
};

/// A lock that is held.
pub(crate) struct Held {
    pub(crate) guard: Guard,
    /// The end of the time of `--max-hold`.
    pub(crate) until: Option<Instant>,
    /// The end of the time of `--min-hold`.
    keep_until: Option<Instant>,
    /// Whether nobody wants to read of outages.
    pub(crate) is_quiet: bool,
    pub(crate) locks: Coordinator,
}

impl Held {
    pub(crate) fn new(guard: Guard, asking: &Asking, locks: Coordinator) -> Self {
        let after = |time| Instant::now() + time;
        Self {
            guard,
            until: asking.max_hold.map(after),
            keep_until: asking.min_hold.map(after),
            is_quiet: asking.quiet,
            locks,
        }
    }

    /// Returns how many masters hold the lock, such as `3/5`.
    pub(crate) fn votes(&self) -> String {
        let votes = self.guard.votes();
        format!("{}/{}", votes.granted_count(), votes.master_count())
    }

    /// Returns the fencing token. `None` without `--fence`, which takes one name.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.guard.fencing_tokens().next().map(|(_, token)| token)
    }

    /// Returns the Unix time in milliseconds until which the lock is valid unless it is renewed.
    pub(crate) fn valid_until_ms(&self) -> u64 {
        let until = passed(0) + self.guard.remaining();
        u64::try_from(until.as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns whether the time of `--max-hold` is over.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now >= until)
    }

    pub(crate) fn too_long(&self) -> String {
        name_of(&self.guard) + " was held for the time of --max-hold"
    }

    /// Releases the lock, or leaves it for the rest of its minimum hold. After a short time, it
    /// gives up waiting for the masters, and the lock ends with its TTL. It says so, unless the
    /// lock was lost before: then that is the result. Otherwise the result is `done`. It always
    /// says that the minimum hold cannot be kept.
    pub(crate) async fn give_back(
        self,
        asking: &Asking,
        common: &Common,
        mut done: Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        let (guard, locks) = (self.guard, self.locks);
        let names = quoted(guard.names());
        let mut was_lost = matches!(done, Ok(Exit::Lost) | Err(_));
        if !was_lost && is_lost(&guard, &locks, asking).await {
            (done, was_lost) = (Err(loss::failure(&guard, "")), true);
        }
        let is_early = self.keep_until.is_some_and(|until| Instant::now() < until);
        let is_gone = is_early && guard.ensure_valid().is_err();
        let released = release(guard).await;
        let why = released.err().or_else(|| is_gone.then(String::new));
        match (why, asking.min_hold.filter(|_| is_early)) {
            (Some(why), Some(time)) => complain(format_args!(
                "--min-hold of {} could not be kept: others may get {names} before it is over{why}",
                format_duration(time)
            )),
            (Some(why), None) if !was_lost || common.is_verbose() => {
                complain(unconfirmed(&names, &why));
            }
            _ => {}
        }
        close(&locks).await;
        done
    }
}

/// Releases a lock. If no majority confirms that in a short time, returns why.
pub(crate) async fn release(guard: Guard) -> Result<(), String> {
    match timeout(RELEASE_LIMIT, guard.release()).await {
        Ok(released) => released.map_err(|error| blame(&error.votes)),
        Err(_) => Err(format!("; no answer in {RELEASE_LIMIT:?}; {ADVICE}")),
    }
}

/// Says that no majority confirmed the release of these names, and why.
pub(crate) fn unconfirmed(names: &str, why: &str) -> String {
    format!(
        "no majority confirmed the release of {names}, \
         which ends with its TTL where no release arrives{why}"
    )
}

/// Returns whether a lock that nobody needs any more was lost. No renewal may have noticed it yet.
async fn is_lost(guard: &Guard, locks: &Coordinator, asking: &Asking) -> bool {
    // What ended the hold may have come at the same moment as the end of the lock.
    if guard.ensure_valid().is_err() {
        return true;
    }
    let extension = guard.extend(asking.ttl.unwrap_or(locks.ttl()));
    let extended = timeout(round_limit(locks, ANSWER_LEAST), extension).await;
    matches!(extended, Ok(Err(ExtendError::Lost(_))))
}

/// Waits for the lock called `names`, as `asking` says, or for something that makes it `stop`. If it
/// fails, nothing is left on the masters.
pub(crate) async fn ask(
    locks: Coordinator,
    names: &[String],
    asking: &Asking,
    common: &Common,
    stop: impl Future<Output = Failure>,
) -> Result<Held, Failure> {
    let (start, wanted) = (Instant::now(), Wanted::new(&locks, names, asking));
    let asked = tokio::select! {
        biased;
        acquired = acquire(&wanted, asking) => acquired,
        stopped = stop => {
            let _ = timeout(RELEASE_LIMIT, locks.close()).await;
            return Err(stopped);
        }
        hopeless = tell(&wanted, asking, common) => Err(hopeless),
    };
    match asked {
        Ok(guard) => {
            say_got(&wanted, &guard, start.elapsed(), common);
            Ok(Held::new(guard, asking, locks))
        }
        Err(failure) => {
            close(&locks).await;
            let exit = asking.conflict_exit_code.map_or(Exit::Busy, Exit::Code);
            Err(match failure.exit {
                Exit::Busy if asking.quiet => Failure::silent(exit),
                Exit::Busy => failure.with_exit(exit),
                _ => failure,
            })
        }
    }
}

/// Says that the lock was acquired, if a person wants to know or has read of the wait.
fn say_got(wanted: &Wanted<'_>, guard: &Guard, waited: Duration, common: &Common) {
    let votes = common.is_verbose().then(|| guard.votes().to_string());
    let votes = votes.map(|votes| format!(": {}", in_words_of_the_file(&votes)));
    if votes.is_some() || wanted.has_news.get() {
        let (names, time, votes) = (wanted.quoted(), brief(waited), votes.unwrap_or_default());
        complain(format_args!("got {names} after {time}{votes}"));
    }
}

async fn acquire(wanted: &Wanted<'_>, asking: &Asking) -> Result<Guard, Failure> {
    let action = format!("cannot lock {}", wanted.quoted());
    if let Some(limit) = asking.ready {
        let ready = wanted.locks.ready_within(limit).await;
        ready.map_err(|error| not_ready(&error, wanted.locks, wanted.stage.get(), &action))?;
    }
    let acquired = match asking.wait.or(asking.nonblock.then_some(Duration::ZERO)) {
        Some(Duration::ZERO) => acquire_once(wanted, asking).await,
        limit => acquire_in(wanted, limit).await,
    };
    let error = match acquired {
        Ok(guard) => return Ok(guard),
        Err(error) => error,
    };
    match odd_key(wanted, &error).await {
        Some((Exit::Busy, _)) if wanted.has_news.get() => {} // that was said
        Some((exit, sentence)) => {
            // Not `Busy`, which --quiet hides: it may stay so forever.
            let busy = Exit::Code(asking.conflict_exit_code.unwrap_or(exit.code()));
            let exit = if exit == Exit::Busy { busy } else { exit };
            return Err(Failure::new(exit, sentence).with_votes(error.votes()));
        }
        None => {}
    }
    if let Some(votes) = too_few(&error) {
        let outage = Outage::of_attempt(wanted.locks, votes, wanted.stage.get()).await;
        return Err(outage.failure(&action, WAIT_LONGER).with_votes(votes));
    }
    let mut seen = None;
    if matches!(error.reason(), Reason::Held { .. }) && !asking.quiet {
        // One short round: the names are only for people, and a script waits for this.
        let limit = round_limit(wanted.locks, ANSWER_LEAST);
        seen = timeout(limit, wanted.inspect(error.name())).await.ok();
    }
    let holder = seen.and_then(|seen| clients(&seen.ok()?.holders));
    let failure = Failure::not_acquired(&error, holder.as_deref(), asking);
    Err(failure.with_votes(error.votes()))
}

/// Returns what is odd about the key, if that is why the lock was not acquired: it is held without a
/// TTL, perhaps forever, or it is of no kind of lock, according to a majority of masters. Those that
/// answered late tell such a key from that of a holder.
async fn odd_key(wanted: &Wanted<'_>, error: &AcquireError) -> Option<(Exit, String)> {
    let name = error.name();
    let is_held = match error.reason() {
        Reason::OtherKind => false,
        Reason::Held { remaining, .. } if remaining.is_none() => true,
        _ => return None,
    };
    let seen = wanted.inspect(name).await.ok()?;
    let mut holders = seen.holders.iter().map(HolderLook::of);
    if is_held && holders.any(|holder| holder.may_be_no_lock()) {
        let sentence = format!(
            "{name:?} is held without a TTL, so it may be no lock; look at its key, \
             and then end it with `quorlock break --without-ttl`"
        );
        return Some((Exit::Busy, sentence));
    }
    let is_no_lock = !seen.holders.is_empty() && seen.holders.iter().all(|one| one.kind.is_none());
    is_no_lock.then(|| {
        let sentence = format!(
            "cannot lock {name:?}: its key is not a lock; \
             take another name, or delete the key by hand if no program needs it"
        );
        (Exit::Configuration, sentence)
    })
}

/// Waits for the lock. Masters that deny it to the user end the wait, because it would change
/// nothing.
async fn acquire_in(wanted: &Wanted<'_>, limit: Option<Duration>) -> Result<Guard, AcquireError> {
    let (start, lock) = (Instant::now(), &wanted.lock);
    let mut acquired = lock.try_acquire().await;
    let outage = acquired.as_ref().err();
    wanted.note_stage(outage.and_then(|error| outage_in(wanted, error)).as_ref());
    // Nobody gets the lock meanwhile, so the short waits lose no place in a queue.
    while limit.is_none()
        && let Err(error) = &acquired
        && let Some(outage @ Outage::TooFew { .. }) = outage_in(wanted, error)
    {
        wanted.outage.replace(Some(outage));
        acquired = lock.acquire_within(LOOK_INTERVAL).await;
    }
    wanted.outage.take();
    if let Err(error) = &acquired
        && let Some((Exit::Busy, sentence)) = odd_key(wanted, error).await
    {
        wanted.say(format_args!("waiting for {}: {sentence}", wanted.quoted()));
    }
    match (&acquired, limit) {
        (Ok(_), _) => acquired,
        (Err(error), _) if is_refused(wanted, error) => acquired,
        (Err(_), Some(limit)) => {
            let left = limit.saturating_sub(start.elapsed());
            lock.acquire_within(left).await
        }
        (Err(_), None) => lock.acquire().await,
    }
}

/// Returns the reason why the last attempt found too few masters, if it did.
fn outage_in(wanted: &Wanted<'_>, error: &AcquireError) -> Option<Outage> {
    let votes = too_few(error)?;
    Some(Outage::in_votes(wanted.locks, votes, wanted.stage.get()))
}

/// Returns the votes of the last attempt, if it found too few masters.
pub(crate) fn too_few(error: &AcquireError) -> Option<&Votes> {
    let is_so = matches!(
        error.reason(),
        Reason::Denied { .. } | Reason::NoQuorum | Reason::Quarantined { .. }
    );
    error.votes().filter(|_| is_so)
}

/// Returns whether so many masters deny the lock to the user that the others are no majority.
fn is_refused(wanted: &Wanted<'_>, error: &AcquireError) -> bool {
    matches!(outage_in(wanted, error), Some(Outage::Refused(_)))
}

/// Waits for no holder, but for connections, and for others that ask at the same moment: if the
/// vote is split, nobody has the lock.
async fn acquire_once(wanted: &Wanted<'_>, asking: &Asking) -> Result<Guard, AcquireError> {
    let (start, mut asked) = (Instant::now(), 0_u32);
    let ttl = asking.ttl.unwrap_or_else(|| wanted.locks.ttl());
    loop {
        let error = match wanted.lock.try_acquire().await {
            Ok(guard) => return Ok(guard),
            Err(error) => error,
        };
        let left = ONCE_LIMIT.saturating_sub(start.elapsed());
        let goes_on = !left.is_zero()
            && match error.reason() {
                Reason::Held { remaining, .. } => match remaining {
                    // It may be new grants of several others that split the vote.
                    Some(left) if *left <= ttl => *left + NEW.min(ttl / 4) > ttl,
                    Some(_) | None => asked < 3,
                },
                Reason::Split => true,
                Reason::NoQuorum if is_refused(wanted, &error) => false,
                Reason::NoQuorum => wanted.locks.ready_within(left).await.is_ok(),
                _ => false,
            };
        if !goes_on {
            return Err(error);
        }
        // On a busy machine, a rival may be slow to give back what it got.
        let random = RandomState::new().hash_one(()) % (30 << asked);
        asked = (asked + 1).min(3);
        sleep(Duration::from_millis(random)).await;
    }
}

/// Waits until the releases are delivered. They are on their way to all masters that have answered
/// before, and normally take one round trip. A master that is silent may take the whole TTL.
pub(crate) async fn close(locks: &Coordinator) {
    let _ = timeout(round_limit(locks, CLOSE_LEAST), locks.close()).await;
}

/// Returns the longest time to wait for a round on which nothing depends.
fn round_limit(locks: &Coordinator, least: Duration) -> Duration {
    let health = locks.health();
    let round_trips = health.iter().filter_map(|master| master.round_trip);
    let limit = round_trips.max().unwrap_or_default() * 3 + least;
    limit.min(ROUND_LIMIT)
}

/// The time between two looks at the votes of a wait in which too few masters vote.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// What a round gets beyond its round trips if nobody needs its answers.
const CLOSE_LEAST: Duration = Duration::from_millis(10);
/// What it gets if they matter: a busy machine may be late with them.
const ANSWER_LEAST: Duration = Duration::from_millis(50);
const RELEASE_LIMIT: Duration = Duration::from_secs(2);
const ROUND_LIMIT: Duration = Duration::from_millis(250);
/// The age up to which a grant may belong to an attempt that fails.
const NEW: Duration = Duration::from_millis(300);
/// The longest time that `--nonblock` takes if nobody holds the lock.
pub(crate) const ONCE_LIMIT: Duration = Duration::from_secs(1);
