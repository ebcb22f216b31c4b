//! Commands that no claim has posted, for tests.

use std::{sync::Arc, time::Duration};

use super::{ClaimId, Machine, Now, RoundId, VotesTo, claim::ask::Asking, round::Role};
use crate::core::{
    config::Config,
    kind::LockKind,
    protocol::{
        Command,
        command::fixture::{holding, lock_id},
    },
    restart::Quarantine,
    time::{Drift, ResponseTimeout, Tick, Ttl},
    vote::{MasterSet, Refusal, Round, Verb, Vote},
};

/// Returns settings with this response timeout, and without drift.
pub(crate) fn config(response_timeout: Duration) -> Arc<Config> {
    Arc::new(Config {
        response_timeout: ResponseTimeout::Fixed(response_timeout),
        connect_timeout: response_timeout * 20,
        drift: Drift::from_ppm(0).unwrap(),
        quarantine: Quarantine::Off,
        ..Config::of_defaults().unwrap()
    })
}

impl Asking {
    /// Returns how a round asks that does not join the queues. At first, it asks `first`.
    pub(crate) fn plain(first: MasterSet) -> Self {
        Self {
            first,
            queue: None,
            watch: false,
        }
    }
}

impl Machine {
    /// Posts a command of any verb. Returns its round, with a reference for the caller. With
    /// `owed`, masters are owed the command for that time. The limit of the round is over, so that
    /// only first votes count.
    pub(crate) fn ask_any(
        &mut self,
        command: Command,
        owed: Option<Duration>,
        now: Now,
    ) -> RoundId {
        if owed.is_none() {
            return self.ask(command, Some(Duration::ZERO), now);
        }
        let (round, votes_to) = self.open_any(command.verb(), owed, now);
        (self.rounds).post(MasterSet::ALL, command, votes_to, now);
        round
    }

    /// Opens a round for a command of this `verb`. Returns the round with a reference for the
    /// caller, and the receiver of votes with a reference for a request.
    pub(crate) fn open_any(
        &mut self,
        verb: Verb,
        owed: Option<Duration>,
        now: Now,
    ) -> (RoundId, VotesTo) {
        let role = match owed {
            None => Role::Question,
            Some(time) => self.owe(now.monotonic + time, now),
        };
        let round = Round::open(verb, &self.roster.quorum, now.lease, Some(now.lease));
        let round = self.rounds.open(round, role);
        (round, self.rounds.votes_to(round))
    }

    /// Returns the role of the release of a claim that no master has answered.
    fn owe(&mut self, keys_until: Tick, now: Now) -> Role {
        let asked = Round::open(Verb::Acquire, &self.roster.quorum, now.lease, None);
        self.rounds.add_pending(keys_until);
        Role::Release {
            may_keep: MasterSet::NONE,
            newest: self.rounds.open(asked, Role::Question),
            keys_until,
        }
    }

    /// Begins a claim with this TTL, and asks the masters in `asked` for its lock.
    pub(crate) fn claim_for(&mut self, time: Duration, asked: MasterSet, now: Now) -> ClaimId {
        let ttl = Ttl::parse(time, Duration::ZERO, self.config.drift).unwrap();
        let (lock_id, how) = (lock_id(LockKind::Mutex, "r"), Asking::plain(asked));
        self.begin(lock_id, ttl, holding(LockKind::Mutex, 1, None), how, now)
    }

    /// From now on, masters are not owed the release with this round: they have refused the lock.
    pub(crate) fn disown(&mut self, release: RoundId) {
        let Role::Release { newest, .. } = self.rounds.live(release).role else {
            panic!("it is no release");
        };
        let round = &mut self.rounds.live(newest).round;
        let start = round.start();
        for master in round.unanswered().iter() {
            round.count_vote(master, Vote::Refuse(Refusal::held(None)), start);
        }
    }
}
