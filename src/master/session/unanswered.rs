//! Commands that were sent and have no reply yet.

use std::{collections::VecDeque, mem, sync::Arc, time::Instant};

use super::request::Request;

/// The unanswered commands of one connection, oldest first. Replies come in the same order. A
/// command whose deadline is over gets a failed vote and stays here, because its reply may still
/// come.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    commands: VecDeque<Sent>,
    /// The number of commands at the front that are known to have their vote.
    expired: usize,
    /// The number of commands that were sent twice. If there are any, deadlines may be out of
    /// order.
    resent: usize,
}

#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) item: Item,
    pub(crate) at: Instant,
    deadline: Instant,
    /// Set if the vote has been cast, or if the command has no vote.
    is_expired: bool,
    /// Set if the command is a release that was sent because the master is owed it.
    pub(crate) is_owed: bool,
    /// Set if the command was sent a second time, with its script.
    pub(crate) is_resent: bool,
}

#[derive(Debug)]
pub(crate) enum Item {
    /// The request to report the next change of each key that the next command reads.
    Caching,
    /// A subscription to this channel that begins or ends.
    Change(Arc<str>),
    Request(Arc<Request>),
}

impl Unanswered {
    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Adds a command that was sent at `now`. The node timeout begins at `now`, because a stall of
    /// this process before the send is no fault of the master.
    pub(crate) fn push(&mut self, item: Item, is_owed: bool, now: Instant, deadline: Instant) {
        let latest = self.commands.back().map(|sent| sent.deadline);
        self.commands.push_back(Sent {
            is_expired: is_owed || !matches!(item, Item::Request(_)),
            item,
            at: now,
            // The timeout shrinks when a faster reply is seen. Deadlines stay in order because of
            // `max`.
            deadline: latest.map_or(deadline, |latest| latest.max(deadline)),
            is_owed,
            is_resent: false,
        });
    }

    pub(crate) fn oldest(&self) -> Option<&Item> {
        self.commands.front().map(|sent| &sent.item)
    }

    pub(crate) fn pop(&mut self) -> Option<Sent> {
        let sent = self.commands.pop_front()?;
        self.expired = self.expired.saturating_sub(1);
        self.resent -= usize::from(sent.is_resent);
        Some(sent)
    }

    /// Moves the oldest command to the end and returns it, if it may be sent again. Each command
    /// may be sent at most twice. A command that takes a lock must not be sent again after the
    /// command that gives the lock back. The lock would otherwise stay taken.
    pub(crate) fn resend(&mut self, reports_changes: bool) -> Option<Arc<Request>> {
        /// The most commands that are searched for the one that gives the lock back.
        const MOST: usize = 1_024;
        let mut commands = self.commands.iter();
        let oldest = commands.next()?;
        let Item::Request(request) = &oldest.item else {
            return None;
        };
        let undoes = |sent: &Sent| match &sent.item {
            Item::Request(later) => later.command.undoes(&request.command),
            Item::Change(_) | Item::Caching => false,
        };
        let takes = request.command.verb().takes();
        if oldest.is_resent || takes && (self.len() > MOST || commands.any(undoes)) {
            return None;
        }
        let request = request.clone();
        let sent = self.pop()?;
        if request.command.watch && reports_changes {
            self.push(Item::Caching, false, sent.at, sent.deadline);
        }
        self.resent += 1;
        self.commands.push_back(Sent {
            is_resent: true,
            ..sent
        });
        Some(request)
    }

    /// Returns the earliest deadline of an open vote.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        while self
            .commands
            .get(self.expired)
            .is_some_and(|sent| sent.is_expired)
        {
            self.expired += 1;
        }
        if self.resent == 0 {
            return self.commands.get(self.expired).map(|sent| sent.deadline);
        }
        let open = self.commands.iter().filter(|sent| !sent.is_expired);
        open.map(|sent| sent.deadline).min()
    }

    /// Calls `give_up` with each request that has an open vote and whose deadline is over at `now`.
    /// Its vote is no longer open then.
    pub(crate) fn expire(&mut self, now: Instant, mut give_up: impl FnMut(&Request)) {
        let first = self.expired.min(self.commands.len());
        for sent in self.commands.range_mut(first..) {
            let is_over = sent.is_expired || sent.deadline <= now;
            if !is_over && self.resent == 0 {
                return; // deadlines are in order
            }
            if is_over
                && !mem::replace(&mut sent.is_expired, true)
                && let Item::Request(request) = &sent.item
            {
                give_up(request);
            }
        }
    }

    /// Takes out all requests. Each comes with a flag that is `true` if its vote is open.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Arc<Request>, bool)> + use<> {
        (self.expired, self.resent) = (0, 0);
        let commands = mem::take(&mut self.commands).into_iter();
        commands.filter_map(|sent| match sent.item {
            Item::Request(request) => Some((request, !sent.is_expired)),
            Item::Change(_) | Item::Caching => None,
        })
    }
}
