//! Drives all masters: one question to each, one outcome.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::sleep_until};

use crate::{
    clock,
    config::Config,
    core::{command::Command, lease::Ttl, name::Resource, round::Outcome, votes::Votes},
    error::AcquireError,
    hold::Held,
    live_round::LiveRound,
    master::{Ask, CountVotes, Mailbox, Owed, Supervisor},
};

/// What all locks of one coordinator share. Its supervisors end when the last handle on it is gone and
/// all that was posted is delivered.
#[derive(Debug)]
pub(crate) struct Engine {
    config: Config,
    addresses: Arc<[Arc<str>]>,
    mailboxes: Box<[Arc<Mailbox>]>,
    debts: Arc<Debts>,
    closed: AtomicBool,
}

impl Engine {
    pub(crate) fn start(
        config: Config,
        masters: Vec<(Arc<Mailbox>, Supervisor)>,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let (mailboxes, supervisors): (Vec<_>, Vec<_>) = masters.into_iter().unzip();
        for supervisor in supervisors {
            runtime.spawn(supervisor);
        }
        Self {
            config,
            addresses: mailboxes
                .iter()
                .map(|mailbox| mailbox.address().clone())
                .collect(),
            mailboxes: mailboxes.into(),
            debts: Arc::default(),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// How many masters there are.
    pub(crate) fn size(&self) -> usize {
        self.mailboxes.len()
    }

    pub(crate) fn addresses(&self) -> &[Arc<str>] {
        &self.addresses
    }

    pub(crate) fn votes(&self, round: &LiveRound) -> Votes {
        Votes::new(self.addresses.clone(), round.votes())
    }

    pub(crate) fn ask<C: CountVotes>(
        &self,
        command: Command,
        start: Instant,
        owed: Option<Owed>,
        counter: C,
    ) -> Arc<Ask<C>> {
        let deadline = start.checked_add(self.config.node_timeout).unwrap_or(start);
        Arc::new(Ask::new(command, deadline, owed, counter))
    }

    /// Puts a question to every master. Neither blocks nor spawns, so it may be done from `Drop`.
    pub(crate) fn post<C: CountVotes + 'static>(&self, ask: &Arc<Ask<C>>) {
        for mailbox in &self.mailboxes {
            mailbox.post(ask.clone());
        }
    }

    pub(crate) fn post_to<C: CountVotes + 'static>(&self, master: usize, ask: Arc<Ask<C>>) {
        if let Some(mailbox) = self.mailboxes.get(master) {
            mailbox.post(ask);
        }
    }

    /// One round.
    pub(crate) async fn try_acquire(
        self: &Arc<Self>,
        resource: &Resource,
        ttl: Ttl,
    ) -> Result<Held, AcquireError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(AcquireError::Closed);
        }
        let held = Held::ask(self, resource, ttl);
        match held.decided().await {
            Outcome::Won => Ok(held),
            outcome => Err(self.give_up(&held, outcome).await),
        }
    }

    /// Rounds until one is won, with random delays between them. With `patience`, the last one begins
    /// when it is over.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        resource: &Resource,
        ttl: Ttl,
        patience: Option<Duration>,
    ) -> Result<Held, AcquireError> {
        let start = clock::now();
        // A patience that no clock can hold is none.
        let deadline = patience.and_then(|patience| start.checked_add(patience));
        let mut attempts = 0u32;
        loop {
            let is_last = deadline.is_some_and(|deadline| deadline <= clock::now());
            let error = match self.try_acquire(resource, ttl).await {
                Ok(held) => return Ok(held),
                Err(error) => error,
            };
            if matches!(error, AcquireError::Closed | AcquireError::Config(_)) {
                return Err(error);
            }
            if is_last {
                return Err(AcquireError::Deadline {
                    waited: clock::now().saturating_duration_since(start),
                    attempts: attempts.saturating_add(1),
                    last: Box::new(error),
                });
            }
            let delay = self.config.retry.delay(attempts, clock::random_u64());
            attempts = attempts.saturating_add(1);
            let next = clock::now().checked_add(delay);
            if let Some(at) = deadline.into_iter().chain(next).min() {
                sleep_until(at.into()).await;
            }
        }
    }

    /// Takes back what a round that was not won may have left, and says why it was not.
    ///
    /// The answers to the release come anyway, and say for how long others hold the lock.
    async fn give_up(&self, held: &Held, outcome: Outcome) -> AcquireError {
        let (elapsed, ttl) = held.elapsed();
        let release = held.release();
        let acquisition = held.acquisition();
        if outcome == Outcome::Lost && !acquisition.read(|round| round.lacks_masters()) {
            release.counter.decided().await;
        } else {
            // For a full table. Masters that are down have failed already.
            release.counter.settled().await;
        }
        let name = held.name().clone();
        let votes = self.votes(acquisition);
        if outcome == Outcome::TooLate {
            AcquireError::TooSlow {
                name,
                elapsed,
                ttl,
                votes,
            }
        } else if acquisition.read(|round| round.lacks_masters()) {
            AcquireError::NoQuorum { name, votes }
        } else {
            AcquireError::Contended {
                name,
                remaining: release.counter.read(|round| round.free_in()),
                votes,
            }
        }
    }

    /// A debt that stands until the returned value is dropped.
    pub(crate) fn owe(&self) -> Debt {
        self.debts.count.fetch_add(1, Ordering::AcqRel);
        Debt(self.debts.clone())
    }

    /// Refuses new acquisitions and waits until no debt is left.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        loop {
            let mut paid = std::pin::pin!(self.debts.paid.notified());
            paid.as_mut().enable(); // first register, then look
            if self.debts.count.load(Ordering::Acquire) == 0 {
                return;
            }
            paid.await;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for mailbox in &self.mailboxes {
            mailbox.abandon();
        }
    }
}

/// How many releases have not reached all the masters that they are owed to.
#[derive(Debug, Default)]
struct Debts {
    count: AtomicUsize,
    paid: Notify,
}

/// One of them. Travels with the release, so it ends when the last master lets go of that.
#[derive(Debug)]
pub(crate) struct Debt(Arc<Debts>);

impl Drop for Debt {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.paid.notify_waiters();
        }
    }
}
