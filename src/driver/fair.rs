//! How a fair lock is waited for: in the queues of all masters, in one order.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::{sync::SemaphorePermit, task::yield_now};

use super::{deadline::Deadline, engine::Engine, select::first_of};
use crate::{
    core::{
        chances::{Chance, Chances, Position},
        identity::{Identity, QueueOptions, Ticket},
        retry::Backoff,
        round::{Outcome, Round},
    },
    driver::claim::{Claim, Level, LockRequest, NextRound},
    driver::clock,
    driver::fair_waiters::FairWaiter,
    driver::live_round::LiveRound,
    driver::owned_lock::{LockOwner, OwnedLock},
    error::AcquireError,
};

/// Masters that cannot agree on the time are not asked for it for ever.
const CORRECTIONS: u32 = 2;

/// How the wait in the queues ended.
enum End {
    Won(Level),
    /// The ticket has another time than the masters' clocks, which show this.
    Skewed(Duration),
    /// No majority of masters have answered in time for too long.
    Unable,
}

impl Engine {
    /// Rounds until one is won, from one place in the queues of all masters.
    pub(super) async fn acquire_fair(
        self: &Arc<Self>,
        request: &LockRequest,
        owner: &Arc<LockOwner<Claim>>,
        owned: &Arc<OwnedLock<Claim>>,
        limit: Deadline,
    ) -> Result<Level, AcquireError> {
        let patience = self.waiter_timeout();
        let mut corrections = 0;
        let mut place = FairWait {
            engine: self,
            request,
            owned,
            limit,
            owner,
            ticket: Ticket::new(self.next_timestamp(), owner.id()),
            patience: QueueOptions {
                waiter_timeout: patience,
                is_fresh: true,
            },
            chances: self.chances(),
            left: None,
            failures: 0,
            splits: 0,
            disputes: 0,
            bids: 0,
        };
        loop {
            match place.stand().await? {
                End::Won(held) => return Ok(held),
                End::Skewed(clock) => {
                    self.correct_clock(clock);
                    corrections += 1;
                    place.ticket = Ticket::new(self.next_timestamp(), owner.id());
                    place.patience.is_fresh = corrections < CORRECTIONS;
                    place.disputes = 0;
                }
                End::Unable => {
                    place.wait_aside().await?;
                    if place.patience.is_fresh {
                        // No majority knows the ticket, and its time is not that of the masters any
                        // more.
                        place.ticket = Ticket::new(self.next_timestamp(), owner.id());
                    }
                }
            }
        }
    }
}

/// A wait with one ticket at a time, in the queues of the masters or aside.
pub(super) struct FairWait<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) request: &'a LockRequest,
    owned: &'a Arc<OwnedLock<Claim>>,
    pub(super) limit: Deadline,
    owner: &'a Arc<LockOwner<Claim>>,
    pub(super) ticket: Ticket,
    pub(super) patience: QueueOptions,
    chances: Chances,
    /// For how long still the masters have no vote, if that was why the last round was not won.
    pub(super) left: Option<Duration>,
    failures: u32,
    splits: u32,
    disputes: u32,
    bids: usize,
}

impl<'a> FairWait<'a> {
    async fn stand(&mut self) -> Result<End, AcquireError> {
        let mut asking = self.asking().await?;
        let mut is_last = self.limit.is_over();
        let owned = Some(self.owned.clone());
        let identity = self.identity();
        // Not in the queue yet: who finds the lock free need not listen.
        let held = Level::new(Claim::ask(self.engine, self.request, identity, owned, None));
        let mut turn = None;
        loop {
            let outcome = Engine::decided(&held).await;
            if outcome == Outcome::Won {
                self.owned.won(&held);
                self.engine.note_chance(Chance::Had, clock::now());
                return Ok(End::Won(held));
            }
            let round = held.newest_round();
            let is_fresh = self.patience.is_fresh;
            if let Some(clock) = round.read(Round::skewed_to).filter(|_| is_fresh) {
                return Ok(End::Skewed(clock));
            }
            if self.raises_ballot(&held, turn.is_some()) {
                continue;
            }
            self.give_back(&held, &round, turn.as_ref()).await;
            drop(asking);
            self.check(&held, outcome, is_last).await?;
            if self.look_back(&round, outcome) == Position::Aside {
                return Ok(End::Unable); // and out of the queues, as the hold is dropped
            }
            if let Some(turn) = &turn {
                self.wait(turn, &round).await;
                self.failures = self.failures.saturating_add(1);
            }
            // Ahead of the place in the queue, so that no call is missed.
            let turn =
                turn.get_or_insert_with(|| self.engine.turns.join(self.engine, &self.ticket));
            asking = self.asking().await?;
            is_last = self.limit.is_over();
            turn.attempt();
            held.ask_again(NextRound {
                identity: Some(self.identity()),
                patience: Some(self.patience),
                candidate: None,
            });
        }
    }

    /// What a round that was not won says of the next one, and where to wait for that.
    fn look_back(&mut self, round: &LiveRound, outcome: Outcome) -> Position {
        // Those that are up may have no majority for either: then nobody would ever be the first on
        // one.
        self.disputes += u32::from(round.read(Round::is_skewed_to_any));
        self.patience.is_fresh &= !round.read(Round::is_queued) && self.disputes < CORRECTIONS;
        self.left = round.read(Round::quarantined);
        let chance = round.read(|round| Chance::of_round(round, outcome));
        self.chances = self.engine.note_chance(chance, round.read(Round::start));
        self.chances.position(self.patience.waiter_timeout)
    }

