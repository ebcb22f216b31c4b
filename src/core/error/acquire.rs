//! The error of a call for a lock.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use crate::core::{
    protocol::name::LockId,
    reason::Reason,
    time::lease::Ttl,
    vote::{Vote, votes::Votes},
};

/// A lock was not acquired.
///
/// After this error, the call holds nothing. Every attempt that sent something and did not win the
/// lock is followed by a release on all masters that may have the key. If such a master cannot be
/// reached now, the coordinator sends the release when it can reach the master again, unless the
/// TTL has passed by then. If the owner held the lock before, its other guards are as valid as they
/// were.
///
/// Exactly one of [`is_busy`](Self::is_busy), [`is_unavailable`](Self::is_unavailable) and
/// [`is_mistake`](Self::is_mistake) is true:
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// # use quorlock::{Coordinator, MemoryMaster, Reason};
/// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
/// # let lock = locks.mutex("orders/42");
/// # let _holder = lock.acquire().await?;
/// match lock.acquire_within(Duration::from_millis(20)).await {
///     Ok(guard) => drop(guard), // work
///     Err(error) if error.is_busy() => match error.reason() {
///         Reason::Held { remaining: Some(left), .. } => println!("try again in {left:?}"),
///         _ => println!("try again soon: {error}"),
///     },
///     Err(error) if error.is_unavailable() => println!("try again later: {error}"),
///     Err(error) => return Err(error.into()), // a mistake: another attempt fails as well
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct AcquireError(Box<Parts>);

#[derive(Clone)]
struct Parts {
    /// The lock and its TTL. If they cannot be used, the name of the lock.
    asked: Result<(LockId, Ttl), Arc<str>>,
    reason: Reason,
    votes: Option<Votes>,
    waited: Duration,
    attempts: u32,
    has_given_up: bool,
}

impl AcquireError {
    /// Returns the error of a call that cannot be made.
    pub(crate) fn mistake(name: Arc<str>, reason: Reason) -> Self {
        Self::new(Err(name), reason, None, (Duration::ZERO, 0), false)
    }

    /// Returns the error of a call for the lock `asked` that ended for this `reason` after a number
    /// of `attempts`. `votes` are those of the last attempt. A call that `has_given_up` would have
    /// gone on without its time limit.
    pub(crate) fn new(
        asked: Result<(LockId, Ttl), Arc<str>>,
        reason: Reason,
        votes: Option<Votes>,
        (waited, attempts): (Duration, u32),
        has_given_up: bool,
    ) -> Self {
        Self(Box::new(Parts {
            asked,
            reason,
            votes,
            waited,
            attempts,
            has_given_up,
        }))
    }

    /// Returns the lock's name. If a call for several locks failed, this is the name of the lock
    /// that was not acquired. Empty if the name cannot be used.
    pub fn name(&self) -> &str {
        match &self.0.asked {
            Ok((lock, _)) => lock.name(),
            Err(name) => name,
        }
    }

    /// Returns why the last attempt failed.
    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// Returns what each master answered in the last attempt. `None` if nothing was sent.
    pub fn votes(&self) -> Option<&Votes> {
        self.0.votes.as_ref()
    }

    /// Returns the duration of the call. After `try_acquire`, returns the time since the last
    /// attempt was sent, or zero if nothing was sent.
    pub fn waited(&self) -> Duration {
        self.0.waited
    }

    /// Returns the number of attempts that the call made. `try_acquire` counts as one attempt, and
    /// a mistake that was found before the first one as none.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// Returns whether another client has or wants the lock, or another task of the same owner.
    /// Skip the work, or try again. After a [`Split`](Reason::Split), perhaps no one has the lock. A server answers its own client with a conflict, 409 in HTTP.
    pub fn is_busy(&self) -> bool {
        self.0.reason.is_busy()
    }

    /// Returns whether no client can get the lock now: too few masters can vote, or they are too
    /// slow, or this coordinator is closed. Try again later, unless [`is_final`](Self::is_final). A
    /// refused login counts here, too, because passwords change while programs run:
    /// [`MasterHealth::needs_repair`](crate::health::MasterHealth::needs_repair) tells. A
    /// server answers its own client with 503 in HTTP.
    pub fn is_unavailable(&self) -> bool {
        self.0.reason.is_unavailable()
    }

    /// Returns whether another attempt fails as well, because of a mistake in this program, in
    /// another one, or in the settings and rights of the masters. Someone must repair it.
    pub fn is_mistake(&self) -> bool {
        self.0.reason.is_mistake()
    }

    /// Returns whether to stop trying: after a mistake, if this coordinator is
    /// [`Closed`](Reason::Closed), or if the lock that was to be attached is [`Gone`](Reason::Gone).
    pub fn is_final(&self) -> bool {
        self.0.reason.is_final()
    }

    /// Returns the text of this error without the answers of the masters. It suits a person who
    /// asked for the lock. A log should get the whole text, which says what each master answered.
    pub fn summary(&self) -> String {
        let Parts {
            waited,
            attempts,
            has_given_up,
            ..
        } = *self.0;
        let reason = self.described();
        if has_given_up {
            let s = if attempts == 1 { "" } else { "s" };
            return format!("gave up after {waited:.1?} and {attempts} attempt{s}: {reason}");
        }
        reason
    }

