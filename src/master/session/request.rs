//! A request to masters, and the receiver of their votes on it.

use std::{fmt, sync::OnceLock};

use smallvec::SmallVec;

use crate::core::{
    kind::script::Script,
    protocol::{
        command::{Command, Reply},
        native::NativeRelease,
        reply::PlainGrant,
    },
    time::tick::Tick,
    vote::SlotVote,
};

/// The receiver of the votes on one [`Request`].
///
/// Every master to which the request was posted casts at least one vote. The first vote comes at
/// the latest when the node timeout of the master is over. If a reply comes later, another vote
/// follows. The node timeout begins when the command is sent. Before that, the command may have to
/// wait for the first dial. If the master does not keep up, or is dialled again, the command may
/// also wait for up to one node timeout. A release that is [owed](Self::owed_until) may wait for
/// longer: until it is sent, until the connection ends, or until it is no longer owed. If this
/// process notices a deadline late, the master gets the delay as extra time, but at most one node
/// timeout.
pub(crate) trait VoteCounter: Send + Sync {
    /// Counts a vote of `master`. `now` is a time that was read after the vote was known.
    fn count(&self, master: usize, vote: SlotVote, now: Tick);

    /// Wakes the tasks that wait for the votes. Called after each vote, when its consequences are
    /// in effect.
    fn wake(&self) {}

    /// Takes the text of a reply that says more than a vote can. The vote of that reply is counted
    /// next.
    fn take_text(&self, _master: usize, _text: &str) {}

    /// Returns the time until which the command is owed to `master`, or `None` if it is not owed.
    /// If the master cannot be reached now, an owed command is sent later, even after its vote. At
    /// the returned time, the key that the command would delete on the master has expired.
    fn owed_until(&self, _master: usize) -> Option<Tick> {
        None
    }
}

/// One command, shared by the masters to which it is posted.
pub(crate) struct Request<C: ?Sized = dyn VoteCounter> {
    pub(crate) command: Command,
    /// The time of the post. The node timeout of each master begins later, when the command is
    /// sent.
    pub(crate) posted: Tick,
    /// The encoded command, which is the same for nearly all masters. The first send creates it.
    pub(crate) encoded: OnceLock<Encoded>,
    plain_grant: PlainGrant,
    pub(crate) votes_to: C,
}

impl<C> Request<C> {
    pub(crate) fn new(command: Command, posted: Tick, votes_to: C) -> Self {
        Self {
            plain_grant: command.plain_grant(),
            command,
            posted,
            encoded: OnceLock::new(),
            votes_to,
        }
    }
}

impl<C: VoteCounter + ?Sized> Request<C> {
    /// Returns the vote that `reply` means. Nearly all replies are plain grants.
    #[inline]
    pub(crate) fn vote(&self, reply: &Reply<'_>) -> SlotVote {
        match self.plain_grant.is(reply) {
            true => SlotVote::GRANT,
            false => self.command.vote(reply),
        }
    }

    /// Returns whether the command must still be sent to `master` after a vote of that master was
    /// cast, such as a failure.
    pub(crate) fn is_owed_to(&self, master: usize) -> bool {
        self.votes_to.owed_until(master).is_some()
    }
}

impl<C: ?Sized> fmt::Debug for Request<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("command", &self.command)
            .field("posted", &self.posted)
            .finish_non_exhaustive()
    }
}

/// A command as bytes, for masters that have its script. The bytes are the same for all masters that
/// have the same native release. Only a long command, such as one for a lock with a long name, needs
/// an allocation.
pub(crate) struct Encoded {
    /// The native release of the masters, if the command is encoded as such.
    pub(crate) native: Option<NativeRelease>,
    /// The script that a master must have.
    pub(crate) script: Option<&'static Script>,
    pub(crate) bytes: SmallVec<[u8; 240]>,
}
