//! Waits for a lock with queues on the masters, with the same ticket in all of them.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::future::select;
use tokio::{sync::SemaphorePermit, task::yield_now};

use super::{
    attempt::{attempt_timeout, majority_answers},
    deadline::Deadline,
    denied::Denied,
    slots,
};
use crate::{
    core::{
        ballot::MORE_BALLOTS,
        claim::ask::NextRound,
        error::AcquireError,
        protocol::{
            access::Access,
            identity::{Identity, Ticket},
            name::LockId,
        },
        vote::{master_set::MasterSet, quorum::Outcome, round::Round},
        wait::{chances::Reach, queued::QueuedWaiter, rivals::Rivals},
    },
    driver::{
        claim::{
            Claim,
            ask::LockRequest,
            level::Level,
            owned_lock::{LockOwner, OwnedLock},
        },
        context::Context,
        live_round::LiveRound,
        time::clock,
        waiting::called_waiter::CalledWaiter,
    },
};

/// The reason why a stay in the queues ends.
enum QueueEnd {
    /// The time in the ticket, or in the candidate, is too far from the clocks of a majority of
    /// masters. The value is the median of these clocks.
    Skewed(Duration),
    /// No majority of masters has answered in time for half a waiter timeout.
    Unable {
        /// The time until the masters that are not in quarantine are a majority. `None` if they
        /// were a majority in the last round.
        quarantine: Option<Duration>,
    },
    Won(Level),
}

/// The result of a round.
enum Decided {
    Won,
    /// The master that chooses the slot has put others first.
    OthersFirst,
    Lost(Outcome),
    /// See [`QueueEnd::Skewed`].
    Skewed(Duration),
}

/// What a waiter has while it makes rounds with one claim.
struct Stay<'a> {
    /// `None` until the waiter joins the queues.
    waiter: Option<CalledWaiter<'a>>,
    /// The master that chooses the slot in the newest round. `None` if each chooses by itself.
    chooser: Option<usize>,
    /// A round that was lost, and whose grants the waiter keeps for the next one.
    kept: Option<Arc<LiveRound>>,
}

/// Makes rounds until one wins the lock. Between rounds, waits in the queues of all masters, or
/// aside.
pub(in crate::driver) async fn acquire_queued(
    context: &Arc<Context>,
    request: &LockRequest,
    owner: &LockOwner,
    owned: &Arc<OwnedLock>,
    deadline: &Deadline,
) -> Result<Level, AcquireError> {
    let spec = request.lock_id.kind().spec();
    let mut wait = QueuedWait {
        context,
        request,
        owner,
        owned,
        deadline,
        ticket: Ticket::new(context.timestamps.next(), owner.id()),
        queued: QueuedWaiter::new(
            context.config.retry,
            context.waiter_timeout(),
            spec.is_watched,
            spec.has_readers && request.access == Access::Shared,
        ),
        reach: context.reach(),
    };
    loop {
        match wait.wait_queued().await? {
            QueueEnd::Won(level) => return Ok(level),
            QueueEnd::Skewed(clock) => {
                context.timestamps.correct(clock, &context.observer);
                wait.draw_ticket();
            }
            QueueEnd::Unable { quarantine } => {
                wait.wait_aside(quarantine).await?;
                if wait.queued.options.is_fresh {
                    // The clocks of the masters have moved on, so the masters would refuse the time
                    // in the old ticket. No majority of masters has seen that ticket.
                    wait.draw_ticket();
                }
            }
        }
    }
}

/// A wait for a lock with queues, in the queues of the masters or aside. The waiter has one ticket
/// at a time.
struct QueuedWait<'a> {
    context: &'a Arc<Context>,
    request: &'a LockRequest,
    owner: &'a LockOwner,
    owned: &'a Arc<OwnedLock>,
    deadline: &'a Deadline,
    ticket: Ticket,
    queued: QueuedWaiter,
    reach: Reach,
}

