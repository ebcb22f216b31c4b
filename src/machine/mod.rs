//! All decisions about the locks of a coordinator. There is no mutex, no task, no clock and no I/O
//! here. Each input gets the time, and leaves in [`Effect`]s what is to be done after it.

use std::{
    mem,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use slotmap::{SlotMap, new_key_type};

use self::{
    claim::{Claim, ask::Asking, extend::Heal, step::Step},
    out::{Effect, Request, Spare, What, boxed, keep},
    renewals::Renewals,
    rights::KnownRights,
    round::{Role, RoundEvent, Rounds, renewal_word},
    session::{
        Cx, Session,
        link::{Item, Sent},
    },
    waiters::{Topic, WaiterId, Waiters},
};
use crate::{
    core::{
        config::Config,
        protocol::{Command, Holding, LockId, Reply},
        time::{LeaseTick, Tick, Ttl},
        view::{MasterHealth, MasterState},
        vote::{CastVote, MasterSet, Outcome, Roster, Round, Verb, Vote, outcome_word},
    },
    meter::IS_ON,
};

pub(crate) mod claim;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod out;
pub(crate) mod renewals;
pub(crate) mod rights;
pub(crate) mod round;
pub(crate) mod session;
pub(crate) mod waiters;

new_key_type! {
    pub(crate) struct ClaimId;
    pub(crate) struct RoundId;
}

/// The time of an input. It is read while the machine is locked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) lease: LeaseTick,
    /// The time on the monotonic clock, by which a claim knows when its keys expire. Unlike the
    /// clock of leases, the monotonic clock does not jump forward with the wall clock.
    pub(crate) monotonic: Tick,
}

pub(crate) struct Machine {
    config: Arc<Config>,
    roster: Arc<Roster>,
    /// Boxes, because the map grows in steps of two.
    claims: SlotMap<ClaimId, Box<Claim>>,
    spare: Spare<Claim>,
    pub(crate) rounds: Rounds,
    pub(crate) renewals: Renewals,
    pub(crate) waiters: Waiters,
    pub(crate) rights: KnownRights,
    pub(crate) sessions: Box<[Session]>,
    /// Set once nothing will be posted any more. The tasks end once everything is delivered.
    pub(crate) is_abandoned: bool,
    /// The masters whose sessions have cast votes or ended requests.
    served: MasterSet,
    /// What is done after the unlock, in this order.
    pub(crate) out: Vec<Effect>,
}

/// Who gets the votes on a command. A command has a reference to its round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VotesTo {
    /// The round that counts the votes. If it is gone, no one needs them.
    pub(crate) round: RoundId,
    /// Set if the command puts the key back.
    heal: Option<Heal>,
}

impl Machine {
    pub(crate) fn new(roster: Arc<Roster>, config: Arc<Config>, now: Tick) -> Self {
        let coordinator = config.coordinator.as_ref();
        let known = MasterHealth::of_all(&roster, coordinator, &MasterState::Connecting);
        Self {
            sessions: known
                .map(|known| Session::new(config.clone(), known, now))
                .collect(),
            is_abandoned: false,
            served: MasterSet::NONE,
            config,
            roster,
            claims: SlotMap::with_key(),
            spare: Vec::new(),
            rounds: Rounds::default(),
            renewals: Renewals::default(),
            waiters: Waiters::default(),
            rights: KnownRights::default(),
            out: Vec::new(),
        }
    }

    /// Begins a claim. Returns it with a reference for the caller: see [`Claim::begin`].
    pub(crate) fn begin(
        &mut self,
        lock_id: LockId,
        ttl: Ttl,
        holding: Holding,
        how: Asking,
        now: Now,
    ) -> ClaimId {
        self.insert(now, |step| Claim::begin(lock_id, ttl, step, holding, how))
    }

    /// Begins a claim as [`Claim::attach`] does. Returns it with a reference for the caller.
    pub(crate) fn attach(
        &mut self,
        lock_id: LockId,
        ttl: Ttl,
        holding: Holding,
        now: Now,
    ) -> ClaimId {
        self.insert(now, |step| Claim::attach(lock_id, ttl, step, holding))
    }

