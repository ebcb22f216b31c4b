//! How a lock is acquired: at once, or by waiting until it is free.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::{Duration, Instant},
};

use super::{deadline::Deadline, engine::Engine, select::first_of};
use crate::{
    core::{
        chances::Chance,
        identity::{Identity, Ticket},
        name::{Kind, Token},
        round::{Outcome, Round},
    },
    driver::claim::{Claim, Level, LockRequest},
    driver::clock,
    driver::local_waiters::LocalWaiter,
    driver::owned_lock::OwnedLock,
    error::{AcquireError, ConfigError, ExtendError},
};

impl Engine {
    /// Returns an error if the coordinator is closed.
    pub(super) fn check_open(&self) -> Result<(), AcquireError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(AcquireError::Closed);
        }
        Ok(())
    }

    /// How long an attempt takes at most: a round, which may wait for first dials, and another one
    /// to say why it was not won.
    pub(super) fn attempt(&self) -> Duration {
        let mut mailboxes = self.mailboxes.iter();
        let rounds = self.node_timeout() * 2;
        if mailboxes.any(|mailbox| mailbox.node_timeout().is_none()) {
            rounds + self.config.connect_timeout
        } else {
            rounds
        }
    }

    /// One round.
    pub(crate) async fn try_acquire(
        self: &Arc<Self>,
        request: &LockRequest,
    ) -> Result<Level, AcquireError> {
        let turn_by = || clock::now() + self.attempt();
        self.try_in_turn(request, turn_by).await
    }

    /// One round, if the turn of this task among those of its owner comes until `turn_by`.
    async fn try_in_turn(
        self: &Arc<Self>,
        request: &LockRequest,
        turn_by: impl FnOnce() -> Instant,
    ) -> Result<Level, AcquireError> {
        self.check_open()?;
        let Some(owner) = &request.owner else {
            let identity = Identity::Token(Token::new(clock::random()));
            let held = Level::new(Claim::ask(self, request, identity, None, None));
            return self.decide(held).await;
        };
        let owned = owner.lock(&request.resource);
        // Ahead of the turn, too: that may be a task's which enters itself.
        if let Some(entered) = self.reenter(request, &owned).await {
            return entered;
        }
        let Some(_turn) = owned.attempt(Some(turn_by())).await else {
            let name = request.resource.name().clone();
            return Err(AcquireError::OwnerBusy { name });
        };
        if let Some(entered) = self.reenter(request, &owned).await {
            return entered;
        }
        let identity = owner.identity(match request.resource.kind() {
            Kind::Fair => Some(Ticket::new(self.next_timestamp(), owner.id())),
            Kind::Mutex | Kind::Reentrant => None,
        });
        let hold = Claim::ask(self, request, identity, Some(owned.clone()), None);
        let held = self.decide(Level::new(hold)).await?;
        owned.won(&held);
        Ok(held)
    }

    async fn decide(&self, held: Level) -> Result<Level, AcquireError> {
        let mut outcome = Self::decided(&held).await;
        for _ in 0..Self::MORE_BALLOTS {
            if outcome != Outcome::Lost || !self.raise_ballot(&held, None) {
                break;
            }
            outcome = Self::decided(&held).await;
        }
        match outcome {
            Outcome::Won => Ok(held),
            outcome => Err(self.give_up(&held, outcome).await),
        }
    }

    /// One more level of what the owner holds. `None` when it does not, or not any more.
    pub(super) async fn reenter(
        &self,
        request: &LockRequest,
        owned: &OwnedLock<Claim>,
    ) -> Option<Result<Level, AcquireError>> {
        let hold = owned.claim().filter(|claim| claim.can_reenter())?;
        if request.counter.is_some() && hold.fencing_token().is_none() {
            return Some(Err(ConfigError::NotFenced.into()));
        }
        let (held, round) = hold.reenter(request.ttl)?;
        let (name, votes) = match hold.extended(&round).await {
            Ok(()) => return Some(Ok(held)),
            Err(ExtendError::NoQuorum { name, votes, .. }) => (name, votes),
            Err(ExtendError::TooSlow { name, votes }) => {
                return Some(Err(AcquireError::TooSlow {
                    name,
                    elapsed: round.elapsed(clock::now()),
                    ttl: request.ttl.duration(),
                    votes,
                }));
            }
            // Lost: whoever else is in it hears of that, and this is an attempt like any other.
            Err(_) => return None,
        };
        Some(Err(AcquireError::NoQuorum { name, votes }))
    }

    /// Rounds until one is won. The last one begins when the time `within` which to do so is over, if there is
    /// such a time.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &LockRequest,
        within: Option<Duration>,
    ) -> Result<Level, AcquireError> {
        let limit = Deadline::new(within);
        let Some(owner) = &request.owner else {
            return self.contend(request, limit).await;
        };
        let owned = owner.lock(&request.resource);
        let mut acquired = pin!(async {
            match request.resource.kind() {
                Kind::Fair => self.acquire_fair(request, owner, &owned, limit).await,
                Kind::Mutex | Kind::Reentrant => self.contend(request, limit).await,
            }
        });
        for failures in 0.. {
            // Whichever task of the owner gets it: the others enter, and need not wait for one another's guards.
            if let Some(acquired) =
                unless(owned.until_held(Claim::can_reenter), acquired.as_mut()).await
            {
                return acquired;
            }
            self.check_open()?;
            let is_last = limit.is_over();
            // Not in turn, which may be that of the wait: its place is kept until this has entered.
            match self.reenter(request, &owned).await {
                Some(Ok(held)) => return Ok(held),
                Some(Err(error)) => {
                    limit.check(request.resource.name(), error, is_last, failures)?;
                    clock::sleep_until(limit.not_later(self.retry_at(failures))).await;
                }
                None => {} // given up meanwhile
            }
        }
        Err(AcquireError::Closed) // nobody counts that far
    }

    /// Attempts, when it is this waiter's turn in this process and whenever a release is likely.
    async fn contend(
        self: &Arc<Self>,
        request: &LockRequest,
        limit: Deadline,
    ) -> Result<Level, AcquireError> {
        let mut waiter = self.waiting.join(self, &request.resource);
        let mut is_told = false;
        let mut chances = self.chances();
        for attempts in 0.. {
            // At once, unless it has been silent for too long and another waiter has taken over.
            waiter.turn(limit.end).await;
            let is_last = limit.is_over();
            let turn_by = limit.turn_by(self.attempt());
            waiter.expect(turn_by + self.attempt());
            if !is_last && !self.may_win(request, chances).await {
                self.check_open()?;
                let at = limit.not_later(self.retry_at(attempts));
                waiter.sleep_until(at).await;
                continue;
            }
            waiter.attempt();
            let start = clock::now();
            let error = match self.try_in_turn(request, || turn_by).await {
                Ok(held) => {
                    self.note_chance(Chance::Had, start);
                    return Ok(held);
                }
                Err(error) => error,
            };
            chances = self.note_chance(Chance::of_error(&error, self.usable(request)), start);
            limit.check(request.resource.name(), error.clone(), is_last, attempts)?;
            if let AcquireError::OwnerBusy { .. } = error {
                waiter.step_back(); // other owners need not wait for what this one's tasks do
            }
            is_told = self.wait(&waiter, &error, attempts, is_told, limit).await;
        }
        Err(AcquireError::Closed) // nobody counts that far
    }

    /// When to try again after so many failures, with nothing better to wait for.
    pub(super) fn retry_at(&self, failures: u32) -> Instant {
        clock::now() + self.config.retry.delay(failures, clock::random_u64())
    }

    /// Waits until another attempt is worth it. Whether that is because of a release that was heard of; the
    /// attempt that failed with `error` `was_told` so.
    async fn wait(
        &self,
        waiter: &LocalWaiter<'_>,
        error: &AcquireError,
        attempts: u32,
        was_told: bool,
        limit: Deadline,
    ) -> bool {
        let now = clock::now();
        let delay = self.config.retry.delay(attempts, clock::random_u64());
        let AcquireError::Contended {
            remaining, votes, ..
        } = error
        else {
            waiter.sleep_until(limit.not_later(now + delay)).await;
            if let AcquireError::Quarantined { left, .. } = error {
                // No majority can vote before that. Not all waiters at once then.
                waiter
                    .released(
                        crate::core::master_set::MasterSet::NONE,
                        limit.not_later(now + *left + delay),
                    )
                    .await;
            }
            return false;
        };
        if remaining.is_some_and(|remaining| remaining.is_zero()) {
            // A split vote: who comes back at once meets the same rivals. Or a release that was heard of ahead
            // of the masters that have the majority, and is there by now.
            let soon = self.config.retry.delay(0, clock::random_u64());
            let delay = if was_told { soon } else { delay };
            waiter.sleep_until(limit.not_later(now + delay)).await;
            return false;
        }
        let end = limit.not_later(now + self.node_timeout());
        if waiter.listen(end).await {
            return false;
        }
        // However often others release and take it again, and whatever they publish: not a hot loop.
        if attempts > 2 {
            let at = now + self.config.retry.least();
            waiter.sleep_until(limit.not_later(at)).await;
        }
        let poll = self.poll(waiter, was_told, delay);
        // A key lives to the end of the millisecond in which it expires.
        let expiry = remaining.map(|remaining| remaining + Duration::from_millis(2));
        let end = now + expiry.map_or(poll, |expiry| expiry.min(poll));
        waiter
            .released(granted_by(votes), limit.not_later(end))
            .await
    }

    /// Returns for how long to rely on being told of a release. `delay` is for a waiter that cannot
    /// be told.
    fn poll(&self, waiter: &LocalWaiter<'_>, was_told: bool, delay: Duration) -> Duration {
        if was_told {
            // Somebody else was first, or the release has not reached a majority yet.
            self.config.retry.delay(0, clock::random_u64())
        } else if waiter.can_be_told() {
            self.config.poll.delay(u32::MAX, clock::random_u64())
        } else {
            delay
        }
    }

    /// Takes back what a round that was not won may have left, and says why it was not.
    ///
    /// The answers to the release come anyway, and say for how long others hold the lock.
    async fn give_up(&self, held: &Level, outcome: Outcome) -> AcquireError {
        let release = held.release();
        if outcome == Outcome::Lost && !held.newest_round().read(Round::lacks_masters) {
            release.decided().await;
        } else {
            // For a full table, but not for dials. Masters that are down have failed already.
            let end = clock::now() + self.node_timeout();
            first_of(pin!(release.settled()), pin!(clock::sleep_until(end))).await;
        }
        if release.read(Round::is_other_kind) {
            // An acquisition of a mutex is only told that there is a key.
            return AcquireError::OtherKind {
                name: held.name().clone(),
                asked: held.kind(),
                votes: self.votes(&release),
            };
        }
        self.why_not(held, outcome, release.read(Round::free_in))
    }

    /// Why a round was not won, when those who hold the lock let go of it `remaining` from now.
    pub(super) fn why_not(
        &self,
        held: &Level,
        outcome: Outcome,
        remaining: Option<Duration>,
    ) -> AcquireError {
        let acquisition = held.newest_round();
        let (name, votes) = (held.name().clone(), self.votes(&acquisition));
        if outcome == Outcome::TooLate {
            let (elapsed, ttl) = held.elapsed();
            AcquireError::TooSlow {
                name,
                elapsed,
                ttl,
                votes,
            }
        } else if let Some(left) = acquisition.read(Round::quarantined) {
            AcquireError::Quarantined { name, left, votes }
        } else if acquisition.read(Round::lacks_masters) {
            AcquireError::NoQuorum { name, votes }
        } else if acquisition.read(Round::is_other_kind) {
            let asked = held.kind();
            AcquireError::OtherKind { name, asked, votes }
        } else {
            AcquireError::Contended {
                name,
                remaining,
                votes,
            }
        }
    }
}

/// Runs `work`, but not longer than to `end`: not at all if that has come.
async fn unless<T>(end: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    let (mut end, mut work) = (pin!(end), pin!(work));
    poll_fn(|cx| match end.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(cx).map(Some),
    })
    .await
}

fn granted_by(votes: &crate::core::votes::Votes) -> crate::core::master_set::MasterSet {
    let rows = votes.iter().enumerate();
    let granted = rows.filter(|(_, row)| row.vote() == Some(&crate::core::quorum::Vote::Grant));
    granted.map(|(master, _)| master).collect()
}
