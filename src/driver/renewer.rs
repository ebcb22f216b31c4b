//! Renews locks. All guards of a coordinator share one task.

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use futures::future::select;

use crate::{
    clock,
    core::{
        time::tick::LeaseTick,
        vote::{quorum::Outcome, round::Round},
    },
    driver::{live_round::LiveRound, time},
    master::Shared,
    panics::shielded,
};

/// Renews locks when their renewal is due. Renewals that are due at the same time are sent to each
/// master in one batch. The task waits for votes only if very many renewals are under way, see
/// [`Backlog`].
pub(crate) struct Renewer {
    machine: Arc<Shared>,
}

impl Renewer {
    pub(in crate::driver) fn new(machine: Arc<Shared>) -> Self {
        Self { machine }
    }

    /// Renews claims when they are due, until the machine is abandoned.
    pub(crate) async fn run(self) {
        let mut backlog = Backlog {
            batches: VecDeque::new(),
            undecided: Backlog::FEW,
        };
        while let Some(due) = self.next_due().await {
            let now = clock::now();
            if now < due {
                self.sleep_until(due).await;
                continue;
            }
            if let Some(batch) = self.renew_some(backlog.undecided / 3) {
                backlog.push(batch, now.since(due)).await;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until there is a claim. Returns the instant at which the next claim is due, or `None`
    /// if the machine is abandoned.
    async fn next_due(&self) -> Option<LeaseTick> {
        loop {
            let (is_closed, due) =
                (self.machine).lock(|machine| (machine.is_abandoned, machine.renewals.next_due()));
            if is_closed || due.is_some() {
                return due.filter(|_| !is_closed);
            }
            self.machine.renewer.notified().await;
        }
    }

    /// Sleeps until `due`. If there are many claims, sleeps a little longer, so that more renewals
    /// share a batch. Returns early if a claim that is due earlier is added, or if the machine is
    /// abandoned.
    async fn sleep_until(&self, due: LeaseTick) {
        let is_crowded = self.machine.lock(|machine| machine.renewals.is_crowded());
        let longer = Duration::from_millis(if is_crowded { 5 } else { 0 });
        let sleep = pin!(time::sleep_until(due + longer));
        select(pin!(self.machine.renewer.notified()), sleep).await;
    }

    /// Renews up to `most` of the claims that are due. The caller then lets other tasks run.
    fn renew_some(&self, most: usize) -> Option<Batch> {
        let mut batch: Option<Batch> = None;
        for _ in 0..most {
            let random = clock::random_u64();
            let Some(posted) = (self.machine).with(|machine, now| machine.renew_next(random, now))
            else {
                break;
            };
            if let Some((claim, round)) = posted {
                let last = LiveRound::new(&self.machine, round);
                shielded(|| last.open_span(claim)); // subscribers are code of the program
                let renewals = batch.map_or(0, |batch| batch.renewals) + 1;
                batch = Some(Batch { last, renewals });
            }
        }
        batch
    }
}

/// Renewals that were posted together.
#[derive(Debug)]
struct Batch {
    last: LiveRound,
    renewals: usize,
}

/// The batches that some masters have not answered yet, oldest first. The backlog limits the number
/// of renewals under way. Masters can answer only a limited number of renewals within the node
/// timeout. Further renewals would time out, and would be posted again.
///
/// If the masters are far away or this process gets little processor time, the limit may be too low
/// to renew all locks in time. So while renewals are late, the limit doubles each time that the
/// masters have confirmed as many renewals as the limit allows.
///
/// Masters answer in order. So a batch is decided when its last round is decided, and settled when
/// its last round is settled. While a majority answers, a master that hangs delays renewals only if
/// very many are due. The delay is one node timeout. After that, the master counts as down.
#[derive(Debug)]
struct Backlog {
    batches: VecDeque<Batch>,
    /// The number of renewals that may be undecided.
    undecided: usize,
}

impl Backlog {
    /// The number of renewals that may be undecided while none is late.
    const FEW: usize = 384;
    const MOST: usize = 16 * Self::FEW;
    const LATE: Duration = Duration::from_millis(500);

    /// Adds a batch, and waits until more renewals may be posted. `late` is the delay of the first
    /// renewal in the batch.
    async fn push(&mut self, batch: Batch, late: Duration) {
        self.batches.push_back(batch);
        let outcome = match self.newest_before(self.undecided) {
            Some(round) => round.decided().await,
            None => Outcome::Pending,
        };
        // A slow master may be further behind than the masters that decide.
        if let Some(round) = self.newest_before(4 * self.undecided) {
            round.settled().await;
        }
        match outcome {
            _ if late < Self::LATE => self.undecided = Self::FEW,
            Outcome::Pending => return, // too few renewals to show what the masters can do
            Outcome::Won if self.undecided < Self::MOST => {
                self.undecided *= 2;
                return self.batches.clear(); // only later batches show if the masters can do more
            }
            Outcome::Won => {}
            Outcome::NoMajority | Outcome::TooLate => self.undecided = Self::FEW,
        }
        let is_over = |batch: &Batch| batch.last.read(Round::is_settled);
        while self.batches.front().is_some_and(is_over) {
            self.batches.pop_front();
        }
    }

    /// Adds up the renewals of the batches, newest first, until the sum reaches `renewals`. Returns
    /// the last round of the batch that was added last, or `None` if all batches together have
    /// fewer renewals.
    fn newest_before(&self, renewals: usize) -> Option<&LiveRound> {
        let mut posted = 0;
        let mut batches = self.batches.iter().rev();
        let batch = batches.find(|batch| {
            posted += batch.renewals;
            posted >= renewals
        });
        batch.map(|batch| &batch.last)
    }
}
