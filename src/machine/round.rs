//! The rounds of a coordinator, their commands, and the tasks that wait for them.

use std::{sync::Arc, task::Waker};

use slotmap::SlotMap;
use smallvec::SmallVec;

use super::{
    ClaimId, Now, RoundId, VotesTo,
    out::{Effect, Request, Spare, boxed, keep},
};
use crate::core::{
    protocol::{Command, LockId},
    time::{Tick, Ttl},
    view::inspection::Seen,
    vote::{CastVote, MasterSet, Outcome, Round, Vote},
};

#[derive(Default)]
pub(crate) struct Rounds {
    /// Boxes, because the map grows in steps of two.
    rounds: SlotMap<RoundId, Box<LiveRound>>,
    spare: Spare<LiveRound>,
    /// The commands to post before the machine is unlocked, each with the masters that get it. So a
    /// release never overtakes an extension.
    pub(super) posts: Vec<(MasterSet, Arc<Request>)>,
    /// Requests that have ended. No one else has a reference to them.
    pub(super) spare_requests: Vec<Arc<Request>>,
    /// The number of last commands of claims that are not over, and the latest expiry of the keys
    /// that they delete.
    pending: (usize, Option<Tick>),
}

pub(crate) struct LiveRound {
    pub(crate) round: Round,
    pub(super) role: Role,
    /// The number of references: of the claim whose newest round this is, of handles, and of
    /// requests.
    refs: u32,
    /// The tasks that wait, each for an event. One task needs no allocation, because usually only
    /// one task waits for the outcome.
    waiting: SmallVec<[(RoundEvent, Waker); 1]>,
}

/// What follows from the votes of a round.
pub(super) enum Role {
    Extension {
        claim: ClaimId,
        ttl: Ttl,
        /// `true` if the renewer made this extension.
        is_renewal: bool,
    },
    /// The round asks who holds a lock. These are the answers of the masters.
    Inspection(Vec<Option<Seen>>),
    /// Nothing follows. A task reads the votes.
    Question,
    /// The last command of a claim that is released. It is owed to the masters that may have a key.
    Release {
        /// The masters that may have a key, whatever the votes of `newest` say.
        may_keep: MasterSet,
        /// The newest round of the claim, with a reference. Its late votes may show that a master
        /// has nothing.
        newest: RoundId,
        /// The time at which all keys have expired.
        keys_until: Tick,
    },
    /// The round asks for a slot. A master that votes after the round is won, and lacks the slot,
    /// is asked for it.
    Slots(ClaimId),
    /// The last command of a claim whose lock stays in place without a holder: an extension.
    Stay(LockId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoundEvent {
    Decided,
    /// Every master has voted.
    Settled,
    Voted,
}

impl RoundEvent {
    /// Returns whether the event has come, and cannot come again.
    fn is_over(self, round: &Round) -> bool {
        match self {
            Self::Decided => round.outcome() != Outcome::Pending,
            Self::Settled | Self::Voted => round.is_settled(),
        }
    }
}

/// Rounds are kept until each reference was dropped.
impl Rounds {
    /// Opens a round with one reference.
    #[inline]
    pub(super) fn open(&mut self, round: Round, role: Role) -> RoundId {
        let live = LiveRound {
            round,
            role,
            refs: 1,
            waiting: SmallVec::new(),
        };
        self.rounds.insert(boxed(&mut self.spare, live))
    }

    pub(crate) fn get_mut(&mut self, id: RoundId) -> Option<&mut LiveRound> {
        self.rounds.get_mut(id).map(AsMut::as_mut)
    }

    pub(crate) fn of(&self, id: RoundId) -> &Round {
        &self.rounds[id].round
    }

    pub(crate) fn live(&mut self, id: RoundId) -> &mut LiveRound {
        &mut self.rounds[id]
    }

    /// Adds a reference.
    pub(crate) fn share(&mut self, id: RoundId) -> RoundId {
        self.rounds[id].refs += 1;
        id
    }

    /// Returns the receiver of the votes on a request, with a reference for that request.
    pub(super) fn votes_to(&mut self, id: RoundId) -> VotesTo {
        VotesTo {
            round: self.share(id),
            heal: None,
        }
    }

    #[inline]
    pub(super) fn post(&mut self, to: MasterSet, command: Command, votes_to: VotesTo, now: Now) {
        let request = Request::new(command, now.monotonic, votes_to);
        if let Some(mut spare) = self.spare_requests.pop()
            && let Some(old) = Arc::get_mut(&mut spare)
        {
            *old = request;
            self.posts.push((to, spare));
        } else {
            self.posts.push((to, Arc::new(request)));
        }
    }

    /// Drops a reference. The last one also drops the round.
    pub(super) fn drop(&mut self, id: RoundId, out: &mut Vec<Effect>) {
        let Some(live) = self.rounds.get_mut(id) else {
            return;
        };
        live.refs -= 1;
        if live.refs > 0 {
            return;
        }
        let Some(mut live) = self.rounds.remove(id) else {
            return;
        };
        if let Role::Release { newest, .. } = live.role {
            self.drop(newest, out);
        }
        let wakers = live.waiting.drain(..);
        out.extend(wakers.map(|(_, waker)| Effect::Drop(waker)));
        keep(&mut self.spare, live);
    }

    /// Returns the word for the outcome of a renewal, if it is decided.
    pub(crate) fn renewal(&self, id: RoundId) -> Option<&'static str> {
        renewal_word(Outcome::Pending, self.rounds.get(id)?.round.outcome())
    }

    /// Returns the time until which the command of a round is owed to `master`, or `None` if it is
    /// not owed. If the master cannot be reached now, an owed command is sent later, even after its
    /// vote.
    pub(super) fn owed_until(&self, id: RoundId, master: usize) -> Option<Tick> {
        let Role::Release {
            may_keep,
            newest,
            keys_until,
        } = self.rounds.get(id)?.role
        else {
            return None;
        };
        let may_keep = may_keep | self.of(newest).may_keep();
        may_keep.contains(master).then_some(keys_until)
    }

    /// Counts the last command of a claim as pending.
    pub(super) fn add_pending(&mut self, keys_until: Tick) {
        let (count, until) = self.pending;
        self.pending = (count + 1, until.max(Some(keys_until)));
    }

    /// Notes that a request whose votes went to this round is over. Returns whether it was the only
    /// pending one.
    pub(super) fn end_request(&mut self, id: RoundId) -> bool {
        let live = self.rounds.get(id);
        if !live.is_some_and(|live| matches!(live.role, Role::Release { .. } | Role::Stay(_))) {
            return false;
        }
        self.pending.0 -= 1;
        let is_over = self.pending.0 == 0;
        if is_over {
            self.pending.1 = None;
        }
        is_over
    }

    /// Returns when all keys that pending releases delete have expired. `None` if no release is
    /// pending.
    pub(crate) fn pending_until(&self) -> Option<Tick> {
        self.pending.1
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.rounds.len()
    }
}

impl LiveRound {
    /// Takes `waker` and keeps it for `event`, if the event can still come.
    pub(crate) fn wait(&mut self, event: RoundEvent, waker: &mut Option<Waker>) {
        let is_known = |waker: &Waker| {
            let is_this = |(known, other): &(_, Waker)| *known == event && other.will_wake(waker);
            self.waiting.iter().any(is_this)
        };
        if !event.is_over(&self.round)
            && let Some(waker) = waker.take_if(|waker| !is_known(waker))
        {
            self.waiting.push((event, waker));
        }
    }

