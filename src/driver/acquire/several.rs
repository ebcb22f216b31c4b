//! Acquires several mutexes. Locks that no one else is known to want are requested together. The
//! other locks are taken in order, so that calls with overlapping sets of locks never wait in a
//! circle.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::future::{Either, select};
use tracing::{Instrument, Span};

use super::{
    Call,
    attempt::{begin_by_token, take_back},
    contend::contend,
    denied::{Deadline, Denied},
};
use crate::{
    clock,
    core::{error::AcquireError, reason::Reason, time::LeaseTick, view::LockState, vote::Outcome},
    driver::claim::{Level, ask::LockRequest},
};

/// Makes one attempt at each lock, all at the same time.
pub(crate) async fn try_acquire_all(requests: &[LockRequest]) -> Result<Vec<Level>, AcquireError> {
    let mut prefix = Prefix::new(requests);
    let span = prefix.span();
    let acquired = prefix.try_fill().instrument(span).await;
    prefix.end(acquired, |denied, request| denied.of_one_attempt(request))
}

/// Waits until all locks are acquired. At the deadline, makes a last attempt at the locks that are
/// missing.
pub(crate) async fn acquire_all(
    requests: &[LockRequest],
    limit: Option<Duration>,
) -> Result<Vec<Level>, AcquireError> {
    let first = requests.first();
    let _waiter = first.map(|first| first.context.observer().count_waiter(&first.lock_id));
    let mut prefix = Prefix::new(requests);
    let span = prefix.span();
    let deadline = Deadline::new(limit);
    let acquired = prefix.fill(&deadline).instrument(span).await;
    prefix.end(acquired, |denied, request| deadline.error(request, denied))
}

/// The locks that are held so far: the first ones, in the order of the requests. A lock is never
/// kept while a lock before it is missing.
struct Prefix<'a> {
    calls: Vec<Call<'a>>,
    requests: &'a [LockRequest],
    levels: Vec<Level>,
    /// The time of the next extension of the locks that are held. The renewer does not extend these
    /// locks: if the caller no longer polls the future that waits for the missing locks, the held
    /// ones must end.
    extend_at: LeaseTick,
    /// The index of the lock that the call waits for. `None` if the call has kept all locks before
    /// that one.
    aside: Option<usize>,
}

impl<'a> Prefix<'a> {
    /// The number of extensions in a TTL. One of them may fail without the loss of a lock.
    const EXTENSIONS: u32 = 6;

    fn new(requests: &'a [LockRequest]) -> Self {
        Self {
            calls: requests.iter().map(Call::begin).collect(),
            requests,
            levels: Vec::with_capacity(requests.len()),
            extend_at: clock::now(),
            aside: None,
        }
    }

    fn span(&self) -> Span {
        let first = self.calls.first();
        first.map_or(Span::none(), |call| call.span.clone())
    }

    /// Ends the call for each lock, and returns all locks. After a denial, records only the call
    /// for the lock that was not acquired.
    fn end(
        self,
        acquired: Result<(), Denied>,
        error: impl FnOnce(Denied, &LockRequest) -> AcquireError,
    ) -> Result<Vec<Level>, AcquireError> {
        let missing = self.aside.unwrap_or(self.levels.len());
        let acquired = acquired.map_err(|denied| error(denied, &self.requests[missing]));
        for (at, mut call) in self.calls.into_iter().enumerate() {
            match &acquired {
                Ok(()) => call.end_and_hold(Ok(&self.levels[at])),
                Err(error) if at == missing => call.end_and_hold(Err(error)),
                Err(_) => call.outcome = None,
            }
        }
        acquired.map(|()| self.levels)
    }

    async fn try_fill(&mut self) -> Result<(), Denied> {
        let denied = self.attempt(self.requests.len(), false).await?;
        // Further ballots for one lock may have taken so long that another lock is lost by now.
        let denied = denied.or_else(|| self.give_back_lost());
        denied.map_or(Ok(()), Err)
    }

