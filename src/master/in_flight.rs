//! What a master was sent and has not answered.

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Ask, Heard, Mailbox, Terms, supervisor::Connection};
use crate::core::{
    command::Reply,
    quorum::{Failure, Vote},
};

/// After so many node timeouts without any answer a connection is given up: what piles up in it would
/// otherwise be executed when the master comes back to life.
const NODE_TIMEOUTS_TO_LIVE: u32 = 3;

/// Commands that were sent and not answered, oldest first.
#[derive(Debug)]
pub(super) struct InFlight<'a> {
    mailbox: &'a Mailbox,
    node_timeout: Duration,
    asks: VecDeque<Sent>,
    /// How many of the oldest have been given up on. They stay, as their replies may still come.
    expired: usize,
    /// What is owed to the master, and was answered with an error or not sent yet.
    pub(super) rejected: VecDeque<Arc<Ask>>,
    /// When to send that again, and how often it was.
    retry: Option<(Instant, u32)>,
    /// When the last answer was there.
    pub(super) heard: Option<Instant>,
    /// A subscription was refused, and the log says so.
    is_deaf: bool,
}

#[derive(Debug)]
enum What {
    Ask(Arc<Ask>),
    /// A change of subscriptions.
    Change(Arc<str>),
}

#[derive(Debug)]
struct Sent {
    what: What,
    deadline: Instant,
    /// Its vote has been cast.
    expired: bool,
}

impl<'a> InFlight<'a> {
    pub(super) fn new(mailbox: &'a Mailbox, terms: &Terms) -> Self {
        Self {
            mailbox,
            node_timeout: terms.node_timeout,
            asks: VecDeque::new(),
            expired: 0,
            rejected: VecDeque::new(),
            retry: None,
            heard: None,
            is_deaf: false,
        }
    }

    /// The clock to read when replies come in.
    pub(super) fn clock(&self) -> fn() -> Instant {
        self.mailbox.clock()
    }

    pub(super) fn master(&self) -> usize {
        self.mailbox.master()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.asks.is_empty() && self.rejected.is_empty()
    }

    pub(super) fn push(&mut self, ask: Arc<Ask>) {
        self.asks.push_back(Sent {
            deadline: ask.deadline,
            what: What::Ask(ask),
            expired: false,
        });
    }

    pub(super) fn push_change(&mut self, channel: Arc<str>, now: Instant) {
        self.asks.push_back(Sent {
            deadline: now + self.node_timeout,
            what: What::Change(channel),
            expired: true,
        });
    }

    /// Whether something may be sent again at once.
    pub(super) fn is_first_rejection(&self) -> bool {
        !self.rejected.is_empty() && self.retry.is_none()
    }

    /// Sends what is owed once more, when it is time: at once over a new connection, and after a pause
    /// when it was answered with an error. Forgets what the master need not be told any more.
    ///
    /// Votes on it have been cast, and it gets as much time as a new command.
    pub(super) fn send_rejected(&mut self, connection: &mut impl Connection, terms: &Terms) {
        if self.rejected.is_empty() {
            self.retry = None;
            return;
        }
        let now = (terms.now)();
        let tries = match self.retry {
            None => 0,
            Some((at, _)) if now < at => return,
            Some((_, tries)) => tries,
        };
        let pause = terms.redial.delay(tries, (terms.random)());
        self.retry = Some((now + pause, tries.saturating_add(1)));
        for ask in mem::take(&mut self.rejected) {
            let until = ask.counter.owed_until(self.master());
            if until.is_some_and(|until| until > now) {
                connection.send(&ask, self.master());
                self.asks.push_back(Sent {
                    deadline: now + self.node_timeout,
                    what: What::Ask(ask),
                    expired: true,
                });
            }
        }
    }

    /// Casts the vote that `reply` to the oldest command means. An error when nothing was asked.
    /// `now` was read after the reply was there.
    pub(super) fn answer(&mut self, reply: &Reply<'_>, now: Instant) -> Result<(), Arc<str>> {
        self.heard = Some(now);
        let ask = match (self.pop()?, reply) {
            (What::Ask(ask), _) => ask,
            (What::Change(channel), Reply::Error(error)) => {
                if !self.is_deaf {
                    self.is_deaf = true;
                    let master = self.mailbox.address();
                    tracing::warn!(%master, %error, "cannot subscribe: releases are noticed by polling");
                }
                self.mailbox.hear(&channel, Heard::Refused);
                return Ok(());
            }
            (What::Change(_), _) => {
                return Err("a reply where a subscription was to be confirmed".into());
            }
        };
        let master = self.master();
        if let Reply::Text(text) = reply {
            ask.counter.note(master, text);
        }
        let vote = ask.command.vote(reply);
        if matches!(vote, Vote::Fail(_)) && ask.counter.owed_until(master).is_some() {
            self.rejected.push_back(ask.clone());
        }
        ask.counter.count(master, vote, now);
        Ok(())
    }

