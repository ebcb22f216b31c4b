//! One look at a lock: the verdict, the holders, the waiters, and the view of each master.

use std::time::Duration;

use futures::future::{join, try_join_all};
use quorlock::{
    AskError, Coordinator, Inspection, Lock, LockKind,
    tools::MasterView,
    votes::{Failure as VoteFailure, Vote, VoteRow, Votes},
};
use serde::Serialize;

use crate::{
    failure::Failure,
    holders::{HolderLook, HoldersLook},
    lists::{Part, Tallies},
    outage::{Outage, Stage},
    owner::Owner,
    times::{micros, millis},
    words::in_words_of_the_file,
};

/// The reports of the masters about one lock. The fields are those of the JSON.
#[derive(Serialize)]
pub(crate) struct Look {
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    #[serde(flatten)]
    pub(crate) holders: HoldersLook,
    /// `None` if the user may not see them, or no master knows them.
    pub(crate) waiters: Option<Vec<Owner>>,
    /// The number of masters that make a majority.
    quorum: usize,
    pub(crate) masters: Vec<MasterLook>,
    /// The masters that decided the verdict: those where the lock is free. For
    /// [`Quarantined`](Verdict::Quarantined), those that can vote, and for
    /// [`NoQuorum`](Verdict::NoQuorum), those that can vote or answered.
    #[serde(skip)]
    counted: Tallies,
    /// The inspection that a break needs. `None` without a quorum.
    #[serde(skip)]
    pub(crate) inspection: Option<Inspection>,
    /// The reason why there is no quorum.
    #[serde(skip)]
    pub(crate) outage: Option<Outage>,
}

/// What is known of a lock. A worse verdict comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// The lock can be acquired.
    Free,
    /// One holder has a majority.
    Held,
    /// No holder has a majority, and too few masters are free for another one.
    Split,
    /// The lock has no holder, but too few masters have a vote, because they may have forgotten
    /// locks.
    Quarantined,
    /// Too few masters answered, or take locks.
    NoQuorum,
}

#[derive(Serialize)]
pub(crate) struct MasterLook {
    pub(crate) master: String,
    #[serde(flatten)]
    pub(crate) part: Part,
    pub(crate) view: MasterAnswer,
    #[serde(flatten)]
    pub(crate) holders: HoldersLook,
    /// The reason why there is no answer, or no vote.
    pub(crate) reason: Option<String>,
    /// The round trip that was measured when the connection began.
    #[serde(rename = "round_trip_us", serialize_with = "micros")]
    pub(crate) round_trip: Option<Duration>,
    /// The time until the master has a vote, if it may have forgotten locks.
    #[serde(rename = "quarantine_ms", serialize_with = "millis")]
    pub(crate) quarantine: Option<Duration>,
    /// The time until the answer, with the dial if there was one.
    #[serde(rename = "answer_us", serialize_with = "micros")]
    pub(crate) answer: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MasterAnswer {
    Free,
    Held,
    NoAnswer,
}

/// Asks all masters about all locks at the same time.
pub(crate) async fn look_at_all(
    locks: &Coordinator,
    names: &[String],
) -> Result<Vec<Look>, Failure> {
    try_join_all(names.iter().map(|name| look(locks, name))).await
}

/// Asks all masters about the lock.
pub(crate) async fn look(locks: &Coordinator, name: &str) -> Result<Look, Failure> {
    // A fair lock shows holders of every kind, and the queue.
    let lock = locks.fair(name);
    let (mut inspected, ready) = join(lock.inspect(), locks.all_ready_within(Duration::ZERO)).await;
    if let Ok(inspection) = &inspected
        && let Some(lock) = with_queues_of_its_own(locks, name, inspection)
    {
        inspected = lock.inspect().await;
    }
    let mut sees_waiters = true;
    if let Err(AskError::NoQuorum(error)) = &inspected
        && error
            .votes
            .iter()
            .any(|row| row.failure().is_some_and(VoteFailure::is_denial))
    {
        // The user may only use mutexes, and not see a queue.
        inspected = locks.mutex(name).inspect().await;
        sees_waiters = false;
    }
    let parts = Part::of_masters(locks);
    let mut look = match inspected {
        Ok(inspection) => {
            let able = parts.iter().map(|(health, _)| health.can_vote());
            Look::of(inspection, able)
        }
        Err(AskError::NoQuorum(error)) => {
            Look::unknown(locks, name, &error.votes, error.views().to_vec())
        }
        Err(error) => return Err(error.into()),
    };
    if !sees_waiters {
        look.waiters = None;
    }
    for (master, (health, part)) in look.masters.iter_mut().zip(parts) {
        master.part = part;
        master.round_trip = health.round_trip;
        master.quarantine = health.quarantine;
    }
    if let (Verdict::Free, Err(error)) = (look.verdict, &ready) {
        look.doubt(error, locks);
    }
    Ok(look)
}

/// Returns the lock as its holders have it. `None` if it has the queue of a fair lock, or none.
fn with_queues_of_its_own(
    locks: &Coordinator,
    name: &str,
    inspection: &Inspection,
) -> Option<Lock> {
    let mut kinds = inspection.holders.iter().filter_map(|holder| holder.kind);
    kinds.find_map(|kind| match kind {
        LockKind::ReadWrite => Some(locks.read_write(name).write().plain()),
        // To inspect it, the number of permits does not matter.
        LockKind::Semaphore => Some(locks.semaphore(name, 1).plain()),
        _ => None,
    })
}

impl Look {
    /// `able` says of each master whether it can vote. If not, it is not free as long as any master
    /// knows a holder.
    fn of(inspection: Inspection, able: impl Iterator<Item = bool>) -> Self {
        let is_held = |view: MasterView| matches!(view, MasterView::Held(_));
        let is_known = inspection.views().any(is_held);
        let views = inspection.votes.iter().zip(able).zip(inspection.views());
        let free = views
            .filter(|((_, is_able), view)| *view == MasterView::Free && (*is_able || !is_known));
        let free: Vec<_> = free.map(|((row, _), _)| row.master).collect();
        let free = Tallies::of_votes(&inspection.votes, |row| free.contains(&row.master));
        let verdict = match (inspection.is_held(), inspection.is_split()) {
            (true, false) => Verdict::Held,
            (true, true) => Verdict::Split,
            (false, _) if free.has_quorum() => Verdict::Free,
            (false, _) => Verdict::Split,
        };
        let kind = inspection.holders.iter().find_map(|holder| holder.kind);
        let has_queue = !matches!(kind, Some(LockKind::Mutex | LockKind::Reentrant));
        let waiters = inspection.waiters.iter().map(|one| Owner::waiting(one));
        Self {
            name: inspection.name.to_string(),
            verdict,
            holders: HoldersLook::of(&inspection.holders),
            waiters: has_queue.then(|| waiters.collect()),
            quorum: inspection.votes.quorum(),
            masters: MasterLook::all(&inspection.votes, inspection.views()),
            counted: free,
            inspection: Some(inspection),
            outage: None,
        }
    }

