//! How a waiter waits that cannot win: out of everybody's way.

use std::time::{Duration, Instant};

use super::{engine::Engine, fair::FairWait};
use crate::{
    core::{
        chances::{Chance, Chances, Position},
        command::{Action, Command, Verb},
        round::Round,
    },
    driver::claim::LockRequest,
    driver::clock,
    driver::live_round::LiveRound,
    error::AcquireError,
};

impl FairWait<'_> {
    /// Waits out of the queues, until a majority of masters answer in time or the time to wait is
    /// over.
    pub(super) async fn wait_aside(&mut self) -> Result<(), AcquireError> {
        // Nobody calls it, but for the coordinator when it is closed.
        let turn = self.engine.turns().join(self.engine, &self.ticket);
        let retry = self.engine.config.retry;
        let probes = Chances::probes(self.patience.waiter_timeout);
        for probe in 0.. {
            turn.attempt();
            self.engine.check_open()?;
            let random = clock::random_u64();
            let delay = match self.left.take() {
                // Nobody can win before that.
                Some(left) => left + retry.least(),
                None if self.engine.is_connected() => probes.delay(probe, random),
                // It costs the masters nothing to look.
                None => retry.delay(u32::MAX, random),
            };
            turn.called(self.limit.not_later(clock::now() + delay))
                .await;
            if self.limit.is_over() {
                return Ok(()); // for a last attempt
            }
            if self.engine.is_connected() && self.engine.is_answered(self.request).await {
                return Ok(());
            }
        }
        Ok(()) // nobody counts that far
    }
}

impl Engine {
    /// What the waits of this coordinator say of whether the next one can win.
    pub(super) fn chances(&self) -> Chances {
        let chances = *self.chances.lock();
        chances.at(clock::now(), self.waiter_timeout())
    }

    /// Notes what an attempt says that began at `start` and is over now.
    pub(super) fn note_chance(&self, chance: Chance, start: Instant) -> Chances {
        let now = clock::now();
        let mut chances = self.chances.lock();
        chances.note(chance, start, now);
        *chances
    }

    /// Returns how long a waiter of a fair lock may give no sign of life: no less than four node
    /// timeouts of the slowest master, so that one lost poll does not count as death.
    pub(super) fn waiter_timeout(&self) -> Duration {
        self.config.patience.max(self.node_timeout() * 4)
    }

    /// Whether asking for a lock is worth it, by what came of asking before.
    pub(super) async fn may_win(&self, request: &LockRequest, chances: Chances) -> bool {
        match chances.position(self.waiter_timeout()) {
            Position::Aside => self.is_connected() && self.is_answered(request).await,
            Position::Queued => true,
        }
    }

    /// Whether a majority of masters answer a question that changes nothing while a lock that was
    /// asked for with it would be valid. Errors are answers: whether they are in the way shows in
    /// the next round.
    async fn is_answered(&self, request: &LockRequest) -> bool {
        let start = clock::now();
        let limit = start + self.usable(request);
        let round = Round::open(Verb::Inspect, self.size(), start, Some(limit));
        let probe = LiveRound::of_acquisition(round);
        self.post(&self.ask(
            Command::new(&request.resource, Action::Inspect),
            probe.clone(),
        ));
        probe.settled().await;
        probe.read(Round::is_answered)
    }

    /// Returns for how long a lock can be valid.
    pub(super) fn usable(&self, request: &LockRequest) -> Duration {
        let ttl = request.ttl.duration();
        ttl.saturating_sub(self.config.drift.allowance(ttl))
    }
}