    /// The oldest command, a change of subscriptions, is confirmed.
    pub(super) fn confirmed(&mut self, channel: &str) -> Result<(), Arc<str>> {
        if let What::Ask(_) = self.pop()? {
            return Err("a subscription was confirmed in place of a reply".into());
        }
        self.mailbox.hear(channel, Heard::Listening);
        Ok(())
    }

    /// A message came that nobody asked for just now.
    pub(super) fn message(&self, channel: &str, message: &str) {
        self.mailbox.hear(channel, Heard::Message(message));
    }

    /// Whether the oldest command takes what a later one gives back: sent again, it would be behind that.
    #[cfg(feature = "redis")]
    pub(super) fn is_taken_back(&self) -> bool {
        let mut asks = self.asks.iter().filter_map(|sent| match &sent.what {
            What::Ask(ask) => Some(&ask.command),
            What::Change(_) => None,
        });
        let takes = asks.next().filter(|command| command.verb.takes());
        takes.is_some_and(|takes| asks.any(|later| later.gives_back(takes)))
    }

    /// Puts the oldest command behind all others and returns it, to be sent once more.
    #[cfg(feature = "redis")]
    pub(super) fn again(&mut self) -> Option<&Ask> {
        let sent = self.asks.pop_front()?;
        self.expired = self.expired.saturating_sub(1);
        self.asks.push_back(sent);
        match &self.asks.back()?.what {
            What::Ask(ask) => Some(ask),
            What::Change(_) => None,
        }
    }

    fn pop(&mut self) -> Result<What, Arc<str>> {
        let sent = self.asks.pop_front().ok_or("a reply to nothing")?;
        self.expired = self.expired.saturating_sub(1);
        Ok(sent.what)
    }

    /// When the next command must be given up on, or else the connection, or what was rejected sent
    /// again.
    pub(super) fn next_expiry(&mut self) -> Option<Instant> {
        while self.asks.get(self.expired).is_some_and(|sent| sent.expired) {
            self.expired += 1;
        }
        let asks = match self.asks.get(self.expired) {
            Some(sent) => Some(sent.deadline),
            None => self.end_of_patience(),
        };
        let retry = self.retry.filter(|_| !self.rejected.is_empty());
        asks.into_iter().chain(retry.map(|(at, _)| at)).min()
    }

    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(sent) = self.asks.get_mut(self.expired) {
            if !sent.expired && sent.deadline > now {
                return;
            }
            self.expired += 1;
            if !sent.expired {
                sent.expired = true;
                let failure = Failure::TimedOut(self.node_timeout);
                if let What::Ask(ask) = &sent.what {
                    ask.counter
                        .count(self.mailbox.master(), Vote::Fail(failure), now);
                }
            }
        }
    }

    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.end_of_patience().is_some_and(|end| end <= now)
    }

    fn end_of_patience(&self) -> Option<Instant> {
        let oldest = self.asks.front()?.deadline;
        oldest.checked_add(self.node_timeout * (NODE_TIMEOUTS_TO_LIVE - 1))
    }

    /// What was sent without an answer, and whether its vote is still open.
    pub(super) fn take_unanswered(&mut self) -> impl Iterator<Item = (Arc<Ask>, bool)> + use<> {
        let rejected = mem::take(&mut self.rejected);
        mem::take(&mut self.asks)
            .into_iter()
            .filter_map(|sent| match sent.what {
                What::Ask(ask) => Some((ask, !sent.expired)),
                What::Change(_) => None,
            })
            .chain(rejected.into_iter().map(|ask| (ask, false)))
    }
}

impl Drop for InFlight<'_> {
    /// When a runtime ends its tasks, callers on another one may still wait.
    fn drop(&mut self) {
        for (ask, is_open) in self.take_unanswered() {
            if is_open {
                let failure = Vote::Fail(Failure::Closed);
                ask.counter.count(self.master(), failure, (self.clock())());
            }
        }
    }
}
