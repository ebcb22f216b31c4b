//! The masters of a coordinator. Requests are posted here.

use std::{
    mem,
    sync::{Arc, Weak},
    time::Duration,
};

use super::{live_round::LiveRound, time::clock};
use crate::{
    core::{
        hash::rank,
        protocol::command::Command,
        view::health::MasterHealth,
        vote::{
            Failure, Vote, lists::Roster, master_set::MasterSet, quorum::Quorum, round::Round,
            votes::Votes,
        },
    },
    master::{CountVotes, HealthBoard, Listener, Mailbox, Request, Topic},
};

/// The masters of a coordinator. After this value is dropped, their supervisors deliver everything
/// that was posted, and end.
#[derive(Debug)]
pub(crate) struct Masters {
    roster: Arc<Roster>,
    mailboxes: Box<[Arc<Mailbox>]>,
    pub(crate) health: HealthBoard,
}

impl Masters {
    pub(crate) fn new(
        roster: Arc<Roster>,
        mailboxes: Box<[Arc<Mailbox>]>,
        health: HealthBoard,
    ) -> Self {
        Self {
            roster,
            mailboxes,
            health,
        }
    }

    pub(crate) fn quorum(&self) -> &Quorum {
        &self.roster.quorum
    }

    /// Returns the number of masters.
    pub(crate) fn count(&self) -> usize {
        self.mailboxes.len()
    }

    pub(crate) fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Returns the longest node timeout of the masters that were dialled, if any was.
    pub(crate) fn node_timeout(&self) -> Option<Duration> {
        let timeouts = self.mailboxes.iter().map(|mailbox| mailbox.node_timeout());
        timeouts.flatten().max()
    }

    /// Returns the masters whose first dials are not over. Each of them votes as late as the
    /// connect timeout, and each other master within its node timeout.
    pub(crate) fn undialled(&self) -> MasterSet {
        self.those(|mailbox| mailbox.node_timeout().is_none())
    }

    fn those(&self, are_so: impl Fn(&Mailbox) -> bool) -> MasterSet {
        let mailboxes = self.mailboxes.iter();
        let those = mailboxes.filter(|mailbox| are_so(mailbox));
        those.map(|mailbox| mailbox.master()).collect()
    }

    pub(crate) fn votes(&self, round: &LiveRound) -> Votes {
        let verb = round.read(Round::verb);
        Votes::new(self.roster.clone(), round.votes(), verb)
    }

    /// Posts `command` to every master.
    pub(crate) fn post<C: CountVotes + 'static>(&self, command: Command, votes_to: C) {
        self.post_to(MasterSet::ALL, command, votes_to);
    }

    /// Posts `command` to some masters. This method neither blocks nor spawns a task, so `Drop` may
    /// call it.
    pub(crate) fn post_to<C: CountVotes + 'static>(
        &self,
        masters: MasterSet,
        command: Command,
        votes_to: C,
    ) {
        drop(self.post_locked(masters, command, votes_to));
    }

    /// Posts `command` to some masters, for a caller that holds a mutex. The caller must unlock it
    /// before it drops the returned value.
    pub(crate) fn post_locked<C: CountVotes + 'static>(
        &self,
        masters: MasterSet,
        command: Command,
        votes_to: C,
    ) -> Posted<'_> {
        let now = clock::monotonic();
        let request = Arc::new(Request::new(command, now, votes_to));
        let mailboxes = self.mailboxes.iter();
        let mailboxes = mailboxes.filter(|mailbox| masters.contains(mailbox.master()));
        let failed = mailboxes.filter_map(|mailbox| {
            let failure = mailbox.post(request.clone())?;
            Some((&**mailbox, failure))
        });
        Posted {
            failed: failed.collect(),
            request,
        }
    }

    /// Returns whether a majority of every set is connected.
    pub(crate) fn has_quorum(&self) -> bool {
        let connected = self.those(Mailbox::is_serving);
        self.quorum().is_every_majority_in(connected)
    }

    /// Returns the masters that are connected and report changes of keys.
    pub(crate) fn reporting(&self) -> MasterSet {
        self.those(Mailbox::reports_changes)
    }

    /// Returns the masters that can vote.
    pub(crate) fn able(&self) -> MasterSet {
        let health = self.health.read();
        let able = health.iter().map(MasterHealth::can_vote).enumerate();
        let able = able.filter(|(_, can_vote)| *can_vote);
        able.map(|(master, _)| master).collect()
    }

    /// Returns the agreed master of the lock `key` among these: the one that all clients ask before
    /// the others, if they see the same masters.
    pub(crate) fn agreed(&self, key: &str, among: MasterSet) -> Option<usize> {
        let rank = |master: &usize| rank(key, self.mailboxes[*master].address());
        among.iter().min_by_key(rank)
    }

    /// Tells `listener` of news about `topic` from any master.
    pub(crate) fn listen(&self, topic: &Topic, listener: &Weak<dyn Listener>) {
        for mailbox in &self.mailboxes {
            mailbox.listen(topic, listener.clone());
        }
    }

    pub(crate) fn ignore(&self, topic: &Topic, listener: &Weak<dyn Listener>) {
        for mailbox in &self.mailboxes {
            mailbox.ignore(topic, listener);
        }
    }

    /// Wakes all listeners, as if every master had news for them.
    pub(crate) fn wake_all(&self) {
        for mailbox in &self.mailboxes {
            mailbox.tell_all(|_| true);
        }
    }
}

#[cfg(test)]
impl Masters {
    /// Returns the number of listeners to all masters.
    pub(crate) fn listeners(&self) -> usize {
        let mailboxes = self.mailboxes.iter();
        mailboxes.map(|mailbox| mailbox.listeners()).sum()
    }
}

impl Drop for Masters {
    fn drop(&mut self) {
        for mailbox in &self.mailboxes {
            mailbox.abandon();
        }
    }
}

/// A request that was posted. Dropping this value casts the votes of the masters at which the
/// request failed at once, and may drop the request. Both may run code of the program.
#[must_use = "dropping it casts votes, and the caller may have to unlock a mutex before"]
pub(crate) struct Posted<'a> {
    failed: Vec<(&'a Mailbox, Failure)>,
    request: Arc<Request>,
}

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        for (mailbox, failure) in mem::take(&mut self.failed) {
            mailbox.cast(&*self.request, Vote::Fail(failure), clock::monotonic());
        }
    }
}
