//! Commands that were sent and not answered.

use std::{collections::VecDeque, mem, sync::Arc, time::Instant};

use super::Request;

/// Oldest first: replies come in the order of sends. A command stays after its vote was given up,
/// as its reply may still come.
#[derive(Debug)]
pub(super) struct Unanswered {
    commands: VecDeque<Sent>,
    /// How many of the oldest have their vote.
    expired: usize,
    /// How many were sent twice, so that their deadlines are out of order.
    resent: usize,
    /// The latest deadline.
    latest: Instant,
}

#[derive(Debug)]
pub(super) struct Sent {
    pub(super) what: What,
    pub(super) at: Instant,
    deadline: Instant,
    /// Its vote has been cast, or there is none to cast.
    expired: bool,
    /// It was sent because it is owed.
    pub(super) is_owed: bool,
    /// It was sent a second time, with its script.
    pub(super) is_resent: bool,
}

#[derive(Debug)]
pub(super) enum What {
    Request(Arc<Request>),
    /// A change of subscriptions.
    Change(Arc<str>),
}

impl Unanswered {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            commands: VecDeque::new(),
            expired: 0,
            resent: 0,
            latest: now,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Adds what was sent at `now`. The node timeout begins then: a stall of this process before
    /// the send is not the master's.
    pub(super) fn push(&mut self, what: What, is_owed: bool, now: Instant, deadline: Instant) {
        // In order, although the timeout shrinks when a faster answer is seen.
        self.latest = self.latest.max(deadline);
        self.commands.push_back(Sent {
            expired: is_owed || matches!(what, What::Change(_)),
            what,
            at: now,
            deadline: self.latest,
            is_owed,
            is_resent: false,
        });
    }

    pub(super) fn oldest(&self) -> Option<&What> {
        self.commands.front().map(|sent| &sent.what)
    }

    pub(super) fn pop(&mut self) -> Option<Sent> {
        let sent = self.commands.pop_front()?;
        self.expired = self.expired.saturating_sub(1);
        self.resent -= usize::from(sent.is_resent);
        Some(sent)
    }

    /// Makes the oldest command the newest, to be sent once more, if it may be. Not one that was
    /// sent twice, nor one that takes what a later command gives back: it would be executed after
    /// that.
    #[cfg(feature = "redis")]
    pub(super) fn again(&mut self) -> Option<&Request> {
        /// How many later commands are looked at.
        const MOST: usize = 1_024;
        let mut commands = self.commands.iter();
        let oldest = commands.next()?;
        let What::Request(ask) = &oldest.what else {
            return None;
        };
        let undoes = |sent: &Sent| match &sent.what {
            What::Request(later) => later.command.undoes(&ask.command),
            What::Change(_) => false,
        };
        let takes = ask.command.verb().takes();
        if oldest.is_resent || takes && (self.len() > MOST || commands.any(undoes)) {
            return None;
        }
        let sent = self.pop()?;
        self.resent += 1;
        self.commands.push_back(Sent {
            is_resent: true,
            ..sent
        });
        match &self.commands.back()?.what {
            What::Request(ask) => Some(ask),
            What::Change(_) => None,
        }
    }

    /// Returns when the next vote must be given up.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        while self
            .commands
            .get(self.expired)
            .is_some_and(|sent| sent.expired)
        {
            self.expired += 1;
        }
        let next = self.commands.get(self.expired).map(|sent| sent.deadline);
        if self.resent == 0 {
            return next;
        }
        let open = self.commands.iter().filter(|sent| !sent.expired);
        open.map(|sent| sent.deadline).min()
    }

    /// Hands those to `give_up` whose votes must be given up at `now`, once each.
    pub(super) fn expire(&mut self, now: Instant, mut give_up: impl FnMut(&Request)) {
        let first = self.expired.min(self.commands.len());
        for sent in self.commands.range_mut(first..) {
            let is_over = sent.expired || sent.deadline <= now;
            if !is_over && self.resent == 0 {
                return; // deadlines are in order
            }
            if is_over
                && !mem::replace(&mut sent.expired, true)
                && let What::Request(ask) = &sent.what
            {
                give_up(ask);
            }
        }
    }

    /// Takes all commands out, each with whether its vote is open.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Arc<Request>, bool)> + use<> {
        (self.expired, self.resent) = (0, 0);
        let commands = mem::take(&mut self.commands).into_iter();
        commands.filter_map(|sent| match sent.what {
            What::Request(ask) => Some((ask, !sent.expired)),
            What::Change(_) => None,
        })
    }
}
