//! Waiting for a fair lock, in the queues of all masters and with one ticket for all of them.

use std::{sync::Arc, time::Duration};

use tokio::{sync::SemaphorePermit, task::yield_now};

use super::{
    claim::{Claim, Level, LockRequest, ballots::MORE_BALLOTS, rounds::NextRound},
    clock,
    deadline::Deadline,
    denied::{Denied, NotAcquired},
    fair_waiters::FairWaiter,
    live_round::LiveRound,
    masters::Masters,
    owned_lock::{LockOwner, OwnedLock},
    reachability::majority_answers,
    select::first_of,
    shared::Shared,
};
use crate::core::{
    chances::{Chance, Chances, Position},
    identity::{QueueOptions, Ticket},
    refused::Refused,
    retry::Backoff,
    round::{Outcome, Round},
    wait::{Notice, WaitPolicy, next_wait},
};

/// The number of corrections of a ticket's time, or of rounds in which a master disagreed with it,
/// after which masters no longer check the time. Otherwise masters that disagree on the time could
/// make a waiter correct its ticket for ever.
const CORRECTIONS: u32 = 2;

/// The end of a stay in the queues.
enum Stay {
    Won(Level),
    /// The time in the ticket, or in the candidate, is too far from the clocks of a majority of
    /// masters, which show this.
    Skewed(Duration),
    /// For too long, no majority of masters has answered in time.
    Unable,
}

/// Makes rounds until one is won, from one position in the queues of all masters.
pub(super) async fn acquire_fair(
    shared: &Shared,
    request: &LockRequest,
    owner: &LockOwner<Claim>,
    owned: &Arc<OwnedLock<Claim>>,
    deadline: Deadline,
) -> Result<Level, NotAcquired> {
    let masters = shared.masters();
    let mut wait = FairWait {
        shared,
        request,
        owner,
        owned,
        deadline,
        ticket: Ticket::new(masters.timestamps.next(), owner.id()),
        options: QueueOptions {
            waiter_timeout: masters.waiter_timeout(),
            is_fresh: true,
        },
        chances: shared.chances(),
        quarantine: None,
        failures: 0,
        splits: 0,
        disputes: 0,
        ballots: 0,
    };
    let mut corrections = 0;
    loop {
        match wait.stay().await? {
            Stay::Won(level) => return Ok(level),
            Stay::Skewed(clock) => {
                masters.timestamps.correct(clock);
                corrections += 1;
                wait.draw_ticket();
                wait.options.is_fresh = corrections < CORRECTIONS;
                wait.disputes = 0;
            }
            Stay::Unable => {
                wait.wait_aside().await?;
                if wait.options.is_fresh {
                    // The clocks of the masters have moved on, so they would refuse the time in the
                    // old ticket. No majority knows that ticket.
                    wait.draw_ticket();
                }
            }
        }
    }
}

/// A wait for a fair lock, with one ticket at a time, in the queues of the masters or aside.
struct FairWait<'a> {
    shared: &'a Shared,
    request: &'a LockRequest,
    owner: &'a LockOwner<Claim>,
    owned: &'a Arc<OwnedLock<Claim>>,
    deadline: Deadline,
    ticket: Ticket,
    options: QueueOptions,
    chances: Chances,
    /// The rest of the quarantine, if the last round was not won because of one.
    quarantine: Option<Duration>,
    failures: u32,
    /// The number of rounds in a row that were split or had no quorum.
    splits: u32,
    /// The number of rounds, since the last correction, in which a master disagreed with the time
    /// in the ticket.
    disputes: u32,
    /// The number of further ballots in a row for a fencing token.
    ballots: usize,
}

impl<'a> FairWait<'a> {
    /// Waits in the queues.
    async fn stay(&mut self) -> Result<Stay, NotAcquired> {
        let mut permit = self.permit().await?;
        let mut is_last = self.deadline.is_over();
        // The first round does not join the queues, as the lock may be free.
        let identity = self.owner.identity(Some(self.ticket.clone()));
        let context = &self.shared.context;
        let claim = Claim::begin(context, self.request, identity, Some(self.owned.clone()));
        let level = Level::new(claim);
        let mut waiter = None;
        loop {
            let outcome = level.decided_for_ballot().await;
            if outcome == Outcome::Won {
                self.owned.won(&level);
                self.shared.note_chance(Chance::Had, clock::now());
                return Ok(Stay::Won(level));
            }
            let round = level.newest_round();
            let is_fresh = self.options.is_fresh;
            if let Some(clock) = round.read(Round::skewed_to).filter(|_| is_fresh) {
                return Ok(Stay::Skewed(clock));
            }
            if self.raise_ballot(&level, waiter.is_some()) {
                continue;
            }
            self.give_back(&level, &round, waiter.as_ref()).await;
            drop(permit);
            self.check(&round, outcome, is_last).await?;
            if self.note_round(&round, outcome) == Position::Aside {
                return Ok(Stay::Unable); // dropping the level also leaves the queues
            }
            if let Some(waiter) = &waiter {
                self.wait(waiter, &round).await;
                self.failures = self.failures.saturating_add(1);
            }
            // The waiter listens before it first asks for a position in the queues, so that it
            // misses no call.
            let waiter = waiter.get_or_insert_with(|| self.listen());
            permit = self.permit().await?;
            is_last = self.deadline.is_over();
            waiter.begin_attempt();
            level.ask_again(NextRound {
                // A new attempt, as the command that gives back the grants of the last one may
                // arrive late.
                identity: Some(self.owner.identity(Some(self.ticket.clone()))),
                queue: Some(self.options),
                candidate: None,
            });
        }
    }