    fn described(&self) -> String {
        let (name, reason) = (self.name(), self.reason());
        let (Ok((lock, ttl)), Some(votes)) = (&self.0.asked, self.votes()) else {
            return match reason {
                Reason::Config(error) => error.to_string(),
                Reason::OwnerBusy => format!("could not lock {name:?}: {reason}, try again later"),
                reason => format!("could not lock {name:?}: {reason}"),
            };
        };
        match reason {
            Reason::Denied { .. } => {
                let (key, masters) = (lock.key(), votes.denial_text());
                format!("could not lock {name:?}, with the key {key:?}: {reason} on {masters}")
            }
            Reason::OtherKind => {
                let kind = lock.kind();
                format!(
                    "could not lock {name:?} as a {kind}: it is {reason}, use each name with one kind"
                )
            }
            Reason::Gone => format!("could not attach {name:?}: {reason}"),
            reason => format!("could not lock {name:?}: {}", told(reason, votes, *ttl)),
        }
    }
}

/// Returns the reason in words, with what the votes say of it.
fn told(reason: &Reason, votes: &Votes, ttl: Ttl) -> String {
    match reason {
        Reason::Held { remaining } => {
            let (refused, masters) = (votes.refused_count(), votes.master_count());
            let left = remaining.map(|left| format!(" for {left:.1?} more"));
            let left = left.unwrap_or_default();
            format!("held by another holder on {refused} of {masters} masters{left}")
        }
        Reason::NoQuorum => format!("only {}", votes.tally_text(" voted", Vote::is_answer)),
        Reason::Quarantined { remaining } => format!(
            "too many masters may have forgotten locks, \
             enough of them vote again in {remaining:.1?}"
        ),
        Reason::Split => {
            let granted = votes.tally_text(" granted", Vote::is_grant);
            format!("{reason}, {granted}")
        }
        Reason::TooSlow { elapsed } => {
            let ttl = ttl.duration();
            format!("a majority took {elapsed:.1?} to grant a TTL of {ttl:?}")
        }
        reason => reason.to_string(),
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        match &self.0.votes {
            Some(votes) => write!(f, ": {votes}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireError")
            .field("name", &self.name())
            .field("reason", self.reason())
            .field("votes", &self.0.votes)
            .field("waited", &self.waited())
            .field("attempts", &self.attempts())
            .finish()
    }
}

impl Error for AcquireError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        kind::LockKind,
        protocol::name::KeyTemplate,
        vote::{
            Refusal, Verb,
            quorum::{Quorum, Roster},
            round::CastVote,
        },
    };

    fn votes(votes: &[Vote]) -> Votes {
        let roster = Roster::new(["a", "b", "c"].map(Arc::from), Quorum::of(3));
        let cast = votes
            .iter()
            .map(|vote| Some(CastVote::new(vote.clone(), Duration::ZERO)));
        Votes::new(roster, cast.collect(), Verb::Acquire)
    }

    fn asked() -> (LockId, Ttl) {
        let name = "orders/42".into();
        let names = KeyTemplate::parse("{name}").unwrap();
        let lock_id = names.lock_id(LockKind::Mutex, name).unwrap();
        (lock_id, Ttl::whole(Duration::from_secs(10)).unwrap())
    }

    #[test]
    fn an_error_says_its_reason_and_what_each_master_answered() {
        let seconds = Duration::from_secs;
        let held = || Vote::Refuse(Refusal::held(Some(seconds(5))));
        let queued = || Vote::Refuse(Refusal::Queued { position: Some(2) });
        let left = |remaining| Reason::Held { remaining };
        for (reason, answers, text) in [
            (
                left(Some(seconds(5))),
                [Vote::Grant, held(), held()],
                "held by another holder on 2 of 3 masters for 5.0s more: a granted, \
                 b held by another holder for 5.0s more, c held by another holder for 5.0s more",
            ),
            (
                left(None),
                [Vote::Grant, held(), held()],
                "held by another holder on 2 of 3 masters: a granted, \
                 b held by another holder for 5.0s more, c held by another holder for 5.0s more",
            ),
            (
                Reason::Queued,
                [queued(), queued(), held()],
                "other waiters come first: a free, position 2 in the queue, \
                 b free, position 2 in the queue, c held by another holder for 5.0s more",
            ),
            (
                Reason::Split,
                [Vote::Grant, held(), held()],
                "the vote was split, 1 of 3 masters granted (need 2): a granted, \
                 b held by another holder for 5.0s more, c held by another holder for 5.0s more",
            ),
        ] {
            let votes = Some(votes(&answers));
            let error = |waited, has_given_up| {
                AcquireError::new(
                    Ok(asked()),
                    reason.clone(),
                    votes.clone(),
                    waited,
                    has_given_up,
                )
            };
            let expected = format!("could not lock \"orders/42\": {text}");
            assert_eq!(error((seconds(1), 2), false).to_string(), expected);
            let short = expected.split(": a ").next().unwrap();
            let late = error((seconds(1), 2), true);
            let expected = format!("gave up after 1.0s and 2 attempts: {short}");
            assert_eq!(late.summary(), expected);
        }
    }
}
