//! A request to masters.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use smallvec::SmallVec;

use crate::{
    core::{
        kind::script::Script,
        protocol::{
            command::{Command, Reply},
            reply::PlainGrant,
        },
        time::tick::Tick,
        vote::{MasterSet, SlotVote},
    },
    machine::{Now, VotesTo},
};

/// One command, shared by the masters to which it is posted.
///
/// Every master casts at least one vote. The first vote comes at the latest when the node timeout of
/// the master is over. If a reply comes later, another vote follows. The node timeout begins when
/// the command is sent. Before that, the command may have to wait for the first dial. If the master
/// does not keep up, or is dialled again, the command may also wait for up to one node timeout. A
/// release that is owed may wait for longer: until it is sent, until the connection ends, or until
/// it is no longer owed. If this process notices a deadline late, the master gets the delay as extra
/// time, but at most one node timeout.
pub(crate) struct Request {
    pub(crate) command: Command,
    /// The time of the post. The node timeout of each master begins later, when the command is
    /// sent.
    pub(crate) posted: Tick,
    /// The encoded command. The first send to a master without a native release creates it.
    pub(crate) encoded: OnceLock<Encoded>,
    plain_grant: PlainGrant,
    pub(crate) votes_to: VotesTo,
}

impl Request {
    pub(crate) fn new(command: Command, posted: Tick, votes_to: VotesTo) -> Self {
        Self {
            plain_grant: command.plain_grant(),
            command,
            posted,
            encoded: OnceLock::new(),
            votes_to,
        }
    }

    /// Returns the vote that `reply` means. Nearly all replies are plain grants.
    #[inline]
    pub(crate) fn vote(&self, reply: &Reply<'_>) -> SlotVote {
        match self.plain_grant.is(reply) {
            true => SlotVote::GRANT,
            false => self.command.vote(reply),
        }
    }
}

/// A command for some masters.
#[derive(Debug)]
pub(crate) struct Post {
    pub(super) to: MasterSet,
    pub(super) request: Arc<Request>,
}

impl Post {
    #[inline]
    pub(super) fn new(to: MasterSet, command: Command, votes_to: VotesTo, now: Now) -> Self {
        let request = Request::new(command, now.monotonic, votes_to);
        Self {
            to,
            request: Arc::new(request),
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("command", &self.command)
            .field("posted", &self.posted)
            .finish_non_exhaustive()
    }
}

/// A command as bytes, for masters that have its script. The bytes are the same for all masters. Only
/// a long command, such as one for a lock with a long name, needs an allocation.
pub(crate) struct Encoded {
    /// The script that a master must have.
    pub(crate) script: Option<&'static Script>,
    pub(crate) bytes: SmallVec<[u8; 240]>,
}