    /// Waits aside, until a majority of masters answer in time or the deadline is over.
    async fn wait_aside(&mut self) -> Result<(), NotAcquired> {
        // No master calls this waiter, but the coordinator does when it is closed.
        let waiter = self.listen();
        let masters = self.masters();
        let retry = masters.config().retry;
        let delays = Chances::delays(self.options.waiter_timeout);
        for failures in 0.. {
            waiter.begin_attempt();
            self.shared.check_open()?;
            let random = clock::random_u64();
            let delay = match self.quarantine.take() {
                // No client can win before the quarantine ends.
                Some(left) => left + retry.least(),
                None if masters.has_quorum() => delays.delay(failures, random),
                // Nothing is sent while there are too few connections.
                None => retry.delay(u32::MAX, random),
            };
            let end = self.deadline.limit(clock::now() + delay);
            waiter.called(end).await;
            // At the deadline there is a last attempt.
            if self.deadline.is_over() || majority_answers(masters, self.request).await {
                break;
            }
        }
        Ok(())
    }

    fn masters(&self) -> &'a Masters {
        self.shared.masters()
    }

    fn listen(&self) -> FairWaiter<'a> {
        let waiters = &self.shared.fair_waiters;
        waiters.join(self.masters(), &self.ticket)
    }

    fn draw_ticket(&mut self) {
        let timestamp = self.masters().timestamps.next();
        self.ticket = Ticket::new(timestamp, self.owner.id());
    }

    /// Waits for the permit to make a round. Two attempts of one owner at the same time would take
    /// each other's grants.
    async fn permit(&self) -> Result<SemaphorePermit<'a>, NotAcquired> {
        let timeout = self.masters().attempt_timeout();
        let end = self.deadline.queued_permit_by(timeout);
        loop {
            let permit = self.owned.permit(end).await;
            self.shared.check_open()?;
            let Some(permit) = permit else {
                return Err(self.deadline.expired(Denied::owner_busy(), self.failures));
            };
            if !self.owned.claim().is_some_and(|claim| claim.can_reenter()) {
                return Ok(permit);
            }
            drop(permit);
            // Another task of the owner has won. The caller stops polling this future and reenters.
            // If the lock was released meanwhile, the caller polls this future again.
            yield_now().await;
        }
    }

    /// Notes the results of a round that was not won. Returns the position for the next wait.
    fn note_round(&mut self, round: &LiveRound, outcome: Outcome) -> Position {
        // Two waiters may go by the times of different masters. If neither time has a majority, and
        // masters kept checking the time, no waiter would ever be the first on a majority.
        self.disputes += u32::from(round.read(Round::is_skewed_to_any));
        self.options.is_fresh &= !round.read(Round::is_queued) && self.disputes < CORRECTIONS;
        self.quarantine = round.read(Round::quarantined);
        let chance = round.read(|round| Chance::of_round(round, outcome));
        self.chances = self.shared.note_chance(chance, round.read(Round::start));
        self.chances.position(self.options.waiter_timeout)
    }

    /// Tries another ballot for a fencing token, at most [`MORE_BALLOTS`] times in a row. Returns
    /// whether it did.
    fn raise_ballot(&mut self, level: &Level, is_queued: bool) -> bool {
        let queue = is_queued.then_some(self.options);
        let is_raised = self.ballots < MORE_BALLOTS && level.raise_ballot(queue);
        self.ballots = if is_raised { self.ballots + 1 } else { 0 };
        is_raised
    }

    /// Returns an error unless the wait goes on after a round that was not won.
    async fn check(
        &self,
        round: &Arc<LiveRound>,
        outcome: Outcome,
        is_last: bool,
    ) -> Result<(), NotAcquired> {
        let position = self.chances.position(self.options.waiter_timeout);
        if round.read(Round::lacks_masters) || position == Position::Aside {
            // Waits for the other votes, so that the table of votes is complete. Masters that are
            // down have failed already.
            round.settled().await;
        }
        let free_in = round.read(Round::free_in);
        let denied = Denied::by(round.clone(), outcome, free_in);
        self.deadline.check(&denied, is_last, self.failures)
    }

    /// Gives back the grants of a minority: the known ones at once, and those that may still come
    /// later. A waiter in the queues first waits until all votes are in, until masters call it, or
    /// for a node timeout. Before a waiter is in the queues, it waits for none of these.
    ///
    /// A round can be lost before all masters have answered. If the waiter went by the first
    /// answers alone, it could take itself for the next waiter, or the votes for split, and would
    /// ask again far too soon.
    async fn give_back(&self, level: &Level, round: &LiveRound, waiter: Option<&FairWaiter<'_>>) {
        let timeout = self.options.waiter_timeout;
        let known = round.read(|round| round.may_hold() - round.unanswered());
        level.yield_grants(known, timeout);
        if let Some(waiter) = waiter {
            let end = clock::now() + self.masters().node_timeout();
            first_of(round.settled(), waiter.called(end)).await;
        }
        level.yield_grants(round.read(Round::may_hold) - known, timeout);
    }

    /// Waits until another round is worth it, or must be made to keep the position.
    async fn wait(&mut self, waiter: &FairWaiter<'_>, round: &LiveRound) {
        let now = clock::now();
        // A waiter polls well before a master takes it for dead. Waiters do not all poll at the
        // same time.
        let timeout = self.options.waiter_timeout;
        let policy = WaitPolicy {
            retry: self.masters().config().retry,
            poll: Backoff::between(timeout / 4, timeout / 3),
        };
        let refused = round.read(Refused::in_queue);
        let random = clock::random_u64();
        let wait = next_wait(&refused, Notice::Expected, self.splits, policy, random);
        match refused {
            Refused::NoQuorum | Refused::Split => self.splits = self.splits.saturating_add(1),
            Refused::Quarantined(_) => {}
            _ => self.splits = 0,
        }
        let until = now + wait.end.min(policy.poll.delay(u32::MAX, random));
        waiter.called(self.deadline.limit(until)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::{Coordinator, MemoryMaster};

    #[tokio::test(start_paused = true)]
    async fn a_client_with_a_wrong_clock_uses_the_clocks_of_the_masters() {
        const HOUR: i64 = 3_600_000_000;
        for off in [-HOUR, HOUR] {
            let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
            let right = Coordinator::new(&masters).unwrap();
            let wrong = Coordinator::new(&masters).unwrap();
            let offset = &wrong.engine().masters().timestamps.offset;
            offset.store(off, Ordering::Relaxed);
            let guard = right.fair("r", &right.owner()).acquire().await.unwrap();
            let mut arrived = Vec::new();
            let mut waiting = Vec::new();
            for locks in [&right, &wrong, &right, &wrong, &right] {
                let owner = locks.owner();
                let mut waiter = Box::pin({
                    let lock = locks.fair("r", &owner);
                    async move { drop(lock.acquire().await.unwrap()) }
                });
                let wait = tokio::time::timeout(Duration::from_millis(10), waiter.as_mut());
                assert!(wait.await.is_err());
                arrived.push(owner.id().to_owned());
                waiting.push(waiter);
                // The clocks are real ones, and a correction is only as exact as the round trip is
                // short.
                let arrival = clock::wall_micros();
                while clock::wall_micros() < arrival + 5_000 {}
            }
            for master in &masters {
                let tickets = master.queue("quorlock:queue:{r}");
                let owners = tickets.iter().map(|ticket| Ticket::owner_of(ticket));
                assert!(owners.eq(&arrived), "{off}: {tickets:?}, not {arrived:?}");
            }
            assert!(offset.load(Ordering::Relaxed).abs() < HOUR / 100);
            drop(guard);
            for waiter in waiting {
                waiter.await;
            }
        }
    }

    /// No majority of masters agree on the time. One client uses one of the two clocks, and one
    /// client uses the other.
    #[tokio::test(start_paused = true)]
    async fn masters_that_disagree_on_the_time_still_serve() {
        const APART: i64 = 3_000_000;
        let seconds = Duration::from_secs;
        for (size, down) in [(2, 0), (3, 1), (4, 0), (5, 1), (5, 2)] {
            let masters: Vec<_> = (0..size).map(|_| MemoryMaster::new()).collect();
            let up = size - down;
            masters[up..]
                .iter()
                .for_each(|master| master.inject(crate::Fault::Down));
            masters[up / 2..]
                .iter()
                .for_each(|master| master.set_clock(APART));
            let locks = [(); 3].map(|()| Coordinator::new(&masters).unwrap());
            let offset = &locks[1].engine().masters().timestamps.offset;
            offset.store(APART, Ordering::Relaxed);
            tokio::time::sleep(seconds(1)).await;
            let held = &locks[2];
            let held = held.fair("r", &held.owner()).acquire().await.unwrap();
            let wait = |locks: &Coordinator| {
                let lock = locks.fair("r", &locks.owner());
                async move { drop(lock.acquire_within(seconds(10)).await.unwrap()) }
            };
            let release = async {
                tokio::time::sleep(seconds(5)).await;
                drop(held);
            };
            tokio::join!(wait(&locks[0]), wait(&locks[1]), release);
        }
    }
}
