//! A handle of a round in the machine, and the waits for its votes.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    core::{
        kind::Rights,
        time::LeaseTick,
        view::inspection::Seen,
        vote::{CastVote, MasterSet, Outcome, Round, Vote, Votes},
    },
    machine::{Machine, RoundId, out::Effect, round::RoundEvent},
    master::Shared,
};

/// A handle of a round that masters vote in.
pub(crate) struct RoundHandle {
    shared: Arc<Shared>,
    pub(super) id: RoundId,
}

impl RoundHandle {
    pub(crate) fn new(shared: &Arc<Shared>, id: RoundId) -> Self {
        Self {
            shared: shared.clone(),
            id,
        }
    }

    pub(crate) async fn decided(&self) -> Outcome {
        self.after(RoundEvent::Decided, |round, _| {
            let outcome = round.outcome();
            (outcome != Outcome::Pending).then_some(outcome)
        })
        .await
    }

    pub(crate) async fn voted(&self, master: usize) -> Vote {
        self.after(RoundEvent::Voted, |round, _| round.vote(master).cloned())
            .await
    }

    /// Waits until `look` returns `Some`. Calls `look` at once, and then again after every vote,
    /// with the round and the masters that are [undialled](crate::machine::Machine::undialled). The
    /// machine is locked meanwhile.
    pub(crate) async fn until<T>(&self, look: impl Fn(&Round, MasterSet) -> Option<T>) -> T {
        self.after(RoundEvent::Voted, |round, machine| {
            look(round, machine.undialled())
        })
        .await
    }

    /// Waits until every master has voted. The vote of a master that does not answer in time is a
    /// failure.
    pub(crate) async fn settled(&self) {
        self.after(RoundEvent::Settled, |round, _| {
            round.is_settled().then_some(())
        })
        .await;
    }

    /// Wakes the task of `cx` after the next vote, if one can come.
    pub(crate) fn wake_on_vote(&self, cx: &Context<'_>) {
        self.shared.poll(cx, |machine, waker| {
            let live = machine.rounds.live(self.id);
            live.wait(RoundEvent::Voted, waker);
        });
    }

    async fn after<T>(&self, event: RoundEvent, look: impl Fn(&Round, &Machine) -> Option<T>) -> T {
        poll_fn(|cx| {
            self.shared.poll(cx, |machine, waker| {
                if let Some(seen) = look(machine.rounds.of(self.id), machine) {
                    return Poll::Ready(seen);
                }
                machine.rounds.live(self.id).wait(event, waker);
                Poll::Pending
            })
        })
        .await
    }

    pub(crate) fn votes(&self) -> Votes {
        let (cast, verb) = self.read(|round| (round.votes().into(), round.verb()));
        Votes::new(self.shared.roster.clone(), cast, verb)
    }

    pub(crate) fn cast(&self) -> Box<[Option<CastVote>]> {
        self.read(|round| round.votes().into())
    }

    #[inline]
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Round) -> T) -> T {
        self.shared.lock(|machine| look(machine.rounds.of(self.id)))
    }

    pub(crate) fn seen(&self) -> Vec<Option<Seen>> {
        self.shared
            .lock(|machine| machine.rounds.live(self.id).seen().to_vec())
    }

    pub(crate) fn elapsed(&self, now: LeaseTick) -> Duration {
        self.read(|round| now.since(round.start()))
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.read(Round::outcome) == Outcome::Pending
    }

    pub(crate) fn record(&self) {
        self.shared.with(|machine, now| {
            let decided = Effect::decided(machine.rounds.of(self.id), now.lease);
            machine.out.extend(decided);
        });
    }

    /// Notes what this round has shown of `rights`, if it is an acquisition that needs them.
    pub(crate) fn note_rights(&self, rights: Rights) {
        (self.shared).lock(|machine| machine.rights.note(rights, machine.rounds.of(self.id)));
    }

    /// Decides that the round has no majority, unless the round is decided already. Wakes no task,
    /// so only the task that waits for the outcome may call this method.
    pub(crate) fn give_up(&self) {
        let give_up = |machine: &mut Machine| machine.rounds.live(self.id).round.give_up();
        if self.shared.lock(give_up) {
            self.record();
        }
    }
}

impl Clone for RoundHandle {
    fn clone(&self) -> Self {
        self.shared.lock(|machine| machine.rounds.share(self.id));
        Self::new(&self.shared, self.id)
    }
}

impl Drop for RoundHandle {
    fn drop(&mut self) {
        if !self.shared.home.is_parent() {
            self.shared.lock(|machine| machine.drop_round(self.id));
        }
    }
}