    async fn fill(&mut self, deadline: &Deadline) -> Result<(), Denied> {
        if let Some(first) = self.requests.first() {
            first.context.check_open()?; // before a mutex is locked
        }
        loop {
            let is_last = deadline.is_over();
            let most = if is_last { usize::MAX } else { self.calm() };
            let denied = self.attempt(most, !is_last).await?;
            let is_denied = denied.is_some();
            if let Some(denied) = denied {
                let request = &self.requests[self.levels.len()];
                deadline.note_failure(request, denied, is_last)?;
            }
            let _ = self.give_back_lost(); // the next attempts acquire these again
            if self.levels.len() == self.requests.len() {
                return Ok(());
            }
            if is_denied || self.calm() == 0 {
                self.wait(deadline).await?;
            }
        }
    }

    /// Returns how many of the next locks come before the first lock that someone else may want.
    fn calm(&self) -> usize {
        let next = self.requests[self.levels.len()..].iter();
        let is_calm = |next: &&LockRequest| next.context.is_calm(&next.lock_id);
        next.take_while(is_calm).count()
    }

    /// Makes attempts at up to `most` of the next locks at once. If a lock is denied, keeps the
    /// locks before it, and returns the denial. An error ends the call.
    async fn attempt(&mut self, most: usize, will_retry: bool) -> Result<Option<Denied>, Denied> {
        let Some(next) = self.requests.get(self.levels.len()) else {
            return Ok(None); // all were won before the coordinator was closed
        };
        next.context.check_open()?;
        if self.levels.is_empty() {
            self.plan_extension();
        }
        let next = self.requests[self.levels.len()..].iter().take(most);
        let begun = next.map(|request| (request, begin_by_token(request, None)));
        let mut begun = begun.collect::<Vec<_>>().into_iter();
        while let Some((request, level)) = begun.next() {
            let outcome = level.claim.conclude(will_retry, |_| true).await;
            if outcome != Outcome::Won {
                drop(begun); // gives back the locks after this one
                return Ok(Some(take_back(request, &level, outcome, false).await));
            }
            self.levels.push(level);
        }
        Ok(None)
    }

    /// Waits for the next lock. Meanwhile, extends the locks that are held. Returns early if one of
    /// them is lost.
    async fn wait(&mut self, deadline: &Deadline) -> Result<(), Denied> {
        let held = self.levels.len();
        let request = &self.requests[held];
        let (context, mut waiting) = (&request.context, pin!(contend(request, deadline)));
        loop {
            context.check_open()?;
            let look_at = clock::now() + context.silent_waiter_timeout();
            let due = pin!(context.timers.sleep_until(look_at.min(self.extend_at)));
            if let Either::Right((level, _)) = select(due, waiting.as_mut()).await {
                let level = level?;
                if self.aside.take().is_none() {
                    self.levels.push(level);
                }
                return Ok(());
            }
            if self.give_back_lost().is_some() {
                self.aside = None;
                return Ok(());
            }
            self.give_back_if_aside(held);
            if clock::now() < self.extend_at {
                continue;
            }
            self.plan_extension();
            for level in &self.levels {
                // If the lock is lost, the next pass of the loop gives it back.
                let _ = level.claim.extend(request.ttl.duration());
            }
        }
    }

    fn plan_extension(&mut self) {
        let ttl = self.requests.first().map(|first| first.ttl.duration());
        self.extend_at = clock::now() + ttl.unwrap_or_default() / Self::EXTENSIONS;
    }

    /// If the masters of lock `next` have not answered for a long time, gives back the first held
    /// lock of another coordinator, and all locks after that one. The masters of the other
    /// coordinator may still work, so other clients can use its locks.
    fn give_back_if_aside(&mut self, next: usize) {
        let context = &self.requests[next].context;
        if !context.is_aside() {
            return;
        }
        let mut held = self.requests.iter().take(self.levels.len());
        if let Some(other) = held.position(|held| !Arc::ptr_eq(&held.context, context)) {
            self.levels.truncate(other);
            self.aside = Some(next);
        }
    }

    /// Gives back the first lock that was lost, and all locks after it. Returns the loss as a
    /// denied attempt at that lock.
    fn give_back_lost(&mut self) -> Option<Denied> {
        let is_lost = |level: &Level| matches!(level.claim.lock_state(), LockState::Lost(_));
        let at = self.levels.iter().position(is_lost)?;
        let round = self.levels.split_off(at).first()?.claim.newest_round();
        let elapsed = round.elapsed(clock::now());
        Some(Denied::new(Reason::TooSlow { elapsed }, Some(round)))
    }
}
