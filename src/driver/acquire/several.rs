//! Acquires several mutexes. All are asked for at once where no one is in the way. Otherwise they
//! are taken in their order, so that calls with overlapping sets of locks never wait in a circle.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::future::{Either, select};
use tracing::{Instrument, Span};

use super::{
    Call,
    attempt::{NO_WATCH, begin_by_token, outcome, take_back},
    contend::contend,
    denied::{Deadline, Denied},
};
use crate::{
    core::{
        error::AcquireError,
        time::lease::LeaseTime,
        view::lock_state::LockState,
        vote::{obstacle::Obstacle, quorum::Outcome},
    },
    driver::{
        claim::{ask::LockRequest, level::Level},
        context::Context,
        time::clock,
    },
};

/// A request for one of several locks. Each may be of another coordinator.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) context: Arc<Context>,
    pub(crate) request: LockRequest,
}

/// Makes one attempt at all locks at once.
pub(crate) async fn try_acquire_all(parts: &[Part]) -> Result<Vec<Level>, AcquireError> {
    let mut prefix = Prefix::new(parts);
    let span = prefix.span();
    let acquired = prefix.try_fill().instrument(span).await;
    prefix.end(acquired)
}

/// Waits until all locks are acquired. At the deadline, makes a last attempt at those that are
/// missing.
pub(crate) async fn acquire_all(
    parts: &[Part],
    limit: Option<Duration>,
) -> Result<Vec<Level>, AcquireError> {
    let first = parts.first();
    let _waiter = first.map(|part| part.context.observer.count_waiter(&part.request.lock_id));
    let mut prefix = Prefix::new(parts);
    let span = prefix.span();
    let acquired = prefix.fill(Deadline::new(limit)).instrument(span).await;
    prefix.end(acquired)
}

/// The locks that are held so far: the first ones, in the order of the requests. A lock is never
/// kept while one before it is missing.
struct Prefix<'a> {
    /// One for each lock.
    calls: Vec<Call<'a>>,
    parts: Vec<&'a Part>,
    levels: Vec<Level>,
    /// The time when the locks that are held are extended next. The renewer does not do this,
    /// because the caller may stop polling the future that waits for the others.
    extend_at: LeaseTime,
    /// The lock that is waited for, if those before it were given back meanwhile.
    aside: Option<usize>,
}

impl<'a> Prefix<'a> {
    /// The number of extensions in a TTL. So one of them may fail.
    const EXTENSIONS: u32 = 6;

    fn new(parts: &'a [Part]) -> Self {
        let calls = parts.iter();
        Self {
            calls: (calls.map(|part| Call::begin(&part.context, &part.request))).collect(),
            parts: parts.iter().collect(),
            levels: Vec::with_capacity(parts.len()),
            extend_at: clock::now(),
            aside: None,
        }
    }

    fn span(&self) -> Span {
        let first = self.calls.first();
        first.map_or(Span::none(), |call| call.span.clone())
    }

    /// Ends the calls, and returns their locks. If they failed, records only that for the lock that
    /// was not acquired.
    fn end(self, acquired: Result<(), AcquireError>) -> Result<Vec<Level>, AcquireError> {
        let missing = self.aside.unwrap_or(self.levels.len());
        for (at, mut call) in self.calls.into_iter().enumerate() {
            match &acquired {
                Ok(()) => call.end(Ok(&self.levels[at])),
                Err(error) if at == missing => call.end(Err(error)),
                Err(_) => call.outcome = None,
            }
        }
        acquired.map(|()| self.levels)
    }

    /// Makes one attempt at all locks.
    async fn try_fill(&mut self) -> Result<(), AcquireError> {
        let won = self.attempt(self.parts.len(), false).await?;
        // Further ballots for one lock may have taken so long that another is lost by now.
        let Some(denied) = won.err().or_else(|| self.give_back_lost()) else {
            return Ok(());
        };
        let Part { context, request } = self.parts[self.levels.len()];
        Err(denied.error(context, request))
    }

