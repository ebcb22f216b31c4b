//! Waits for a lock with queues on the masters. A waiter has the same ticket in all queues.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::future::select;
use tokio::sync::SemaphorePermit;

use super::{
    attempt::{attempt_timeout, majority_answers},
    denied::{Deadline, Denied},
    slots::SlotChoice,
};
use crate::{
    clock,
    core::{
        kind::Access,
        protocol::{Identity, Ticket},
        reason::Reason,
        vote::{MasterSet, Outcome, Round, Vote},
        wait::queued::QueuePolicy,
    },
    driver::{
        claim::{ClaimHandle, Level, ask::LockRequest, owned_lock::OwnedLock},
        context::Context,
        round_handle::RoundHandle,
        waiter::Waiter,
    },
    machine::{claim::ask::Asking, waiters::Topic},
};

/// What a waiter has while it makes rounds with one claim. Dropping this value leaves the queues.
/// The fields are dropped in order, so the waiter leaves before its owner may begin another
/// attempt.
struct QueuePosition<'a> {
    /// `None` until the waiter joins the queues.
    waiter: Option<Waiter<'a>>,
    level: Level,
    /// The permit to make a round. `None` between two rounds.
    permit: Option<SemaphorePermit<'a>>,
    /// `true` if the newest round began at the deadline.
    is_last: bool,
    slot: SlotChoice,
}

/// Makes rounds until one wins the lock. Between rounds, waits in the queues of all masters, or
/// outside of them while too few masters answer.
pub(super) async fn acquire_queued(
    request: &LockRequest,
    owned: &Arc<OwnedLock>,
    deadline: &Deadline,
) -> Result<Level, Denied> {
    let context = &request.context;
    let kind = request.lock_id.kind();
    let mut wait = QueuedWait {
        context,
        request,
        owned,
        deadline,
        ticket: Ticket::new(context.timestamps.next(), owned.owner.id()),
        policy: QueuePolicy::new(
            context.config.retry,
            context.silent_waiter_timeout(),
            kind.spec().has_readers && request.access == Access::Shared,
        ),
    };
    loop {
        if let Some(level) = wait.make_rounds().await? {
            return Ok(level);
        }
    }
}

/// A wait for a lock with queues. The waiter has one ticket at a time.
struct QueuedWait<'a> {
    context: &'a Context,
    request: &'a LockRequest,
    owned: &'a Arc<OwnedLock>,
    deadline: &'a Deadline,
    ticket: Ticket,
    policy: QueuePolicy,
}

impl<'a> QueuedWait<'a> {
    /// Makes rounds with one claim until a round wins the lock, or until there is a reason to leave
    /// the queues. Waits in the queues between rounds. Returns `None` if the waiter has left the
    /// queues, and may begin again: its ticket had the wrong time, or it has waited aside.
    async fn make_rounds(&mut self) -> Result<Option<Level>, Denied> {
        let mut position = self.begin().await?;
        loop {
            let outcome = self.decide(&mut position).await?;
            if outcome == Outcome::Won {
                return Ok(Some(position.level));
            }
            let round = position.level.claim.newest_round();
            if let Some(time) = round.read(|round| self.policy.right_time(round)) {
                round.read(|round| self.policy.note_votes(round));
                drop(position);
                (self.context.timestamps).correct(time, self.context.observer());
                self.draw_ticket();
                return Ok(None);
            }
            let is_kept = position.slot.note_denied(self.request, &round);
            if !is_kept {
                self.yield_grants(&round, &position).await;
            }
            position.permit = None;
            self.note_denied(&round, outcome, position.is_last).await?;
            if self.context.is_aside() {
                let quarantine = round.read(Round::quarantined);
                drop((position, round));
                self.wait_aside(quarantine).await?;
                return Ok(None);
            }
            if !is_kept {
                self.wait(&round, &mut position).await;
            }
            self.ask_again(&mut position).await?;
        }
    }

