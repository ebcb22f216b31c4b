//! Single parts of the crate, which `benches/` times and `fuzz/` tests. Not part of the API.

use std::time::{Duration, Instant};

use crate::core::protocol::{
    access::Access,
    command::{Action, Command, Holding},
    identity::Identity,
    name::Token,
};
use crate::core::{
    config::error::ConfigError,
    kind::table,
    protocol::{command::Verb, kind::Kind, name::KeyTemplate},
    time::lease::{Drift, Lease, Ttl},
    vote::{
        Vote,
        master_set::MasterSet,
        quorum::{Outcome, Quorum},
        round::Round,
    },
};
pub use crate::master::{in_process, read_reply, reply_lengths};

/// Five masters.
#[derive(Debug)]
pub struct Five(Quorum);

impl Default for Five {
    fn default() -> Self {
        Self(Quorum::of_lists(Self::MASTERS, MasterSet::NONE))
    }
}

impl Five {
    const MASTERS: usize = 5;

    /// Counts a vote of each master. Returns whether they won.
    pub fn tally(&self, votes: [bool; Self::MASTERS]) -> bool {
        let (mut yes, mut open) = (MasterSet::NONE, MasterSet::ALL);
        let mut last = Outcome::Pending;
        for (master, vote) in votes.into_iter().enumerate() {
            let answered = MasterSet::only(master);
            open = open - answered;
            if vote {
                yes |= answered;
            }
            last = self.0.verdict([yes].into_iter(), open);
        }
        last == Outcome::Won
    }

    /// Counts the votes of a round. Returns whether the round was won.
    pub fn round(&self, now: Instant) -> bool {
        let limit = now.checked_add(Duration::from_secs(10));
        let mut round = Round::open(Verb::Acquire, &self.0, now, limit);
        let mut outcome = Outcome::Pending;
        for master in 0..Self::MASTERS {
            outcome = round.on_vote(master, Vote::Grant, now);
        }
        outcome == Outcome::Won
    }
}

/// Returns when a lease that starts `now` ends.
pub fn lease(now: Instant, ttl: &TtlAndDrift) -> Instant {
    Lease::new(now, ttl.0, ttl.1).until()
}

/// A checked TTL of 10 s and the default drift.
#[derive(Debug)]
pub struct TtlAndDrift(Ttl, Drift);

impl TtlAndDrift {
    /// Creates the pair. Never returns `None`.
    pub fn new() -> Option<Self> {
        let drift = Drift::from_ppm(10_000).ok()?;
        let ttl = Ttl::parse(Duration::from_secs(10), Duration::from_millis(50), drift).ok()?;
        Some(Self(ttl, drift))
    }
}

/// All kinds of locks.
pub const KINDS: [Kind; Kind::ALL.len()] = Kind::ALL;

/// Returns whether an owner holds locks of this kind.
pub fn has_owner(kind: Kind) -> bool {
    kind.has_owner()
}

/// Returns whether locks of this kind have queues on the masters.
pub fn has_queue(kind: Kind) -> bool {
    kind.has_queue()
}

/// Returns whether readers can share locks of this kind.
pub fn has_readers(kind: Kind) -> bool {
    kind.spec().has_readers
}

/// Returns the key of a lock, and then its companion keys.
pub fn keys(template: &str, kind: Kind, name: &str) -> Result<Vec<String>, ConfigError> {
    let lock = KeyTemplate::parse(template)?.lock_id(kind, name.into())?;
    let companions = table::companion_keys().map(|companion| lock.companion(companion));
    let keys = [&**lock.key()].into_iter().chain(companions);
    Ok(keys.map(str::to_owned).collect())
}

/// An acquisition, to be encoded for a server.
#[derive(Debug)]
pub struct Acquisition(Command);

impl Acquisition {
    /// Creates an acquisition of a mutex. Never returns `None`.
    pub fn new() -> Option<Self> {
        let lock_id = KeyTemplate::parse("{name}")
            .ok()?
            .lock_id(Kind::Mutex, "orders/42".into())
            .ok()?;
        let holding = Holding {
            access: Access::Exclusive,
            slot: None,
            by: Identity::Token(Token::new([7; 20], None)),
            depth: 1,
            ballot: None,
        };
        let ttl = TtlAndDrift::new()?.0;
        let queue = None;
        let action = Action::Acquire(holding, ttl, queue);
        Some(Self(Command::new(&lock_id, action)))
    }

    /// Appends the bytes of the command.
    pub fn encode(&self, out: &mut Vec<u8>) {
        crate::master::encode_command(&self.0, out);
    }
}