impl<'a> QueuedWait<'a> {
    /// Waits in the queues.
    async fn wait_queued(&mut self) -> Result<QueueEnd, AcquireError> {
        let mut permit = self.permit().await?;
        let mut is_last = self.deadline.is_over();
        let (level, mut stay) = self.begin(is_last);
        loop {
            match self.decide(&level.claim, &mut stay, is_last).await {
                Decided::Won => return Ok(QueueEnd::Won(level)),
                Decided::Skewed(clock) => return Ok(QueueEnd::Skewed(clock)),
                Decided::OthersFirst => {
                    drop(permit);
                    self.wait_for_turn(&level.claim, &mut stay).await;
                }
                Decided::Lost(outcome) => {
                    let round = level.claim.newest_round();
                    let had_chosen = self.choose_again(&level.claim, &round, &mut stay).await;
                    drop(permit);
                    if self.note_loss(&round, outcome, is_last).await? {
                        // Dropping `level` also removes the ticket from the queues.
                        let quarantine = round.read(Round::quarantined);
                        return Ok(QueueEnd::Unable { quarantine });
                    }
                    self.wait(&round, had_chosen, &mut stay).await;
                }
            }
            if stay.chooser.is_none() {
                stay.waiter.get_or_insert_with(|| self.join());
            }
            permit = self.permit().await?;
            is_last = self.deadline.is_over();
            self.ask_again(&level.claim, &stay);
        }
    }

    /// Decides after a lost round whether one master chooses the slot in the next one. If not,
    /// gives back the grants. Returns the master that had chosen it.
    async fn choose_again(
        &self,
        claim: &Claim,
        round: &Arc<LiveRound>,
        stay: &mut Stay<'_>,
    ) -> Option<usize> {
        let had_chosen = stay.chooser.take();
        // The chooser may be wrong, so all choose in the round after its own.
        let is_split = slots::note_lost(self.context, self.lock_id(), round);
        if is_split && had_chosen.is_none() {
            stay.chooser = slots::chooser(self.context, self.lock_id(), Some(round));
        }
        stay.kept = stay.chooser.map(|_| round.clone());
        if stay.kept.is_none() {
            self.yield_grants(claim, round, stay).await;
        }
        had_chosen
    }

    /// Waits for the result of the newest round, which may take further ballots for a fencing
    /// token.
    async fn decide(&mut self, claim: &Arc<Claim>, stay: &mut Stay<'_>, is_last: bool) -> Decided {
        let queue = stay.waiter.as_ref().map(|_| self.queued.options);
        if !claim.ask_for_slot_of(stay.chooser, queue, is_last).await {
            return Decided::OthersFirst;
        }
        let mut ballots = 0;
        loop {
            let outcome = claim.outcome(!is_last).await;
            if outcome == Outcome::Won {
                self.note_win(claim);
                return Decided::Won;
            }
            let round = claim.newest_round();
            if let Some(clock) = round.read(|round| self.queued.correction(round)) {
                return Decided::Skewed(clock);
            }
            if ballots == MORE_BALLOTS || !claim.raise_ballot(queue) {
                return Decided::Lost(outcome);
            }
            stay.chooser = None; // all choose in a further ballot
            ballots += 1;
        }
    }