    /// Begins the first round. If no waiter of this process had to wait in the queues lately, the
    /// lock may be free, and the round does not join them.
    async fn begin(&self) -> Result<QueuePosition<'a>, Denied> {
        let permit = self.permit().await?;
        let is_last = self.deadline.is_over();
        let joins = !is_last && self.request.history(|history| history.was_queued);
        let waiter = joins.then(|| self.join());
        let queue = joins.then_some(self.policy.options);
        let claim = ClaimHandle::begin(self.request, self.identity(), None, queue);
        Ok(QueuePosition {
            waiter,
            level: Level::new(claim, self.request.access, Some(self.owned.clone())),
            permit: Some(permit),
            is_last,
            slot: SlotChoice::default(),
        })
    }

    /// Waits for the result of the newest round, which may take further ballots for a fencing
    /// token.
    async fn decide(&self, position: &mut QueuePosition<'a>) -> Result<Outcome, Denied> {
        self.ask_for_slot(position).await?;
        let claim = &position.level.claim;
        let rounds = claim.rounds();
        let may_raise = |round: &_| self.policy.right_time(round).is_none();
        let outcome = claim.conclude(!position.is_last, may_raise).await;
        if outcome == Outcome::Won {
            if claim.rounds() == 1 {
                self.request.history(|history| history.was_queued = false);
            }
            self.owned.won(claim);
            self.context.note_reach(true, clock::now());
        } else if claim.rounds() > rounds {
            position.slot.agreed = None; // in a further ballot, all masters choose
        }
        Ok(outcome)
    }

    /// If the agreed master chooses the slot of a semaphore, waits for its answer before the other
    /// masters are asked. If the agreed master puts other clients first, waits until masters call
    /// this waiter, and then asks all masters.
    async fn ask_for_slot(&self, position: &mut QueuePosition<'a>) -> Result<(), Denied> {
        let queue = position.waiter.as_ref().map(|_| self.policy.options);
        let (claim, is_last) = (&position.level.claim, position.is_last);
        let asked = (position.slot).await_choice(self.context, claim, queue, is_last);
        if let Some(delay) = asked.await {
            position.permit = None;
            if let Some(waiter) = &position.waiter {
                let end = self.deadline.cap(clock::now() + delay);
                waiter.wait_for_call(end).await;
            }
            self.ask_again(position).await?;
        }
        Ok(())
    }

    /// Posts another round. If the agreed master does not choose the slot, the round joins the
    /// queues.
    async fn ask_again(&self, position: &mut QueuePosition<'a>) -> Result<(), Denied> {
        if position.slot.agreed.is_none() {
            position.waiter.get_or_insert_with(|| self.join());
        }
        position.permit = Some(self.permit().await?);
        position.is_last = self.deadline.is_over();
        if let Some(waiter) = &position.waiter {
            waiter.begin_attempt();
        }
        let claim = &position.level.claim;
        let how = Asking {
            first: position.slot.agreed.map_or(MasterSet::ALL, MasterSet::only),
            queue: position.waiter.as_ref().map(|_| self.policy.options),
            watch: (position.waiter.as_ref()).is_some_and(Waiter::watches),
        };
        // The round is a new attempt. The command that gives back the grants of the last attempt
        // may arrive late, but does not remove grants of the new attempt. On masters that still
        // have a grant of the last attempt, the new attempt replaces that grant.
        claim.ask_again(self.identity(), how);
        Ok(())
    }

    fn identity(&self) -> Identity {
        self.owned.owner.identity(Some(self.ticket.clone()))
    }

    /// Waits outside of the queues until a majority of masters answer in time, or until the
    /// deadline. The `quarantine` is the time until enough masters are out of quarantine. Before
    /// that, no client can win.
    async fn wait_aside(&mut self, mut quarantine: Option<Duration>) -> Result<(), Denied> {
        // Masters do not call this waiter, but closing the coordinator wakes it.
        let waiter = self.listen();
        let mut checks = 0_u32;
        loop {
            waiter.begin_attempt();
            self.context.check_open()?;
            let (is_connected, random) = (self.context.machine.has_quorum(), clock::random_u64());
            let left = quarantine.take();
            let delay = (self.policy).delay_aside(left, is_connected, checks, random);
            let end = self.deadline.cap(clock::now() + delay);
            waiter.wait_for_call(end).await;
            // At the deadline, the caller makes a last attempt.
            if self.deadline.is_over() || majority_answers(self.request).await {
                break;
            }
            checks = checks.saturating_add(1);
        }
        if self.policy.options.is_fresh {
            // At most a minority of masters has seen the old ticket. The other masters would now
            // refuse the time in that ticket, because their clocks have moved on.
            self.draw_ticket();
        }
        Ok(())
    }

    /// Prepares a round that joins the queues of the masters. The waiter listens for calls before
    /// it joins, so it misses none.
    fn join(&self) -> Waiter<'a> {
        self.request.history(|history| history.was_queued = true);
        self.listen()
    }

    /// Returns a waiter that listens for calls of the ticket. A master calls the waiter at the head
    /// of its queue: it publishes the ticket of that waiter. The waiter hears every call that a
    /// later request causes, unless the master refuses the subscription or the connection breaks.
    /// After a missed call, the waiter asks again at its next poll.
    fn listen(&self) -> Waiter<'a> {
        let turn = Topic::Turn(self.ticket.clone());
        Waiter::for_topic(&self.context.machine, &self.context.timers, &turn)
    }

    fn draw_ticket(&mut self) {
        let timestamp = self.context.timestamps.next();
        self.ticket = Ticket::new(timestamp, self.owned.owner.id());
    }

    async fn permit(&self) -> Result<SemaphorePermit<'a>, Denied> {
        /// The pause before this task checks again whether the owner has the lock.
        const LOOK: Duration = Duration::from_millis(10);
        let timeout = attempt_timeout(self.request);
        let end = self.deadline.queued_permit_by(timeout);
        loop {
            let permit = self.owned.permit(end, &self.context.timers).await;
            self.context.check_open()?;
            let Some(permit) = permit else {
                return Err(Reason::OwnerBusy.into());
            };
            if !self.owned.is_held(&self.request.context) {
                self.owned.check_attempt().map_err(Reason::Config)?;
                return Ok(permit);
            }
            drop(permit);
            // Another task of the owner has won the lock. The caller stops polling this future and
            // reenters. If that fails, or if the lock is released meanwhile, the caller polls this
            // future again.
            let look_at = clock::now() + LOOK;
            self.context.timers.sleep_until(look_at).await;
        }
    }

    /// Notes a round that was not won. Returns an error if the wait ends with the round.
    async fn note_denied(
        &mut self,
        round: &RoundHandle,
        outcome: Outcome,
        is_last: bool,
    ) -> Result<(), Denied> {
        if round.read(Round::lacks_masters) || self.context.is_aside() {
            // Waits for the other votes, so that an error shows every vote. Masters that are down
            // have already cast a failure.
            round.settled().await;
        }
        let denied = Denied::by(round.clone(), outcome, round.read(Round::free_in));
        denied.note(self.request);
        let denied = (self.deadline).note_failure(self.request, denied, is_last)?;
        let start = round.read(Round::start);
        if let Some(is_reached) = denied.is_reached() {
            self.context.note_reach(is_reached, start);
        }
        round.read(|round| self.policy.note_votes(round));
        Ok(())
    }

    /// Gives back the grants of a round that was not won. Masters that have voted get the command
    /// at once, and the other masters get it after a wait. The wait ends when all votes are in,
    /// when masters call the waiter, or after a response timeout. A waiter that is not in the
    /// queues yet does not wait.
    ///
    /// The wait is needed because a round can be lost before all masters have answered. From the
    /// first answers alone, the waiter could wrongly conclude that it is the next waiter, or that
    /// the votes are split. The waiter would then ask again far too soon.
    async fn yield_grants(&self, round: &RoundHandle, position: &QueuePosition<'_>) {
        let (claim, timeout) = (
            &position.level.claim,
            self.policy.options.silent_waiter_timeout,
        );
        let known = round.read(|round| round.may_have_key() - round.unanswered());
        claim.yield_grants(known, timeout);
        if let Some(waiter) = &position.waiter {
            let end = clock::now() + self.context.response_timeout();
            let called = pin!(waiter.wait_for_call(end));
            select(pin!(round.settled()), called).await;
        }
        claim.yield_grants(round.read(Round::may_have_key) - known, timeout);
    }

    /// Waits until another round may win, or until a round is needed to keep the position in the
    /// queues. Does not wait if the waiter is not in the queues yet, because the next round joins
    /// them.
    async fn wait(&mut self, round: &RoundHandle, position: &mut QueuePosition<'_>) {
        let Some(waiter) = &position.waiter else {
            return;
        };
        let chosen_by = position.slot.chosen_by.take();
        let lock_id = &self.request.lock_id;
        // If another program deletes the key, no master calls a waiter. So the waiter at the head
        // of a queue watches the key, from its next round on.
        let watches = lock_id.kind().is_watched() && round.read(Round::is_next);
        if watches && waiter.watch(lock_id.key()) {
            return;
        }
        let (now, random) = (clock::now(), clock::random_u64());
        // The agreed master may not know the holder of the slot that it has granted. Another slot
        // may be free, but no master calls the waiter for another slot.
        let granting = round.read(|round| round.masters(Vote::is_grant));
        let is_taken = chosen_by.is_some_and(|agreed| granting.contains(agreed));
        let wait = round.read(|round| self.policy.wait_after(round, is_taken, now, random));
        let [pause, end] = [wait.pause, wait.end].map(|time| self.deadline.cap(now + time));
        self.context.timers.sleep_until(pause).await;
        let (held, free) = round.read(|round| (round.held_by_others(), round.granted()));
        waiter.wait_for_change(held, free, end).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Coordinator, MemoryMaster};

    #[tokio::test(start_paused = true)]
    async fn a_client_with_a_wrong_clock_uses_the_clocks_of_the_masters() {
        const HOUR: i64 = 3_600_000_000;
        for off in [-HOUR, HOUR] {
            let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
            let right = Coordinator::new(&masters).unwrap();
            let wrong = Coordinator::new(&masters).unwrap();
            wrong.context().timestamps.follow(off);
            let guard = right.fair("r").acquire().await.unwrap();
            let mut arrived = Vec::new();
            let mut waiting = Vec::new();
            for locks in [&right, &wrong, &right, &wrong, &right] {
                let owner = locks.new_owner();
                let mut waiter = Box::pin({
                    let lock = locks.fair("r").owner(&owner);
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
            assert!(wrong.context().timestamps.offset().abs() < HOUR / 100);
            drop(guard);
            for waiter in waiting {
                waiter.await;
            }
        }
    }

    /// The masters show two different times, and no majority of masters agree on the time. One of
    /// the two waiting clients uses the first time, and the other client uses the second.
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
            locks[1].context().timestamps.follow(APART);
            tokio::time::sleep(seconds(1)).await;
            let held = &locks[2];
            let held = held.fair("r").acquire().await.unwrap();
            let wait = |locks: &Coordinator| {
                let lock = locks.fair("r");
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