    /// Acquires the missing locks.
    async fn fill(&mut self, deadline: Deadline) -> Result<(), AcquireError> {
        // After a wait, the next locks may be contended, too. Taking and returning them would
        // disturb others, so their number begins with one.
        let mut most = self.parts.len();
        loop {
            let is_last = deadline.is_over();
            let most_now = if is_last { usize::MAX } else { self.calm(most) };
            match self.attempt(most_now, !is_last).await? {
                Ok(()) => most = most.saturating_mul(2),
                Err(denied) => {
                    let Part { context, request } = self.parts[self.levels.len()];
                    deadline.note_failure(context, request, &denied, is_last)?;
                    most = 1;
                }
            }
            let _ = self.give_back_lost(); // they are acquired again
            if self.levels.len() == self.parts.len() {
                return Ok(());
            }
            if most == 1 || self.calm(1) == 0 {
                self.wait(&deadline).await?;
                most = 1;
            }
        }
    }

    /// Returns the number of the next locks, at most `most`, that no one else is known to want.
    fn calm(&self, most: usize) -> usize {
        let next = self.parts[self.levels.len()..].iter().take(most);
        let is_calm = |part: &&&Part| {
            let waiters = &part.context.local_waiters;
            waiters.is_calm(&part.request.lock_id)
        };
        next.take_while(is_calm).count()
    }

    /// Makes an attempt at each of the next locks, at most `most`, all at once. Keeps those before
    /// the first one that was not acquired. An error ends the call.
    async fn attempt(
        &mut self,
        most: usize,
        will_retry: bool,
    ) -> Result<Result<(), Denied>, AcquireError> {
        let Some(next) = self.parts.get(self.levels.len()) else {
            return Ok(Ok(())); // all were won before the coordinator was closed
        };
        next.context.check_open()?;
        if self.levels.is_empty() {
            self.plan_extension();
        }
        let next = self.parts[self.levels.len()..].iter().take(most);
        let begun = next.map(|part| {
            let Part { context, request } = part;
            (context, begin_by_token(context, request, None))
        });
        let mut begun = begun.collect::<Vec<_>>().into_iter();
        while let Some((context, level)) = begun.next() {
            let outcome = outcome(context, &level.claim, will_retry).await;
            if outcome != Outcome::Won {
                drop(begun); // gives the others back
                return Ok(Err(take_back(context, &level, outcome, NO_WATCH).await));
            }
            self.levels.push(level);
        }
        Ok(Ok(()))
    }

    /// Waits for the next lock. Meanwhile, extends the locks that are held. Returns early if one of
    /// them is lost.
    async fn wait(&mut self, deadline: &Deadline) -> Result<(), AcquireError> {
        let held = self.levels.len();
        let Part { context, request } = self.parts[held];
        let mut waiting = pin!(contend(context, request, deadline));
        loop {
            context.check_open()?;
            let look_at = clock::now() + context.waiter_timeout();
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
                // A lock that is lost is noticed at the next look.
                let _ = level.claim.extend(request.ttl.duration());
            }
        }
    }

    fn plan_extension(&mut self) {
        let ttl = self.parts.first().map(|part| part.request.ttl.duration());
        self.extend_at = clock::now() + ttl.unwrap_or_default() / Self::EXTENSIONS;
    }

    /// Gives back the locks of other coordinators if the masters of lock `next` have not answered
    /// for long. An outage concerns the names of its coordinator only.
    fn give_back_if_aside(&mut self, next: usize) {
        let context = &self.parts[next].context;
        if !context.is_aside() {
            return;
        }
        let mut held = self.parts.iter().take(self.levels.len());
        if let Some(other) = held.position(|part| !Arc::ptr_eq(&part.context, context)) {
            self.levels.truncate(other);
            self.aside = Some(next);
        }
    }

    /// Gives back the first lock that was lost, and all after it. Returns the reason for which an
    /// attempt at that lock counts as denied.
    fn give_back_lost(&mut self) -> Option<Denied> {
        let is_lost = |level: &Level| matches!(level.claim.lock_state(), LockState::Lost(_));
        let at = self.levels.iter().position(is_lost)?;
        let round = self.levels.split_off(at).first()?.claim.newest_round();
        let obstacle = Obstacle::TooSlow(round.elapsed(clock::now()));
        Some(Denied::in_round(obstacle, round))
    }
}