    /// Wakes the tasks that no longer have to wait after a vote.
    #[inline]
    pub(super) fn wake_tasks(&mut self, out: &mut Vec<Effect>) {
        let mut at = 0;
        while let Some((event, _)) = self.waiting.get(at) {
            if *event == RoundEvent::Voted || event.is_over(&self.round) {
                out.push(Effect::Wake(self.waiting.remove(at).1));
            } else {
                at += 1;
            }
        }
    }

    /// Returns the vote that counts. An answer to an inspection that cannot be read is no grant.
    pub(super) fn judged(&self, master: usize, vote: CastVote) -> CastVote {
        match &self.role {
            Role::Inspection(seen)
                if vote.vote().is_grant() && seen.get(master).is_none_or(Option::is_none) =>
            {
                Vote::nonsense().into()
            }
            _ => vote,
        }
    }

    /// Takes the text of an answer, which is counted next.
    pub(crate) fn take_text(&mut self, master: usize, text: &str) {
        if let Role::Inspection(seen) = &mut self.role
            && let Some(seen) = seen.get_mut(master)
        {
            *seen = Seen::parse(text);
        }
    }

    pub(crate) fn seen(&self) -> &[Option<Seen>] {
        match &self.role {
            Role::Inspection(seen) => seen,
            _ => &[],
        }
    }
}

pub(crate) const CONFIRMED: &str = "confirmed";
/// A renewal that found no majority in time, and was counted as failed. Late answers have confirmed
/// it while the lock was held.
pub(crate) const CONFIRMED_LATE: &str = "confirmed_late";
pub(crate) const FAILED: &str = "failed";

/// Returns the word for the outcome of a renewal, if a vote has changed the outcome.
pub(super) fn renewal_word(before: Outcome, after: Outcome) -> Option<&'static str> {
    match (before, after) {
        (Outcome::Pending, Outcome::Won) => Some(CONFIRMED),
        (Outcome::Pending, Outcome::NoMajority | Outcome::TooLate) => Some(FAILED),
        (Outcome::NoMajority, Outcome::Won) => Some(CONFIRMED_LATE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        time::tick::LeaseTick,
        vote::{Verb, quorum::Quorum},
    };

    #[test]
    fn a_round_keeps_no_waker_after_its_last_vote() {
        let (mut rounds, start) = (Rounds::default(), LeaseTick::some());
        let id = rounds.open(
            Round::open(Verb::Acquire, &Quorum::of(1), start, None),
            Role::Question,
        );
        let (live, mut out) = (rounds.live(id), Vec::new());
        for event in [RoundEvent::Decided, RoundEvent::Settled, RoundEvent::Voted] {
            live.wait(event, &mut Some(Waker::noop().clone()));
        }
        live.round.count_vote(0, Vote::Grant, start);
        live.wake_tasks(&mut out);
        assert_eq!((live.waiting.len(), out.len()), (0, 3));
        for event in [RoundEvent::Decided, RoundEvent::Settled, RoundEvent::Voted] {
            live.wait(event, &mut Some(Waker::noop().clone()));
        }
        assert_eq!(live.waiting.len(), 0);
    }
}