    fn lock_id(&self) -> &'a LockId {
        &self.request.lock_id
    }

    fn note_win(&self, claim: &Arc<Claim>) {
        if claim.rounds() == 1 {
            self.rivals(|rivals| rivals.note_queued(false));
        }
        slots::note_won(self.context, &self.request.lock_id);
        self.owned.won(claim);
        self.context.note_reach(Some(true), clock::now());
        self.context.observer.found_quorum();
    }

    /// Posts another round. If there is a master that chooses the slot, asks that one first. A
    /// `waiter` stays in the queues.
    fn ask_again(&self, claim: &Arc<Claim>, stay: &Stay<'_>) {
        if let Some(waiter) = &stay.waiter {
            waiter.begin_attempt();
        }
        claim.ask_again(NextRound {
            asked: stay.chooser.map_or(MasterSet::ALL, MasterSet::only),
            // The round is a new attempt. The command that gives back the grants of the last
            // attempt may arrive late, and then leaves the grants of the new attempt alone. The new
            // attempt replaces the old one on masters that still have its grant.
            identity: Some(self.identity()),
            queue: stay.waiter.as_ref().map(|_| self.queued.options),
            candidate: None,
            watch: self.queued.is_head,
        });
    }

    /// Begins the first round. The lock may be free, so the round joins the queues only if another
    /// waiter of this process had to wait in them lately. If it does not, one master may choose the
    /// slot.
    fn begin(&self, is_last: bool) -> (Level, Stay<'a>) {
        let joins = !is_last && self.rivals(|rivals| rivals.is_queue_likely());
        let waiter = joins.then(|| self.join());
        let queue = joins.then_some(self.queued.options);
        let chooser = slots::likely_chooser(self.context, self.lock_id(), None).filter(|_| !joins);
        let claim = Claim::begin(self.context, self.request, self.identity(), chooser, queue);
        let level = Level::new(claim, self.request.access, Some(self.owned.clone()));
        let stay = Stay {
            waiter,
            chooser,
            kept: None,
        };
        (level, stay)
    }

    /// Returns the identity of a new attempt.
    fn identity(&self) -> Identity {
        self.owner.identity(Some(self.ticket.clone()))
    }

    /// Waits aside until a majority of masters answer in time, or until the deadline. No client can
    /// win before the `quarantine` ends.
    async fn wait_aside(&self, mut quarantine: Option<Duration>) -> Result<(), AcquireError> {
        // Masters do not call this waiter. Closing the coordinator wakes it.
        let waiter = self.listen();
        let mut checks = 0_u32;
        loop {
            waiter.begin_attempt();
            self.context.check_open()?;
            let (is_connected, random) = (self.context.masters.has_quorum(), clock::random_u64());
            let left = quarantine.take();
            let delay = (self.queued).wait_aside(left, is_connected, checks, random);
            let end = self.deadline.cap(clock::now() + delay);
            waiter.called(MasterSet::NONE, end).await;
            // At the deadline, the caller makes a last attempt.
            if self.deadline.is_over() || majority_answers(self.context, self.request).await {
                return Ok(());
            }
            checks = checks.saturating_add(1);
        }
    }

    /// Reads or changes what this process knows of the other clients that want the lock.
    fn rivals<T>(&self, visit: impl FnOnce(&mut Rivals) -> T) -> T {
        let waiters = &self.context.local_waiters;
        waiters.rivals(&self.request.lock_id, visit)
    }

    /// Prepares a round that joins the queues of the masters. The waiter listens before it joins,
    /// so it misses no call.
    fn join(&self) -> CalledWaiter<'a> {
        self.rivals(|rivals| rivals.note_queued(true));
        self.listen()
    }

    fn listen(&self) -> CalledWaiter<'a> {
        let Context {
            masters, timers, ..
        } = &**self.context;
        CalledWaiter::new(
            masters,
            timers,
            self.context.config.retry.least(),
            &self.ticket,
        )
    }

    fn draw_ticket(&mut self) {
        let timestamp = self.context.timestamps.next();
        self.ticket = Ticket::new(timestamp, self.owner.id());
    }

    /// Waits for the permit to make a round. Without the permit, two attempts of one owner could
    /// run at the same time and take over each other's grants.
    async fn permit(&self) -> Result<SemaphorePermit<'a>, AcquireError> {
        /// The time between two looks whether the owner still has the lock.
        const LOOK: Duration = Duration::from_millis(10);
        let timeout = attempt_timeout(self.context, self.request);
        let end = self.deadline.queued_permit_by(timeout);
        loop {
            let permit = self.owned.permit(end, &self.context.timers).await;
            self.context.check_open()?;
            let Some(permit) = permit else {
                let denied = Denied::owner_busy();
                return Err(self.deadline.expired(self.context, self.request, &denied));
            };
            if self.owned.claim().is_none() {
                return Ok(permit);
            }
            drop(permit);
            // Another task of the owner has won the lock. The caller stops polling this future and
            // reenters. If that failed, or if the lock was released meanwhile, the caller polls
            // this future again.
            yield_now().await;
            if self.owned.claim().is_some() {
                let look_at = clock::now() + LOOK;
                self.context.timers.sleep_until(look_at).await;
            }
        }
    }

    /// Notes a round that was not won. Returns whether the waiter steps aside, or an error if the
    /// wait ends with the round.
    async fn note_loss(
        &mut self,
        round: &Arc<LiveRound>,
        outcome: Outcome,
        is_last: bool,
    ) -> Result<bool, AcquireError> {
        let was_aside = self.reach.is_aside(self.queued.options.waiter_timeout);
        if round.read(Round::lacks_masters) || was_aside {
            // Waits for the other votes, to complete the table of votes. Masters that are down have
            // already cast a failure.
            round.settled().await;
        }
        let denied = Denied::by(round.clone(), outcome, round.read(Round::free_in));
        denied.note(self.context, self.request.lock_id.name());
        self.deadline
            .note_failure(self.context, self.request, &denied, is_last)?;
        let start = round.read(Round::start);
        self.reach = self.context.note_reach(denied.is_reached(), start);
        Ok(round.read(|round| self.queued.note_round(round, self.reach)))
    }

    /// Gives back the grants of a round that was not won. The masters that have voted get their
    /// grants back at once. The other masters get theirs back after a wait. The wait ends when all
    /// votes are in, when masters call the waiter, or after a node timeout. A waiter that is not in
    /// the queues yet does not wait.
    ///
    /// The wait is needed because a round can be lost before all masters have answered. From the
    /// first answers alone, the waiter could wrongly conclude that it is the next waiter, or that
    /// the votes are split. The waiter would then ask again far too soon.
    async fn yield_grants(&self, claim: &Claim, round: &LiveRound, stay: &Stay<'_>) {
        let timeout = self.queued.options.waiter_timeout;
        let known = round.read(|round| round.may_have_key() - round.unanswered());
        claim.yield_grants(known, timeout);
        if let Some(waiter) = &stay.waiter {
            let end = clock::now() + self.context.node_timeout();
            let called = pin!(waiter.called(MasterSet::NONE, end));
            select(pin!(round.settled()), called).await;
        }
        claim.yield_grants(round.read(Round::may_have_key) - known, timeout);
    }

    /// Waits for a call after the master that chooses the slot has put others first. Gives back the
    /// grants that were kept from the round before.
    async fn wait_for_turn(&mut self, claim: &Claim, stay: &mut Stay<'_>) {
        stay.chooser = None;
        if let Some(round) = stay.kept.take() {
            claim.yield_grants(
                round.read(Round::may_have_key),
                self.queued.options.waiter_timeout,
            );
        }
        if let Some(waiter) = &stay.waiter {
            let wait = self.queued.wait_for_turn(clock::random_u64());
            let end = self.deadline.cap(clock::now() + wait);
            waiter.called(MasterSet::NONE, end).await;
        }
    }

    /// Waits until another round may win, or until a round is needed to keep the position in the
    /// queues. Does not wait if the next round is for a slot, or joins the queues. `had_chosen` is
    /// the master that had chosen the slot in `round`.
    async fn wait(&mut self, round: &LiveRound, had_chosen: Option<usize>, stay: &mut Stay<'_>) {
        let (None, Some(waiter)) = (stay.chooser, &stay.waiter) else {
            return;
        };
        let (now, random) = (clock::now(), clock::random_u64());
        match round.read(|round| self.queued.wait_after(round, had_chosen, random)) {
            Some(wait) => {
                let [pause, end] = [wait.pause, wait.end].map(|time| self.deadline.cap(now + time));
                self.context.timers.sleep_until(pause).await;
                waiter.called(round.read(Round::held_by_others), end).await;
            }
            None => waiter.watch(self.request.lock_id.key()), // in the next round
        }
        if had_chosen.is_none() {
            stay.chooser = slots::likely_chooser(self.context, self.lock_id(), Some(round));
        }
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
            let offset = &wrong.context().timestamps.offset;
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

    /// The masters show two different times, and no majority of masters agree on the time. The two
    /// waiting clients each use a different one of these times.
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
                .for_each(|master| master.set_clock(APART, 0));
            let locks = [(); 3].map(|()| Coordinator::new(&masters).unwrap());
            let offset = &locks[1].context().timestamps.offset;
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
