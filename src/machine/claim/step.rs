//! What a claim may touch in a step.

use std::sync::Arc;

use crate::{
    core::{
        config::Config,
        protocol::Command,
        time::{Lease, Tick, Ttl},
        vote::{MasterSet, Outcome, Roster, Round, Votes},
    },
    machine::{
        ClaimId, Now, RoundId, VotesTo,
        claim::extend::Heal,
        out::Effect,
        renewals::Renewals,
        rights::KnownRights,
        round::{Role, Rounds},
        waiters::Waiters,
    },
};

/// What a claim sees in a step, and what it may change.
pub(crate) struct Step<'a> {
    pub(in crate::machine) id: ClaimId,
    pub(in crate::machine) config: &'a Config,
    pub(in crate::machine) roster: &'a Arc<Roster>,
    pub(crate) rounds: &'a mut Rounds,
    pub(in crate::machine) renewals: &'a mut Renewals,
    pub(in crate::machine) waiters: &'a mut Waiters,
    pub(in crate::machine) rights: &'a mut KnownRights,
    pub(in crate::machine) out: &'a mut Vec<Effect>,
    pub(crate) now: Now,
}

impl Step<'_> {
    /// Posts a command, whose votes `round` counts. The votes on a `heal` are only noted in it.
    pub(super) fn post(
        &mut self,
        to: MasterSet,
        command: Command,
        round: RoundId,
        heal: Option<Heal>,
    ) {
        let votes_to = VotesTo {
            heal,
            ..self.rounds.votes_to(round)
        };
        self.rounds.post(to, command, votes_to, self.now);
    }

    /// Opens a round without a time limit for `command`, and posts the command to the masters in
    /// `to`. On all other masters, there is nothing to do. Returns the round, with a reference for
    /// the caller.
    pub(super) fn ask(&mut self, to: MasterSet, command: Command, role: Role) -> RoundId {
        let quorum = &self.roster.quorum;
        let mut round = Round::open(command.verb(), quorum, self.now.lease, None);
        round.skip(quorum.masters() - to, self.now.lease);
        if round.outcome() != Outcome::Pending {
            self.out.extend(Effect::decided(&round, self.now.lease));
        }
        let id = self.rounds.open(round, role);
        self.post(to, command, id, None);
        id
    }

    pub(super) fn votes(&self, round: RoundId) -> Votes {
        let round = self.rounds.of(round);
        Votes::new(self.roster.clone(), round.votes().into(), round.verb())
    }

    pub(super) fn lease(&self, ttl: Ttl) -> Lease {
        Lease::new(self.now.lease, ttl, self.config.drift)
    }

    /// Returns the time on the monotonic clock at which a key written now with `ttl` expires.
    pub(super) fn expiry(&self, ttl: Ttl) -> Tick {
        self.now.monotonic + ttl.duration()
    }
}