    fn unknown(locks: &Coordinator, name: &str, votes: &Votes, views: Vec<MasterView>) -> Self {
        Self {
            name: name.to_owned(),
            verdict: Verdict::NoQuorum,
            holders: HoldersLook::of(&[]),
            waiters: None,
            quorum: votes.quorum(),
            masters: MasterLook::all(votes, views.into_iter()),
            counted: Tallies::of_votes(votes, |row| reason(*row).is_none()),
            inspection: None,
            outage: Some(Outage::in_votes(locks, votes, Stage::Begins)),
        }
    }

    /// Changes the verdict about a free lock if too few masters can vote. `error` is the reason why
    /// not all can.
    fn doubt(&mut self, error: &AskError, locks: &Coordinator) {
        let Some(votes) = error.votes() else { return };
        for (master, row) in self.masters.iter_mut().zip(votes.iter()) {
            master.reason = master.reason.take().or(reason(row));
        }
        let able = self.masters.iter().filter(|one| one.reason.is_none());
        let able = Tallies::of(locks, able.map(|one| &*one.master));
        match Outage::of(locks, Stage::Begins) {
            _ if matches!(error, AskError::NotAll { .. }) => {}
            Some(Outage::Quarantine { .. }) => {
                (self.verdict, self.counted) = (Verdict::Quarantined, able);
            }
            _ => {
                (self.verdict, self.counted) = (Verdict::NoQuorum, able);
                self.outage = Some(Outage::in_votes(locks, votes, Stage::Begins));
            }
        }
    }

    /// Returns whether any master has a holder.
    pub(crate) fn is_held_anywhere(&self) -> bool {
        self.masters.iter().any(MasterLook::is_held)
    }

    /// Returns whether any master has a holder without a TTL.
    pub(crate) fn may_be_no_lock(&self) -> bool {
        let mut holders = self.masters.iter().flat_map(|master| master.holders.iter());
        holders.any(HolderLook::may_be_no_lock)
    }

    /// Says who holds the lock, in one line.
    pub(crate) fn sentence(&self) -> String {
        let held_on = self.masters.iter().filter(|master| master.is_held());
        let (held_on, all) = (held_on.count(), self.masters.len());
        let lacking = self.counted.lacking(); // if there are two lists
        match (self.verdict, &self.holders.holder) {
            (Verdict::Held, Some(_)) => format!("held {}", self.holders.sentence()),
            (Verdict::Split, _) if 2 * held_on > all => {
                "split: no holder has a majority".to_owned()
            }
            (Verdict::Split, _) => format!(
                "split: held on {held_on} of {all} masters, and too few others are free{}",
                lacking.map_or_else(String::new, |lacking| format!(", only {lacking}"))
            ),
            (Verdict::Free, _) if held_on > 0 => {
                format!("free, but still held on {held_on} of {all} masters")
            }
            (Verdict::Quarantined | Verdict::NoQuorum, _) => {
                let (verdict, answered) = match self.inspection {
                    Some(_) => ("free, but nobody can lock it", "can vote"),
                    None => ("unknown", "answered"),
                };
                format!("{verdict}: only {}", self.counted.too_few(answered))
            }
            _ => "free".to_owned(),
        }
    }
}

impl MasterLook {
    fn is_held(&self) -> bool {
        self.view == MasterAnswer::Held
    }

    fn all(votes: &Votes, views: impl Iterator<Item = MasterView>) -> Vec<Self> {
        let rows = votes.iter().zip(views);
        rows.map(|(row, view)| Self::of(row, &view)).collect()
    }

    fn of(row: VoteRow<'_>, view: &MasterView) -> Self {
        let reason = reason(row);
        let (view, holders) = match (view, &reason) {
            (MasterView::Free, None) => (MasterAnswer::Free, &[][..]),
            (MasterView::Held(holders), None) => (MasterAnswer::Held, &holders[..]),
            _ => (MasterAnswer::NoAnswer, &[][..]),
        };
        Self {
            master: row.master.to_owned(),
            part: Part::default(),
            view,
            holders: HoldersLook::of(holders),
            reason,
            round_trip: None,
            quarantine: None,
            answer: row.latency,
        }
    }
}

/// Returns why there is no answer, or no vote.
pub(crate) fn reason(row: VoteRow<'_>) -> Option<String> {
    match row.vote {
        Some(Vote::Fail(failure)) => Some(in_words_of_the_file(&failure.to_string())),
        Some(_) => None,
        None => Some("not answered yet".to_owned()),
    }
}