    #[inline]
    fn insert(&mut self, now: Now, begin: impl FnOnce(&mut Step<'_>) -> Claim) -> ClaimId {
        let mut spare = mem::take(&mut self.spare);
        let (claims, mut step) = self.split(ClaimId::default(), now);
        let id = claims.insert_with_key(|id| {
            step.id = id;
            let claim = begin(&mut step);
            boxed(&mut spare, claim)
        });
        self.spare = spare;
        id
    }

    pub(crate) fn step<T>(
        &mut self,
        id: ClaimId,
        now: Now,
        act: impl FnOnce(&mut Claim, &mut Step<'_>) -> T,
    ) -> T {
        let (claims, mut step) = self.split(id, now);
        let claim = &mut claims[id];
        let done = act(claim, &mut step);
        claim.set_timer(&mut step);
        done
    }

    /// Returns the claims, and what the claim `id` may touch in a step.
    fn split(&mut self, id: ClaimId, now: Now) -> (&mut SlotMap<ClaimId, Box<Claim>>, Step<'_>) {
        let step = Step {
            id,
            config: &self.config,
            roster: &self.roster,
            rounds: &mut self.rounds,
            renewals: &mut self.renewals,
            waiters: &mut self.waiters,
            rights: &mut self.rights,
            out: &mut self.out,
            now,
        };
        (&mut self.claims, step)
    }

    pub(crate) fn claim(&self, id: ClaimId) -> &Claim {
        &self.claims[id]
    }

    /// Waits until the newest round of a claim is decided. Takes `waker` if it is new.
    pub(crate) fn poll_decided(&mut self, id: ClaimId, waker: &mut Option<Waker>) -> Poll<Outcome> {
        let live = self.rounds.live(self.claims[id].newest);
        match live.round.outcome() {
            Outcome::Pending => {
                live.wait(RoundEvent::Decided, waker);
                Poll::Pending
            }
            outcome => Poll::Ready(outcome),
        }
    }

    /// Adds a reference to the claim, if its lock is held. Returns whether it is.
    pub(crate) fn share_held(&mut self, id: ClaimId, now: Now) -> bool {
        let is_held = self.claims.contains_key(id) && self.step(id, now, Claim::is_held_at);
        if is_held {
            self.claims[id].refs += 1;
        }
        is_held
    }

    /// Drops a reference to the claim. The last one also drops the claim.
    pub(crate) fn drop_claim(&mut self, id: ClaimId) {
        let claim = &mut self.claims[id];
        claim.refs -= 1;
        if claim.refs > 0 {
            return;
        }
        let newest = claim.newest;
        if let Some(claim) = self.claims.remove(id) {
            keep(&mut self.spare, claim);
        }
        self.drop_round(newest);
    }

    /// Drops a reference to the round. The last one also drops the round.
    pub(crate) fn drop_round(&mut self, id: RoundId) {
        self.rounds.drop(id, &mut self.out);
    }

    #[inline]
    fn end_request(&mut self, request: Arc<Request>) {
        let votes_to = request.votes_to;
        // No one outside of the machine has a reference.
        if Arc::strong_count(&request) == 1 {
            if self.rounds.end_request(votes_to.round) {
                self.waiters.wake(&Topic::Delivered, &mut self.out);
            }
            self.drop_round(votes_to.round);
            keep(&mut self.rounds.spare_requests, request);
        }
    }

    /// Asks all masters a question. If there is a `limit`, a majority that answers after that time
    /// is too late. Returns the round, with a reference for the caller.
    pub(crate) fn ask(&mut self, question: Command, limit: Option<Duration>, now: Now) -> RoundId {
        let verb = question.verb();
        let limit = limit.map(|limit| now.lease + limit);
        let round = Round::open(verb, &self.roster.quorum, now.lease, limit);
        let role = match verb {
            Verb::Inspect => Role::Inspection(vec![None; self.roster.quorum.masters().len()]),
            _ => Role::Question,
        };
        let id = self.rounds.open(round, role);
        let votes_to = self.rounds.votes_to(id);
        (self.rounds).post(MasterSet::ALL, question, votes_to, now);
        id
    }

    /// Counts the vote of `master`, and carries out what follows.
    #[inline]
    pub(crate) fn count(&mut self, to: VotesTo, master: usize, vote: CastVote, now: Now) {
        let VotesTo { round, heal } = to;
        if IS_ON {
            let outcome = outcome_word(vote.vote());
            self.out.push(Effect::Voted(master, outcome));
        }
        let Some(live) = self.rounds.get_mut(round) else {
            return;
        };
        if let Some(heal) = heal {
            let (is_done, may_be_done) = (vote.vote().is_grant(), vote.vote().may_have_slot());
            live.round.note_heal(master, vote.into_vote());
            if !is_done && self.claims.contains_key(heal.claim) {
                self.step(heal.claim, now, |claim, step| {
                    claim.heal_refused(step, heal, round, master, may_be_done);
                });
            }
            return;
        }
        let before = live.round.outcome();
        let vote = live.judged(master, vote);
        let is_answer = vote.vote().is_answer();
        live.round.count_vote(master, vote, now.lease);
        live.wake_tasks(&mut self.out);
        if before == Outcome::Pending && live.round.outcome() != before {
            self.out.extend(Effect::decided(&live.round, now.lease));
        }
        self.follow(round, master, before, is_answer, now);
    }

    /// Carries out what follows from a vote of `master`, which was counted in `round`. `before` is
    /// the outcome before that vote.
    fn follow(
        &mut self,
        round: RoundId,
        master: usize,
        before: Outcome,
        is_answer: bool,
        now: Now,
    ) {
        let live = self.rounds.live(round);
        let outcome = live.round.outcome();
        match live.role {
            Role::Extension {
                claim, is_renewal, ..
            } => {
                // A failure has a consequence only if it decides the round.
                let matters = is_answer || before == Outcome::Pending;
                let word = renewal_word(before, outcome).filter(|_| is_renewal);
                // The vote may end the hold.
                let hold = word.and_then(|_| self.claims.get(claim)?.shown_hold());
                if matters && self.claims.contains_key(claim) {
                    self.step(claim, now, |claim, step| {
                        claim.note_vote(step, round, master, before);
                    });
                }
                (self.out).extend(word.map(|word| Effect::RenewalDecided(hold, round, word)));
                if is_renewal && before == Outcome::Pending && outcome != before {
                    self.out.extend(self.renewals.decided());
                }
            }
            Role::Slots(claim)
                if before == Outcome::Won
                    && live.round.lack_slot().contains(master)
                    && self.claims.contains_key(claim) =>
            {
                let lack = MasterSet::only(master);
                self.step(claim, now, |claim, step| claim.align(step, round, lack));
            }
            Role::Stay(ref lock)
                if before == Outcome::Pending && outcome == Outcome::NoMajority =>
            {
                let lock = lock.clone();
                self.out.push(Effect::Event(lock, None, What::NotKept));
            }
            Role::Inspection(_)
            | Role::Question
            | Role::Release { .. }
            | Role::Slots(_)
            | Role::Stay(_) => {}
        }
    }

    /// Renews a claim that is due, if there is one. Returns whether there was one. `random` must be
    /// uniform over all of `u64`.
    pub(crate) fn renew_next(&mut self, random: u64, now: Now) -> bool {
        let Some(id) = self.renewals.pop_due(now.lease) else {
            return false;
        };
        self.claims[id].timer = None;
        let round = self.step(id, now, |claim, step| claim.renew(step, random));
        let claim = &self.claims[id];
        if let Some(round) = round
            && let Some(hold) = claim.shown_hold()
        {
            let lock = claim.lock_id.clone();
            self.out.push(Effect::Renews(lock, hold, round));
        }
        true
    }

    /// Lets the session of a master take a step at `now`.
    pub(crate) fn serve<T>(
        &mut self,
        master: usize,
        now: Now,
        act: impl FnOnce(&mut Session, &mut Cx<'_>) -> T,
    ) -> T {
        let cx = &mut Cx {
            master,
            rounds: &self.rounds,
            waiters: &mut self.waiters,
            out: &mut self.out,
            is_abandoned: self.is_abandoned,
            now,
        };
        let session = &mut self.sessions[master];
        let done = act(session, cx);
        if !session.is_settled() {
            self.served.insert(master);
        }
        done
    }

    /// Takes the reply to the oldest command of a master. Fails if no command is unanswered, if
    /// `reply` cannot be a reply to the oldest one, or if `reply` says that the master has become a
    /// replica.
    #[inline]
    pub(crate) fn reply(
        &mut self,
        master: usize,
        reply: &Reply<'_>,
        now: Now,
        random: &impl Fn() -> u64,
    ) -> Result<(), Arc<str>> {
        if let Reply::Text(text) = reply
            && let Some(request) = self.sessions[master].oldest()
            && let Some(live) = self.rounds.get_mut(request.votes_to.round)
        {
            live.take_text(master, text);
        }
        let session = &mut self.sessions[master];
        let Sent { item, is_owed, .. } = session.link.pop(now.monotonic)?;
        let request = match item {
            Item::Request(request) => request,
            Item::Subscription(_) => {
                return self.serve(master, now, |session, cx| {
                    session.on_refused_change(cx, reply)
                });
            }
            Item::Caching => {
                return self.serve(master, now, |session, cx| session.on_caching(cx, reply));
            }
        };
        let vote = request.command.vote(reply);
        if is_owed || session.is_news(&vote) {
            let answered = (request, vote, is_owed);
            return self.serve(master, now, |session, cx| {
                session.on_news(cx, reply, answered, random)
            });
        }
        self.count(request.votes_to, master, vote, now);
        self.end_request(request);
        Ok(())
    }

    /// Returns whether no command is to be posted, and no vote to be counted.
    pub(crate) fn is_settled(&self) -> bool {
        self.rounds.posts.is_empty() && self.served.is_empty()
    }

    /// Posts the commands of the last inputs, and counts the votes that sessions have cast.
    pub(crate) fn settle(&mut self, now: Now) {
        while !self.is_settled() {
            self.settle_once(now);
        }
    }

    fn settle_once(&mut self, now: Now) {
        let mut posts = mem::take(&mut self.rounds.posts);
        for (to, request) in posts.drain(..) {
            self.post(to, request, now);
        }
        if self.rounds.posts.is_empty() {
            self.rounds.posts = posts; // keeps its memory
        }
        for master in mem::take(&mut self.served).iter() {
            for (votes_to, vote) in mem::take(&mut self.sessions[master].cast) {
                self.count(votes_to, master, vote, now);
            }
            if !self.sessions[master].given_up.is_empty() {
                self.serve(master, now, Session::owe_given_up);
            }
            for request in mem::take(&mut self.sessions[master].ended) {
                self.end_request(request);
            }
        }
    }

    fn post(&mut self, to: MasterSet, request: Arc<Request>, now: Now) {
        for master in 0..self.sessions.len() {
            if !to.contains(master) {
                continue;
            }
            let failure = self.serve(master, now, |session, cx| session.post(cx, &request));
            if let Some(failure) = failure {
                let vote = Vote::Fail(failure).into();
                self.count(request.votes_to, master, vote, now);
            }
        }
        self.end_request(request);
    }

    /// Notes that nothing will be posted any more. Ends the renewals.
    pub(crate) fn abandon(&mut self) {
        self.is_abandoned = true;
        self.out.push(Effect::WakeRenewer);
        self.sessions.iter().for_each(Session::wake);
    }

    /// From now on, passes news about `topic` from all masters to the queue of `waiter`. Returns
    /// `false` if it did so before.
    pub(crate) fn listen(&mut self, waiter: WaiterId, topic: &Topic) -> bool {
        let is_new = self.waiters.listen(waiter, topic);
        self.resubscribe();
        is_new
    }

    pub(crate) fn leave(&mut self, waiter: WaiterId, now: Now) {
        self.waiters.leave(waiter, now.lease, &mut self.out);
        self.resubscribe();
    }

    fn resubscribe(&mut self) {
        for session in &mut self.sessions {
            session.resubscribe(self.waiters.called());
        }
    }

    pub(crate) fn those(&self, are_so: impl Fn(&Session) -> bool) -> MasterSet {
        let sessions = self.sessions.iter().enumerate();
        let those = sessions.filter(|(_, session)| are_so(session));
        those.map(|(master, _)| master).collect()
    }

    /// Returns the masters whose first dials are not over. Each of them may take as long as the
    /// connect timeout to vote. Each of the other masters takes at most its response timeout.
    pub(crate) fn undialled(&self) -> MasterSet {
        self.those(|session| session.response_timeout().is_none())
    }
}