    /// Whether it bids again for a fencing token, which is of use a few times in a row.
    fn raises_ballot(&mut self, held: &Level, is_queued: bool) -> bool {
        let queued = is_queued.then_some(self.patience);
        let again = self.bids < Engine::MORE_BALLOTS && self.engine.raise_ballot(held, queued);
        self.bids = if again { self.bids + 1 } else { 0 };
        again
    }

    /// A new one for each round: what gives one back may come late, behind the next.
    fn identity(&self) -> Identity {
        self.owner.identity(Some(self.ticket.clone()))
    }

    /// Whether to go on after a round that was not won.
    async fn check(
        &self,
        held: &Level,
        outcome: Outcome,
        is_last: bool,
    ) -> Result<(), AcquireError> {
        let round = held.newest_round();
        if round.read(Round::lacks_masters)
            || self.chances.position(self.patience.waiter_timeout) == Position::Aside
        {
            round.settled().await; // for a full table; masters that are down have failed already
        }
        let remaining = round.read(Round::free_in);
        let error = self.engine.why_not(held, outcome, remaining);
        self.limit.check(held.name(), error, is_last, self.failures)
    }

    /// The turn to ask, as two attempts of one owner would take what they are granted from one another.
    async fn asking(&self) -> Result<SemaphorePermit<'a>, AcquireError> {
        let end = self.limit.last_turn(self.engine.attempt());
        loop {
            let asking = self.owned.attempt(end).await;
            self.engine.check_open()?;
            let Some(asking) = asking else {
                return Err(self.limit.over(self.request.resource.name(), self.failures));
            };
            if self
                .owned
                .claim()
                .filter(|claim| claim.can_reenter())
                .is_none()
            {
                return Ok(asking);
            }
            drop(asking);
            // Another task of the owner's has won: whoever waits for that drops this now, and enters there. If
            // that one has given it up meanwhile, nobody would ever tell.
            yield_now().await;
        }
    }

    /// Gives back what a minority granted: at once what is known of, and the rest when it has come in, or when
    /// asking again cannot wait for that.
    ///
    /// A round is lost before all have answered. By the first answers alone whoever waits would take itself for
    /// the next one, or the vote for split, and would come back far too soon.
    async fn give_back(&self, held: &Level, round: &LiveRound, turn: Option<&FairWaiter<'_>>) {
        let patience = self.patience;
        let known = round.read(|round| round.may_hold() - round.unheard());
        held.yield_grants(known, patience);
        if let Some(turn) = turn {
            let until = clock::now() + self.engine.node_timeout();
            first_of(pin!(round.settled()), pin!(turn.called(until))).await;
        }
        held.yield_grants(round.read(Round::may_hold) - known, patience);
    }

    /// Waits until asking again is worth it, or must be done to keep the place.
    async fn wait(&mut self, turn: &FairWaiter<'_>, round: &LiveRound) {
        let now = clock::now();
        // Well before a master takes us for dead, and not all at once.
        let patience = self.patience.waiter_timeout;
        let poll = Backoff::between(patience / 4, patience / 3);
        let mut until = now + poll.delay(u32::MAX, clock::random_u64());
        let is_contender = round.read(Round::is_next);
        let is_split = is_contender && !round.read(Round::is_held_by_one);
        if let Some(left) = round.read(Round::quarantined) {
            // Nobody is served before that, and only the place is to be kept.
            until = until.min(now + left + self.engine.config.retry.least());
        } else if is_split || round.read(Round::lacks_masters) {
            until = until.min(self.engine.retry_at(self.splits));
            self.splits = self.splits.saturating_add(1);
        } else {
            self.splits = 0;
            // Who is next looks when the lock expires. A key lives to the end of its last millisecond.
            let expiry = round.read(Round::free_in).filter(|_| is_contender);
            let expiry = expiry.map(|left| now + left + Duration::from_millis(2));
            until = expiry.map_or(until, |expiry| until.min(expiry));
        }
        turn.called(self.limit.not_later(until)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::{Coordinator, MemoryMaster};

    #[tokio::test(start_paused = true)]
    async fn a_client_whose_clock_is_off_goes_by_the_masters_clocks() {
        const HOUR: i64 = 3_600_000_000;
        for off in [-HOUR, HOUR] {
            let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
            let right = Coordinator::new(&masters).unwrap();
            let wrong = Coordinator::new(&masters).unwrap();
            let offset = &wrong.engine().clock_offset;
            offset.store(off, Ordering::Relaxed);
            let guard = right.fair("r", &right.owner()).acquire().await.unwrap();
            let mut came = Vec::new();
            let mut waiting = Vec::new();
            for locks in [&right, &wrong, &right, &wrong, &right] {
                let owner = locks.owner();
                let mut waiter = Box::pin({
                    let lock = locks.fair("r", &owner);
                    async move { drop(lock.acquire().await.unwrap()) }
                });
                let place = tokio::time::timeout(Duration::from_millis(10), waiter.as_mut());
                assert!(place.await.is_err());
                came.push(owner.id().to_owned());
                waiting.push(waiter);
                // Their clocks are real ones, and a correction is as good as a round trip is short.
                let came = clock::wall_micros();
                while clock::wall_micros() < came + 5_000 {}
            }
            for master in &masters {
                let tickets = master.queue("quorlock:queue:{r}");
                let owners = tickets.iter().map(|ticket| Ticket::owner_of(ticket));
                assert!(owners.eq(&came), "{off}: {tickets:?}, not {came:?}");
            }
            assert!(offset.load(Ordering::Relaxed).abs() < HOUR / 100);
            drop(guard);
            for waiter in waiting {
                waiter.await;
            }
        }
    }

    /// Neither clock has a majority of those that are up: one client goes by one of them, one by the other.
    #[tokio::test(start_paused = true)]
    async fn masters_that_are_split_over_the_time_serve_all_the_same() {
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
            let offset = &locks[1].engine().clock_offset;
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
